/* norm.cu: rms_norm, and rms_norm_quantize, which quantises what it writes.
 *
 * Grid (n_rows): a block computes one row. Threads add up squares, four columns at a time where
 * n_cols is a multiple of four, warps add theirs by shuffles and the block through shared memory:
 * an order that depends on n_cols alone. Then each thread scales the columns it read and adds those
 * of the residual, so out may be either. A scale of all is one more factor. Reads a row twice (the
 * second time from cache; three times if centred, when its mean is summed first) and writes it
 * once. Rows are 16-byte aligned where n_cols allows. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cuda/params.h"
#include "kernels/cuda/quantize.cuh"

// The sum of v over the block, in every thread.
DEVICE_FN float block_sum(float v) {
    __shared__ float of_warp[RMS_NORM_THREADS / 32];
    for (int apart = 16; apart > 0; apart /= 2) v += __shfl_xor_sync(0xffffffffu, v, apart);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    float sum = 0;
    for (int warp = 0; warp < RMS_NORM_THREADS / 32; warp++) sum += of_warp[warp];
    __syncthreads(); // the next sum writes the same places
    return sum;
}

// The mean that every column of a centred row loses; 0 of other rows.
DEVICE_FN float row_mean(const float *x, const struct rms_norm_args &a) {
    float sum = 0;
    if (!a.centred) return 0;
    for (int c = (int)threadIdx.x; c < a.n_cols; c += RMS_NORM_THREADS) sum += x[c];
    return block_sum(sum) / (float)a.n_cols;
}

DEVICE_FN float row_scale(float squares, const struct rms_norm_args &a) {
    return 1 / sqrtf(block_sum(squares) / (float)a.n_cols + a.eps);
}

DEVICE_FN float4 less(float4 v, float mean) {
    return make_float4(v.x - mean, v.y - mean, v.z - mean, v.w - mean);
}

// acts: the quantised row, or NULL. A group of 32 columns is eight neighbouring lanes'.
DEVICE_FN void norm_by_four(const struct rms_norm_args &a, int64_t at, char *acts) {
    const float4 *x = (const float4 *)(a.x + at), *weight = (const float4 *)a.weight;
    const float4 *residual = (const float4 *)(a.residual + at); // not read if a.residual is NULL
    const float4 *bias = (const float4 *)a.bias;
    const float all = a.scale ? *a.scale : 1, mean = row_mean(a.x + at, a);
    const int n = a.n_cols / 4, thread = (int)threadIdx.x;
    float4 *out = (float4 *)(a.out + at);
    float squares = 0;
    for (int c = thread; c < n; c += RMS_NORM_THREADS) {
        float4 v = less(x[c], mean);
        squares = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, fmaf(v.w, v.w, squares))));
    }
    float scale = row_scale(squares, a);
    const int lane = acts ? thread % 32 : 0; // whole warps quantise
    for (int c = thread; c - lane < n; c += RMS_NORM_THREADS) {
        float4 v = make_float4(0, 0, 0, 0), w = make_float4(1, 1, 1, 1), r = v;
        if (c < n) {
            v = less(x[c], mean);
            if (a.weight) w = weight[c];
            if (a.residual) r = residual[c];
            if (a.bias)
                r = make_float4(r.x + bias[c].x, r.y + bias[c].y, r.z + bias[c].z, r.w + bias[c].w);
            v = make_float4(all * fmaf(scale * v.x, w.x, r.x), all * fmaf(scale * v.y, w.y, r.y),
                            all * fmaf(scale * v.z, w.z, r.z), all * fmaf(scale * v.w, w.w, r.w));
            out[c] = v;
        }
        if (acts) quantize_fours(in_row(acts, a.n_cols, c / 8), v, c < n);
    }
}

DEVICE_FN void norm_by_one(const struct rms_norm_args &a, int64_t at) {
    const float *x = a.x + at;
    const float all = a.scale ? *a.scale : 1, mean = row_mean(x, a);
    float squares = 0;
    for (int c = (int)threadIdx.x; c < a.n_cols; c += RMS_NORM_THREADS)
        squares = fmaf(x[c] - mean, x[c] - mean, squares);
    float scale = row_scale(squares, a);
    for (int c = (int)threadIdx.x; c < a.n_cols; c += RMS_NORM_THREADS)
        a.out[at + c] =
            all * fmaf(scale * (x[c] - mean), a.weight ? a.weight[c] : 1,
                       (a.residual ? a.residual[at + c] : 0) + (a.bias ? a.bias[c] : 0));
}

KERNEL void __launch_bounds__(RMS_NORM_THREADS) rms_norm(const struct rms_norm_args a) {
    const int64_t at = (int64_t)blockIdx.x * a.n_cols;
    if (a.n_cols % 4 == 0)
        norm_by_four(a, at, nullptr);
    else
        norm_by_one(a, at);
}

KERNEL void __launch_bounds__(RMS_NORM_THREADS)
    rms_norm_quantize(const struct norm_quantize_params p) {
    norm_by_four(p.a, (int64_t)blockIdx.x * p.a.n_cols,
                 (char *)p.acts + blockIdx.x * p.acts_stride);
}
