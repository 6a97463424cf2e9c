/* blocks.h: the block that computes a unit.
 *
 * Constants. Any thread. Included through planner/planner.h. Tested by
 * tests/runtime/test_pipeline.c.
 */
#ifndef TANDEM_PLANNER_BLOCKS_BLOCKS_H
#define TANDEM_PLANNER_BLOCKS_BLOCKS_H

#include "planner/blocks/block.h"

// NULL if no block computes such a unit. Asks for the unit's kind and numbers only, not for its
// tensors.
const struct block *blocks_find(const struct unit *unit);

#endif
