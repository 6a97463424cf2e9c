/* gemm_mma_narrow.cu: narrow_mma_<type>, a weight times 9 to 32 tokens on tensor cores, or more
 * where full tiles would keep few multiprocessors busy. In images for less than 7.5 the kernels are
 * empty.
 *
 * Grid (token tiles, row tiles, splits) of 32 tokens x 64 rows; see gemm_mma.cuh. A narrow tile
 * takes half the instructions of a full one for the same bytes of weights. Each split multiplies a
 * run of the columns; with several, gemm_merge.cu adds their sums up.
 *
 * 16 KiB of shared memory. n_cols a multiple of 32 for quantised types, any for others. With one
 * split a result has the bits of gemm_mma_<type>. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cuda/gemm_mma.cuh"

// Blocks of a multiprocessor for which registers are kept. F16 and BF16 spilled on 7.5 with
// four, and with three.
static constexpr int HALF_BLOCKS = CUDA_ARCH < 800 ? 0 : 4, BYTE_BLOCKS = 5;

#define NARROW_MMA(type, body, blocks)                    \
    KERNEL void __launch_bounds__(GEMM_THREADS, blocks)   \
        narrow_mma_##type(const struct narrow_params p) { \
        body(narrow_rows, type, GEMM_NARROW_TOKENS);      \
    }
#define NARROW_MMA_FLOATS(name)
#define NARROW_MMA_HALVES(name)       NARROW_MMA(name, GEMM_HALF_BODY, HALF_BLOCKS)
#define NARROW_MMA_BYTES(name)        NARROW_MMA(name, GEMM_BYTES_BODY, BYTE_BLOCKS)
#define WEIGHT(NAME, name, KIND, ...) NARROW_MMA_##KIND(name)
#include "kernels/weights.def"
#undef WEIGHT
