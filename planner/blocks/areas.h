/* areas.h: the areas of a device's scratch memory, and the sizes that a block needs.
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

// How long the contents of an area live.
enum area_life {
    LIFE_PASS, // for a micro-batch, or longer
    LIFE_UNIT, // while a unit is computed: areas of which no block needs both may share bytes
};

enum area_rows {
    ROWS_ONE,
    ROWS_TOKENS, // of a micro-batch
    ROWS_PAIRS,  // of a token and one of its experts
    ROWS_HEADS,  // of a token and one of its attention heads
    ROWS_LOGITS, // tokens whose logits are wanted
};

// Rows of elements of 4 bytes; for AREA_MATMUL the scratch of a matmul with such rows
// (matmul_scratch_bytes). An area has the size of its largest use by any block.
struct block_area {
    enum area area;
    enum area_rows rows;
    enum dim n_cols;
};

#endif
