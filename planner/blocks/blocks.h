/* blocks.h: the list of blocks, by the kind of unit that they compute.
 *
 * Constants. Any thread. Included through planner/planner.h. Tested by
 * tests/runtime/test_pipeline.c.
 */
#ifndef TANDEM_PLANNER_BLOCKS_BLOCKS_H
#define TANDEM_PLANNER_BLOCKS_BLOCKS_H

#include "planner/blocks/block.h"

const struct block *blocks_of_kind(enum unit_kind kind);

#endif
