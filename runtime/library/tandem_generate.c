/* tandem_generate.c: generation of tandem.h, by the loop of runtime/generate. See tandem_engine.h.
 */
#include "runtime/library/tandem_reply.h"

#include <assert.h>
#include <math.h>
#include <string.h>

// ---- Options ------------------------------------------------------------------------------------

// Fills size_bytes of a caller's struct, which may be of another version.
static void fill_struct(void *out, size_t size_bytes, const void *known, size_t known_bytes) {
    memset(out, 0, size_bytes);
    memcpy(out, known, size_bytes < known_bytes ? size_bytes : known_bytes);
}

static const struct tandem_sampling DEFAULT_SAMPLING = {
    .temp = 0.8F,
    .top_k = 40,
    .top_p = 0.95F,
    .min_p = 0.05F,
    .repeat_last_n = 64,
    .seed = -1,
    .xtc_threshold = 0.1F,
    .dynatemp_exponent = 1,
    .dry_base = 1.75F,
    .dry_allowed_length = 2,
    .dry_last_n = 64,
    .mirostat_tau = 5,
    .mirostat_eta = 0.1F,
};

void tandem_sampling_defaults(struct tandem_sampling *sampling, size_t struct_size) {
    fill_struct(sampling, struct_size, &DEFAULT_SAMPLING, sizeof DEFAULT_SAMPLING);
    sampling->struct_size = struct_size;
}

void tandem_generate_defaults(struct tandem_generate_options *options, size_t struct_size) {
    memset(options, 0, struct_size);
    options->struct_size = struct_size;
}

// True if every field of s is in its range.
static bool in_range(const struct tandem_sampling *s) {
    const float not_below_0[] = {s->top_p,         s->min_p,          s->repeat_penalty,
                                 s->typical_p,     s->top_n_sigma,    s->xtc_probability,
                                 s->xtc_threshold, s->dynatemp_range, s->dynatemp_exponent,
                                 s->dry_base,      s->dry_multiplier, s->mirostat_tau,
                                 s->mirostat_eta};
    for (size_t i = 0; i < sizeof not_below_0 / sizeof *not_below_0; i++)
        if (!(not_below_0[i] >= 0 && not_below_0[i] < INFINITY)) return false;
    return !isnan(s->temp) && isfinite(s->frequency_penalty) && isfinite(s->presence_penalty) &&
           s->top_k >= 0 && s->repeat_last_n >= -1 && s->seed >= -1 && s->dry_last_n >= -1 &&
           (s->dry_base == 0 || s->dry_base >= 1) && s->dry_allowed_length >= 0 &&
           s->mirostat >= 0 && s->mirostat <= 2 && (s->n_logit_bias == 0 || s->logit_bias) &&
           s->n_logit_bias <= INT32_MAX && (s->n_dry_breakers == 0 || s->dry_breakers) &&
           s->n_dry_breakers <= INT16_MAX;
}

static float or_default(float value, float usual) { return value > 0 ? value : usual; }

static struct dry_options read_dry(const struct tandem_sampling *s) {
    return (struct dry_options){
        .multiplier = s->dry_multiplier,
        .base = or_default(s->dry_base, DEFAULT_SAMPLING.dry_base),
        .allowed_length =
            s->dry_allowed_length ? s->dry_allowed_length : DEFAULT_SAMPLING.dry_allowed_length,
        .last_n = s->dry_last_n ? s->dry_last_n : DEFAULT_SAMPLING.dry_last_n,
    };
}

static struct sampler_options read_steps(const struct tandem_sampling *s) {
    return (struct sampler_options){
        .temp = s->temp,
        .top_k = s->top_k,
        .top_p = or_default(s->top_p, 1),
        .min_p = s->min_p,
        .repeat_penalty = or_default(s->repeat_penalty, 1),
        .repeat_last_n = s->repeat_last_n,
        .seed = s->seed,
        .frequency_penalty = s->frequency_penalty,
        .presence_penalty = s->presence_penalty,
        .typical_p = s->typical_p,
        .top_n_sigma = s->top_n_sigma,
        .xtc_probability = s->xtc_probability,
        .xtc_threshold = or_default(s->xtc_threshold, DEFAULT_SAMPLING.xtc_threshold),
        .dynatemp_range = s->dynatemp_range,
        .dynatemp_exponent = or_default(s->dynatemp_exponent, 1),
        .dry = read_dry(s),
        .mirostat = s->mirostat,
        .mirostat_tau = or_default(s->mirostat_tau, DEFAULT_SAMPLING.mirostat_tau),
        .mirostat_eta = or_default(s->mirostat_eta, DEFAULT_SAMPLING.mirostat_eta),
    };
}

