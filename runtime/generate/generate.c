/* generate.c: see generate.h. */
#include "runtime/generate/generate.h"

#include "base/clock.h"
#include "base/disk.h"
#include "base/mem.h"
#include "base/number.h"

#include <math.h>
#include <string.h>

const char *stop_reason_name(enum stop_reason reason) {
    static const char *const names[] = {"eos", "word", "limit", "context", "interrupt"};
    return names[reason];
}

// ---- Opening and closing ------------------------------------------------------------------------

// A draft is computed in one micro-batch, with logits for each token of it.
static int32_t longest_draft(const struct generator *g) {
    const struct workload *w = engine_workload(g->engine);
    const int32_t most = min_i32(w->max_logits, min_i32(w->n_ubatch, w->n_ctx)) - 1;
    return g->draft.size_n > 0 || g->draft.guess ? min_i32(g->draft.size_m, most) : 0;
}

static enum status make_buffers(struct generator *g, int32_t n_batch, struct err *e) {
    g->n_batch = n_batch > 0 && n_batch < g->n_ctx ? n_batch : g->n_ctx;
    // One token gives at most the bytes that the stream holds back, and one piece.
    g->piece_bytes = sizeof(struct token_stream) + tokenizer_longest(g->tokenizer) + 16;
    g->n_most = longest_draft(g);
    g->items = mem_alloc((size_t)max_i32(g->n_batch, g->n_most + 1), sizeof *g->items);
    g->drafted = mem_alloc((size_t)g->n_most + 1, sizeof *g->drafted);
    g->tokens = mem_alloc((size_t)g->n_ctx + 1, sizeof *g->tokens);
    g->piece = mem_alloc(g->piece_bytes, 1);
    if (g->items && g->drafted && g->tokens && g->piece) return OK;
    return err_memory(e, (size_t)g->n_ctx * sizeof *g->tokens, "the text to come");
}

// A control token has no text to compare with, so its name stands for the token.
static enum status open_stops(struct generator *g, const struct generate_options *o,
                              struct err *e) {
    const struct tokenizer *t = g->tokenizer;
    g->stop_tokens = mem_alloc((size_t)o->n_stops, sizeof *g->stop_tokens);
    if (!g->stop_tokens)
        return err_memory(e, (size_t)o->n_stops * sizeof *g->stop_tokens, "the stop texts");
    for (int32_t i = 0; i < o->n_stops; i++) {
        const int32_t id = tokenizer_find(t, o->stops[i], strlen(o->stops[i]));
        if (id >= 0 && tokenizer_kind(t, id) == TOKEN_CONTROL)
            g->stop_tokens[g->n_stop_tokens++] = id;
    }
    return stop_filter_open(&g->filter, o->stops, o->n_stops, g->piece_bytes, e);
}

static bool is_stop(const struct generator *g, int32_t token) {
    for (int32_t i = 0; i < g->n_stop_tokens; i++)
        if (token == g->stop_tokens[i]) return true;
    return false;
}

// Forbids the tokens that end a text, but those that are stop texts, besides the biases of o.
static enum status forbid_end(struct generator *g, struct sampler_options *o, struct err *e) {
    const int32_t n_vocab = engine_n_vocab(g->engine),
                  n_known = (int32_t)tokenizer_count(g->tokenizer);
    int32_t n = o->n_biases;
    for (int32_t i = 0; i < n_known; i++) n += tokenizer_is_end(g->tokenizer, i);
    g->biases = mem_alloc((size_t)n, sizeof *g->biases);
    if (!g->biases) return err_memory(e, (size_t)n * sizeof *g->biases, "the logit biases");
    for (n = 0; n < o->n_biases; n++) g->biases[n] = o->biases[n];
    for (int32_t i = 0; i < min_i32(n_known, n_vocab); i++)
        if (tokenizer_is_end(g->tokenizer, i) && !is_stop(g, i))
            g->biases[n++] = (struct logit_bias){i, -INFINITY};
    o->biases = g->biases;
    o->n_biases = n;
    return OK;
}

