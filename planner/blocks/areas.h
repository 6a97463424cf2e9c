/* areas.h: the areas of a device's scratch memory, and what a block needs of them.
 *
 * Expands areas.def. Constants; any thread. Included through planner/planner.h. Tested by
 * tests/planner/test_planner.c.
 */
#ifndef TANDEM_PLANNER_BLOCKS_AREAS_H
#define TANDEM_PLANNER_BLOCKS_AREAS_H

#include "planner/blocks/dims.h"

enum area {
#define AREA(id, life) AREA_##id,
#include "planner/blocks/areas.def"
#undef AREA
    AREAS
};

// How long an area keeps what is in it.
enum area_life {
    LIFE_PASS, // for a micro-batch, or longer
    LIFE_UNIT, // while a unit is computed: areas of which no block needs both may share bytes
};

enum area_rows {
    ROWS_ONE,
    ROWS_TOKENS, // of a micro-batch
    ROWS_PAIRS,  // of a token and one of its experts
    ROWS_LOGITS, // tokens whose logits are wanted
};

// Rows of elements of 4 bytes; of AREA_MATMUL what a matmul needs for such rows
// (matmul_scratch_bytes). An area is as large as the block needs that needs most.
struct block_area {
    enum area area;
    enum area_rows rows;
    enum dim n_cols;
};

#endif