static_assert(sizeof(struct tandem_logit_bias) == sizeof(struct logit_bias) &&
                  offsetof(struct tandem_logit_bias, bias) == offsetof(struct logit_bias, bias),
              "both are the same list");

static enum status read_sampling(struct generate_options *out, const struct tandem_sampling *asked,
                                 struct err *e) {
    struct tandem_sampling s = DEFAULT_SAMPLING;
    const size_t first_bytes = END_OF_FIELD(struct tandem_sampling, seed);
    if (tandem_struct_read(&s, sizeof s, first_bytes, asked, e)) return e->status;
    if (!in_range(&s)) {
        err_set(e, ERR_USAGE, "sampling: a field is out of range");
        return err_fix(e, "begin with tandem_sampling_defaults");
    }
    for (size_t i = 0; i < s.n_dry_breakers; i++)
        if (!s.dry_breakers[i])
            return err_set(e, ERR_USAGE, "sampling: dry_breakers[%zu] is NULL", i);
    out->sampler = read_steps(&s);
    out->sampler.biases = (const struct logit_bias *)s.logit_bias;
    out->sampler.n_biases = (int32_t)s.n_logit_bias;
    out->dry_breakers = s.dry_breakers;
    out->n_dry_breakers = (int32_t)s.n_dry_breakers;
    if (s.samplers && sampler_order_names(&out->sampler.order, s.samplers, e))
        return err_context(e, "sampling.samplers");
    return OK;
}

// Reads the options. A control token has no text, so a stop text may be its name
// (runtime/generate).
static enum status read_options(struct generate_options *out,
                                const struct tandem_generate_options *asked, struct err *e) {
    if (asked->max_tokens < 0) return err_set(e, ERR_USAGE, "options: max_tokens is below 0");
    if (asked->n_stop > INT16_MAX || (asked->n_stop > 0 && !asked->stop))
        return err_set(e, ERR_USAGE, "options: stop does not have n_stop texts");
    for (size_t i = 0; i < asked->n_stop; i++)
        if (!asked->stop[i]) return err_set(e, ERR_USAGE, "options: stop[%zu] is NULL", i);
    *out = (struct generate_options){
        .ignore_end = asked->ignore_end,
        .stops = asked->stop,
        .n_stops = (int32_t)asked->n_stop,
        .grammar = asked->grammar,
    };
    return read_sampling(out, asked->sampling, e);
}

// ---- The text -----------------------------------------------------------------------------------

struct answer { // on its way to the caller
    struct tandem_session *session;
    struct tandem_generate_options options;
    struct tandem_reply reply;
    bool refused; // on_text returned false
};

// The generator hands over what it held of an answer that is at its end anyway, also after a call
// that returned false.
static bool write_text(void *context, const char *text, size_t length) {
    struct answer *a = context;
    const struct tandem_generate_options *o = &a->options;
    if (a->refused) return false;
    if (length > 0 && o->on_text) a->refused = !o->on_text(o->context, text, length);
    tandem_reply_write(&a->reply, text, length);
    a->refused |= a->reply.refused;
    return !a->refused && !atomic_load(&a->session->engine->request.cancelled);
}

// ---- The loop -----------------------------------------------------------------------------------

// Options for one answer.
static enum status take_options(struct answer *a, struct err *e) {
    struct generate_options options;
    const struct tandem_session *s = a->session;
    struct generator *g = &a->session->generator;
    if (read_options(&options, &a->options, e) ||
        tandem_reply_open(&a->reply, s->engine, &a->options, e))
        return e->status;
    if (a->reply.grammar) {
        options.grammar = a->reply.grammar;
        options.grammar_root = REPLY_ROOT;
        options.style = &a->reply.style;
    }
    return generate_set_options(g, &options, e);
}

