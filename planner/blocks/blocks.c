/* blocks.c: see blocks.h. */
#include "planner/blocks/blocks.h"

#include "planner/blocks/encode.h"

const struct block *blocks_of_kind(enum unit_kind kind) {
    static const struct block *const blocks[UNIT_KINDS] = {
        [UNIT_EMBED] = &block_embed, [UNIT_ATTENTION] = &block_attention,
        [UNIT_FFN] = &block_ffn,     [UNIT_EXPERTS] = &block_experts,
        [UNIT_HEAD] = &block_head,
    };
    ASSERT((unsigned)kind < UNIT_KINDS);
    return blocks[kind];
}
