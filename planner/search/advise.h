/* advise.h: finds and prints changes that would make a plan faster.
 *
 * Owns nothing that outlives a call. Any thread. Tested by
 * tests/planner/test_planner.c.
 */
#ifndef TANDEM_PLANNER_SEARCH_ADVISE_H
#define TANDEM_PLANNER_SEARCH_ADVISE_H

#include "planner/plan/predict.h"
#include "planner/search/variant.h"

#include <stdio.h>

struct advice_result {
    bool exists;
    char text[ADVICE_CHARS]; // "1 GiB more of VRAM"
    struct prediction prediction;
    int32_t units_on_gpu;
};
// Solves with each change, under constraints and with micro-batches of n_ubatch, or of the
// planner's choice where that is 0. out[i].prediction.decode_us is 0 if the plan would not fit.
enum status planner_advise(const struct plan *plan, const struct shape *shape,
                           const struct constraints *constraints, int32_t n_ubatch,
                           struct advice_result out[ADVICES], struct err *e);

// Predicts the plan as planner_advise predicts changes: with the workload's n_past positions before
// the prompt. The results are compared with this.
static inline void advise_now(const struct plan *plan, const struct shape *shape,
                              struct prediction *out) {
    plan_predict_after(plan, shape, plan->workload.n_past, out);
}
// True if a change makes decode, or prompt and answer together, at least 1 % faster.
bool advise_helps(const struct prediction *now, const struct prediction *then);

// Prints the results of planner_advise: a line for each change that helps, with its factors, by the
// time of prompt and answer together.
void plan_print_advice(const struct plan *plan, const struct shape *shape,
                       const struct advice_result advice[ADVICES], FILE *out);

#endif
