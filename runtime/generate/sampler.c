/* sampler.c: see sampler.h. */
#include "runtime/generate/sampler.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <sys/random.h>

// ---- Random numbers -----------------------------------------------------------------------------

// xoshiro256**, seeded by splitmix64. Source: Blackman and Vigna 2018.

static uint64_t splitmix(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t rotate_left(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static uint64_t next_random(uint64_t s[4]) {
    uint64_t result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double sampler_uniform(struct sampler *s) {
    return (double)(next_random(s->state) >> 11) * 0x1p-53;
}

static int64_t random_seed(void) {
    uint32_t seed;
    if (getentropy(&seed, sizeof seed) != 0) seed = (uint32_t)clock_ns();
    return seed;
}

// ---- Opening and closing ------------------------------------------------------------------------

struct sampler_options sampler_defaults(void) {
    return (struct sampler_options){
        .temp = 0.8F,
        .top_k = 40,
        .top_p = 0.95F,
        .min_p = 0.05F,
        .repeat_penalty = 1,
        .repeat_last_n = 64,
        .seed = -1,
        .typical_p = 1,
        .top_n_sigma = -1,
        .xtc_threshold = 0.1F,
        .dynatemp_exponent = 1,
        .dry = {.base = 1.75F, .allowed_length = 2, .last_n = 64},
        .mirostat_tau = 5,
        .mirostat_eta = 0.1F,
    };
}

static enum status check_biases(const struct sampler_options *o, int32_t n_vocab, struct err *e) {
    for (int32_t i = 0; i < o->n_biases; i++) {
        const struct logit_bias *b = &o->biases[i];
        if (b->token < 0 || b->token >= n_vocab) {
            err_set(e, ERR_USAGE, "a logit bias names token %d", b->token);
            return err_expected(e, "0 to %d", n_vocab - 1);
        }
        if (!(b->bias < INFINITY))
            return err_set(e, ERR_USAGE, "the logit bias of token %d is no number", b->token);
    }
    return OK;
}

static bool has_step(const struct sampler_order *order, enum sampler_step step) {
    for (int32_t i = 0; i < order->n; i++)
        if (order->steps[i] == step) return true;
    return false;
}

static bool xtc_on(const struct sampler_options *o) {
    return o->xtc_probability > 0 && o->xtc_threshold <= 0.5F;
}

// True if a penalty comes behind a step that may have dropped what it makes the likeliest.
static bool penalties_follow(const struct sampler_order *order) {
    bool cut = false;
    for (int32_t i = 0; i < order->n; i++) {
        const bool penalty = order->steps[i] == SAMPLER_PENALTIES || order->steps[i] == SAMPLER_DRY;
        if (penalty && cut) return true;
        cut = cut || !penalty;
    }
    return false;
}

// Finds out whether steps that only cut can be left out: the likeliest survives all but two.
static void set_shortcuts(struct sampler *s) {
    const struct sampler_options *o = &s->options;
    const bool plain = o->dynatemp_range <= 0 && has_step(&o->order, SAMPLER_TEMPERATURE);
    s->greedy = o->temp <= 0 && (o->mirostat || plain);
    s->cuts = !s->greedy || (o->typical_p > 0 && o->typical_p < 1) || xtc_on(o) ||
              penalties_follow(&o->order);
}

enum status sampler_init(struct sampler *s, const struct sampler_options *options, int32_t n_vocab,
                         int32_t n_ctx, struct err *e) {
    ASSERT(n_vocab > 0);
    ASSERT(n_ctx > 0);
    *s = (struct sampler){.options = *options, .n_vocab = n_vocab, .mu = 2 * options->mirostat_tau};
    s->options.order = sampler_order_of(&options->order);
    if (s->options.seed < 0) s->options.seed = random_seed();
    uint64_t seed = (uint64_t)s->options.seed;
    for (int i = 0; i < 4; i++) s->state[i] = splitmix(&seed);
    set_shortcuts(s);

    const struct penalty_options repeat = {options->repeat_penalty, options->frequency_penalty,
                                           options->presence_penalty, options->repeat_last_n};
    if (check_biases(options, n_vocab, e) ||
        penalties_open(&s->penalties, &repeat, &options->dry, n_vocab, n_ctx, e))
        goto fail;
    s->memory = mem_alloc((size_t)n_vocab, sizeof *s->memory);
    if (s->memory) return OK;
    err_memory(e, (size_t)n_vocab * sizeof *s->memory, "the sampler");
fail:
    sampler_close(s);
    return e->status;
}

void sampler_close(struct sampler *s) {
    mem_free(s->memory);
    penalties_close(&s->penalties);
    *s = (struct sampler){0};
}

void sampler_accept(struct sampler *s, int32_t token) {
    ASSERT(token >= 0 && token < s->n_vocab);
    penalties_accept(&s->penalties, token);
}

void sampler_forget_text(struct sampler *s) { penalties_forget(&s->penalties); }

void sampler_forget(struct sampler *s) {
    sampler_forget_text(s);
    s->mu = 2 * s->options.mirostat_tau;
}

// ---- The chain ----------------------------------------------------------------------------------

static enum status bad_logit(int32_t token, float logit, struct err *e) {
    err_set(e, ERR_DEVICE, "the logit of token %d is %s", token,
            isnan(logit) ? "not a number" : "infinite");
    // Keys and values from 65520 on are infinite in halves.
    return err_fix(e, "%scheck the model file; compare with --device none --isa ref",
                   isnan(logit) ? "try -ctk f32 -ctv f32, since numbers may have been too large "
                                  "for the F16 KV cache; "
                                : "");
}

// Makes every token a candidate. ERR_DEVICE if the logits cannot be a model's.
static enum status list_candidates(struct sampler *s, const float *logits, struct err *e) {
    float most = -INFINITY;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (!(logits[i] < INFINITY)) return bad_logit(i, logits[i], e);
        if (logits[i] > most) most = logits[i];
        s->memory[i].logit = logits[i];
        s->memory[i].token = i;
    }
    s->candidates = (struct candidates){s->memory, s->n_vocab};
    if (most > -INFINITY) return OK;
    return err_set(e, ERR_DEVICE, "all %d logits are minus infinity", s->n_vocab);
}

// Called with the whole list, where tokens are indices.
static enum status add_biases(struct sampler *s, struct err *e) {
    const struct sampler_options *o = &s->options;
    if (o->n_biases == 0) return OK;
    for (int32_t i = 0; i < o->n_biases; i++)
        s->memory[o->biases[i].token].logit += o->biases[i].bias;
    if (s->memory[candidates_best(&s->candidates)].logit > -INFINITY) return OK;
    return err_set(e, ERR_USAGE, "the logit biases leave no token that may be drawn");
}

static void temper(struct candidates *c, const struct sampler_options *o) {
    const float low = o->temp - o->dynatemp_range;
    if (o->dynatemp_range > 0)
        candidates_temper_by_entropy(c, low > 0 ? low : 0, o->temp + o->dynatemp_range,
                                     o->dynatemp_exponent);
    else
        candidates_temper(c, o->temp);
}

static void cut(struct sampler *s, enum sampler_step step) {
    const struct sampler_options *o = &s->options;
    struct candidates *c = &s->candidates;
    switch (step) {
    case SAMPLER_TOP_N_SIGMA: candidates_top_n_sigma(c, o->top_n_sigma); break;
    case SAMPLER_TOP_K: candidates_top_k(c, o->top_k); break;
    case SAMPLER_TYPICAL: candidates_typical(c, o->typical_p); break;
    case SAMPLER_TOP_P: candidates_top_p(c, o->top_p); break;
    case SAMPLER_MIN_P: candidates_min_p(c, o->min_p); break;
    case SAMPLER_XTC:
        if (xtc_on(o) && c->n > 1 && sampler_uniform(s) <= o->xtc_probability)
            candidates_exclude_top(c, o->xtc_threshold);
        break;
    case SAMPLER_TEMPERATURE: temper(c, o); break;
    default: break;
    }
}

static void run_steps(struct sampler *s) {
    const struct sampler_order *order = &s->options.order;
    for (int32_t i = 0; i < order->n; i++) {
        if (order->steps[i] == SAMPLER_PENALTIES)
            penalties_repeat(&s->penalties, &s->candidates);
        else if (order->steps[i] == SAMPLER_DRY)
            penalties_dry(&s->penalties, &s->candidates);
        else if (s->cuts)
            cut(s, order->steps[i]);
    }
}

static void run_mirostat(struct sampler *s) {
    if (s->greedy) return;
    candidates_temper(&s->candidates, s->options.temp);
    if (s->options.mirostat == 1)
        candidates_mirostat_1(&s->candidates, s->mu, s->n_vocab);
    else
        candidates_mirostat_2(&s->candidates, s->mu);
}

enum status sampler_apply(struct sampler *s, const float *logits, struct err *e) {
    if (list_candidates(s, logits, e) || add_biases(s, e)) return e->status;
    if (s->options.mirostat)
        run_mirostat(s);
    else
        run_steps(s);
    if (!s->greedy) candidates_softmax(&s->candidates);
    return OK;
}

// The index of a candidate, drawn by the probabilities.
static int32_t draw(struct sampler *s) {
    const struct candidates *c = &s->candidates;
    double sum = 0;
    int32_t last = 0; // that can be drawn
    for (int32_t i = 0; i < c->n; i++) sum += c->list[i].p;
    double left = sampler_uniform(s) * sum;
    for (int32_t i = 0; i < c->n; i++) {
        if (c->list[i].p <= 0) continue;
        last = i;
        left -= c->list[i].p;
        if (left < 0) break;
    }
    return last;
}

enum status sampler_draw(struct sampler *s, const float *logits, int32_t *token, struct err *e) {
    if (sampler_apply(s, logits, e)) return e->status;
    const int32_t chosen = s->greedy ? candidates_best(&s->candidates) : draw(s);
    const struct candidate *c = &s->candidates.list[chosen];
    *token = c->token;
    if (s->options.mirostat && !s->greedy)
        s->mu -= s->options.mirostat_eta * (-log2f(c->p) - s->options.mirostat_tau);
    return OK;
}
