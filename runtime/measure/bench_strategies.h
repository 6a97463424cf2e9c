/* bench_strategies.h: one way of placing a model measured against the others: time, memory, and
 * whether it computes what the CPU alone computes.
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

// Likeliest tokens after the prompt of bench_token, as the CPU alone computes them.
struct bench_reference {
    int32_t n_prompt, n_tokens, n_vocab;
    int32_t *tokens; // [n_tokens]
    float *logits;   // [n_tokens, n_vocab], what each was chosen from
    struct bench_model model;
};
// n_tokens after n_prompt, with an engine that options describe. On failure *r is closed.
enum status bench_reference_open(struct bench_reference *r, const struct engine_options *options,
                                 int32_t n_prompt, int32_t n_tokens, struct err *e);
void bench_reference_close(struct bench_reference *r); // accepts a zeroed one; leaves it zeroed

// Devices that round by batch may choose another token where two are nearly as likely. At the first
// one that differs, the logits, which come from equal tokens, may be that far from the CPU's.
#define BENCH_MAX_NMSE 1e-2

struct bench_agreement {
    int32_t first_difference; // token of the reference, -1: all are the same
    double nmse;              // of the logits there
    bool is_good;             // no difference, or one that rounding explains
};
// The same prompt and tokens on another engine. Leaves its session empty.
enum status bench_agreement_check(struct bench_agreement *out, const struct bench_reference *r,
                                  struct bench_engine *b, struct err *e);
// "same", "differs at 7: NMSE 3.1e-04, at most 1e-02", "differs at 7". Returns out.
char *bench_agreement_text(const struct bench_agreement *a, char *out, size_t size_bytes);
// Sum of squared differences over the sum of squares of want. Places where want is not finite (ids
// that no token has) are left out.
double bench_nmse(const float *want, const float *got, int32_t n);

// The order in which strategies are measured and shown: the planner's choice comes last.
static inline enum strategy bench_strategy(int32_t i) {
    return (enum strategy)((i + 1) % STRATEGIES);
}

// One strategy within one limit of memory.
struct bench_case {
    struct bench_config config; // with its strategy and limit
    bool is_refused;            // it does not fit, or the model has nothing to place that way
    char why[640];              // then: the refusal
    struct bench_result prompt, gen;
    struct bench_estimate prompt_estimate, gen_estimate;
    struct bench_agreement agreement;
    uint64_t peak_vram_bytes, peak_ram_bytes, pinned_bytes;
    uint64_t plan_id;  // equal plans have equal ones
    int32_t n_demoted; // units that the accelerator refused
};

struct bench_setup { // of all cases
    int32_t n_prompt, n_gen, n_repeats;
    const struct bench_reference *reference; // borrowed
    struct bench_runs runs;
};
// One round, 0..n_repeats-1 in this order: opens an engine, in the first round compares its tokens,
// measures a prompt and then tokens behind it once, and leaves the engine open for the caller to
// look at; of a refused case it stays closed. Between two rounds of a case the others have theirs,
// so that a machine that gets slower does so for all. c->config is set before; on failure
// bench_case_close and bench_engine_close are due all the same.
enum status bench_case_run(struct bench_case *c, struct bench_engine *b,
                           const struct bench_setup *setup, const struct engine_options *options,
                           int32_t round, struct err *e);
void bench_case_close(struct bench_case *c); // accepts a zeroed one; leaves it zeroed

// Time of the prompt and all tokens, medians; INFINITY if the case was refused.
double bench_case_total_us(const struct bench_case *c);
// A number for where everything is; plans that differ in nothing that is computed have the same.
uint64_t bench_plan_id(const struct plan *plan);

// The planner's choice among the cases of one limit.
struct bench_verdict {
    int32_t chosen, best; // indices; -1: there is none
    double ratio;         // how many times as long as the best the chosen one takes: the median of
                          // the ratios of all rounds. Rows with equal plans count as one
    bool is_good;         // within BENCH_CHOICE_RATIO
};
#define BENCH_CHOICE_RATIO 1.05
void bench_verdict(const struct bench_case *cases, int32_t n, struct bench_verdict *out);

#endif
