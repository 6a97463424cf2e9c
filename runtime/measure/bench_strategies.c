/* bench_strategies.c: see bench_strategies.h. */
#include "runtime/measure/bench_strategies.h"

#include "base/hash.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

// ---- The CPU's tokens ---------------------------------------------------------------------------

static int32_t likeliest(const float *logits, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static enum status eval_token(struct bench_engine *b, int32_t token, struct err *e) {
    const struct batch_item item = {b->session, token, true};
    return engine_eval(b->engine, &item, 1, e);
}

static enum status read_prompt(struct bench_engine *b, int32_t n_prompt, struct err *e) {
    session_truncate(b->session, 0);
    return bench_engine_prompt(b, n_prompt, e);
}

static enum status record(struct bench_reference *r, struct bench_engine *b, struct err *e) {
    const size_t n_vocab = (size_t)r->n_vocab;
    if (read_prompt(b, r->n_prompt, e)) return e->status;
    for (int32_t i = 0; i < r->n_tokens; i++) {
        const float *logits = engine_logits(b->engine, 0);
        memcpy(r->logits + (size_t)i * n_vocab, logits, n_vocab * sizeof *logits);
        r->tokens[i] = likeliest(logits, r->n_vocab);
        if (i + 1 < r->n_tokens && eval_token(b, r->tokens[i], e)) return e->status;
    }
    return OK;
}

enum status bench_reference_open(struct bench_reference *r, const struct engine_options *options,
                                 int32_t n_prompt, int32_t n_tokens, struct err *e) {
    struct bench_engine b = {0};
    ASSERT(n_prompt >= 1 && n_tokens >= 1);
    *r = (struct bench_reference){.n_prompt = n_prompt, .n_tokens = n_tokens};
    if (bench_engine_open(&b, options, n_prompt, e)) return e->status;
    const size_t n = (size_t)n_tokens, n_vocab = (size_t)engine_n_vocab(b.engine);
    r->n_vocab = engine_n_vocab(b.engine);
    bench_model_of(engine_shape(b.engine), &r->model);
    r->tokens = mem_alloc(n, sizeof *r->tokens);
    r->logits = mem_alloc(n * n_vocab, sizeof *r->logits);
    enum status status = OK;
    if (!r->tokens || !r->logits)
        status = err_memory(e, n * n_vocab * sizeof *r->logits, "the logits to compare with");
    else
        status = record(r, &b, e);
    bench_engine_close(&b);
    if (status) bench_reference_close(r);
    return status;
}

void bench_reference_close(struct bench_reference *r) {
    mem_free(r->tokens);
    mem_free(r->logits);
    *r = (struct bench_reference){0};
}

// ---- Agreement ----------------------------------------------------------------------------------

double bench_nmse(const float *want, const float *got, int32_t n) {
    double error = 0, square = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(want[i])) continue;
        const double difference = (double)got[i] - (double)want[i];
        error += difference * difference;
        square += (double)want[i] * (double)want[i];
    }
    return square > 0 ? error / square : error;
}

// Computes the same prompt and tokens on another engine and compares. Leaves its session empty.
static enum status check_agreement(struct bench_agreement *out, const struct bench_reference *r,
                                   struct bench_engine *b, struct err *e) {
    *out = (struct bench_agreement){.first_difference = -1, .is_good = true};
    if (read_prompt(b, r->n_prompt, e)) return e->status;
    for (int32_t i = 0; i < r->n_tokens; i++) {
        const float *logits = engine_logits(b->engine, 0);
        if (likeliest(logits, r->n_vocab) != r->tokens[i]) {
            const float *want = r->logits + (size_t)i * (size_t)r->n_vocab;
            out->first_difference = i;
            out->nmse = bench_nmse(want, logits, r->n_vocab);
            out->is_good = engine_rounds_by_batch(b->engine) && out->nmse <= BENCH_MAX_NMSE;
            break;
        }
        if (i + 1 < r->n_tokens && eval_token(b, r->tokens[i], e)) return e->status;
    }
    session_truncate(b->session, 0);
    return OK;
}

char *bench_agreement_text(const struct bench_agreement *a, char *out, size_t size_bytes) {
    if (a->first_difference < 0)
        snprintf(out, size_bytes, "same");
    else
        snprintf(out, size_bytes, "%sdiffers at %d: NMSE %.1e, at most %.0e",
                 a->is_good ? "" : "WRONG: ", a->first_difference, a->nmse, BENCH_MAX_NMSE);
    return out;
}

// ---- Cases --------------------------------------------------------------------------------------

uint64_t bench_plan_id(const struct plan *plan) {
    const size_t n = (size_t)plan->n_units;
    const int32_t rest[] = {plan->workload.n_ubatch, (int32_t)plan->place.feed,
                            (int32_t)plan->workload.kv_type_k, (int32_t)plan->workload.kv_type_v};
    const uint64_t placed =
        hash_more(HASH_OF_NOTHING, plan->place.units, n * sizeof *plan->place.units);
    return hash_more(placed, rest, sizeof rest);
}

