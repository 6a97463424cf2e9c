/* footprint.c: the exact bytes of every buffer, from shape, workload and device alone.
 *
 * Owns nothing; pure functions. The solver adds these numbers up and the runtime allocates these
 * numbers: there is no second formula anywhere. Any thread. Tested by tests/test_planner.c.
 */
#include "planner/planner.h"

#include "base/mem.h"

enum {
    PART_ALIGN =
        256, // every part of a block starts at a multiple: 64-byte vectors, 256-byte GPU rows
    DEFAULT_CONTEXT =
        4096, // longer ones must be asked for: the cache of a 128k context would surprise
    DEFAULT_UBATCH = 512,
    MAX_CONTEXT = 1 << 24,
    MAX_UBATCH = 1 << 14,
    MAX_SESSIONS = 256,
};

static enum status check_range(int32_t value, int32_t high, const char *option, struct err *e) {
    if (value >= 1 && value <= high) return OK;
    err_set(e, ERR_USAGE, "%s is out of range", option);
    err_expected(e, "1 to %d", high);
    return err_actual(e, "%d", value);
}

// Every head starts with a block of its own.
static enum status check_kv_type(enum dtype type, const struct shape *shape, const char *option,
                                 struct err *e) {
    if (type != DTYPE_F32 && type != DTYPE_F16 && type != DTYPE_Q8_0) {
        err_set(e, ERR_USAGE, "%s cannot be %s", option, dtype_name(type));
        err_expected(e, "F32, F16 or Q8_0");
        return err_actual(e, "%s", dtype_name(type));
    }
    const uint32_t block = dtype_find((uint32_t)type)->block_elements;
    if ((uint32_t)shape->head_dim % block == 0) return OK;
    err_set(e, ERR_USAGE, "%s cannot be %s with this model's size of a head", option,
            dtype_name(type));
    err_expected(e, "a multiple of %u", block);
    err_actual(e, "%d", shape->head_dim);
    return err_fix(e, "take f16 or f32");
}

enum status workload_defaults(struct workload *w, const struct shape *shape, struct err *e) {
    if (w->n_ctx == 0) {
        w->n_ctx = shape->n_ctx_train < DEFAULT_CONTEXT ? shape->n_ctx_train : DEFAULT_CONTEXT;
    }
    if (w->n_ubatch == 0) w->n_ubatch = DEFAULT_UBATCH;
    if (w->n_sessions == 0) w->n_sessions = 1;
    if (w->max_logits == 0) w->max_logits = 1;
    if (check_range(w->n_ctx, MAX_CONTEXT, "the context size (-c)", e)) return e->status;
    if (check_range(w->n_ubatch, MAX_UBATCH, "the micro-batch size (-ub)", e)) return e->status;
    if (check_range(w->n_sessions, MAX_SESSIONS, "the number of sessions", e)) return e->status;
    if (check_range(w->max_logits, MAX_UBATCH, "the number of logits rows", e)) return e->status;
    if (check_kv_type(w->kv_type_k, shape, "the type of cached keys (-ctk)", e)) return e->status;
    if (check_kv_type(w->kv_type_v, shape, "the type of cached values (-ctv)", e)) return e->status;
    if (w->n_ubatch > w->n_ctx * w->n_sessions) w->n_ubatch = w->n_ctx * w->n_sessions;
    return OK;
}

int32_t workload_pages_per_session(const struct workload *w) {
    return (w->n_ctx + KV_PAGE - 1) / KV_PAGE;
}

int32_t workload_pages(const struct workload *w) {
    return workload_pages_per_session(w) * w->n_sessions;
}

uint64_t footprint_unit_weights(const struct unit *unit, const struct machine_device *device,
                                bool embed_is_here) {
    uint64_t total = 0;
    for (int i = 0; i < unit->n_tensors; i++) {
        if (i == 0 && unit->shares_embed && embed_is_here) continue;
        // The host reads weights where the file is mapped, so there is no padding between them.
        total += device->is_host ? unit->tensor_bytes[i]
                                 : round_up(unit->tensor_bytes[i], device->align_bytes);
    }
    return total;
}

