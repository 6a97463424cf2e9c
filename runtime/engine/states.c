/* states.c: see states.h. */
#include "runtime/engine/states.h"

#include "base/mem.h"
#include "base/number.h"
#include "kernels/ops.h"

#include <string.h>

static const struct session_states EMPTY = {
    .at = {-1, -1, -1}, .now = -1, .kept = -1, .target = -1};
static_assert(STATE_SLOTS == 3, "EMPTY lists every slot");

enum status states_open(struct states *s, const struct shape *shape, const struct workload *w,
                        struct err *e) {
    const size_t n = (size_t)w->n_sessions, n_tokens = n * (size_t)w->n_ctx;
    const bool wraps = workload_ring_pages(w) < workload_pages_per_session(w);
    *s = (struct states){.n_ctx = w->n_ctx,
                         .recurrent = shape->recurrent.kind != RECURRENCE_NONE,
                         .window = w->window,
                         .n_ring_rows = wraps ? workload_ring_pages(w) * KV_PAGE : INT32_MAX};
    s->all = mem_alloc(n, sizeof *s->all);
    s->tokens = mem_alloc(n_tokens, sizeof *s->tokens);
    if (!s->all || !s->tokens) {
        states_close(s);
        return err_memory(e, n_tokens * sizeof *s->tokens, "the tokens of sessions");
    }
    s->n_sessions = w->n_sessions;
    for (size_t i = 0; i < n; i++) s->all[i] = EMPTY;
    return OK;
}

void states_close(struct states *s) {
    mem_free(s->all);
    mem_free(s->tokens);
    *s = (struct states){0};
}

int32_t states_length(const struct states *s, int32_t session, int32_t length) {
    const struct session_states *of = &s->all[session];
    int32_t n = min_i32(length, of->done);
    if (s->recurrent) n = of->now < 0 ? 0 : min_i32(n, of->at[of->now]);
    return max_i32(0, n - s->window + 1) < of->low ? 0 : n; // without a window low is 0
}

int32_t states_token(const struct states *s, int32_t session, int32_t position) {
    ASSERT(session < s->n_sessions && position < s->n_ctx);
    return s->tokens[(int64_t)session * s->n_ctx + position];
}

void states_keep(struct states *s, int32_t session) { s->all[session].kept = s->all[session].now; }

// Finds the slot with the oldest state that is neither read nor kept.
static int32_t oldest(const struct session_states *of) {
    int32_t best = -1;
    for (int32_t i = 0; i < STATE_SLOTS; i++) {
        if (i == of->now || i == of->kept) continue;
        if (best < 0 || of->at[i] < of->at[best]) best = i;
    }
    ASSERT(best >= 0);
    return best;
}

// The first token of a session in a micro-batch. What is computed again from an earlier position on
// may be cancelled, so nothing behind it counts any more.
static void begin(struct states *s, int32_t session, int32_t position) {
    struct session_states *of = &s->all[session];
    ASSERT(position == states_length(s, session, position));
    of->runs = true;
    of->done = position;
    if (position == 0) of->low = 0;
    if (!s->recurrent) return;
    of->target = oldest(of);
    of->at[of->target] = -1; // the old state is lost even if the micro-batch fails
}

void states_step(struct states *s, int32_t session, int32_t position, int32_t token,
                 int32_t step[2]) {
    struct session_states *of = &s->all[session];
    const int32_t base = session * STATE_SLOTS;
    const bool first = !of->runs;
    ASSERT(position < s->n_ctx);
    if (first) begin(s, session, position);
    s->tokens[(int64_t)session * s->n_ctx + position] = token;
    of->reached = position + 1;
    of->low = max_i32(of->low, of->reached - s->n_ring_rows);
    if (!s->recurrent) return;
    step[1] = base + of->target;
    step[0] = step[1];
    if (first) step[0] = position == 0 ? -1 : base + of->now;
}

void states_end(struct states *s, bool succeeded) {
    for (int32_t i = 0; i < s->n_sessions; i++) {
        struct session_states *of = &s->all[i];
        if (of->runs && succeeded) of->done = of->reached;
        if (of->target >= 0 && succeeded) {
            of->at[of->target] = of->reached;
            of->now = of->target;
        }
        of->target = -1;
        of->runs = false;
    }
}

void states_truncate(struct states *s, int32_t session, int32_t length) {
    struct session_states *of = &s->all[session];
    of->done = min_i32(of->done, length);
    if (of->low > of->done) *of = EMPTY; // no row of the ring is of a position that is left
    of->now = -1;
    for (int32_t i = 0; i < STATE_SLOTS; i++) {
        if (of->at[i] > length) of->at[i] = -1;
        if (of->at[i] >= 0 && (of->now < 0 || of->at[i] > of->at[of->now])) of->now = i;
    }
    if (of->kept >= 0 && of->at[of->kept] < 0) of->kept = -1;
}

void states_copy(struct states *s, int32_t target, int32_t source) {
    const size_t n_ctx = (size_t)s->n_ctx;
    s->all[target] = s->all[source];
    memcpy(s->tokens + (size_t)target * n_ctx, s->tokens + (size_t)source * n_ctx,
           n_ctx * sizeof *s->tokens);
}

void states_restore(struct states *s, int32_t session, const struct session_states *numbers,
                    const int32_t *tokens, int32_t n_tokens) {
    struct session_states *of = &s->all[session];
    ASSERT(n_tokens <= s->n_ctx);
    *of = EMPTY;
    of->done = numbers->done;
    of->low = max_i32(numbers->low, numbers->done - s->n_ring_rows);
    memcpy(of->at, numbers->at, sizeof of->at);
    memcpy(s->tokens + (size_t)session * (size_t)s->n_ctx, tokens,
           (size_t)n_tokens * sizeof *tokens);
    states_truncate(s, session, n_tokens);
}

int64_t states_conv_floats(const struct workload *w, const struct recurrent_shape *recurrent) {
    return (int64_t)w->n_sessions * STATE_SLOTS * (recurrent->n_taps - 1) *
           recurrent_channels(recurrent);
}
