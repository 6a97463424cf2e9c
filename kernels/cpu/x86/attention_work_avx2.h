/* attention_work_avx2.h: attention of every x86 level: which lane computes which queries with which
 * keys. A level provides a kernel that takes some queries through a segment of keys.
 *
 * A query is one head of one token. Its keys are cut into segments whose length depends on their
 * number alone. Each segment has its own softmax, and the segments are merged first to last, so a
 * result does not depend on which lane had which segment. Owns nothing; call only on a CPU that has
 * the level's instructions. Tested by tests/kernels/check_attention.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_ATTENTION_WORK_AVX2_H
#define TANDEM_KERNELS_CPU_X86_ATTENTION_WORK_AVX2_H

#include "kernels/cpu/cpu.h"

enum {
    TILE_QUERIES = 6,                 // that kernels take through keys at once
    QUERIES_MAX = 43 * TILE_QUERIES,  // that share one reading of keys
    QUERY_FLOATS = 96 * HEAD_DIM_MAX, // for as many queries of the largest heads
    SUM_LANES = 16,
    BLOCK = 32,           // elements of a block of a Q8_0 or Q4_0 cache
    QUERY_INT_MAX = 4095, // of rounded queries: a float holds the sum of a block's products
};

struct query {
    float lanes[SUM_LANES]; // sums of its weights 2^(score - max) so far, a key goes to lane
                            // number key % SUM_LANES
    float max, sum;         // maximum of the segment's scores so far, at least -FLT_MAX; sum of
                            // lanes at its end
    int32_t first, last;    // keys
};

// The queries of some heads of neighbouring tokens, which have one sequence: of one kv head, or of
// several groups with a kv head each. Those of a group lie side by side, token by token, and begin
// at a multiple of TILE_QUERIES.
struct query_block {
    int64_t token, head;                 // first ones
    int32_t n_tokens, n_heads, n_groups; // heads of a group
    int32_t segment_keys;                // length of a segment, a multiple of KV_PAGE
    int32_t first_key, last_key;         // of all queries together
};

// The queries of a block, by slots.
struct query_room {
    struct query queries[QUERIES_MAX];
    // Queries times scale and log2(e), [n_slots / TILE_QUERIES, dim, TILE_QUERIES]; zeros from
    // head_dim to dim, which is head_dim rounded up to a multiple of 16. Without log2(e) if scores
    // are capped. If keys are blocks, each BLOCK of elements is rounded to integers up to
    // QUERY_INT_MAX, and lacks its scale.
    float q[QUERY_FLOATS];
    // If keys are blocks: the integers, [n_slots / TILE_QUERIES, dim / 8, TILE_QUERIES, 8], and the
    // scales, four times each, [n_slots / TILE_QUERIES, dim / BLOCK, TILE_QUERIES, 4]. Vectors of
    // four queries read two beyond the last one.
    int16_t ints[QUERY_FLOATS + 2 * 8];
    float scales[QUERY_FLOATS / BLOCK * 4 + 2 * 4];
    float sum_v[QUERY_FLOATS]; // [n_slots, dim], V rows times their weights, of one segment
};

static inline int32_t query_dim(const struct attention_args *args) {
    return (args->head_dim + 15) / 16 * 16;
}

// True if elements come in blocks with a scale.
static inline bool has_blocks(enum dtype type) { return type == DTYPE_Q8_0 || type == DTYPE_Q4_0; }

// Slots of a group of a block.
static inline int32_t group_slots(const struct query_block *block) {
    return (block->n_tokens * block->n_heads + TILE_QUERIES - 1) / TILE_QUERIES * TILE_QUERIES;
}

// Takes the queries, whose lanes, max and sum_v are those of no key, through keys[0]..keys[1],
// which are one segment or a part of one at the ends of the block's keys. Fills in sum. A result
// does not depend on the other queries of the block.
typedef void attend_fn(const struct attention_args *args, const struct query_block *block,
                       struct query_room *room, const int32_t keys[2]);

// Runs this lane's share of the op. Lanes meet once if they share the keys of a query.
void attention_work(const struct lane *lane, const struct attention_args *args, attend_fn *attend);

#endif
