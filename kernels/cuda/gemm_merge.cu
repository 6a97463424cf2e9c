/* gemm_merge.cu: gemm_merge, which adds up the sums of a narrow GEMM's splits, with bias and
 * residual.
 *
 * Grid (n_tokens, row chunks): a thread computes an element. It reads n_splits floats, which its
 * warp's other threads have neighbours of, four at a time, and adds them in the order of the
 * splits, so a result is the same in each run. Tested by tests/kernels/check_ops.c on matmuls of
 * more than MATVEC_TOKENS tokens and many columns.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

KERNEL void __launch_bounds__(GEMM_MERGE_THREADS) gemm_merge(const struct narrow_params p) {
    const int r = (int)(blockIdx.y * GEMM_MERGE_THREADS + threadIdx.x), token = (int)blockIdx.x;
    if (r >= p.a.row_count) return;
    const int row = p.a.row_first + r;
    const int64_t apart = (int64_t)p.a.n_tokens * p.a.row_count,
                  out = (int64_t)token * p.a.out_stride + row;
    const float *partial = p.partial + (int64_t)token * p.a.row_count + r;
    const float bias = p.a.bias ? p.a.bias[row] : 0;
    const float residual = p.a.residual ? p.a.residual[out] : 0;
    float sum = 0;
    NO_UNROLL
    for (int first = 0; first < p.n_splits; first += 4) {
        float part[4];
#pragma unroll
        for (int i = 0; i < 4; i++) // past the end the last one again, which does not count
            part[i] = partial[min(first + i, p.n_splits - 1) * apart];
#pragma unroll
        for (int i = 0; i < 4; i++) sum += first + i < p.n_splits ? part[i] : 0;
    }
    p.a.out[out] = sum + bias + residual;
}