static enum status open_sampler(struct generator *g, const struct generate_options *o,
                                struct err *e) {
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    struct sampler_options sampler = o->sampler;
    const int32_t n = o->dry_breakers ? o->n_dry_breakers : 4;
    if (dry_is_on(&sampler.dry) &&
        breakers_open(&g->breakers, g->tokenizer, o->dry_breakers ? o->dry_breakers : usual, n, e))
        return e->status;
    sampler.dry.breakers = &g->breakers;
    if (o->ignore_end && forbid_end(g, &sampler, e)) return e->status;
    if (o->grammar &&
        constraint_open(&g->constraint, o->grammar, o->grammar_root ? o->grammar_root : "root",
                        g->tokenizer, engine_n_vocab(g->engine), e))
        return e->status;
    g->constraint.ignores_end = o->ignore_end;
    if (o->style) g->constraint.style = *o->style;
    return sampler_init(&g->sampler, &sampler, engine_n_vocab(g->engine), g->n_ctx, e);
}

static void close_options(struct generator *g) {
    sampler_close(&g->sampler);
    breakers_close(&g->breakers);
    constraint_close(&g->constraint);
    stop_filter_close(&g->filter);
    mem_free(g->biases);
    mem_free(g->stop_tokens);
    g->biases = NULL;
    g->stop_tokens = NULL;
    g->n_stop_tokens = 0;
}

// Makes what the generator holds the text that the penalties know. Without a sampler, since its
// options were refused, there is nobody to tell.
static void recall(struct generator *g) {
    const int32_t *held = session_tokens(g->session), length = session_length(g->session);
    if (!g->sampler.memory) return;
    sampler_forget_text(&g->sampler);
    for (int32_t i = 0; i < length; i++) sampler_accept(&g->sampler, held[i]);
    if (g->pending >= 0) sampler_accept(&g->sampler, g->pending);
}

enum status generate_set_options(struct generator *g, const struct generate_options *options,
                                 struct err *e) {
    close_options(g);
    if (open_stops(g, options, e) || open_sampler(g, options, e)) return e->status;
    recall(g);
    return OK;
}

enum status generate_open(struct generator *g, struct engine *engine,
                          const struct generate_options *options, struct err *e) {
    *g = (struct generator){.engine = engine, .pending = -1, .draft = options->draft};
    g->tokenizer = engine_tokenizer(engine);
    g->n_ctx = engine_workload(engine)->n_ctx;
    if (session_new(&g->session, engine, e) || make_buffers(g, options->n_batch, e) ||
        generate_set_options(g, options, e))
        goto fail;
    return OK;
fail:
    generate_close(g);
    return e->status;
}

enum status generate_fork(struct generator *g, const struct generator *source,
                          const struct generate_options *options, struct err *e) {
    if (generate_open(g, source->engine, options, e)) return e->status;
    g->pending = source->pending;
    if (session_copy(g->session, source->session, e)) {
        generate_close(g);
        return e->status;
    }
    recall(g);
    return OK;
}

void generate_close(struct generator *g) {
    session_free(g->session);
    close_options(g);
    mem_free(g->items);
    mem_free(g->drafted);
    mem_free(g->tokens);
    mem_free(g->piece);
    *g = (struct generator){0};
}

void generate_keep(struct generator *g, int32_t n) {
    const int32_t length = session_length(g->session);
    if (n <= length) g->pending = -1;
    if (n < length) session_truncate(g->session, n);
    recall(g);
}

void generate_forget(struct generator *g) {
    session_truncate(g->session, 0);
    sampler_forget(&g->sampler);
    g->pending = -1;
}

// ---- The prompt ---------------------------------------------------------------------------------

// Tokens of the session that are in the text.
static int32_t text_length(const struct generator *g) {
    return session_length(g->session) - g->n_ahead;
}

int32_t generate_room(const struct generator *g) {
    const int32_t room = g->n_ctx - text_length(g) - (g->pending >= 0);
    return room > 0 ? room : 0;
}

static enum status check_room(const struct generator *g, int32_t n, struct err *e) {
    const int32_t room = generate_room(g), held = generate_held(g);
    if (n <= room) return OK;
    err_set(e, ERR_LIMIT, "the prompt does not fit into the context of %d tokens", g->n_ctx);
    if (held > 0)
        err_expected(e, "at most %d token%s behind the %d that it holds", room,
                     room == 1 ? "" : "s", held);
    else
        err_expected(e, "at most %d token%s", room, room == 1 ? "" : "s");
    err_actual(e, "%d", n);
    return err_fix(e, "use a longer context: -c %d", g->n_ctx - room + n + 1);
}

// A prompt while it is read: the pending token, if there is one, and ids.
struct prompt {
    const int32_t *ids;
    int32_t skipped; // 1 if the pending token stands before ids, else 0
    int32_t count;   // tokens, with the pending one
    const struct logits_sink *logits;
};

