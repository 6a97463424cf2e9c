/* attention_work_avx2.h: attention of every x86 level: which lane computes which queries with which
 * keys. A level provides a kernel that takes some queries through a segment of keys.
 *
 * A query is one head of one token. Its keys are cut into segments whose length depends on their
 * number alone. Each segment has its own softmax, and the segments are merged first to last, so a
 * result does not depend on which lane had which segment. Owns nothing; call only on a CPU that has
 * the level's instructions. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_ATTENTION_WORK_AVX2_H
#define TANDEM_KERNELS_CPU_X86_ATTENTION_WORK_AVX2_H

#include "kernels/cpu/cpu.h"

enum { QUERIES_MAX = 96 }; // that share one reading of keys; multiples of 6 fill the kernels' tiles

struct query {
    float q[HEAD_DIM_MAX];     // times scale; zeros up to a multiple of 16
    float sum_v[HEAD_DIM_MAX]; // V rows times their weights e^(score - max), of one segment
    float scores[KV_PAGE];     // of the current page, then its weights
    float max, sum;            // maximum of the segment's scores so far; sum of its weights so far
    int32_t first, last;       // keys
};

// The queries of some heads of neighbouring tokens, which have one sequence and one kv head.
struct query_block {
    int64_t token, head; // first ones
    int32_t n_tokens, n_heads;
    int32_t segment_keys;        // length of a segment, a multiple of KV_PAGE
    int32_t first_key, last_key; // of all queries together
};

// Takes the queries, whose max, sum and sum_v are those of no key, through keys[0]..keys[1], which
// are one segment or a part of one at the ends of the block's keys. A result does not depend on the
// other queries of the block.
typedef void attend_fn(const struct attention_args *args, const struct query_block *block,
                       struct query *queries, const int32_t keys[2]);

// Runs this lane's share of the op. Lanes meet once if they share the keys of a query.
void attention_work(const struct lane *lane, const struct attention_args *args, attend_fn *attend);

#endif
