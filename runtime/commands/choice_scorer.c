/* choice_scorer.c: see choice_scorer.h. */
#include "runtime/commands/choice_scorer.h"

#include "base/mem.h"
#include "base/number.h"
#include "runtime/commands/token_nats.h"

#include <math.h>

enum {
    UBATCH = 128,
    FULL_SESSIONS = 32,  // more of them fill no batch better
    POSITIONS = 1 << 12, // of all sessions together, where a task needs no more
};

// The text that wants a row of logits, and the token whose probability it is to give.
struct choice_row {
    struct choice_text *text;
    int32_t next;
};

void choice_scorer_workload(struct workload *w, const struct choice_tokens *tokens) {
    ASSERT(tokens->most <= CHOICE_SESSIONS);
    w->n_ctx = tokens->longest;
    w->n_sessions = max_i32(tokens->most, min_i32(FULL_SESSIONS, POSITIONS / w->n_ctx));
    if (!w->n_ubatch) w->n_ubatch = UBATCH;
    w->n_ubatch = min_i32(w->n_ubatch, w->n_ctx * w->n_sessions);
    w->max_logits = w->n_ubatch;
    w->n_prompt = w->n_ctx; // nothing is generated
    w->n_gen = 1;
}

enum status choice_scorer_open(struct choice_scorer *s, struct engine *engine, struct err *e) {
    const struct workload *w = engine_workload(engine);
    *s = (struct choice_scorer){.engine = engine, .room = w->max_logits};
    ASSERT(w->n_sessions <= CHOICE_SESSIONS);
    s->items = mem_alloc((size_t)s->room, sizeof *s->items);
    s->rows = mem_alloc((size_t)s->room, sizeof *s->rows);
    enum status status = OK;
    if (!s->items || !s->rows)
        status = err_memory(e, (size_t)s->room * sizeof *s->items, "a batch");
    while (status == OK && s->n_sessions < w->n_sessions) {
        status = session_new(&s->sessions[s->n_sessions], engine, e);
        if (status == OK) s->n_sessions++;
    }
    if (status != OK) choice_scorer_close(s);
    return status;
}

void choice_scorer_close(struct choice_scorer *s) {
    for (int32_t i = 0; i < s->n_sessions; i++) session_free(s->sessions[i]);
    mem_free(s->items);
    mem_free(s->rows);
    *s = (struct choice_scorer){0};
}

// Computes what is in the batch, and gives each text what its rows say.
static enum status flush(struct choice_scorer *s, struct err *e) {
    if (s->n_items == 0) return OK;
    if (engine_eval(s->engine, s->items, s->n_items, e)) return e->status;
    for (int32_t i = 0; i < s->n_rows; i++) {
        const double nats =
            token_nats(engine_logits(s->engine, i), engine_n_vocab(s->engine), s->rows[i].next);
        if (!isfinite(nats)) return err_set(e, ERR_DEVICE, "the logits of a task are broken");
        s->rows[i].text->log_sum -= nats;
    }
    s->n_items = s->n_rows = 0;
    return OK;
}

// Puts tokens of a text, from first on and before end, into the batch of a session, and asks for
// the probabilities that count.
static enum status put(struct choice_scorer *s, struct session *session, struct choice_text *text,
                       int32_t first, int32_t end, struct err *e) {
    const int32_t *ids = s->ids + text->begin;
    for (int32_t i = first; i < end; i++) {
        const bool counts = i + 1 >= text->first && i + 1 < text->last;
        if (s->n_items == s->room && flush(s, e)) return e->status;
        s->items[s->n_items++] = (struct batch_item){session, ids[i], counts};
        if (counts) s->rows[s->n_rows++] = (struct choice_row){text, ids[i + 1]};
    }
    return OK;
}

// The first task behind t for whose texts there are no sessions left.
static int32_t end_of_group(const struct choice_scorer *s, const struct choice_tasks *tasks,
                            int32_t t) {
    int32_t n = 0;
    while (t < tasks->n_tasks && n + tasks->tasks[t].n <= s->n_sessions) n += tasks->tasks[t++].n;
    return t;
}

// Computes what the texts of each task begin with, and gives each text a session with it.
static enum status begin_group(struct choice_scorer *s, const struct choice_tasks *tasks,
                               struct choice_tokens *tokens, int32_t first, int32_t end,
                               struct err *e) {
    struct session **session = s->sessions;
    for (int32_t t = first; t < end; session += tasks->tasks[t++].n) {
        struct choice_text *text = &tokens->texts[tasks->tasks[t].first];
        if (put(s, *session, text, 0, tokens->common[t], e)) return e->status;
    }
    if (flush(s, e)) return e->status;
    session = s->sessions;
    for (int32_t t = first; t < end; session += tasks->tasks[t++].n)
        for (int32_t i = 1; i < tasks->tasks[t].n; i++)
            if (session_copy(session[i], session[0], e)) return e->status;
    return OK;
}

static enum status score_group(struct choice_scorer *s, const struct choice_tasks *tasks,
                               struct choice_tokens *tokens, int32_t first, int32_t end,
                               struct err *e) {
    struct session **session = s->sessions;
    for (int32_t i = 0; i < s->n_sessions; i++) session_truncate(s->sessions[i], 0);
    if (begin_group(s, tasks, tokens, first, end, e)) return e->status;
    for (int32_t t = first; t < end; t++)
        for (int32_t i = 0; i < tasks->tasks[t].n; i++) {
            struct choice_text *text = &tokens->texts[tasks->tasks[t].first + i];
            if (put(s, *session++, text, tokens->common[t], text->last - 1, e)) return e->status;
        }
    return flush(s, e);
}

enum status choice_scorer_run(struct choice_scorer *s, const struct choice_tasks *tasks,
                              struct choice_tokens *tokens, const struct progress *progress,
                              struct err *e) {
    s->ids = tokens->ids.ids;
    for (int32_t first = 0, end; first < tasks->n_tasks; first = end) {
        end = end_of_group(s, tasks, first);
        ASSERT(end > first);
        if (score_group(s, tasks, tokens, first, end, e)) return e->status;
        s->n_scored = end;
        if (!progress_tell(progress, "measure", (uint64_t)end, (uint64_t)tasks->n_tasks) &&
            end < tasks->n_tasks)
            return err_set(e, ERR_CANCELLED, "interrupted");
    }
    return OK;
}
