/* blocks.c: see blocks.h. */
#include "planner/blocks/blocks.h"

#include "planner/blocks/encode.h"

const struct block *blocks_find(const struct unit *unit) {
    static const struct block *const blocks[UNIT_KINDS] = {
        [UNIT_EMBED] = &block_embed,
        [UNIT_ATTENTION] = &block_attention,
        [UNIT_FFN] = &block_ffn,
        [UNIT_HEAD] = &block_head,
    };
    ASSERT((unsigned)unit->kind < UNIT_KINDS);
    return blocks[unit->kind];
}
