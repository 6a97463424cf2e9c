/* expert_pairs.h: which rows matmul_experts multiplies with which matrix, with lists of pairs or
 * without.
 *
 * Plain C over the arguments. Owns nothing; any lane. Tested by tests/kernels/check_experts.c.
 */
#ifndef TANDEM_KERNELS_CPU_EXPERT_PAIRS_H
#define TANDEM_KERNELS_CPU_EXPERT_PAIRS_H

#include "kernels/ops.h"

// The slot of an expert's matrix; negative if the expert is not on this device.
static inline int32_t expert_slot(const struct matmul_experts_args *a, int32_t expert) {
    return a->slots ? a->slots[expert] : expert;
}

// Number of an expert's pairs; 0 if the expert is not on this device.
static inline int32_t expert_n_pairs(const struct matmul_experts_args *a, int32_t expert) {
    if (!a->starts) return a->n_tokens;
    return expert_slot(a, expert) < 0 ? 0 : a->starts[expert + 1] - a->starts[expert];
}

// The expert's i-th pair.
static inline int32_t expert_pair(const struct matmul_experts_args *a, int32_t expert, int32_t i) {
    return a->order ? a->order[a->starts[expert] + i] : i * a->n_used + expert;
}

#endif
