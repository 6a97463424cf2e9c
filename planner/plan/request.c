/* request.c: see request.h. */
#include "planner/plan/request.h"

#include "base/number.h"
#include "kernels/ops.h"

#include <string.h>

enum {
    DEFAULT_CONTEXT =
        4096, // the default limit: the cache of a 128k context would take much memory unasked
    DEFAULT_PROMPT = 512,
    LONG_PROMPT = 1024, // where it fits four times; a sixteenth of longer contexts. Plans for it
                        // are near the best for prompts from 512 to half the context (bench_plans)
    DEFAULT_GEN = 128,
    MAX_CONTEXT = 1 << 24,
    MAX_UBATCH = 1 << 14,
    MAX_SESSIONS = 256,
};

static const char *const STRATEGY_NAMES[STRATEGIES] = {
    "auto", "cpu", "layers", "attention-first", "streamed", "row-split"};

const char *strategy_name(enum strategy strategy) {
    return (unsigned)strategy < STRATEGIES ? STRATEGY_NAMES[strategy] : "unknown";
}

bool strategy_parse(const char *name, enum strategy *out) {
    for (int i = 0; i < STRATEGIES; i++)
        if (strcmp(name, STRATEGY_NAMES[i]) == 0) return *out = (enum strategy)i, true;
    return false;
}

static const char *const FEED_NAMES[FEEDS] = {"none", "arena", "staged"};

const char *feed_name(enum feed feed) {
    return (unsigned)feed < FEEDS ? FEED_NAMES[feed] : "unknown";
}

bool feed_parse(const char *name, enum feed *out) {
    for (int i = 0; i < FEEDS; i++)
        if (strcmp(name, FEED_NAMES[i]) == 0) return *out = (enum feed)i, true;
    return false;
}

static enum status check_range(int32_t value, int32_t high, const char *option, struct err *e) {
    if (value >= 1 && value <= high) return OK;
    err_set(e, ERR_USAGE, "%s is out of range", option);
    err_expected(e, "1 to %d", high);
    return err_actual(e, "%d", value);
}

// Every head starts with a block of its own.
enum status workload_check_kv(enum dtype type, const struct shape *shape, const char *option,
                              struct err *e) {
    enum kv_type known;
    if (!dtype_kv(type, &known)) {
        err_set(e, ERR_USAGE, "%s cannot be %s", option, dtype_name(type));
        err_expected(e, "one of %s", kv_names());
        return err_actual(e, "%s", dtype_name(type));
    }
    const int32_t block = (int32_t)dtype_find((uint32_t)type)->block_elements;
    for (int u = 0; u < shape->n_units; u++) {
        const struct unit *unit = &shape->units[u];
        if (unit->kind != UNIT_ATTENTION || !unit->n_kv_heads) continue;
        if (unit->head_dim_k % block == 0 && unit->head_dim_v % block == 0) continue;
        err_set(e, ERR_USAGE, "%s cannot be %s with this model's size of a head", option,
                dtype_name(type));
        err_expected(e, "a multiple of %d", block);
        err_actual(e, "%d", unit->head_dim_k % block ? unit->head_dim_k : unit->head_dim_v);
        return err_fix(e, "take f16 or f32");
    }
    return OK;
}

int32_t workload_context(const struct workload *w, const struct shape *shape) {
    return w->n_ctx ? w->n_ctx : min_i32(shape->n_ctx_train, DEFAULT_CONTEXT);
}

// Checks that cache rows, whole pages for each session, have numbers.
static enum status check_rows(const struct workload *w, struct err *e) {
    const int64_t most = INT32_MAX / w->n_sessions / KV_PAGE * KV_PAGE;
    if (w->n_ctx <= most) return OK;
    err_set(e, ERR_USAGE, "the context size (-c) is out of range for %d sessions", w->n_sessions);
    err_expected(e, "1 to %lld", (long long)most);
    return err_actual(e, "%d", w->n_ctx);
}

// Fills in all defaults but the micro-batch, which the solver chooses if it is 0.
static void fill_defaults(struct workload *w, const struct shape *shape) {
    w->n_ctx = workload_context(w, shape);
    if (w->n_sessions == 0) w->n_sessions = 1;
    if (w->max_logits == 0) w->max_logits = 1;
    if (w->n_gen == 0) w->n_gen = min_i32(DEFAULT_GEN, w->n_ctx / 4 + 1);
    if (w->n_prompt == 0) {
        w->n_prompt = max_i32(min_i32(DEFAULT_PROMPT, w->n_ctx - w->n_ctx / 4),
                              max_i32(min_i32(LONG_PROMPT, w->n_ctx / 4), w->n_ctx / 16));
        if (w->n_past == 0) w->n_past = max_i32(0, w->n_ctx / 2 - w->n_prompt - w->n_gen) / 2;
    }
    w->window = shape_window(shape);
}

enum status workload_defaults(struct workload *w, const struct shape *shape, struct err *e) {
    fill_defaults(w, shape);
    const int32_t n_ubatch = w->n_ubatch ? w->n_ubatch : 1;
    if (check_range(w->n_ctx, MAX_CONTEXT, "the context size (-c)", e) ||
        check_range(n_ubatch, MAX_UBATCH, "the micro-batch size (-ub)", e) ||
        check_range(w->n_sessions, MAX_SESSIONS, "the number of sessions", e) || check_rows(w, e) ||
        check_range(w->max_logits, MAX_UBATCH, "the number of logits rows", e) ||
        check_range(w->n_prompt, w->n_ctx, "the length of the prompt to plan for", e) ||
        check_range(w->n_gen, w->n_ctx, "the number of tokens to plan for", e) ||
        check_range(w->n_past + 1, w->n_ctx, "the number of earlier positions to plan for", e) ||
        workload_check_kv(w->kv_type_k, shape, "the type of keys in the KV cache (-ctk)", e) ||
        workload_check_kv(w->kv_type_v, shape, "the type of values in the KV cache (-ctv)", e)) {
        return e->status;
    }
    w->n_ubatch = min_i32(w->n_ubatch, w->n_ctx * w->n_sessions);
    return OK;
}

int32_t workload_ubatches(const struct workload *w, int32_t out[MAX_CHOICES]) {
    if (w->n_ubatch) return out[0] = w->n_ubatch, 1;
    const int64_t most = (int64_t)w->n_ctx * w->n_sessions;
    int32_t n = 0;
    for (int32_t size = 64; size <= 2048; size *= 2) {
        out[n++] = size < most ? size : (int32_t)most;
        if (size >= most) break;
    }
    return n;
}

int32_t workload_pages_per_session(const struct workload *w) {
    return (w->n_ctx + KV_PAGE - 1) / KV_PAGE;
}

int32_t workload_pages(const struct workload *w) {
    return workload_pages_per_session(w) * w->n_sessions;
}

int32_t workload_ring_pages(const struct workload *w) {
    const int32_t all = workload_pages_per_session(w);
    if (w->full_windows || w->window == 0) return all;
    return min_i32(all, (w->window + w->n_ubatch + KV_PAGE - 1) / KV_PAGE);
}

int32_t workload_unit_pages(const struct workload *w, const struct unit *unit) {
    return unit->window ? workload_ring_pages(w) * w->n_sessions : workload_pages(w);
}
