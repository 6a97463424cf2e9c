/* op_cost.h: what one call of an op moves and computes, and the scratch it needs, from its sizes
 * alone.
 *
 * Pure functions; pointers in the argument structs are not followed. Any thread. The planner
 * predicts with these numbers and the benches print GB/s from them. Tested by
 * tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_OP_COST_H
#define TANDEM_KERNELS_OP_COST_H

#include "kernels/ops.h"

struct op_cost {
    uint64_t weight_bytes;  // of the weight type, each once: rows of the table, matrices
    uint64_t read_bytes;    // every other input once: activations, vectors, cache rows
    uint64_t written_bytes; // every output once
    double flops;           // a multiply-add counts as two
};

// op_cost_<name>(args), and op_cost_<name>(type, args) for the ops with a weight type.
// op_cost_attention takes the number of positions in the KV cache that each token sees from n_keys,
// since positions lie in device memory, and counts the cache rows of one sequence once.
// op_cost_matmul_experts counts the weights of op_cost_distinct_experts experts as if all were on
// this device, since starts and slots lie in device memory too.
#define OP_W(name, ...) \
    struct op_cost op_cost_##name(enum weight_type type, const struct name##_args *args);
#define OP(name, ...) struct op_cost op_cost_##name(const struct name##_args *args, int64_t n_keys);
#include "kernels/ops.def"
#undef OP
#undef OP_W

// All that the op moves.
static inline double op_cost_bytes(struct op_cost cost) {
    return (double)cost.weight_bytes + (double)cost.read_bytes + (double)cost.written_bytes;
}

// Expected number of different experts for n_tokens tokens with n_used each, if all experts are
// equally likely and tokens choose independently: n_experts * (1 - (1 - n_used /
// n_experts)^n_tokens). Tokens of one text choose alike: they count as fewer (plan/request.h).
double op_cost_distinct_experts(double n_tokens, int32_t n_experts, int32_t n_used);
// The factor by which tokens wait longer for a device with this share of the experts than for the
// expected number of its experts: now it has more of those chosen, now fewer, and tokens wait for
// the slower device, as for the greater of two numbers that differ from the expected one by 0.4
// standard deviations.
double op_cost_uneven_experts(double n_tokens, int32_t n_experts, int32_t n_used, double share);

// Bytes of matmul_args.scratch (and matmul_experts_args.scratch, n_tokens being its rows of x) on a
// device with that many lanes (CPU threads; 1 elsewhere): room for quantised activations, at most
// 40 bytes per 32 elements, or for activations rounded to BF16 that meet such weights, 64 bytes,
// and 64 per row, for each token or for each lane, whichever is more.
uint64_t matmul_scratch_bytes(enum weight_type type, int32_t n_cols, int32_t n_tokens,
                              int32_t n_lanes);

#endif
