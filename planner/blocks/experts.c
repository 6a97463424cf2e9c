/* experts.c: routed experts, an FFN whose rows are pairs of a token and an expert. Such units can
 * be planned but not computed yet. Tested by tests/planner/test_planner.c. */
#include "planner/blocks/encode.h"

static const struct block_area NEEDED[] = {
    {AREA_RESIDUAL, ROWS_TOKENS, DIM_EMBD},  {AREA_NORMED, ROWS_TOKENS, DIM_EMBD},
    {AREA_GATE, ROWS_PAIRS, DIM_FF_EXPERT},  {AREA_UP, ROWS_PAIRS, DIM_FF_EXPERT},
    {AREA_EXPERT_OUT, ROWS_PAIRS, DIM_EMBD}, {AREA_ROUTER_LOGITS, ROWS_TOKENS, DIM_EXPERTS},
    {AREA_CHOSEN, ROWS_PAIRS, DIM_ONE},      {AREA_CHOSEN_WEIGHTS, ROWS_PAIRS, DIM_ONE},
    {AREA_PAIR_ORDER, ROWS_PAIRS, DIM_ONE},  {AREA_PAIR_STARTS, ROWS_ONE, DIM_EXPERT_BOUNDS},
    {AREA_MATMUL, ROWS_TOKENS, DIM_EMBD},    {AREA_MATMUL, ROWS_PAIRS, DIM_FF_EXPERT},
};

const struct block block_experts = {BLOCK_AREAS(NEEDED)};