static void tell_result(struct tandem_result *out, const struct answer *a, size_t n_prompt,
                        enum stop_reason reason, const struct timings *before) {
    static const enum tandem_stop stops[] = {[STOP_END] = TANDEM_STOP_END,
                                             [STOP_WORD] = TANDEM_STOP_STRING,
                                             [STOP_LIMIT] = TANDEM_STOP_LIMIT,
                                             [STOP_CONTEXT] = TANDEM_STOP_CONTEXT,
                                             [STOP_CANCEL] = TANDEM_STOP_CANCELLED};
    const struct generator *g = &a->session->generator;
    if (!out) return;
    *out = (struct tandem_result){
        .stop = a->refused ? TANDEM_STOP_CALLBACK : stops[reason],
        .n_prompt = (int32_t)n_prompt,
        .n_tokens = g->n_tokens,
        .prompt_s = (double)(g->timings.prompt_ns - before->prompt_ns) / 1e9,
        .answer_s = (double)(g->timings.decode_ns - before->decode_ns) / 1e9,
        .seed = g->sampler.options.seed,
        .n_guessed = g->timings.drafted - before->drafted,
        .n_right = g->timings.accepted - before->accepted,
    };
}

static enum status generate(struct answer *a, const int32_t *tokens, size_t n,
                            struct tandem_result *result, struct err *e) {
    struct tandem_session *s = a->session;
    struct generator *g = &s->generator;
    const struct text_sink sink = {write_text, a};
    const struct timings before = g->timings;
    const int32_t limit = a->options.max_tokens > 0 ? a->options.max_tokens : -1;
    enum stop_reason reason;
    if (n == 0) return err_set(e, ERR_USAGE, "the prompt is empty");
    if (n > (size_t)generate_room(g)) return tandem_session_full(s, e);
    if (generate_read(g, tokens, (int32_t)n, NULL, e)) return e->status;
    for (size_t i = 0; i < n; i++) tandem_session_push(s, tokens[i]);
    tandem_reply_begin(&a->reply, s);
    if (generate_write(g, limit, &sink, &reason, e)) return e->status;
    tandem_reply_end(&a->reply);
    for (int32_t i = 0; i < g->n_tokens; i++) tandem_session_push(s, g->tokens[i]);
    tell_result(result, a, n, reason, &before);
    return OK;
}

static enum status begin_answer(struct answer *a, struct tandem_session *session,
                                const struct tandem_generate_options *options, struct err *e) {
    const size_t first_bytes = END_OF_FIELD(struct tandem_generate_options, context);
    *a = (struct answer){.session = session};
    return tandem_struct_read(&a->options, sizeof a->options, first_bytes, options, e);
}

static enum tandem_status generate_all(struct answer *a, const int32_t *tokens, size_t n,
                                       struct tandem_result *result, struct tandem_error *e) {
    struct err err = {0};
    const size_t n_before = (size_t)a->session->n_tokens;
    enum status status = OK;
    atomic_store(&a->session->engine->request.cancelled, false);
    a->session->engine->n_logits = 0;
    if (take_options(a, &err) || generate(a, tokens, n, result, &err)) status = err.status;
    tandem_reply_close(&a->reply);
    if (status != OK) tandem_session_truncate(a->session, n_before);
    return tandem_error_give(status, &err, e);
}

enum tandem_status tandem_generate_tokens(struct tandem_session *session, const int32_t *tokens,
                                          size_t n, const struct tandem_generate_options *options,
                                          struct tandem_result *result, struct tandem_error *e) {
    struct err err;
    struct answer a;
    if (begin_answer(&a, session, options, &err)) return tandem_error_give(err.status, &err, e);
    return generate_all(&a, tokens, n, result, e);
}

enum tandem_status tandem_generate(struct tandem_session *session, const char *prompt,
                                   const struct tandem_generate_options *options,
                                   struct tandem_result *result, struct tandem_error *e) {
    struct err err;
    struct answer a;
    struct tandem_tokens tokens;
    if (begin_answer(&a, session, options, &err)) return tandem_error_give(err.status, &err, e);
    if (!prompt) {
        err_set(&err, ERR_USAGE, "the prompt is NULL");
        return tandem_error_give(err.status, &err, e);
    }
    unsigned flags = 0;
    if (session->n_tokens == 0) flags |= TANDEM_ADD_SPECIAL;
    if (!a.options.plain_prompt) flags |= TANDEM_PARSE_SPECIAL;
    enum tandem_status status =
        tandem_tokenize(session->engine, prompt, strlen(prompt), flags, &tokens, e);
    if (status == TANDEM_OK) status = generate_all(&a, tokens.ids, tokens.count, result, e);
    tandem_free(tokens.ids);
    return status;
}
