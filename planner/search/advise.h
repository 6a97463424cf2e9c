/* advise.h: what would make a plan faster, solved and printed.
 *
 * Owns nothing that outlives a call. Any thread. Tested by
 * tests/planner/test_planner.c.
 */
#ifndef TANDEM_PLANNER_SEARCH_ADVISE_H
#define TANDEM_PLANNER_SEARCH_ADVISE_H

#include "planner/plan/predict.h"

#include <stdio.h>

// What would help, each a whole new plan: false where there is no such thing (no accelerator, no
// smaller type, context at its least). out[i].decode_us 0 if it would not fit.
enum advice { ADVICE_VRAM, ADVICE_SMALLER_QUANT, ADVICE_SHORTER_CONTEXT, ADVICE_KV_Q8_0, ADVICES };
struct advice_result {
    bool exists;
    char text[96]; // "1 GiB more of VRAM"
    struct prediction prediction;
    int32_t units_on_gpu;
};
enum status planner_advise(const struct plan *plan, const struct shape *shape,
                           const struct constraints *constraints, struct advice_result out[ADVICES],
                           struct err *e);

// What would help, from planner_advise: a line for each, with its factor.
void plan_print_advice(const struct plan *plan, const struct shape *shape,
                       const struct advice_result advice[ADVICES], FILE *out);

#endif
