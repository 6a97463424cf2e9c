/* bench_strategies.h: measures strategies of placement against each other: time, memory, and
 * whether each computes the same as the CPU alone.
 *
 * A struct bench_reference owns the tokens and logits of the CPU; a struct bench_case owns its two
 * results. Must not print. One thread. Tested by tests/runtime/test_bench.c and
 * tests/cli/cli_bench.sh.
 */
#ifndef TANDEM_RUNTIME_MEASURE_BENCH_STRATEGIES_H
#define TANDEM_RUNTIME_MEASURE_BENCH_STRATEGIES_H

#include "runtime/measure/bench_estimate.h"
#include "runtime/measure/bench_measure.h"
#include "runtime/measure/bench_record.h"

// The likeliest tokens after the prompt of bench_token, as the CPU alone computes them.
struct bench_reference {
    int32_t n_prompt, n_tokens, n_vocab;
    int32_t *tokens; // [n_tokens]
    float *logits;   // [n_tokens, n_vocab], from which each was chosen
    struct bench_model model;
};
// Computes n_tokens tokens after n_prompt, with an engine that options describe. On failure *r is
// closed.
enum status bench_reference_open(struct bench_reference *r, const struct engine_options *options,
                                 int32_t n_prompt, int32_t n_tokens, struct err *e);
void bench_reference_close(struct bench_reference *r); // accepts a zeroed one; leaves it zeroed

// The largest NMSE of logits at the first token that differs. Devices that round by batch may
// choose another token where two are nearly equally likely; the tokens before are equal, so the
// logits can be compared.
#define BENCH_MAX_NMSE 1e-2

struct bench_agreement {
    int32_t first_difference; // token of the reference, -1: all are the same
    double nmse;              // of the logits there
    bool is_good;             // no difference, or one that rounding explains
};
// "same", "differs at 7: NMSE 3.1e-04, at most 1e-02", "differs at 7". Returns out.
char *bench_agreement_text(const struct bench_agreement *a, char *out, size_t size_bytes);
// Sum of squared differences divided by the sum of squares of want. Elements of want that are not
// finite (ids without a token) are left out.
double bench_nmse(const float *want, const float *got, int32_t n);

// The order in which strategies are measured and shown: the planner's choice comes last.
static inline enum strategy bench_strategy(int32_t i) {
    return (enum strategy)((i + 1) % STRATEGIES);
}

// One strategy within one limit of memory.
struct bench_case {
    struct bench_config config; // with its strategy and limit
    bool is_refused;            // it does not fit, or the model has no unit for that strategy
    char why[640];              // the refusal, if refused
    struct bench_result prompt, gen;
    struct bench_estimate prompt_estimate, gen_estimate;
    struct bench_agreement agreement;
    uint64_t peak_vram_bytes, peak_ram_bytes, pinned_bytes;
    uint64_t plan_id;  // equal plans have equal ids
    int32_t n_replans; // plans made because the accelerator refused memory
};

struct bench_setup { // of all cases
    int32_t n_prompt, n_gen, n_repeats;
    const struct bench_reference *reference; // borrowed
    struct bench_runs runs;
};
// Runs one round, 0..n_repeats-1 in this order: opens an engine, compares its tokens in the first
// round, measures a prompt and then tokens after it once, and leaves the engine open for the
// caller; the engine of a refused case stays closed. Run all cases between two rounds of one, so
// that a machine that gets slower affects all cases. c->config is set before; call bench_case_close
// and bench_engine_close after a failure too.
enum status bench_case_run(struct bench_case *c, struct bench_engine *b,
                           const struct bench_setup *setup, const struct engine_options *options,
                           int32_t round, struct err *e);
void bench_case_close(struct bench_case *c); // accepts a zeroed one; leaves it zeroed

// Time of the prompt and all tokens, medians; INFINITY if the case was refused.
double bench_case_total_us(const struct bench_case *c);
// A number that identifies a plan; plans that compute everything in the same place have the same
// number.
uint64_t bench_plan_id(const struct plan *plan);

// The planner's choice among the cases of one limit.
struct bench_verdict {
    int32_t chosen, best; // indices; -1: there is none
    double ratio; // time of the chosen case divided by that of the best: the median over rounds.
                  // Rows with equal plans count as one
    bool is_good; // within BENCH_CHOICE_RATIO
};
#define BENCH_CHOICE_RATIO 1.05
void bench_verdict(const struct bench_case *cases, int32_t n, struct bench_verdict *out);

#endif
