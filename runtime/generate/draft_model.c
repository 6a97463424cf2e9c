/* draft_model.c: see draft_model.h. */
#include "runtime/generate/draft_model.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"
#include "runtime/host/draft_place.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/vocab_match.h"

#include <math.h>
#include <stdlib.h>

enum { SAME_PAST = 64 };     // positions in which the time of a pass hardly changes
static const float FAR = 20; // logits so far below the largest count for nothing

// Counts the tokens of the prompt that the target's options name: both models are planned for it.
static enum status count_prompt(struct engine_options *target, struct err *e) {
    const struct tokenizer_flags flags = {.add_special = true, .parse_special = true};
    struct token_list tokens = {0};
    struct gguf gguf = {0};
    struct tokenizer *tokenizer = NULL;
    enum status status = OK;
    if (!target->prompt) return OK;
    if (gguf_open(&gguf, target->model_path, e) || tokenizer_open(&tokenizer, &gguf, NULL, e) ||
        tokenizer_encode(tokenizer, target->prompt, target->prompt_bytes, flags, &tokens, e))
        status = e->status;
    target->prompt_tokens = tokens.count < INT32_MAX ? (int32_t)tokens.count : INT32_MAX;
    target->prompt = NULL;
    token_list_close(&tokens);
    tokenizer_close(tokenizer);
    gguf_close(&gguf);
    return status;
}

static enum status place_and_open(struct engine **out, struct engine_options *draft,
                                  struct engine_options *target, struct machine *machine,
                                  struct err *e) {
    if (vocab_match_files(target->model_path, draft->model_path, e) || count_prompt(target, e))
        return e->status;
    draft->prompt = NULL;
    draft->prompt_tokens = target->prompt_tokens;
    draft->new_tokens = target->new_tokens;
    if (draft_place_here(draft, target, machine, e)) return e->status;
    if (engine_open(out, draft, e)) return err_context(e, "the draft model");
    draft_leave(target, machine, engine_plan(*out));
    return OK;
}

enum status draft_model_load(struct engine **out, const struct engine_options *draft,
                             struct engine_options *target, struct err *e) {
    struct engine_options own = *draft;
    struct machine *machine = mem_alloc(1, sizeof *machine);
    *out = NULL;
    if (!machine) return err_memory(e, sizeof *machine, "the machine");
    const enum status status = place_and_open(out, &own, target, machine, e);
    mem_free(machine);
    return status;
}

enum status draft_model_open(struct draft_model *m, struct engine *engine, int32_t n_target,
                             struct err *e) {
    const int32_t known = (int32_t)tokenizer_count(engine_tokenizer(engine));
    *m = (struct draft_model){.engine = engine,
                              .n_tokens = min_i32(known, n_target),
                              .n_ctx = engine_workload(engine)->n_ctx,
                              .one_past = -1};
    return session_new(&m->session, engine, e);
}

void draft_model_close(struct draft_model *m) {
    session_free(m->session);
    *m = (struct draft_model){0};
}

// The time of a pass of n tokens, with logits for the last, by the plan.
static double pass_us(struct draft_model *m, int32_t n, int32_t past) {
    const bool one = n == 1;
    if (one && m->one_past >= 0 && abs(past - m->one_past) < SAME_PAST) return m->one_us;
    struct simulation simulation;
    const struct pass pass = {n, 1, past};
    plan_simulate(engine_plan(m->engine), engine_shape(m->engine), &pass, &simulation);
    if (one) m->one_us = simulation.total_us, m->one_past = past;
    return simulation.total_us;
}

// Notes a pass of one token. Behind a cut a recurrent state may be computed again, which a guess
// that goes on does not wait for. A program that was stopped for a while makes one pass long, which
// says nothing of the others.
static void note_pass(struct draft_model *m, bool cut, double ns) {
    if (m->n_passes == 0 || ns < m->least_ns) m->least_ns = ns;
    m->n_passes = min_i32(m->n_passes + 1, DRAFT_MODEL_PASSES);
    if (!cut) m->pass_ns += m->pass_ns > 0 ? (fmin(ns, 2 * m->pass_ns) - m->pass_ns) / 8 : ns;
}

