/* gemm_floats.cu: gemm_floats_f32, experts_floats_f32 and narrow_floats_f32, tiles of weights that
 * halves would lose bits of, by plain multiply-adds on every device.
 *
 * Grids, shared memory and shapes are those of gemm_dp4a.cu and gemm_dp4a_narrow.cu. Tested by
 * tests/kernels/check_ops.c.
 */
#include "kernels/cuda/gemm_dp4a.cuh"

#define TILES_FLOATS(type)                                                                         \
    KERNEL void __launch_bounds__(GEMM_THREADS) gemm_floats_##type(const struct matmul_params p) { \
        gemm<token_rows, DP4A_FLOATS(type, GEMM_TOKENS)>(p);                                       \
    }                                                                                              \
    KERNEL void __launch_bounds__(GEMM_THREADS)                                                    \
        experts_floats_##type(const struct experts_params p) {                                     \
        gemm<expert_rows, DP4A_FLOATS(type, GEMM_TOKENS)>(p);                                      \
    }                                                                                              \
    KERNEL void __launch_bounds__(GEMM_THREADS, DP4A_NARROW_BLOCKS)                                \
        narrow_floats_##type(const struct narrow_params p) {                                       \
        gemm<narrow_rows, DP4A_FLOATS(type, GEMM_NARROW_TOKENS)>(p);                               \
    }
#define TILES_HALVES(type)
#define TILES_BYTES(type)
#define WEIGHT(NAME, name, KIND, ...) TILES_##KIND(name)
#include "kernels/weights.def"
#undef WEIGHT
