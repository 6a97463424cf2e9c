/* gemm_dp4a.cu: gemm_dp4a_<type>, a weight times more than MATVEC_TOKENS tokens on devices without
 * tensor cores (6.1, and 7.5 of the 16xx cards), which alone load this file. experts_dp4a_<type>,
 * the same for the pairs of experts: grid (expert_tiles, row tiles), see rows.cuh. F32:
 * gemm_floats.cu.
 *
 * Grid (token tiles, row tiles) of 64 x 64; see gemm_dp4a.cuh. 20 KiB of shared memory. n_cols a
 * multiple of 32 for quantised types, any for others. Differs in rounding from matmul_vec_<type>,
 * not from gemm_mma_<type> of a quantised type. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cuda/gemm_dp4a.cuh"

#define GEMM_KERNELS(type, ...)                                                                  \
    KERNEL void __launch_bounds__(GEMM_THREADS) gemm_dp4a_##type(const struct matmul_params p) { \
        gemm<token_rows, __VA_ARGS__>(p);                                                        \
    }                                                                                            \
    KERNEL void __launch_bounds__(GEMM_THREADS)                                                  \
        experts_dp4a_##type(const struct experts_params p) {                                     \
        gemm<expert_rows, __VA_ARGS__>(p);                                                       \
    }
#define GEMM_FLOATS(name)
#define GEMM_HALVES(name)             GEMM_KERNELS(name, DP4A_HALVES(name, GEMM_TOKENS))
#define GEMM_BYTES(name)              GEMM_KERNELS(name, DP4A_BYTES(name, GEMM_TOKENS))
#define WEIGHT(NAME, name, KIND, ...) GEMM_##KIND(name)
#include "kernels/weights.def"
#undef WEIGHT
