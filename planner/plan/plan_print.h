/* plan_print.h: a plan in text for a person.
 *
 * Writes only to the stream it is given; owns nothing. Any thread. Included through
 * planner/planner.h. Tested by tests/planner/test_planner.c and tests/cli/cli_plan.sh.
 */
#ifndef TANDEM_PLANNER_PLAN_PLAN_PRINT_H
#define TANDEM_PLANNER_PLAN_PLAN_PRINT_H

#include "planner/plan/plan.h"

#include <stdio.h>

// The figures of every report: three digits (1234, 123, 12.3, 1.23, 0.12), and a time in ms or s.
// Both write to out and return it.
enum { PLAN_NUMBER_CHARS = 24 };
const char *plan_figure(double value, char out[PLAN_NUMBER_CHARS]);
const char *plan_duration(double us, char out[PLAN_NUMBER_CHARS]);

// For people: bytes per device and purpose, one character per layer for where it is, what is
// predicted and what binds, and what there is to know about the machine and the rates.
void plan_print(const struct plan *plan, const struct shape *shape, FILE *out);
// With the predicted time of each where there are rates, for the pass of plan_pass.
void plan_print_steps(const struct plan *plan, const struct shape *shape, enum batch_class batch,
                      FILE *out);

#endif
