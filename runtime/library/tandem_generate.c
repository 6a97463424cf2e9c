/* tandem_generate.c: generation of tandem.h: stop strings and callbacks around runtime/generate.
 * See tandem_engine.h.
 */
#include "base/mem.h"
#include "runtime/library/tandem_engine.h"

#include <math.h>
#include <string.h>

// ---- Options ------------------------------------------------------------------------------------

// Fills size_bytes of a caller's struct, which may be of another version.
static void fill_struct(void *out, size_t size_bytes, const void *known, size_t known_bytes) {
    memset(out, 0, size_bytes);
    memcpy(out, known, size_bytes < known_bytes ? size_bytes : known_bytes);
}

static const struct tandem_sampling DEFAULT_SAMPLING = {
    .temp = 0.8F, .top_k = 40, .top_p = 0.95F, .min_p = 0.05F, .repeat_last_n = 64, .seed = -1};

void tandem_sampling_defaults(struct tandem_sampling *sampling, size_t struct_size) {
    fill_struct(sampling, struct_size, &DEFAULT_SAMPLING, sizeof DEFAULT_SAMPLING);
    sampling->struct_size = struct_size;
}

void tandem_generate_defaults(struct tandem_generate_options *options, size_t struct_size) {
    memset(options, 0, struct_size);
    options->struct_size = struct_size;
}

static enum status read_sampling(struct sampler_options *out, const struct tandem_sampling *asked,
                                 struct err *e) {
    struct tandem_sampling s = DEFAULT_SAMPLING;
    if (tandem_struct_read(&s, sizeof s, sizeof s, asked, e)) return e->status;
    if (isnan(s.temp) || s.top_k < 0 || !(s.top_p >= 0) || !(s.min_p >= 0) ||
        !(s.repeat_penalty >= 0) || s.repeat_last_n < -1 || s.seed < -1) {
        err_set(e, ERR_USAGE, "sampling: a field is out of range");
        return err_fix(e, "begin with tandem_sampling_defaults");
    }
    *out = (struct sampler_options){.temp = s.temp,
                                    .top_k = s.top_k,
                                    .top_p = s.top_p > 0 ? s.top_p : 1,
                                    .min_p = s.min_p,
                                    .repeat_penalty = s.repeat_penalty > 0 ? s.repeat_penalty : 1,
                                    .repeat_last_n = s.repeat_last_n,
                                    .seed = s.seed};
    return OK;
}

// ---- The text -----------------------------------------------------------------------------------

// An answer on its way to the caller. What may be the beginning of a stop string is held back.
struct answer {
    struct tandem_session *session;
    struct tandem_generate_options options;
    char *held; // owned; NULL without stop strings
    size_t n_held;
    bool stopped; // stop says why
    enum tandem_stop stop;
    int32_t stop_index;
};

static enum status answer_open(struct answer *a, struct err *e) {
    const struct tandem_generate_options *o = &a->options;
    size_t longest = 0;
    if (o->max_tokens < 0) return err_set(e, ERR_USAGE, "options: max_tokens is below 0");
    if (o->n_stop > INT32_MAX || (o->n_stop > 0 && !o->stop))
        return err_set(e, ERR_USAGE, "options: stop does not have n_stop texts");
    for (size_t i = 0; i < o->n_stop; i++) {
        const size_t length = o->stop[i] ? strlen(o->stop[i]) : 0;
        if (length == 0) return err_set(e, ERR_USAGE, "options: stop string %zu is empty", i);
        longest = length > longest ? length : longest;
    }
    if (o->n_stop == 0) return OK;
    const size_t room = longest + a->session->generator.piece_bytes;
    a->held = mem_alloc(room, 1);
    return a->held ? OK : err_memory(e, room, "the stop strings");
}

static bool end(struct answer *a, enum tandem_stop stop, int32_t index) {
    a->stopped = true;
    a->stop = stop;
    a->stop_index = index;
    return false;
}

static bool emit(struct answer *a, const char *text, size_t length) {
    const struct tandem_generate_options *o = &a->options;
    if (length == 0 || !o->on_text || o->on_text(o->context, text, length)) return true;
    return end(a, TANDEM_STOP_CALLBACK, -1);
}

// The first stop string that begins at text[length], all of it or, with part, as far as the text
// goes; -1: none.
static int32_t stop_at(const struct answer *a, const char *text, size_t length, bool part) {
    for (size_t i = 0; i < a->options.n_stop; i++) {
        const size_t wanted = strlen(a->options.stop[i]);
        const size_t shared = wanted < length ? wanted : length;
        if ((part || shared == wanted) && memcmp(text, a->options.stop[i], shared) == 0)
            return (int32_t)i;
    }
    return -1;
}

// Gives out what can be no part of a stop string. last: no more text comes.
static bool filter(struct answer *a, bool last) {
    size_t first = 0; // where a stop string may begin
    for (; first < a->n_held; first++) {
        const int32_t stop = stop_at(a, a->held + first, a->n_held - first, false);
        if (stop >= 0) return emit(a, a->held, first) && end(a, TANDEM_STOP_STRING, stop);
        if (!last && stop_at(a, a->held + first, a->n_held - first, true) >= 0) break;
    }
    if (!emit(a, a->held, first)) return false;
    a->n_held -= first;
    memmove(a->held, a->held + first, a->n_held);
    return true;
}

