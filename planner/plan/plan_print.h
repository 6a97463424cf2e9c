/* plan_print.h: prints a plan as text for people.
 *
 * Writes only to the stream it is given; owns nothing. Any thread. Included through
 * planner/planner.h. Tested by tests/planner/test_planner.c and tests/cli/cli_plan.sh.
 */
#ifndef TANDEM_PLANNER_PLAN_PLAN_PRINT_H
#define TANDEM_PLANNER_PLAN_PLAN_PRINT_H

#include "planner/plan/plan.h"
#include "planner/plan/predict.h"

#include <stdio.h>

// The figures of every report: three digits (1234, 123, 12.3, 1.23, 0.12), and a time in ms or s.
// Both write to out and return it.
enum { PLAN_NUMBER_CHARS = 24 };
const char *plan_figure(double value, char out[PLAN_NUMBER_CHARS]);
const char *plan_duration(double us, char out[PLAN_NUMBER_CHARS]);

const char *bound_name(enum bound bound); // "reading RAM", ...

// Prints bytes per device and purpose, one character per layer for its place, the planned speeds
// and what limits them, and notes on the machine. With detail also what a pass reads and copies.
void plan_print(const struct plan *plan, const struct shape *shape, bool detail, FILE *out);
// Prints the steps of the pass of plan_pass, with the predicted time of each if there are rates.
void plan_print_steps(const struct plan *plan, const struct shape *shape, enum batch_class batch,
                      FILE *out);

#endif
