/* gemm_dp4a_narrow.cu: narrow_dp4a_<type>, a weight times 9 to 32 tokens without tensor cores, or
 * more where full tiles would keep few multiprocessors busy; devices with tensor cores do not load
 * this file. F32: gemm_floats.cu.
 *
 * Grid (token tiles, row tiles, splits) of 32 tokens x 64 rows; see gemm_dp4a.cuh. Each split
 * multiplies a run of the columns; with several, gemm_merge.cu adds their sums up. 16 KiB of shared
 * memory. n_cols a multiple of 32 for quantised types, any for others. With one split a result has
 * the bits of gemm_dp4a_<type>. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cuda/gemm_dp4a.cuh"

#define NARROW_DP4A(type, ...)                                      \
    KERNEL void __launch_bounds__(GEMM_THREADS, DP4A_NARROW_BLOCKS) \
        narrow_dp4a_##type(const struct narrow_params p) {          \
        gemm<narrow_rows, __VA_ARGS__>(p);                          \
    }
#define NARROW_FLOATS(name)
#define NARROW_HALVES(name)           NARROW_DP4A(name, DP4A_HALVES(name, GEMM_NARROW_TOKENS))
#define NARROW_BYTES(name)            NARROW_DP4A(name, DP4A_BYTES(name, GEMM_NARROW_TOKENS))
#define WEIGHT(NAME, name, KIND, ...) NARROW_##KIND(name)
#include "kernels/weights.def"
#undef WEIGHT
