/* demote.h: moves units to the CPU if an accelerator has less memory than it reported.
 *
 * Owns nothing that outlives a call. Any thread. Tested by
 * tests/planner/test_schedule.c.
 */
#ifndef TANDEM_PLANNER_SEARCH_DEMOTE_H
#define TANDEM_PLANNER_SEARCH_DEMOTE_H

#include "planner/plan/plan.h"

// Gives up one thing on the accelerator, the one whose loss costs least time for the bytes it
// frees, and completes the plan again: a unit, which goes whole to the CPU, or the ring, and then
// nothing is streamed any more. False if nothing is left on the accelerator or the CPU's budget is
// full. *unit gets the unit's index, or DEMOTED_RING.
enum { DEMOTED_RING = -1 };
bool planner_demote(struct plan *plan, const struct shape *shape, int32_t *unit);

#endif
