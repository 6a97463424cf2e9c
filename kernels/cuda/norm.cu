/* norm.cu: rms_norm.
 *
 * Grid (n_rows): a block is a row. Threads add up squares of every blockDim-th column, warps by
 * shuffles, the block through shared memory, always in the same order; then each scales the columns
 * it read, so out may be x. Reads a row twice (the second time from cache) and writes it once. Any
 * n_cols; a block of whole warps, RMS_NORM_THREADS or fewer. Tested by tests/check_ops.c.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

KERNEL void __launch_bounds__(RMS_NORM_THREADS) rms_norm(const struct rms_norm_args a) {
    __shared__ float of_warp[RMS_NORM_THREADS / 32];
    int threads = (int)blockDim.x, thread = (int)threadIdx.x;
    const float *x = a.x + (int64_t)blockIdx.x * a.n_cols;
    float *out = a.out + (int64_t)blockIdx.x * a.n_cols;
    float squares = 0;
    for (int c = thread; c < a.n_cols; c += threads) squares = fmaf(x[c], x[c], squares);
    for (int apart = 16; apart > 0; apart /= 2)
        squares += __shfl_xor_sync(0xffffffffu, squares, apart);
    if (thread % 32 == 0) of_warp[thread / 32] = squares;
    __syncthreads();
    float sum = 0;
    for (int warp = 0; warp < threads / 32; warp++) sum += of_warp[warp];
    float scale = 1 / sqrtf(sum / (float)a.n_cols + a.eps);
    for (int c = thread; c < a.n_cols; c += threads) out[c] = scale * x[c] * a.weight[c];
}
