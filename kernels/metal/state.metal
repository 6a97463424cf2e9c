/* state.metal: short_conv, delta_rule and mamba_scan, which keep a state for each sequence and take
 * the tokens in order.
 *
 * short_conv: grid (chunks of SHORT_CONV_THREADS columns). A thread has a column; its last inputs
 * stay in registers while tokens form a chain. Reads x and writes out once, 8 bytes per element.
 *
 * delta_rule: grid (n_heads, chunks of DELTA_COLS columns of the state). A threadgroup keeps its
 * columns of the head's state in registers while tokens form a chain, so that a prompt reads and
 * writes a state once. Lane j of each simdgroup has column j, and simdgroup w the rows w, w +
 * DELTA_SIMDGROUPS, ..., up to 64 of them; the sums of the simdgroups are added in their order. A
 * threadgroup reads the whole q and k of its head, 1 KiB per token of 128 elements each. Sums
 * depend on head_dim alone.
 *
 * mamba_scan: grid (n_heads, chunks of MAMBA_ROWS rows of the state). A simdgroup keeps a row of
 * the head's state in registers while tokens form a chain, an element of each 32 in a lane, and
 * reads B and C of its group, 1 KiB per token of 128 elements each. Sums depend on n_state alone.
 * Tested by tests/kernels/check_ops.c.
 */
#include "kernels/metal/device.metal"
#include "kernels/metal/softplus.metal"

enum {
    DELTA_EACH = DELTA_DIM_MAX / DELTA_SIMDGROUPS, // rows of a simdgroup
    MAMBA_EACH = MAMBA_STATE_MAX / 32,             // elements of a lane
};

// True if token t reads what token t - 1 writes.
static bool state_continues(device const int *steps, int t) {
    return t > 0 && steps[2 * t] == steps[2 * t - 1];
}

kernel void short_conv(constant short_conv_args &a [[buffer(0)]],
                       device float *out [[buffer(1)]],
                       device float *states [[buffer(2)]],
                       device const float *x [[buffer(3)]],
                       device const float *weight [[buffer(4)]],
                       device const float *bias [[buffer(5)]],
                       device const int *steps [[buffer(6)]],
                       uint group [[threadgroup_position_in_grid]],
                       uint index [[thread_index_in_threadgroup]]) {
    const int c = int(group) * SHORT_CONV_THREADS + int(index), n_old = a.n_taps - 1;
    if (c >= a.n_cols) return;
    float inputs[CONV_TAPS_MAX] = {0}, weights[CONV_TAPS_MAX]; // the last input is x
#pragma unroll
    for (int j = 0; j < CONV_TAPS_MAX; j++)
        weights[j] = j < a.n_taps ? weight[long(c) * a.n_taps + j] : 0.0f;
    const float own_bias = a.bias != 0 ? bias[c] : 0.0f;
    for (int t = 0; t < a.n_tokens; t++) {
        const int from = steps[2 * t], to = steps[2 * t + 1];
        const bool loads = !state_continues(steps, t);
        const bool stores = t + 1 == a.n_tokens || !state_continues(steps, t + 1);
        const float newest = x[long(t) * a.x_stride + c];
        float sum = 0;
#pragma unroll
        for (int j = 0; j < CONV_TAPS_MAX; j++) {
            if (j >= a.n_taps) continue;
            if (loads && j < n_old)
                inputs[j] = from < 0 ? 0.0f : states[(long(from) * n_old + j) * a.n_cols + c];
            if (j == n_old) inputs[j] = newest;
            sum = fma(weights[j], inputs[j], sum);
        }
#pragma unroll
        for (int j = 0; j + 1 < CONV_TAPS_MAX; j++) {
            inputs[j] = inputs[j + 1];
            if (stores && j < n_old) states[(long(to) * n_old + j) * a.n_cols + c] = inputs[j];
        }
        sum += own_bias;
        out[long(t) * a.n_cols + c] = a.is_plain ? sum : sum / (1 + exp(-sum));
    }
}

// The memory of a threadgroup of delta_rule, and a thread's place.
struct delta_group {
    threadgroup float *q, *k; // [DELTA_DIM_MAX]
    threadgroup float *sums;  // [DELTA_SIMDGROUPS, DELTA_COLS]
    int lane, simdgroup;
};

// 1 / the length of x, in every thread.
static float delta_inverse_length(threadgroup const float *x, int n, float eps, int lane) {
    float squares = 0;
    for (int i = lane; i < n; i += 32) squares = fma(x[i], x[i], squares);
    return 1 / sqrt(simd_sum(squares) + eps);
}

// The sums of a column over all simdgroups, in every thread of the column.
static float delta_sum(delta_group g, float v) {
    g.sums[g.simdgroup * DELTA_COLS + g.lane] = v;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0;
    for (int i = 0; i < DELTA_SIMDGROUPS; i++) sum += g.sums[i * DELTA_COLS + g.lane];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return sum;
}

// The numbers of one token that hold for the whole head.
struct delta_token {
    float decay, rate, v; // v: of the thread's column
};

