/* search.h: proposes placements and takes the fastest that fits.
 *
 * Owns its tables while it runs. Any thread. Tested by tests/planner/test_solver.c.
 */
#ifndef TANDEM_PLANNER_SEARCH_SEARCH_H
#define TANDEM_PLANNER_SEARCH_SEARCH_H

#include "planner/plan/plan.h"

// The input of a search; all borrowed while it runs.
struct search_request {
    const struct shape *shape;
    const uint8_t *allowed; // [n_units], bit d: may be on device d
    const struct constraints *constraints;
    uint64_t own_bytes; // the host's budget of the machine: memory that a feed pins must fit it,
                        // even if the user allows the plan more
};
// Finds the fastest placement, micro-batch and KV type that fit, and writes them to plan. *found is
// false if nothing fits. ERR_MEMORY.
enum status search_placement(struct plan *plan, const struct search_request *request, bool *found,
                             struct err *e);

#endif
