/* state.cu: short_conv, delta_rule and mamba_scan, which keep a state for each sequence and take
 * the tokens in order.
 *
 * short_conv: grid (chunks of SHORT_CONV_THREADS columns). A thread has a column; its last inputs
 * stay in registers while tokens form a chain. Reads x and writes out once, 8 bytes per element.
 *
 * delta_rule: grid (n_heads, chunks of DELTA_COLS columns of the state). A block keeps its columns
 * of the head's state in shared memory, up to 32 KiB, while tokens form a chain, so that a prompt
 * reads and writes a state once. Lane j of each warp has column j, and warp w the rows w, w +
 * DELTA_WARPS, ...; the sums of the warps are added in their order. A block reads the whole q and k
 * of its head, 1 KiB per token of 128 elements each. Sums depend on head_dim alone.
 *
 * mamba_scan: grid (n_heads, chunks of MAMBA_ROWS rows of the state). A warp keeps a row of the
 * head's state in registers while tokens form a chain, an element of each 32 in a lane, and reads B
 * and C of its group, 1 KiB per token of 128 elements each. Sums depend on n_state alone. Tested by
 * tests/kernels/check_ops.c.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"
#include "kernels/cuda/softplus.cuh"

// True if token t reads what token t - 1 writes.
DEVICE_FN bool continues(const int32_t *steps, int t) {
    return t > 0 && steps[2 * t] == steps[2 * t - 1];
}

KERNEL void __launch_bounds__(SHORT_CONV_THREADS) short_conv(const struct short_conv_args a) {
    const int c = (int)(blockIdx.x * SHORT_CONV_THREADS + threadIdx.x), n_old = a.n_taps - 1;
    const int64_t n = a.n_cols;
    if (c >= a.n_cols) return;
    float old[CONV_TAPS_MAX - 1] = {0}, weights[CONV_TAPS_MAX];
#pragma unroll
    for (int j = 0; j < CONV_TAPS_MAX; j++)
        weights[j] = j < a.n_taps ? a.weight[(int64_t)c * a.n_taps + j] : 0;
    for (int t = 0; t < a.n_tokens; t++) {
        const int from = a.steps[2 * t], to = a.steps[2 * t + 1];
        const bool loads = !continues(a.steps, t);
        const float x = a.x[t * (int64_t)a.x_stride + c];
        float sum = 0, newest = 0;
#pragma unroll
        for (int j = 0; j < CONV_TAPS_MAX - 1; j++) {
            if (j >= n_old) continue;
            if (loads) old[j] = from < 0 ? 0 : a.states[((int64_t)from * n_old + j) * n + c];
            sum = fmaf(weights[j], old[j], sum);
            newest = weights[j + 1]; // the weight of x in the end
        }
        sum = fmaf(newest, x, sum);
#pragma unroll
        for (int j = 0; j < CONV_TAPS_MAX - 1; j++) {
            if (j >= n_old) continue;
            old[j] = j + 1 < n_old ? old[min(j + 1, CONV_TAPS_MAX - 2)] : x;
        }
        if (a.bias) sum += a.bias[c];
        a.out[t * n + c] = a.is_plain ? sum : sum / (1 + __expf(-sum));
        if (t + 1 < a.n_tokens && continues(a.steps, t + 1)) continue;
#pragma unroll
        for (int j = 0; j < CONV_TAPS_MAX - 1; j++)
            if (j < n_old) a.states[((int64_t)to * n_old + j) * n + c] = old[j];
    }
}

// The columns of a block, and what its warps hand on.
struct delta_tile {
    float state[DELTA_DIM_MAX][DELTA_COLS];
    float q[DELTA_DIM_MAX], k[DELTA_DIM_MAX];
    float sums[DELTA_WARPS][DELTA_COLS];
};

DEVICE_FN float sum_of_warp(float v) {
    for (int apart = 16; apart > 0; apart /= 2) v += __shfl_xor_sync(0xffffffffu, v, apart);
    return v;
}

// 1 / the length of x, in every thread.
DEVICE_FN float inverse_length(const float *x, int n, float eps) {
    float squares = 0;
    for (int i = (int)threadIdx.x % 32; i < n; i += 32) squares = fmaf(x[i], x[i], squares);
    return 1 / sqrtf(sum_of_warp(squares) + eps);
}

// The sums of a column over all warps, in every thread of the column.
DEVICE_FN float sum_of_warps(struct delta_tile &tile, float v) {
    const int lane = (int)threadIdx.x % 32;
    tile.sums[threadIdx.x / 32][lane] = v;
    __syncthreads();
    float sum = 0;
    for (int warp = 0; warp < DELTA_WARPS; warp++) sum += tile.sums[warp][lane];
    __syncthreads();
    return sum;
}

// Reads the block's columns of a state, zeros if from is NULL.
DEVICE_FN void load_state(struct delta_tile &tile, const float *from, int n, int c) {
    for (int i = (int)threadIdx.x / 32; i < n; i += DELTA_WARPS)
        tile.state[i][threadIdx.x % 32] = from && c < n ? from[(int64_t)i * n + c] : 0;
}

// One token; q and k are in the tile.
DEVICE_FN void step_token(struct delta_tile &tile, const struct delta_rule_args &a, int64_t at,
                          int h, const float *v, int c) {
    const int n = a.head_dim, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const float k_scale = inverse_length(tile.k, n, a.eps);
    const float q_scale = inverse_length(tile.q, n, a.eps) / sqrtf((float)n);
    const float decay = __expf(a.a[h] * softplus(a.alpha[at] + a.dt_bias[h]));
    float sum = 0;
    for (int i = warp; i < n; i += DELTA_WARPS) sum = fmaf(tile.k[i], tile.state[i][lane], sum);
    const float recalled = decay * k_scale * sum_of_warps(tile, sum);
    const float change = c < n ? k_scale / (1 + __expf(-a.beta[at])) * (v[c] - recalled) : 0;
    sum = 0;
    for (int i = warp; i < n; i += DELTA_WARPS) {
        const float cell = fmaf(tile.k[i], change, decay * tile.state[i][lane]);
        tile.state[i][lane] = cell;
        sum = fmaf(tile.q[i], cell, sum);
    }
    sum = sum_of_warps(tile, sum);
    if (warp == 0 && c < n) a.out[at * n + c] = q_scale * sum;
}

KERNEL void __launch_bounds__(DELTA_COLS *DELTA_WARPS) delta_rule(const struct delta_rule_args a) {
    __shared__ delta_tile tile;
    const int n = a.head_dim, h = (int)blockIdx.x;
    const int c = (int)blockIdx.y * DELTA_COLS + (int)threadIdx.x % 32;
    const int64_t n_keys = (int64_t)a.n_key_heads * n, size = (int64_t)n * n;
    const int key =
        (a.order == KEYS_TILED ? h % a.n_key_heads : h / (a.n_heads / a.n_key_heads)) * n;
    for (int t = 0; t < a.n_tokens; t++) {
        const float *qkv = a.qkv + t * (2 * n_keys + (int64_t)a.n_heads * n);
        const int from = a.steps[2 * t], to = a.steps[2 * t + 1];
        if (!continues(a.steps, t))
            load_state(tile,
                       from < 0 ? (const float *)0
                                : a.states + (from * (int64_t)a.n_heads + h) * size,
                       n, c);
        for (int i = (int)threadIdx.x; i < n; i += DELTA_COLS * DELTA_WARPS) {
            tile.q[i] = qkv[key + i];
            tile.k[i] = qkv[n_keys + key + i];
        }
        __syncthreads();
        step_token(tile, a, (int64_t)t * a.n_heads + h, h, qkv + 2 * n_keys + (int64_t)h * n, c);
        if (t + 1 < a.n_tokens && continues(a.steps, t + 1)) continue;
        float *state = a.states + (to * (int64_t)a.n_heads + h) * size;
        for (int i = (int)threadIdx.x / 32; i < n && c < n; i += DELTA_WARPS)
            state[(int64_t)i * n + c] = tile.state[i][threadIdx.x % 32];
    }
}

KERNEL void __launch_bounds__(32 * MAMBA_ROWS) mamba_scan(const struct mamba_scan_args a) {
    const int lane = (int)threadIdx.x % 32, h = (int)blockIdx.x, n = a.n_state;
    const int p = (int)blockIdx.y * MAMBA_ROWS + (int)threadIdx.x / 32;
    const int64_t width = (int64_t)a.n_heads * a.head_dim, groups_width = (int64_t)a.n_groups * n;
    const int64_t group = (int64_t)(h / (a.n_heads / a.n_groups)) * n;
    const int64_t at = (int64_t)h * a.head_dim + p;
    if (p >= a.head_dim) return; // the whole warp
    float cells[MAMBA_STATE_MAX / 32] = {0};
    for (int t = 0; t < a.n_tokens; t++) {
        const int from = a.steps[2 * t], to = a.steps[2 * t + 1];
        const float *row = a.x + t * (width + 2 * groups_width), *b = row + width + group;
        const float *old = a.states + (from * width + at) * n;
        const bool loads = !continues(a.steps, t);
        const bool stores = t + 1 == a.n_tokens || !continues(a.steps, t + 1);
        const float step = softplus(a.dt[(int64_t)t * a.dt_stride + h] + a.dt_bias[h]);
        const float decay = __expf(a.a[h] * step), x = row[at];
        float sum = 0;
#pragma unroll
        for (int j = 0; j < MAMBA_STATE_MAX / 32; j++) {
            const int i = 32 * j + lane;
            if (i >= n) continue;
            if (loads) cells[j] = from < 0 ? 0 : old[i];
            cells[j] = fmaf(decay, cells[j], step * x * b[i]);
            sum = fmaf(cells[j], b[groups_width + i], sum);
            if (stores) a.states[(to * width + at) * n + i] = cells[j];
        }
        sum = sum_of_warp(sum);
        if (lane == 0) a.out[t * width + at] = fmaf(a.d[h], x, sum);
    }
}