// Computes count tokens of the prompt from first on.
static enum status read_part(struct generator *g, const struct prompt *p, int32_t first,
                             int32_t count, struct err *e) {
    const bool last = first + count == p->count;
    timings_predict_prompt(&g->timings, engine_plan(g->engine), engine_shape(g->engine),
                           session_length(g->session), count, p->logits ? count : last);
    for (int32_t i = 0; i < count; i++) {
        const int32_t at = first + i - p->skipped;
        const bool wanted = p->logits || (last && i == count - 1);
        g->items[i] = (struct batch_item){g->session, at < 0 ? g->pending : p->ids[at], wanted};
    }
    if (engine_eval(g->engine, g->items, count, e)) return e->status;
    g->prompt_row = p->logits ? count - 1 : 0;
    return p->logits ? p->logits->take(p->logits->context, first, count, e) : OK;
}

static enum status read_all(struct generator *g, const struct prompt *p, struct err *e) {
    const int32_t max_logits = engine_workload(g->engine)->max_logits;
    const int32_t most = p->logits && max_logits < g->n_batch ? max_logits : g->n_batch;
    for (int32_t first = 0, n; first < p->count; first += n) {
        n = p->count - first < most ? p->count - first : most;
        if (read_part(g, p, first, n, e)) return e->status;
    }
    return OK;
}

static void add_disk_reads(struct timings *t, const struct disk_reads *before) {
    const struct disk_reads now = disk_reads();
    t->disk_bytes += now.size_bytes - before->size_bytes;
    t->disk_faults += now.faults - before->faults;
}

// Lets what makes drafts read the text so far, so that no draft waits for it. *planned_us grows by
// the time that this takes by its plan.
static enum status read_for_drafts(struct generator *g, const struct draft_text *text,
                                   double *planned_us, struct err *e) {
    struct draft_guess none = {0};
    const uint64_t start = clock_ns();
    const enum status status = g->draft.guess(g->draft.context, text, 0, g->drafted, &none, e);
    g->timings.guess_ns += clock_ns() - start;
    *planned_us += none.planned_us;
    g->n_unread = 0;
    return status;
}

static enum status read_prompt_for_drafts(struct generator *g, struct err *e) {
    const int32_t n = session_length(g->session) - 1;
    const int32_t *tokens = session_tokens(g->session);
    const struct draft_text text = {.tokens = tokens, .n = n, .last = tokens[n]};
    if (!g->draft.guess || g->n_most == 0) return OK;
    return read_for_drafts(g, &text, &g->timings.predicted_prompt_us, e);
}

enum status generate_read(struct generator *g, const int32_t *ids, int32_t n,
                          const struct logits_sink *logits, struct err *e) {
    ASSERT(n > 0);
    ASSERT(!logits || g->pending < 0);
    if (check_room(g, n, e)) return e->status;
    const int32_t before = session_length(g->session), skipped = g->pending >= 0;
    const struct timings timings = g->timings;
    const struct prompt prompt = {ids, skipped, n + skipped, logits};
    const struct disk_reads read = disk_reads();
    const uint64_t start = clock_ns();
    if (read_all(g, &prompt, e) || read_prompt_for_drafts(g, e)) {
        session_truncate(g->session, before);
        g->timings = timings;
        return e->status;
    }
    g->timings.prompt_ns += clock_ns() - start;
    add_disk_reads(&g->timings, &read);
    g->timings.prompt_tokens += prompt.count;
    g->pending = -1;
    for (int32_t i = 0; i < n; i++) sampler_accept(&g->sampler, ids[i]);
    return OK;
}

int32_t generate_held(const struct generator *g) { return text_length(g) + (g->pending >= 0); }

int32_t generate_keep_same(struct generator *g, const int32_t *ids, int32_t n) {
    const int32_t length = session_length(g->session), most = min_i32(n - 1, generate_held(g));
    const int32_t *held = session_tokens(g->session);
    int32_t same = 0;
    while (same < most && (same < length ? held[same] : g->pending) == ids[same]) same++;
    generate_keep(g, same);
    return same;
}

// ---- The answer ---------------------------------------------------------------------------------

// Hands the ready text to the sink. False if the sink wants no more.
static bool hand_over(const struct generator *g, const struct text_sink *sink) {
    return !sink->write || sink->write(sink->context, g->filter.text, g->filter.n_ready);
}

// True if the token ends the text and does not belong to it; *reason says why.
static bool ends_text(const struct generator *g, int32_t token, enum stop_reason *reason) {
    if (is_stop(g, token)) return *reason = STOP_WORD, true;
    if (tokenizer_is_end(g->tokenizer, token)) return *reason = STOP_END, true;
    return false;
}

