/* norm.cu: rms_norm.
 *
 * Grid (n_rows): a block computes one row. Threads add up squares, four columns at a time where
 * n_cols is a multiple of four, warps add theirs by shuffles and the block through shared memory:
 * an order that depends on n_cols alone. Then each thread scales the columns it read, so out may be
 * x. Reads a row twice (the second time from cache) and writes it once. Rows are 16-byte aligned
 * where n_cols allows. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

// The sum of v over the block, in every thread.
DEVICE_FN float block_sum(float v) {
    __shared__ float of_warp[RMS_NORM_THREADS / 32];
    for (int apart = 16; apart > 0; apart /= 2) v += __shfl_xor_sync(0xffffffffu, v, apart);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    float sum = 0;
    for (int warp = 0; warp < RMS_NORM_THREADS / 32; warp++) sum += of_warp[warp];
    return sum;
}

DEVICE_FN float row_scale(float squares, const struct rms_norm_args &a) {
    return 1 / sqrtf(block_sum(squares) / (float)a.n_cols + a.eps);
}

DEVICE_FN void norm_by_four(const struct rms_norm_args &a, const float *row, float *out_row) {
    const float4 *x = (const float4 *)row, *weight = (const float4 *)a.weight;
    float4 *out = (float4 *)out_row;
    float squares = 0;
    for (int c = (int)threadIdx.x; c < a.n_cols / 4; c += RMS_NORM_THREADS) {
        float4 v = x[c];
        squares = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, fmaf(v.w, v.w, squares))));
    }
    float scale = row_scale(squares, a);
    for (int c = (int)threadIdx.x; c < a.n_cols / 4; c += RMS_NORM_THREADS) {
        float4 v = x[c], w = weight[c];
        out[c] =
            make_float4(scale * v.x * w.x, scale * v.y * w.y, scale * v.z * w.z, scale * v.w * w.w);
    }
}

DEVICE_FN void norm_by_one(const struct rms_norm_args &a, const float *x, float *out) {
    float squares = 0;
    for (int c = (int)threadIdx.x; c < a.n_cols; c += RMS_NORM_THREADS)
        squares = fmaf(x[c], x[c], squares);
    float scale = row_scale(squares, a);
    for (int c = (int)threadIdx.x; c < a.n_cols; c += RMS_NORM_THREADS)
        out[c] = scale * x[c] * a.weight[c];
}

KERNEL void __launch_bounds__(RMS_NORM_THREADS) rms_norm(const struct rms_norm_args a) {
    const float *x = a.x + (int64_t)blockIdx.x * a.n_cols;
    float *out = a.out + (int64_t)blockIdx.x * a.n_cols;
    if (a.n_cols % 4 == 0)
        norm_by_four(a, x, out);
    else
        norm_by_one(a, x, out);
}
