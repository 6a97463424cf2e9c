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
// The search compares times with margins, since a machine may be slower than it was measured, and a
// hand-over that comes late delays every token. Links have a latency that is higher by half and 5
// us. A placement that splits rows must be 8 % faster than one that does not, and one that streams,
// whose slots take memory from decode, 5 %. The margins are the same for every proposal, so more
// memory or a faster link never makes the answer worse.
void search_add_margins(struct machine *m);
// The factor for the time of that placement.
double search_margin(const struct placement *place, int32_t n_units);

// Finds the placement, micro-batch and KV type that fit and, with margins, are the fastest, and
// writes them to plan. *found is false if nothing fits. ERR_MEMORY.
enum status search_placement(struct plan *plan, const struct search_request *request, bool *found,
                             struct err *e);

#endif
