/* placement.h: where each unit of a model is, and which units are split or streamed.
 *
 * A plain value without pointers, which a user may give, the search proposes, the plan holds and
 * the executor reads. Any thread. Included through planner/planner.h. Tested by
 * tests/planner/test_planner.c and tests/planner/test_solver.c.
 */
#ifndef TANDEM_PLANNER_PLAN_PLACEMENT_H
#define TANDEM_PLANNER_PLAN_PLACEMENT_H

#include "planner/shape/shape.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    DEVICE_ANY = -1, // in constraints: the planner chooses the device
    UNIT_PARTS = 32, // a split unit's rows or experts are counted in so many parts
    RING_SLOTS = 2,  // slots of the ring: one is filled while the unit in the other is computed
};

// How streamed weights leave the host's memory.
enum feed {
    FEED_NONE,   // of a plan: nothing is streamed; of constraints: the planner's choice
    FEED_ARENA,  // they live in pinned memory, from which copies read straight
    FEED_STAGED, // copied block by block from the mapped file into a few pinned blocks
    FEEDS
};
const char *feed_name(enum feed feed); // "none", "arena", "staged"
bool feed_parse(const char *name, enum feed *out);

struct unit_place {
    // The device that has the unit's weights and cache, and computes it but for the two cases
    // below.
    int8_t device;
    // Split units, on the accelerator: parts out of UNIT_PARTS of the rows, or of the experts, of
    // each matrix that is cut (unit_is_cut) that the CPU has instead, the last ones
    // (footprint_cut). The cache of split attention is on the accelerator. 0: not split.
    uint8_t cpu_parts;
    // In prefill the accelerator computes the CPU's rows of this unit (all rows of a dense FFN,
    // routed experts or attention on the CPU, or the last ones of a split unit), with weights that
    // a fetch has copied into a slot: of experts all, since many tokens choose nearly all. For
    // attention on the CPU the fetch copies the cache too, and a store copies its
    // new rows back.
    bool streamed;
};

struct placement {
    struct unit_place units[MAX_UNITS];
    enum feed feed; // FEED_NONE if nothing is streamed
    int8_t ring;    // the accelerator that has the ring, if anything is streamed
};

#endif