static void look_at(struct bench_case *c, const struct engine *engine) {
    c->peak_vram_bytes = bench_peak_vram(engine);
    c->peak_ram_bytes = engine_peak_bytes(engine, 0);
    c->pinned_bytes = bench_pinned_bytes(engine);
    c->n_replans = engine_n_replans(engine);
}

// True if the engine refused the options; false if something failed.
static bool is_refusal(enum status status) {
    return status == ERR_MEMORY || status == ERR_USAGE || status == ERR_UNSUPPORTED;
}

struct tests {
    struct bench_test prompt, gen;
};

static enum status begin(struct bench_case *c, struct bench_engine *b,
                         const struct bench_setup *setup, const struct tests *tests,
                         struct err *e) {
    const struct plan *plan = engine_plan(b->engine);
    const struct shape *shape = engine_shape(b->engine);
    bench_estimate(plan, shape, &tests->prompt, b->n_batch, &c->prompt_estimate);
    bench_estimate(plan, shape, &tests->gen, b->n_batch, &c->gen_estimate);
    c->plan_id = bench_plan_id(plan);
    if (bench_result_open(&c->prompt, setup->n_repeats, e) ||
        bench_result_open(&c->gen, setup->n_repeats, e))
        return e->status;
    return check_agreement(&c->agreement, setup->reference, b, e);
}

// Checks that a round runs the plan of the first round; otherwise its time would belong to another
// plan.
static enum status check_plan(const struct bench_case *c, const struct bench_engine *b,
                              struct err *e) {
    if (bench_plan_id(engine_plan(b->engine)) == c->plan_id) return OK;
    err_set(e, ERR_DEVICE, "strategy %s was planned anew between two rounds",
            strategy_name(c->config.strategy));
    err_expected(e, "as much free memory as before");
    return err_fix(e, "stop other programs, or give limits (--vram, --ram) that always fit");
}

enum status bench_case_run(struct bench_case *c, struct bench_engine *b,
                           const struct bench_setup *setup, const struct engine_options *options,
                           int32_t round, struct err *e) {
    const struct tests tests = {{setup->n_prompt, 0, 0}, {0, setup->n_gen, setup->n_prompt}};
    if (c->is_refused) return OK;
    if (bench_engine_open(b, options, c->config.n_batch, e)) {
        c->is_refused = round == 0 && is_refusal(e->status);
        if (!c->is_refused) return e->status;
        err_text(e, c->why, sizeof c->why);
        return OK;
    }
    if (round == 0 ? begin(c, b, setup, &tests, e) : check_plan(c, b, e)) return e->status;
    if (bench_engine_measure_one(b, &tests.prompt, &setup->runs, round, &c->prompt, e) ||
        bench_engine_measure_one(b, &tests.gen, &setup->runs, round, &c->gen, e))
        return e->status;
    look_at(c, b->engine);
    return OK;
}

void bench_case_close(struct bench_case *c) {
    bench_result_close(&c->prompt);
    bench_result_close(&c->gen);
    *c = (struct bench_case){0};
}

double bench_case_total_us(const struct bench_case *c) {
    return c->is_refused ? INFINITY : c->prompt.time_us.median + c->gen.time_us.median;
}

// The time of case i in a round: the mean over all cases with the same plan.
static double round_us(const struct bench_case *cases, int32_t n, int32_t i, int32_t round) {
    double sum = 0;
    int32_t n_equal = 0;
    for (int32_t k = 0; k < n; k++) {
        if (cases[k].is_refused || cases[k].plan_id != cases[i].plan_id) continue;
        sum += cases[k].prompt.us[round] + cases[k].gen.us[round];
        n_equal++;
    }
    return sum / n_equal;
}

// The time of case a divided by that of case b, the median over rounds.
static double ratio_of(const struct bench_case *cases, int32_t n, int32_t a, int32_t b) {
    const struct bench_result *room = &cases[a].prompt;
    for (int32_t i = 0; i < room->n; i++)
        room->scratch[i] = round_us(cases, n, a, i) / round_us(cases, n, b, i);
    struct bench_stats stats;
    bench_stats(room->scratch, room->n, cases[a].gen.scratch, &stats);
    return stats.median;
}

void bench_verdict(const struct bench_case *cases, int32_t n, struct bench_verdict *out) {
    *out = (struct bench_verdict){.chosen = -1, .best = -1, .ratio = NAN};
    for (int32_t i = 0; i < n; i++) {
        const double us = bench_case_total_us(&cases[i]);
        if (cases[i].is_refused) continue;
        if (cases[i].config.strategy == STRATEGY_AUTO) out->chosen = i;
        if (out->best < 0 || us < bench_case_total_us(&cases[out->best])) out->best = i;
    }
    if (out->chosen < 0) {
        out->is_good = out->best < 0; // nothing fits at all
        return;
    }
    out->best = out->chosen;
    out->ratio = 1;
    for (int32_t i = 0; i < n; i++) {
        if (cases[i].is_refused) continue;
        const double ratio = ratio_of(cases, n, out->chosen, i);
        if (ratio <= out->ratio) continue;
        out->ratio = ratio;
        out->best = i;
    }
    out->is_good = out->ratio <= BENCH_CHOICE_RATIO;
}
