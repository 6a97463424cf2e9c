/* gemm_mma.cu: gemm_mma_<type>, a weight times more than MATVEC_TOKENS tokens on tensor cores, 7.5
 * and later (F16: than MATVEC_F16_TOKENS, BF16: than MATVEC_BF16_TOKENS); experts_mma_<type>, the
 * same for the pairs of experts: grid (expert_tiles, row tiles), see rows.cuh. In images for less
 * the kernels are empty; the host does not load those.
 *
 * Grid (token tiles, row tiles) of 64 x 64; see gemm_mma.cuh.
 *
 * 20 KiB of shared memory. n_cols a multiple of 32 for quantised types, any for others. Differs in
 * rounding from matmul_vec_<type>. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cuda/gemm_mma.cuh"

// Blocks of a multiprocessor for which registers are kept; 0: as many as there happen to be. F16
// and BF16 take fewer registers on 9.0 without being told; Q4_1 spilled on 7.5 with four.
static constexpr int HALF_BLOCKS = CUDA_ARCH < 800 ? 4 : 0;
template <class W>
static constexpr int BLOCKS =
    CUDA_ARCH < 800 && W::BLOCK == 32 && quantised_lines<W, GEMM_TOKENS>::HAS_OFFSET ? 3 : 4;

#define GEMM_MMA(type, body, ...)                                                                  \
    KERNEL void __launch_bounds__(__VA_ARGS__) gemm_mma_##type(const struct matmul_params p) {     \
        body(token_rows, type, GEMM_TOKENS);                                                       \
    }                                                                                              \
    KERNEL void __launch_bounds__(__VA_ARGS__) experts_mma_##type(const struct experts_params p) { \
        body(expert_rows, type, GEMM_TOKENS);                                                      \
    }
#define GEMM_MMA_FLOATS(name)
#define GEMM_MMA_HALVES(name) GEMM_MMA(name, GEMM_HALF_BODY, GEMM_THREADS, HALF_BLOCKS)
#define GEMM_MMA_BYTES(name)  GEMM_MMA(name, GEMM_BYTES_BODY, GEMM_THREADS, BLOCKS<weight_##name>)

#define WEIGHT(NAME, name, KIND, ...) GEMM_MMA_##KIND(name)
#include "kernels/weights.def"
#undef WEIGHT