// Takes the state of the thread's column one token further; returns q times it.
static float delta_step(thread float *state, constant delta_rule_args &a, delta_group g,
                        delta_token t) {
    const int n = a.head_dim;
    const float k_scale = delta_inverse_length(g.k, n, a.eps, g.lane);
    const float q_scale = delta_inverse_length(g.q, n, a.eps, g.lane) / sqrt(float(n));
    float sum = 0;
#pragma unroll
    for (int j = 0; j < DELTA_EACH; j++) {
        const int i = g.simdgroup + j * DELTA_SIMDGROUPS;
        if (i < n) sum = fma(g.k[i], state[j], sum);
    }
    const float recalled = t.decay * k_scale * delta_sum(g, sum);
    const float change = k_scale * t.rate * (t.v - recalled);
    sum = 0;
#pragma unroll
    for (int j = 0; j < DELTA_EACH; j++) {
        const int i = g.simdgroup + j * DELTA_SIMDGROUPS;
        if (i >= n) continue;
        state[j] = fma(g.k[i], change, t.decay * state[j]);
        sum = fma(g.q[i], state[j], sum);
    }
    return q_scale * delta_sum(g, sum);
}

kernel void delta_rule(constant delta_rule_args &a [[buffer(0)]],
                       device float *out [[buffer(1)]],
                       device float *states [[buffer(2)]],
                       device const float *qkv [[buffer(3)]],
                       device const float *alpha [[buffer(4)]],
                       device const float *beta [[buffer(5)]],
                       device const float *decays [[buffer(6)]],
                       device const float *dt_bias [[buffer(7)]],
                       device const int *steps [[buffer(8)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint index [[thread_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]]) {
    threadgroup float q[DELTA_DIM_MAX];
    threadgroup float k[DELTA_DIM_MAX];
    threadgroup float sums[DELTA_SIMDGROUPS * DELTA_COLS];
    const delta_group g = {q, k, sums, int(lane), int(simdgroup)};
    const int n = a.head_dim, h = int(group.x), c = int(group.y) * DELTA_COLS + g.lane;
    const int shared = a.n_heads / a.n_key_heads;
    const int key = (a.order == KEYS_TILED ? h % a.n_key_heads : h / shared) * n;
    const long n_keys = long(a.n_key_heads) * n, row = 2 * n_keys + long(a.n_heads) * n;
    float state[DELTA_EACH] = {0};
    for (int t = 0; t < a.n_tokens; t++) {
        device const float *of_token = qkv + t * row;
        const long at = long(t) * a.n_heads + h;
        const int from = steps[2 * t], to = steps[2 * t + 1];
        const bool loads = !state_continues(steps, t);
        const bool stores = t + 1 == a.n_tokens || !state_continues(steps, t + 1);
#pragma unroll
        for (int j = 0; j < DELTA_EACH; j++) {
            const int i = g.simdgroup + j * DELTA_SIMDGROUPS;
            if (!loads || i >= n || c >= n) continue;
            state[j] = from < 0 ? 0.0f : states[((long(from) * a.n_heads + h) * n + i) * n + c];
        }
        for (int i = int(index); i < n; i += 32 * DELTA_SIMDGROUPS) {
            q[i] = of_token[key + i];
            k[i] = of_token[n_keys + key + i];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const delta_token token = {exp(decays[h] * softplus(alpha[at] + dt_bias[h])),
                                   1 / (1 + exp(-beta[at])),
                                   c < n ? of_token[2 * n_keys + long(h) * n + c] : 0.0f};
        const float result = delta_step(state, a, g, token);
        if (g.simdgroup == 0 && c < n) out[at * n + c] = result;
#pragma unroll
        for (int j = 0; j < DELTA_EACH; j++) {
            const int i = g.simdgroup + j * DELTA_SIMDGROUPS;
            if (stores && i < n && c < n)
                states[((long(to) * a.n_heads + h) * n + i) * n + c] = state[j];
        }
    }
}

kernel void mamba_scan(constant mamba_scan_args &a [[buffer(0)]],
                       device float *out [[buffer(1)]],
                       device float *states [[buffer(2)]],
                       device const float *x [[buffer(3)]],
                       device const float *dt [[buffer(4)]],
                       device const float *decays [[buffer(5)]],
                       device const float *d [[buffer(6)]],
                       device const float *dt_bias [[buffer(7)]],
                       device const int *steps [[buffer(8)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]]) {
    const int h = int(group.x), n = a.n_state, p = int(group.y) * MAMBA_ROWS + int(simdgroup);
    const long width = long(a.n_heads) * a.head_dim, groups_width = long(a.n_groups) * n;
    const long own_group = long(h / (a.n_heads / a.n_groups)) * n;
    const long at = long(h) * a.head_dim + p;
    if (p >= a.head_dim) return; // the whole simdgroup; there are no barriers
    float cells[MAMBA_EACH] = {0};
    for (int t = 0; t < a.n_tokens; t++) {
        const long from = steps[2 * t], to = steps[2 * t + 1];
        device const float *row = x + t * (width + 2 * groups_width);
        device const float *b = row + width + own_group;
        const bool loads = !state_continues(steps, t);
        const bool stores = t + 1 == a.n_tokens || !state_continues(steps, t + 1);
        const float step = softplus(dt[long(t) * a.dt_stride + h] + dt_bias[h]);
        const float decay = exp(decays[h] * step), own_x = row[at];
        float sum = 0;
#pragma unroll
        for (int j = 0; j < MAMBA_EACH; j++) {
            const int i = 32 * j + int(lane);
            if (i >= n) continue;
            if (loads) cells[j] = from < 0 ? 0.0f : states[(from * width + at) * n + i];
            cells[j] = fma(decay, cells[j], step * own_x * b[i]);
            sum = fma(cells[j], b[groups_width + i], sum);
            if (stores) states[(to * width + at) * n + i] = cells[j];
        }
        sum = simd_sum(sum);
        if (lane == 0) out[t * width + at] = fma(d[h], own_x, sum);
    }
}
