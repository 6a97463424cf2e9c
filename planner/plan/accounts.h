/* accounts.h: the bytes of a whole plan by device and purpose, and whether a machine holds them.
 *
 * Adds up what footprint.c says. Owns nothing; any thread. Included through planner/planner.h.
 * Tested by tests/planner/test_planner.c and tests/planner/test_schedule.c.
 */
#ifndef TANDEM_PLANNER_PLAN_ACCOUNTS_H
#define TANDEM_PLANNER_PLAN_ACCOUNTS_H

#include "planner/plan/plan.h"

// Fills every byte count of the plan for plan->place and plan->workload.
void plan_count_bytes(struct plan *plan, const struct shape *shape);
uint64_t plan_device_bytes(const struct plan *plan, int d);
// The limits of a machine, unified memory included, for bytes by device.
bool machine_holds(const struct machine *m, const uint64_t bytes[MAX_DEVICES]);
bool plan_holds(const struct plan *plan, int d); // of its machine
// Bytes that device d must hold: with unified memory the host's and the accelerator's.
uint64_t plan_needs(const struct plan *plan, int d);

// Devices that work in the plan: 1, the CPU alone, where the accelerator has not a byte.
int32_t plan_n_lanes(const struct plan *plan);

// What the feed of streamed weights and the copies of the pass want pinned: staging, the host's
// scratch, with FEED_ARENA what the CPU has of streamed units, and unless the feed is FEED_PAGEABLE
// the CPU's caches of streamed attention.
uint64_t plan_pinned_bytes(const struct plan *plan);

#endif
