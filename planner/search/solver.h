/* solver.h: makes a plan that fits a request, or a refusal that says what would fit.
 *
 * Owns nothing that outlives a call. Any thread. Tested by
 * tests/planner/test_planner.c and tests/planner/test_solver.c.
 */
#ifndef TANDEM_PLANNER_SEARCH_SOLVER_H
#define TANDEM_PLANNER_SEARCH_SOLVER_H

#include "planner/plan/plan.h"

// Fills *plan: the placement and micro-batch with the least predicted time for the workload's
// prompt and generation that fit every limit (AUTO), or the requested ones. Deterministic.
// ERR_MEMORY if the requested or every placement exceeds a limit: names device, purpose, needed and
// available bytes and what would fit. ERR_USAGE if layers are requested for a GPU and there is
// none. With RATES_NONE the accelerator is filled by bytes from the end of the model. struct plan
// is big: put it on the heap.
enum status planner_solve(struct plan *plan, const struct shape *shape,
                          const struct machine *machine, const struct workload *workload,
                          const struct constraints *constraints, struct err *e);

// Completes a plan whose units are placed: fills bytes and steps for plan->machine, workload and
// place, as planner_solve does. The feed must be given if anything is streamed, and becomes none if
// nothing is. ERR_MEMORY as above.
enum status planner_complete(struct plan *plan, const struct shape *shape, struct err *e);

#endif
