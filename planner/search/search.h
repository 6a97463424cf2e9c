/* search.h: proposes placements and takes the fastest that fits.
 *
 * Owns its tables while it runs. Any thread. Tested by tests/planner/test_solver.c.
 */
#ifndef TANDEM_PLANNER_SEARCH_SEARCH_H
#define TANDEM_PLANNER_SEARCH_SEARCH_H

#include "planner/plan/plan.h"

// What is asked of a search.
struct search_request {
    const struct shape *shape;
    const uint8_t *allowed; // [n_units], bit d: may be on device d
    const struct constraints *constraints;
    uint64_t own_bytes; // as in struct pricing
};
// Finds the fastest placement, ways, micro-batch and KV type that fit, and writes them to plan.
// *found is false if nothing fits.
enum status search_placement(struct plan *plan, const struct search_request *request, bool *found,
                             struct err *e);

#endif