static bool write_text(void *context, const char *text, size_t length) {
    struct answer *a = context;
    if (atomic_load(&a->session->engine->request.cancelled))
        return end(a, TANDEM_STOP_CANCELLED, -1);
    if (!a->held) return emit(a, text, length);
    memcpy(a->held + a->n_held, text, length);
    a->n_held += length;
    return filter(a, false);
}

// ---- The loop -----------------------------------------------------------------------------------

// A sampler that knows the session's last tokens.
static enum status open_sampler(struct tandem_session *s, const struct sampler_options *options,
                                struct err *e) {
    struct generator *g = &s->generator;
    sampler_close(&g->sampler);
    if (sampler_init(&g->sampler, options, engine_n_vocab(g->engine), g->n_ctx, e))
        return e->status;
    for (int32_t i = 0; i < s->n_tokens; i++) sampler_accept(&g->sampler, s->tokens[i]);
    return OK;
}

static void tell_result(struct tandem_result *out, const struct answer *a, size_t n_prompt,
                        enum stop_reason reason, const struct timings *before) {
    static const enum tandem_stop stops[] = {[STOP_END] = TANDEM_STOP_END,
                                             [STOP_LIMIT] = TANDEM_STOP_LIMIT,
                                             [STOP_CONTEXT] = TANDEM_STOP_CONTEXT,
                                             [STOP_CANCEL] = TANDEM_STOP_CANCELLED};
    const struct generator *g = &a->session->generator;
    if (!out) return;
    *out = (struct tandem_result){
        .stop = a->stopped ? a->stop : stops[reason],
        .stop_index = a->stopped ? a->stop_index : -1,
        .n_prompt = (int32_t)n_prompt,
        .n_tokens = g->n_tokens,
        .prompt_s = (double)(g->timings.prompt_ns - before->prompt_ns) / 1e9,
        .answer_s = (double)(g->timings.decode_ns - before->decode_ns) / 1e9,
        .seed = g->sampler.options.seed,
    };
}

static enum status generate(struct answer *a, const int32_t *tokens, size_t n,
                            struct tandem_result *result, struct err *e) {
    struct tandem_session *s = a->session;
    struct generator *g = &s->generator;
    const struct text_sink sink = {write_text, a};
    const struct timings before = g->timings;
    enum stop_reason reason;
    if (n == 0) return err_set(e, ERR_USAGE, "the prompt is empty");
    if (n > (size_t)generate_room(g)) return tandem_session_full(s, e);
    if (generate_read(g, tokens, (int32_t)n, NULL, e)) return e->status;
    for (size_t i = 0; i < n; i++) tandem_session_push(s, tokens[i]);
    const int32_t limit = a->options.max_tokens > 0 ? a->options.max_tokens : -1;
    g->ignore_end = a->options.ignore_end;
    if (generate_write(g, limit, &sink, &reason, e)) return e->status;
    for (int32_t i = 0; i < g->n_tokens; i++) tandem_session_push(s, g->tokens[i]);
    if (!a->stopped && a->held) (void)filter(a, true);
    tell_result(result, a, n, reason, &before);
    return OK;
}

static enum tandem_status generate_all(struct answer *a, const int32_t *tokens, size_t n,
                                       struct tandem_result *result, struct tandem_error *e) {
    struct err err = {0};
    struct sampler_options sampling;
    const int32_t n_before = a->session->n_tokens;
    enum status status = OK;
    atomic_store(&a->session->engine->request.cancelled, false);
    a->session->engine->n_logits = 0;
    if (read_sampling(&sampling, a->options.sampling, &err) || answer_open(a, &err) ||
        open_sampler(a->session, &sampling, &err) || generate(a, tokens, n, result, &err))
        status = err.status;
    mem_free(a->held);
    if (status != OK) tandem_session_truncate(a->session, (size_t)n_before);
    return tandem_error_give(status, &err, e);
}

enum tandem_status tandem_generate_tokens(struct tandem_session *session, const int32_t *tokens,
                                          size_t n, const struct tandem_generate_options *options,
                                          struct tandem_result *result, struct tandem_error *e) {
    struct err err;
    struct answer a = {.session = session};
    if (tandem_struct_read(&a.options, sizeof a.options, sizeof a.options, options, &err))
        return tandem_error_give(err.status, &err, e);
    return generate_all(&a, tokens, n, result, e);
}

enum tandem_status tandem_generate(struct tandem_session *session, const char *prompt,
                                   const struct tandem_generate_options *options,
                                   struct tandem_result *result, struct tandem_error *e) {
    struct err err;
    struct answer a = {.session = session};
    struct tandem_tokens tokens;
    if (tandem_struct_read(&a.options, sizeof a.options, sizeof a.options, options, &err))
        return tandem_error_give(err.status, &err, e);
    const unsigned flags = (session->n_tokens == 0 ? TANDEM_ADD_SPECIAL : 0) |
                           (a.options.plain_prompt ? 0 : TANDEM_PARSE_SPECIAL);
    enum tandem_status status =
        tandem_tokenize(session->engine, prompt, strlen(prompt), flags, &tokens, e);
    if (status == TANDEM_OK) status = generate_all(&a, tokens.ids, tokens.count, result, e);
    tandem_free(tokens.ids);
    return status;
}