// True if no further token is drawn; *reason says why.
static bool stops_here(const struct generator *g, int32_t limit, bool wanted,
                       enum stop_reason *reason) {
    if (g->filter.met)
        *reason = STOP_WORD;
    else if (limit >= 0 && g->n_tokens >= limit)
        *reason = STOP_LIMIT;
    else if (text_length(g) >= g->n_ctx)
        *reason = STOP_CONTEXT;
    else if (!wanted)
        *reason = STOP_CANCEL;
    else
        return false;
    return true;
}

// Draws a token from a row of logits, unless the sink has put one: freely, and if the grammar
// refuses what was drawn, again among what it allows. *token is -1 if the grammar is at its end and
// no token may say so.
static enum status draw_token(struct generator *g, int32_t row, int32_t *token, struct err *e) {
    if (g->n_put > 0) {
        *token = *g->put++;
        g->n_put--;
        return OK;
    }
    const float *logits = engine_logits(g->engine, row);
    if (sampler_draw(&g->sampler, logits, token, e)) return e->status;
    if (constraint_allows(&g->constraint, *token)) return OK;
    logits = constraint_mask(&g->constraint, logits);
    *token = -1;
    if (logits) return sampler_draw(&g->sampler, logits, token, e);
    if (grammar_can_end(&g->constraint.state)) return OK;
    return err_set(e, ERR_LIMIT, "no token of the model continues the text as the grammar says");
}

// Takes what is not in the text back from the session.
static void drop_draft(struct generator *g) {
    if (g->n_ahead > 0) session_truncate(g->session, text_length(g));
    g->n_ahead = 0;
}

// Guesses at most most tokens of the text, and takes the time. What was written while drafts rested
// is read before, since it is no part of what a draft costs.
static enum status guess(struct generator *g, const struct draft_text *text, int32_t most,
                         struct draft_guess *found, struct err *e) {
    if (g->draft.guess && g->n_unread > DRAFT_REST &&
        read_for_drafts(g, text, &g->timings.predicted_decode_us, e))
        return e->status;
    const uint64_t start = clock_ns();
    if (!g->draft.guess)
        found->n = draft_find(text, g->draft.size_n, most, g->drafted);
    else if (g->draft.guess(g->draft.context, text, most, g->drafted, found, e))
        return e->status;
    const uint64_t ns = clock_ns() - start;
    g->guess_ns = (double)ns;
    g->timings.guess_ns += ns;
    g->timings.predicted_decode_us += found->planned_us;
    g->n_unread = 0;
    return OK;
}

// Guesses what comes behind the pending token, as far as limit and the context have room for it and
// it is in the vocabulary: *n tokens.
static enum status make_draft(struct generator *g, int32_t limit, int32_t *n, struct err *e) {
    const bool always = g->draft.always;
    const struct draft_text text = {.tokens = session_tokens(g->session),
                                    .n = session_length(g->session),
                                    .last = g->pending,
                                    .one_ns = always ? INFINITY : g->pace.one_ns,
                                    .more_ns = always ? 0 : g->pace.more_ns};
    const int32_t n_vocab = engine_n_vocab(g->engine);
    struct draft_guess found = {0};
    int32_t most = min_i32(g->n_most, g->n_ctx - text.n - 1);
    *n = 0;
    g->guess_ns = 0;
    g->n_unread++;
    if (limit >= 0) most = min_i32(most, limit - g->n_tokens - 1);
    const int32_t length = always ? most : draft_pace_length(&g->pace, most);
    if (most <= 0 || length <= 0) return OK;
    if (!g->draft.guess) most = length; // other guesses end where they are not sure enough
    if (guess(g, &text, most, &found, e)) return e->status;
    while (*n < found.n && g->drafted[*n] >= 0 && g->drafted[*n] < n_vocab) ++*n;
    return OK;
}

// Computes the pending token, and a draft behind it with logits for each of its tokens.
static enum status compute(struct generator *g, int32_t limit, struct err *e) {
    int32_t n = 0;
    if (g->n_most > 0 && make_draft(g, limit, &n, e)) return e->status;
    const uint64_t start = clock_ns();
    g->items[0] = (struct batch_item){g->session, g->pending, true};
    for (int32_t i = 0; i < n; i++)
        g->items[1 + i] = (struct batch_item){g->session, g->drafted[i], true};
    if (engine_eval(g->engine, g->items, 1 + n, e)) return e->status;
    g->draft_ns = (double)(clock_ns() - start);
    g->n_draft = g->n_ahead = n;
    g->pending = -1;
    g->timings.drafted += n;
    g->timings.draft_passes += n > 0;
    g->timings.decode_steps++;
    return OK;
}

