/* kv.c: see kv.h. */
#include "runtime/engine/kv.h"

#include "base/mem.h"
#include "kernels/ops.h"

static void fill_ring(struct kv *kv, int32_t n_pages) {
    int32_t *next = kv->ring;
    for (int32_t s = 0; s < kv->n_sessions && next; s++)
        for (int32_t i = 0; i < kv->pages_per_session; i++) *next++ = s * n_pages + i % n_pages;
}

enum status kv_open(struct kv *kv, const struct workload *w, struct err *e) {
    *kv = (struct kv){.n_sessions = w->n_sessions,
                      .pages_per_session = workload_pages_per_session(w),
                      .n_ctx = w->n_ctx};
    const size_t n = (size_t)workload_pages(w), n_sessions = (size_t)w->n_sessions;
    kv->pages = mem_alloc(n, sizeof *kv->pages);
    kv->free = mem_alloc(n, sizeof *kv->free);
    kv->n_pages = mem_alloc(n_sessions, sizeof *kv->n_pages);
    kv->taken = mem_alloc(n_sessions, sizeof *kv->taken);
    if (w->window) kv->ring = mem_alloc(n, sizeof *kv->ring);
    if (!kv->pages || !kv->free || !kv->n_pages || !kv->taken || (w->window && !kv->ring)) {
        kv_close(kv);
        return err_memory(e, n * 2 * sizeof *kv->pages, "the page lists of the KV cache");
    }
    fill_ring(kv, workload_ring_pages(w));
    kv->n_free = (int32_t)n;
    // The stack has page 0 on top, so a single session gets its pages in order.
    for (int32_t i = 0; i < kv->n_free; i++) kv->free[i] = kv->n_free - 1 - i;
    return OK;
}

void kv_close(struct kv *kv) {
    mem_free(kv->pages);
    mem_free(kv->ring);
    mem_free(kv->n_pages);
    mem_free(kv->free);
    mem_free(kv->taken);
    *kv = (struct kv){0};
}

enum status kv_take(struct kv *kv, int32_t *out, struct err *e) {
    for (int32_t i = 0; i < kv->n_sessions; i++) {
        if (kv->taken[i]) continue;
        kv->taken[i] = true;
        *out = i;
        return OK;
    }
    err_set(e, ERR_LIMIT, "all sessions are in use");
    return err_expected(e, "at most %d", kv->n_sessions);
}

void kv_give_back(struct kv *kv, int32_t session) {
    ASSERT(kv->taken[session]);
    kv_truncate(kv, session, 0);
    kv->taken[session] = false;
}

enum status kv_reserve(struct kv *kv, int32_t session, int32_t length, struct err *e) {
    if (length > kv->n_ctx) {
        err_set(e, ERR_LIMIT, "the context is full");
        err_expected(e, "at most %d tokens", kv->n_ctx);
        err_actual(e, "%d", length);
        return err_fix(e, "use a longer context (-c) or a shorter text");
    }
    int32_t *pages = kv->pages + (size_t)session * (size_t)kv->pages_per_session;
    while (kv->n_pages[session] * KV_PAGE < length) {
        ASSERT(kv->n_free > 0); // the pool holds every session at full length
        pages[kv->n_pages[session]++] = kv->free[--kv->n_free];
    }
    return OK;
}

void kv_truncate(struct kv *kv, int32_t session, int32_t length) {
    int32_t *pages = kv->pages + (size_t)session * (size_t)kv->pages_per_session;
    while (kv->n_pages[session] > (length + KV_PAGE - 1) / KV_PAGE) {
        int32_t *last = &pages[--kv->n_pages[session]];
        kv->free[kv->n_free++] = *last;
        *last = 0;
    }
}

int32_t kv_row(const struct kv *kv, int32_t session, int32_t position) {
    const int32_t *pages = kv->pages + (size_t)session * (size_t)kv->pages_per_session;
    ASSERT(position >= 0 && position / KV_PAGE < kv->n_pages[session]);
    return pages[position / KV_PAGE] * KV_PAGE + position % KV_PAGE;
}

int32_t kv_ring_row(const struct kv *kv, int32_t session, int32_t position) {
    const int32_t *pages = kv->ring + (size_t)session * (size_t)kv->pages_per_session;
    ASSERT(position >= 0 && position / KV_PAGE < kv->pages_per_session);
    return pages[position / KV_PAGE] * KV_PAGE + position % KV_PAGE;
}

int32_t kv_add_rows(struct kv_rows *rows, int32_t n, const int32_t *pages, int32_t first,
                    int32_t end) {
    for (int32_t at = first; at < end;) {
        const int32_t left = end - at, in_page = KV_PAGE - at % KV_PAGE;
        const int32_t count = left < in_page ? left : in_page;
        const int32_t row = pages[at / KV_PAGE] * KV_PAGE + at % KV_PAGE;
        if (n > 0 && rows[n - 1].first + rows[n - 1].count == row)
            rows[n - 1].count += count;
        else
            rows[n++] = (struct kv_rows){row, count};
        at += count;
    }
    return n;
}

struct kv_layout kv_layout_of(const struct workload *w, const struct unit *unit,
                              uint32_t align_bytes) {
    const uint64_t n_rows = (uint64_t)workload_unit_pages(w, unit) * KV_PAGE;
    const uint64_t k_cols = (uint64_t)(unit->n_kv_heads * unit->head_dim_k);
    const uint64_t v_cols = (uint64_t)(unit->n_kv_heads * unit->head_dim_v);
    return (struct kv_layout){
        .k_row_bytes = dtype_bytes(w->kv_type_k, k_cols),
        .v_row_bytes = dtype_bytes(w->kv_type_v, v_cols),
        .values = round_up(dtype_bytes(w->kv_type_k, n_rows * k_cols), align_bytes),
        .states = round_up(dtype_bytes(w->kv_type_k, n_rows * k_cols), align_bytes) +
                  round_up(dtype_bytes(w->kv_type_v, n_rows * v_cols), align_bytes)};
}