// Computes the first n items, behind what is left of the session after a cut, or all of it.
static enum status compute(struct draft_model *m, int32_t n, bool cut, struct draft_guess *guess,
                           struct err *e) {
    const int32_t most = engine_workload(m->engine)->n_ubatch;
    for (int32_t done = 0; done < n; done += most)
        guess->planned_us += pass_us(m, min_i32(n - done, most), session_length(m->session) + done);
    const uint64_t start = clock_ns();
    if (engine_eval(m->engine, m->items, n, e)) return err_context(e, "the draft model");
    if (n == 1) note_pass(m, cut, (double)(clock_ns() - start));
    return OK;
}

static int32_t token_at(const struct draft_text *text, int32_t i) {
    return i < text->n ? text->tokens[i] : text->last;
}

// Tokens that the session and the first n of the text begin with alike.
static int32_t same_tokens(const struct draft_model *m, const struct draft_text *text, int32_t n) {
    const int32_t *held = session_tokens(m->session);
    const int32_t most = min_i32(session_length(m->session), n);
    int32_t same = 0;
    while (same < most && held[same] == token_at(text, same)) same++;
    return same;
}

// Brings the session to the first n tokens of the text, with logits behind the last of them. False
// in *known: one of them is no token of the draft model.
static enum status follow(struct draft_model *m, const struct draft_text *text, int32_t n,
                          bool *known, struct draft_guess *guess, struct err *e) {
    int32_t at = min_i32(same_tokens(m, text, n), n - 1);
    const bool cut = at < session_length(m->session);
    *known = true;
    session_truncate(m->session, at);
    for (int32_t i = at; i < n && *known; i++) *known = token_at(text, i) < m->n_tokens;
    while (at < n && *known) {
        const int32_t count = min_i32(n - at, DRAFT_MODEL_READ);
        for (int32_t i = 0; i < count; i++)
            m->items[i] = (struct batch_item){m->session, token_at(text, at + i), at + i == n - 1};
        if (compute(m, count, cut, guess, e)) return e->status;
        at += count;
    }
    return OK;
}

// The most likely token of both models, and how likely it is.
static int32_t likeliest(const struct draft_model *m, float *likely) {
    const float *logits = engine_logits(m->engine, 0);
    int32_t best = 0;
    float sum = 0;
    for (int32_t i = 1; i < m->n_tokens; i++)
        if (logits[i] > logits[best]) best = i;
    for (int32_t i = 0; i < m->n_tokens; i++)
        if (logits[i] > logits[best] - FAR) sum += expf(logits[i] - logits[best]);
    *likely = sum > 0 ? 1 / sum : 0; // 0: no logit is a number
    return best;
}

// Draws tokens behind the text that the session holds. A token is right if all before it are, and
// then saves a pass of the target; it costs what it adds to the target's pass, and the next one a
// pass of this model too, before anyone knows how likely it is.
static enum status draw(struct draft_model *m, const struct draft_text *text, int32_t most,
                        int32_t *out, struct draft_guess *guess, struct err *e) {
    const struct tokenizer *tokenizer = engine_tokenizer(m->engine);
    double right = 1; // all of them
    for (;;) {
        float likely;
        const int32_t token = likeliest(m, &likely);
        right *= (double)likely;
        if (likely < m->sure || right * text->one_ns < text->more_ns ||
            tokenizer_is_end(tokenizer, token))
            return OK;
        out[guess->n++] = token;
        if (guess->n >= most || session_length(m->session) >= m->n_ctx ||
            right * text->one_ns < text->more_ns + m->pass_ns)
            return OK;
        m->items[0] = (struct batch_item){m->session, token, true};
        if (compute(m, 1, false, guess, e)) return e->status;
    }
}

enum status draft_model_guess(void *context, const struct draft_text *text, int32_t most,
                              int32_t *out, struct draft_guess *guess, struct err *e) {
    struct draft_model *m = context;
    bool known;
    *guess = (struct draft_guess){0};
    m->given_up |= m->n_passes == DRAFT_MODEL_PASSES && text->one_ns > 0 &&
                   m->least_ns >= DRAFT_MODEL_SLOW * text->one_ns;
    if (m->given_up || text->n + 1 > m->n_ctx) return OK;
    if (follow(m, text, text->n + 1, &known, guess, e)) return e->status;
    if (!known || most <= 0) return OK;
    if (draw(m, text, most, out, guess, e)) return e->status;
    if (guess->n < m->n_least) guess->n = 0;
    return OK;
}
