/* states.c: see states.h. */
#include "runtime/engine/states.h"

#include "base/mem.h"

static const struct session_states EMPTY = {
    .at = {-1, -1, -1}, .now = -1, .kept = -1, .target = -1, .reached = 0};
static_assert(STATE_SLOTS == 3, "EMPTY lists every slot");

enum status states_open(struct states *s, const struct shape *shape, const struct workload *w,
                        struct err *e) {
    *s = (struct states){0};
    if (shape->delta.n_heads == 0) return OK;
    const size_t n = (size_t)w->n_sessions, n_tokens = n * (size_t)w->n_ctx;
    s->n_ctx = w->n_ctx;
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
    if (!s->n_sessions) return length;
    const struct session_states *of = &s->all[session];
    return of->now < 0 ? 0 : of->at[of->now];
}

int32_t states_token(const struct states *s, int32_t session, int32_t position) {
    ASSERT(session < s->n_sessions && position < s->n_ctx);
    return s->tokens[(int64_t)session * s->n_ctx + position];
}

void states_keep(struct states *s, int32_t session) {
    if (s->n_sessions) s->all[session].kept = s->all[session].now;
}

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

void states_step(struct states *s, int32_t session, int32_t position, int32_t token,
                 int32_t step[2]) {
    if (!s->n_sessions) return;
    struct session_states *of = &s->all[session];
    const int32_t base = session * STATE_SLOTS;
    ASSERT(position < s->n_ctx);
    s->tokens[(int64_t)session * s->n_ctx + position] = token;
    step[0] = of->now < 0 ? -1 : base + of->now;
    if (of->target >= 0) {
        step[0] = base + of->target;
    } else {
        ASSERT(position == states_length(s, session, position));
        of->target = oldest(of);
        of->at[of->target] = -1; // the old state is lost even if the micro-batch fails
    }
    step[1] = base + of->target;
    of->reached = position + 1;
}

void states_end(struct states *s, bool succeeded) {
    for (int32_t i = 0; i < s->n_sessions; i++) {
        struct session_states *of = &s->all[i];
        if (of->target < 0) continue;
        if (succeeded) {
            of->at[of->target] = of->reached;
            of->now = of->target;
        }
        of->target = -1;
    }
}

void states_truncate(struct states *s, int32_t session, int32_t length) {
    if (!s->n_sessions) return;
    struct session_states *of = &s->all[session];
    of->now = -1;
    for (int32_t i = 0; i < STATE_SLOTS; i++) {
        if (of->at[i] > length) of->at[i] = -1;
        if (of->at[i] >= 0 && (of->now < 0 || of->at[i] > of->at[of->now])) of->now = i;
    }
    if (of->kept >= 0 && of->at[of->kept] < 0) of->kept = -1;
}

int64_t states_conv_floats(const struct workload *w, const struct delta_shape *delta) {
    return (int64_t)w->n_sessions * STATE_SLOTS * (delta->n_taps - 1) * delta_channels(delta);
}
