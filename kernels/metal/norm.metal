/* norm.metal: rms_norm.
 *
 * Grid (n_rows): a threadgroup computes one row. Threads add up squares, four columns at a time
 * where n_cols is a multiple of four, simdgroups add theirs and the threadgroup through its memory:
 * an order that depends on n_cols alone. Then each thread scales the columns it read and adds those
 * of the residual, so out may be either. A scale of all is one more factor. Reads a row twice (the
 * second time from cache; three times if centred, when its mean is summed first) and writes it
 * once. Rows are 16-byte aligned where n_cols allows. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/metal/device.metal"

// The operands of one row, by one or by four columns.
template <typename T> struct norm_row {
    device T *out;
    device const T *x, *weight, *residual, *bias;
    int count;
};

struct norm_thread {
    threadgroup float *sums; // of each simdgroup
    int index, lane, simdgroup;
};

static float norm_add(float v) { return v; }
static float norm_add(float4 v) { return (v.x + v.y) + (v.z + v.w); }

// The sum of v over the threadgroup, in every thread.
static float norm_sum(float v, norm_thread t) {
    v = simd_sum(v);
    if (t.lane == 0) t.sums[t.simdgroup] = v;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0;
    for (int i = 0; i < RMS_NORM_THREADS / 32; i++) sum += t.sums[i];
    threadgroup_barrier(mem_flags::mem_threadgroup); // the next sum writes the same places
    return sum;
}

template <typename T>
static void norm_columns(constant rms_norm_args &a, norm_row<T> r, float factor, norm_thread t) {
    float sum = 0, mean = 0;
    if (a.centred) {
        for (int c = t.index; c < r.count; c += RMS_NORM_THREADS) sum += norm_add(r.x[c]);
        mean = norm_sum(sum, t) / float(a.n_cols);
    }
    float squares = 0;
    for (int c = t.index; c < r.count; c += RMS_NORM_THREADS) {
        const T v = r.x[c] - mean;
        squares += norm_add(v * v);
    }
    const float scale = 1 / sqrt(norm_sum(squares, t) / float(a.n_cols) + a.eps);
    for (int c = t.index; c < r.count; c += RMS_NORM_THREADS) {
        T normed = scale * (r.x[c] - mean);
        if (a.weight != 0) normed = normed * r.weight[c];
        if (a.bias != 0) normed = normed + r.bias[c];
        if (a.residual != 0) normed = normed + r.residual[c];
        r.out[c] = factor * normed;
    }
}

kernel void rms_norm(constant rms_norm_args &a [[buffer(0)]],
                     device float *out [[buffer(1)]],
                     device const float *x [[buffer(2)]],
                     device const float *weight [[buffer(3)]],
                     device const float *residual [[buffer(4)]],
                     device const float *factor [[buffer(5)]],
                     device const float *bias [[buffer(6)]],
                     uint row [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]],
                     uint simdgroup [[simdgroup_index_in_threadgroup]]) {
    threadgroup float sums[RMS_NORM_THREADS / 32];
    const norm_thread t = {sums, int(index), int(lane), int(simdgroup)};
    const long at = long(row) * a.n_cols;
    const float all = a.scale != 0 ? factor[0] : 1.0f;
    if (a.n_cols % 4 == 0) {
        const norm_row<float4> r = {(device float4 *)(out + at),
                                    (device const float4 *)(x + at),
                                    (device const float4 *)weight,
                                    (device const float4 *)(residual + at),
                                    (device const float4 *)bias,
                                    a.n_cols / 4};
        norm_columns(a, r, all, t);
    } else {
        const norm_row<float> r = {out + at, x + at, weight, residual + at, bias, a.n_cols};
        norm_columns(a, r, all, t);
    }
}