uint64_t footprint_unit_kv(const struct shape *shape, const struct workload *w,
                           const struct machine_device *device) {
    uint64_t elements =
        (uint64_t)workload_pages(w) * KV_PAGE * (uint64_t)(shape->n_kv_heads * shape->head_dim);
    return round_up(dtype_bytes(w->kv_type_k, elements), device->align_bytes) +
           round_up(dtype_bytes(w->kv_type_v, elements), device->align_bytes);
}

// Reserves count elements of 4 bytes at *at and returns where they start.
static uint64_t part(uint64_t *at, int64_t count) {
    uint64_t start = *at;
    *at = round_up(start + (uint64_t)count * 4, PART_ALIGN);
    return start;
}

void footprint_tables(const struct workload *w, struct tables_layout *out) {
    uint64_t at = 0;
    out->tokens = part(&at, w->n_ubatch);
    out->positions = part(&at, w->n_ubatch);
    out->sequences = part(&at, w->n_ubatch);
    out->slots = part(&at, w->n_ubatch);
    out->rows = part(&at, w->max_logits);
    out->pages = part(&at, (int64_t)w->n_sessions * workload_pages_per_session(w));
    out->size_bytes = at;
}

static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t matmul_bytes(const struct shape *s, const struct workload *w, int32_t n_lanes,
                             const bool *has) {
    uint64_t most = 0;
    if (has[UNIT_ATTENTION]) {
        most = max_u64(matmul_scratch_bytes(s->n_embd, w->n_ubatch, n_lanes),
                       matmul_scratch_bytes(s->n_heads * s->head_dim, w->n_ubatch, n_lanes));
    }
    if (has[UNIT_FFN]) {
        most = max_u64(most, matmul_scratch_bytes(s->n_embd, w->n_ubatch, n_lanes));
        most = max_u64(most, matmul_scratch_bytes(s->n_ff, w->n_ubatch, n_lanes));
    }
    if (has[UNIT_HEAD])
        most = max_u64(most, matmul_scratch_bytes(s->n_embd, w->max_logits, n_lanes));
    return most;
}

void footprint_scratch(const struct shape *shape, const struct workload *w,
                       const struct machine_device *device, const bool has[UNIT_KINDS],
                       struct scratch_layout *out) {
    const struct shape *s = shape;
    const bool any = has[UNIT_EMBED] || has[UNIT_ATTENTION] || has[UNIT_FFN] || has[UNIT_HEAD];
    const int64_t n = w->n_ubatch, hidden = any ? n * s->n_embd : 0;
    struct tables_layout tables;
    footprint_tables(w, &tables);
    *out = (struct scratch_layout){0};
    uint64_t at = 0;
    out->tables = part(&at, any && !device->is_host ? (int64_t)tables.size_bytes / 4 : 0);
    out->residual = part(&at, hidden);
    out->normed = part(&at, has[UNIT_ATTENTION] || has[UNIT_FFN] ? hidden : 0);
    out->freqs = part(&at, has[UNIT_ATTENTION] ? s->n_rot / 2 : 0);
    out->angles = part(&at, has[UNIT_ATTENTION] ? n * s->n_rot : 0);
    uint64_t shared = at, attention = at, ffn = at, head = at;
    if (has[UNIT_ATTENTION]) {
        out->q = part(&attention, n * s->n_heads * s->head_dim);
        out->attended = part(&attention, n * s->n_heads * s->head_dim);
        out->k = part(&attention, n * s->n_kv_heads * s->head_dim);
        out->v = part(&attention, n * s->n_kv_heads * s->head_dim);
    }
    if (has[UNIT_FFN]) {
        out->gate = part(&ffn, n * s->n_ff);
        out->up = part(&ffn, n * s->n_ff);
    }
    if (has[UNIT_HEAD]) out->gathered = part(&head, (int64_t)w->max_logits * s->n_embd);
    at = max_u64(max_u64(shared, attention), max_u64(ffn, head));
    out->matmul = part(&at, (int64_t)(matmul_bytes(s, w, device->n_lanes, has) + 3) / 4);
    out->logits =
        part(&at, has[UNIT_HEAD] || device->is_host ? (int64_t)w->max_logits * s->n_vocab : 0);
    out->size_bytes = at;
}
