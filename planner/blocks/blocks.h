/* blocks.h: the list of blocks, by the unit that they compute.
 *
 * Constants. Any thread. Included through planner/planner.h. Tested by
 * tests/runtime/test_pipeline.c.
 */
#ifndef TANDEM_PLANNER_BLOCKS_BLOCKS_H
#define TANDEM_PLANNER_BLOCKS_BLOCKS_H

#include "planner/blocks/block.h"

const struct block *blocks_of_unit(const struct shape *shape, const struct unit *unit);

// The blocks that compute the units of a kind: of attention a second one if the model has
// recurrent layers. Returns their number.
enum { BLOCKS_OF_KIND = 2 };
int blocks_of_kind(const struct shape *shape, enum unit_kind kind,
                   const struct block *out[BLOCKS_OF_KIND]);

#endif
