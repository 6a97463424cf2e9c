/* paging.c: see paging.h. */
#include "runtime/engine/paging.h"

#include "base/mem.h"

#include <stdlib.h>

enum { NEAR_BYTES = 64 << 10 }; // ranges with a smaller gap are read as one

static int by_offset(const void *a, const void *b) {
    const struct paged_range *x = a, *y = b;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

// Appends the bytes of a tensor, if they are in a file: what the CPU made itself is in none.
static void add_range(struct paged_unit *u, const struct weight *w) {
    const struct gguf *gguf = u->pager->gguf;
    const uint8_t *data = w->data;
    const uint64_t size_bytes = dtype_bytes(w->type, (uint64_t)w->n_cols) * (uint64_t)w->n_rows;
    for (uint32_t k = 0; data && k < gguf->n_parts; k++) {
        const struct file *f = &gguf->parts[k];
        if (data < f->map || data + size_bytes > f->map + f->size_bytes) continue;
        u->ranges[u->n_ranges++] = (struct paged_range){f, (uint64_t)(data - f->map), size_bytes};
    }
}

// Finds the ranges of a unit. A fault within them brings no other pages, since these were dropped
// on purpose.
static void prepare(struct paged_unit *u) {
    const bool split = u->pager->plan->place.units[u->unit].cpu_parts > 0;
    const struct weight *table = weights_of_cpu(u->pager->weights, u->unit, split);
    for (int i = 0; i < MAX_UNIT_TENSORS; i++) add_range(u, &table[i]);
    qsort(u->ranges, (size_t)u->n_ranges, sizeof *u->ranges, by_offset);
    int32_t n = 0;
    for (int32_t i = 0; i < u->n_ranges; i++) {
        struct paged_range *last = &u->ranges[n - (n > 0)];
        const struct paged_range *r = &u->ranges[i];
        if (n > 0 && r->file == last->file &&
            r->offset <= last->offset + last->size_bytes + NEAR_BYTES)
            last->size_bytes = r->offset + r->size_bytes - last->offset;
        else
            u->ranges[n++] = *r;
    }
    u->n_ranges = n;
    for (int32_t i = 0; i < n; i++)
        file_read_singly(u->ranges[i].file, u->ranges[i].offset, u->ranges[i].size_bytes);
}

static void expect_unit(struct paged_unit *u) {
    if (!u->n_ranges) prepare(u);
    for (int32_t i = 0; i < u->n_ranges && !u->expected; i++)
        file_expect(u->ranges[i].file, u->ranges[i].offset, u->ranges[i].size_bytes);
    u->expected = true;
}

// Disks are fast when much is asked of them at once, so small units are expected some at a time.
// Where pages cannot be read now, the op that needs them waits for them.
static void read_unit(void *context) {
    struct paged_unit *u = context;
    const struct plan *plan = u->pager->plan;
    uint64_t ahead = 0;
    expect_unit(u);
    for (int32_t next = u->next; next != u->unit && ahead < PAGING_AHEAD;) {
        struct paged_unit *other = &u->pager->units[next];
        expect_unit(other);
        ahead += plan->unit_cold_bytes[next];
        next = other->next;
    }
    for (int32_t i = 0; i < u->n_ranges; i++) {
        struct err ignored;
        (void)file_populate(u->ranges[i].file, u->ranges[i].offset, u->ranges[i].size_bytes,
                            &ignored);
    }
}

static void drop_unit(void *context) {
    struct paged_unit *u = context;
    u->expected = false;
    for (int32_t i = 0; i < u->n_ranges && u->next != u->unit; i++)
        file_drop(u->ranges[i].file, u->ranges[i].offset, u->ranges[i].size_bytes);
}

// True if a pass reads all weights of the cold unit.
static bool is_paged(const struct plan *plan, const struct shape *shape, int32_t u) {
    return plan->unit_cold_bytes[u] && shape->units[u].kind != UNIT_EXPERTS;
}

enum status pager_open(struct pager *pager, const struct placed_model *placed,
                       const struct weights *weights, struct err *e) {
    const struct plan *plan = placed->plan;
    const struct shape *shape = placed->shape;
    *pager = (struct pager){.plan = plan, .gguf = placed->model->gguf, .weights = weights};
    int32_t first = -1;
    for (int32_t u = plan->n_units - 1; u >= 0; u--)
        if (is_paged(plan, shape, u)) first = u;
    if (first < 0) return OK;
    pager->units = mem_alloc((size_t)plan->n_units, sizeof *pager->units);
    if (!pager->units)
        return err_memory(e, (size_t)plan->n_units * sizeof *pager->units, "the table of pages");
    // The last one is followed by the first one of the next pass.
    for (int32_t u = plan->n_units - 1, next = first; u >= 0; u--) {
        if (!is_paged(plan, shape, u)) continue;
        pager->units[u] = (struct paged_unit){.pager = pager, .unit = u, .next = next};
        next = u;
    }
    return OK;
}

void pager_close(struct pager *pager) {
    mem_free(pager->units);
    *pager = (struct pager){0};
}

void pager_read(const struct pager *pager, int32_t unit, struct stream *s) {
    if (pager->units && pager->units[unit].pager) stream_call(s, read_unit, &pager->units[unit]);
}

void pager_drop(const struct pager *pager, int32_t unit, struct stream *s) {
    if (pager->units && pager->units[unit].pager) stream_call(s, drop_unit, &pager->units[unit]);
}
