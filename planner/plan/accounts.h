/* accounts.h: counts the bytes of a whole placement by device and purpose, and compares them with a
 * machine's budgets.
 *
 * Adds up the bytes that footprint.c gives for each unit, for a plan and for the proposals of the
 * search. Owns nothing; any thread. Included through planner/planner.h. Tested by
 * tests/planner/test_planner.c, tests/planner/test_schedule.c and tests/planner/test_solver.c.
 */
#ifndef TANDEM_PLANNER_PLAN_ACCOUNTS_H
#define TANDEM_PLANNER_PLAN_ACCOUNTS_H

#include "planner/plan/plan.h"

// The bytes of one unit in its place.
struct unit_bytes {
    uint64_t weights;     // on its device
    uint64_t cpu_weights; // a split unit's weights on the CPU, else 0
    uint64_t kv;          // its KV cache
    uint64_t slot, fetch; // a streamed unit's bytes in a slot, and weights in one fetch; else 0
};
// The facts besides its place that a unit's bytes depend on; all borrowed.
struct unit_context {
    const struct workload *w;
    const struct machine *machine;
    int8_t ring; // device of the ring
};
// embed_is_here: the embedding is on the unit's device.
void unit_bytes_of(const struct unit_context *context, const struct unit *unit,
                   const struct unit_place *place, bool embed_is_here, struct unit_bytes *out);

// The sums over all units.
struct accounts {
    uint64_t bytes[MAX_DEVICES][PLAN_PURPOSES];
    uint32_t kinds[MAX_DEVICES];      // bit k: the device computes a unit of kind k
    uint64_t slot_bytes, fetch_bytes; // the largest of each
    uint64_t arena_bytes;             // weights of streamed units on the CPU
    uint64_t streamed_kv_bytes;       // caches that fetches and stores move
    uint64_t block_bytes;             // of one pinned block
    int32_t n_blocks;
};
// Adds n equal units. a: zeroed before the first ones.
void accounts_add(struct accounts *a, const struct unit *unit, const struct unit_place *place,
                  int8_t ring, const struct unit_bytes *bytes, uint64_t n);
// After all units: adds the ring, its blocks, the tables, and the scratch memory of each device.
void accounts_finish(struct accounts *a, const struct placement *place, uint64_t tables_bytes,
                     const uint64_t scratch_bytes[MAX_DEVICES]);
// Bytes of the host that the feed and the copies of a pass pin: staging, the host's scratch, the
// CPU's caches of streamed attention, and with FEED_ARENA the CPU's weights of streamed units.
uint64_t accounts_pinned_bytes(const struct accounts *a, enum feed feed);
// True if the machine's budgets hold these bytes; unified memory counts with the host's.
bool machine_holds(const struct machine *m, const uint64_t bytes[MAX_DEVICES]);

// Fills every byte count of the plan for plan->place and plan->workload. If nothing is streamed,
// the feed becomes none.
void plan_count_bytes(struct plan *plan, const struct shape *shape);
uint64_t plan_device_bytes(const struct plan *plan, int d);
// True if device d of the plan's machine holds the plan's bytes on it.
bool plan_holds(const struct plan *plan, int d);
// Bytes that device d must hold; the host's include those of accelerators with unified memory.
uint64_t plan_needs(const struct plan *plan, int d);

// Devices that the runtime opens streams on: all up to the last one with a byte, 1 for the CPU
// alone.
int32_t plan_n_devices_used(const struct plan *plan);

#endif
