/* ways.h: the ways in which a unit may be placed besides whole on one device: split or streamed.
 *
 * Pure functions; nothing is owned. Any thread. Included through planner/plan/footprint.h. Tested
 * by tests/planner/test_planner.c.
 */
#ifndef TANDEM_PLANNER_PLAN_WAYS_H
#define TANDEM_PLANNER_PLAN_WAYS_H

#include "planner/shape/shape.h"

enum { SPLIT_STEP = 32 }; // rows of a split matrix are cut at multiples

// True for a unit that can be split: a dense FFN all of whose matrices are cut, but for those that
// end a layer, each with at least 64 rows; attention with a cache and no state whose queries and
// outputs are such matrices, and equally large heads of keys and values; or experts that read the
// norm that their router reads, and end with their sum.
bool unit_can_split(const struct unit *unit);
// True if a tensor of a split unit is cut (tensor_roles.def); other matrices are on the accelerator
// alone.
bool unit_is_cut(const struct unit_tensor *tensor);
// True for a unit that can be streamed: a dense FFN, routed experts, or attention with no state and
// a cache that no other unit reads.
bool unit_can_stream(const struct unit *unit);

#endif
