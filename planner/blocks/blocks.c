/* blocks.c: see blocks.h. */
#include "planner/blocks/blocks.h"

#include "planner/blocks/encode.h"

int blocks_of_kind(const struct shape *shape, enum unit_kind kind,
                   const struct block *out[BLOCKS_OF_KIND]) {
    static const struct block *const blocks[UNIT_KINDS] = {
        [UNIT_EMBED] = &block_embed, [UNIT_ATTENTION] = &block_attention,
        [UNIT_FFN] = &block_ffn,     [UNIT_EXPERTS] = &block_experts,
        [UNIT_HEAD] = &block_head,
    };
    static const struct block *const recurrent[] = {[RECURRENCE_DELTA] = &block_delta,
                                                    [RECURRENCE_CONV] = &block_conv,
                                                    [RECURRENCE_MAMBA] = &block_mamba};
    ASSERT((unsigned)kind < UNIT_KINDS);
    out[0] = blocks[kind];
    if (kind == UNIT_ATTENTION && shape->latent.rank) out[0] = &block_latent;
    if (kind == UNIT_ATTENTION && shape->recurrent.beside) out[0] = &block_beside;
    if (kind != UNIT_ATTENTION || !shape->recurrent.kind || shape->recurrent.beside) return 1;
    out[1] = recurrent[shape->recurrent.kind];
    return 2;
}

const struct block *blocks_of_unit(const struct shape *shape, const struct unit *unit) {
    const struct block *blocks[BLOCKS_OF_KIND];
    (void)blocks_of_kind(shape, unit->kind, blocks);
    return blocks[unit_has_state(shape, unit) && !shape->recurrent.beside];
}