// Brings the pending token into the session: it is there if it was guessed, and else it is
// computed. *row is the row of the logits that follow it.
static enum status follow(struct generator *g, int32_t limit, int32_t *row, struct err *e) {
    if (g->n_ahead > 0 && session_tokens(g->session)[text_length(g)] == g->pending) {
        g->n_ahead--;
        g->pending = -1;
        g->timings.accepted++;
        g->timings.decode_steps++;
        ++*row;
        return OK;
    }
    if (g->draft_ns > 0)
        draft_pace_note(&g->pace, g->n_draft, g->n_draft - g->n_ahead, g->draft_ns, g->guess_ns);
    drop_draft(g);
    *row = 0;
    return compute(g, limit, e);
}

static enum status draw_text(struct generator *g, int32_t limit, const struct text_sink *sink,
                             enum stop_reason *reason, struct err *e) {
    for (int32_t row = g->prompt_row, token;;) {
        if (draw_token(g, row, &token, e)) return e->status;
        *reason = STOP_END;
        if (token < 0) return OK;
        sampler_accept(&g->sampler, token);
        g->timings.new_tokens++;
        if (ends_text(g, token, reason)) return OK;
        if (constraint_accept(&g->constraint, token, e)) return e->status;
        g->tokens[g->n_tokens++] = g->pending = token;
        const size_t length = token_stream_push(&g->stream, token, g->piece, g->piece_bytes);
        stop_filter_push(&g->filter, g->piece, length);
        if (stops_here(g, limit, hand_over(g, sink), reason)) return OK;
        if (follow(g, limit, &row, e)) return e->status;
    }
}

static enum status decode(struct generator *g, int32_t limit, const struct text_sink *sink,
                          enum stop_reason *reason, struct err *e) {
    enum status status = draw_text(g, limit, sink, reason, e);
    drop_draft(g);
    g->n_draft = 0;
    g->draft_ns = 0;
    if (status != ERR_CANCELLED) return status;
    *reason = STOP_CANCEL;
    return OK;
}

// Hands over the held text: the generation is at its end.
static void finish(struct generator *g, const struct text_sink *sink) {
    const size_t length = token_stream_finish(&g->stream, g->piece, g->piece_bytes);
    stop_filter_push(&g->filter, g->piece, length);
    stop_filter_finish(&g->filter);
    if (g->filter.n_ready > 0) hand_over(g, sink);
}

void generate_begin(struct generator *g, const char *opening, bool shifts) {
    g->opening = opening;
    g->shifts = shifts;
    g->open = false;
}

// Begins a text: nothing of the one before it is held.
static enum status begin_text(struct generator *g, struct err *e) {
    const char *opening = g->opening ? g->opening : "";
    token_stream_init(&g->stream, g->tokenizer, false);
    stop_filter_reset(&g->filter);
    g->opening = NULL;
    g->n_put = 0;
    if (constraint_begin(&g->constraint, opening, e) == OK) return OK;
    return err_context(e, "the end of the prompt");
}

void generate_put(struct generator *g, const int32_t *ids, int32_t n) {
    g->put = ids;
    g->n_put = n;
}

void generate_end(struct generator *g, const struct text_sink *sink) {
    if (g->open) finish(g, sink);
    g->open = false;
}

enum status generate_write(struct generator *g, int32_t limit, const struct text_sink *sink,
                           enum stop_reason *reason, struct err *e) {
    g->n_tokens = 0;
    *reason = STOP_LIMIT;
    if (limit == 0) return OK;
    const struct timings before = g->timings;
    const struct disk_reads read = disk_reads();
    const uint64_t start = clock_ns();
    if (!g->open && begin_text(g, e)) return e->status;
    const enum status status = decode(g, limit, sink, reason, e);
    g->open = !status && g->shifts && *reason == STOP_CONTEXT;
    if (!g->open && (status || *reason != STOP_CANCEL)) finish(g, sink);
    g->timings.decode_ns += clock_ns() - start;
    add_disk_reads(&g->timings, &read);
    timings_predict_decode(&g->timings, engine_plan(g->engine), engine_shape(g->engine),
                           session_length(g->session), &before);
    return status;
}
