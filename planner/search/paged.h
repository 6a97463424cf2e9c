/* paged.h: plans for models whose weights do not stay in RAM.
 *
 * Owns nothing that outlives a call. Any thread. Included through planner/planner.h. Tested by
 * tests/planner/test_paging.c.
 */
#ifndef TANDEM_PLANNER_SEARCH_PAGED_H
#define TANDEM_PLANNER_SEARCH_PAGED_H

#include "planner/plan/plan.h"

// As planner_solve, but the CPU's weights may be larger than its memory: what does not stay is cold
// (paging.h). While it searches, the CPU reads all weights from the disk, so that the accelerator
// is given as much as it holds. ERR_MEMORY if what is no weight does not fit.
enum status planner_solve_paged(struct plan *plan, const struct shape *shape,
                                const struct machine *machine, const struct workload *workload,
                                const struct constraints *constraints, struct err *e);

#endif
