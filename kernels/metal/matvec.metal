/* matvec.metal: matmul_vec_<type> and matmul_few_<type>, a weight times one token, or up to
 * MATVEC_TOKENS: decode, where the time is that of reading the weight once.
 *
 * Grid (chunks of rows). A simdgroup computes MATVEC_ROWS rows (MATVEC_FEW_ROWS for several tokens)
 * side by side: its lanes stride over the columns by eight, so that 32 lanes read a stretch of 256
 * columns of each row at a time, and the eight activations of a lane serve all its rows. Sums are
 * floats, added up across the simdgroup at the end. The weight is read once from memory, the
 * activations once per row chunk from cache. The columns that a lane adds up and their order depend
 * on n_cols alone.
 *
 * experts_vec_<type>, the same for the pairs of experts. Grid (chunks of rows, n_pairs): threadgroup
 * y takes up to EXPERTS_VEC_PAIRS pairs from order[y] on if such a run of their expert begins there,
 * else it returns. With one token every threadgroup has work, and an expert that several tokens
 * share is read once for up to EXPERTS_VEC_PAIRS of them. Tested by
 * tests/kernels/test_metal_kernels.c and check_ops.c.
 */
#include "kernels/metal/blocks_iq.metal"
#include "kernels/metal/job.metal"

static float dot_eight(eight a, eight b) { return dot(a.low, b.low) + dot(a.high, b.high); }

// Multiplies ROWS rows from row on, counted from row_first, with the job's tokens, at most TOKENS.
// Rows past the end repeat the last one.
template <class W, int ROWS, int TOKENS>
static void multiply_rows(thread const matmul_job &j, int row, int lane) {
    const int count = TOKENS == 1 ? 1 : j.count;
    device const uchar *weights[ROWS];
    device const uchar *x[TOKENS];
    float sums[ROWS][TOKENS];
    for (int r = 0; r < ROWS; r++) {
        const int weight_row = j.row_first + min(row + r, j.row_count - 1);
        weights[r] = j.weight + long(weight_row) * row_bytes<W>(j.n_cols);
        for (int t = 0; t < TOKENS; t++) sums[r][t] = 0;
    }
    for (int t = 0; t < TOKENS; t++)
        x[t] = (device const uchar *)(j.x + long(x_row(j, t)) * j.n_cols);
    for (int i = lane; i < (j.n_cols + 7) / 8; i += 32) {
        eight w[ROWS];
        for (int r = 0; r < ROWS; r++) w[r] = read_eight<W>(weights[r], i, j.n_cols);
        for (int t = 0; t < TOKENS; t++) {
            if (t >= count) break;
            const eight v = read_eight<weight_f32>(x[t], i, j.n_cols);
            for (int r = 0; r < ROWS; r++) sums[r][t] += dot_eight(w[r], v);
        }
    }
    for (int t = 0; t < TOKENS; t++) {
        if (t >= count) break;
        for (int r = 0; r < ROWS; r++) {
            const float sum = simd_sum(sums[r][t]);
            if (lane == 0 && row + r < j.row_count) write_sum(j, row + r, t, sum);
        }
    }
}

template <class W, int ROWS, int TOKENS>
kernel void matmul_rows(constant matmul_args &a [[buffer(0)]],
                        device float *out [[buffer(1)]],
                        device const float *x [[buffer(2)]],
                        device const uchar *weight [[buffer(3)]],
                        device const float *bias [[buffer(4)]],
                        device const float *residual [[buffer(5)]],
                        uint group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]]) {
    matmul_job j = {out, x, weight, bias, residual, 0, a.n_cols, a.row_first, a.row_count,
                    a.out_stride, 0, a.n_tokens, a.n_tokens, 0, 0, a.bias != 0, a.residual != 0,
                    false, false};
    const int row = int(group * (MATVEC_THREADS / 32) + simdgroup) * ROWS;
    if (row < a.row_count) multiply_rows<W, ROWS, TOKENS>(j, row, int(lane));
}

template <class W>
kernel void experts_vec(constant matmul_experts_args &a [[buffer(0)]],
                        device float *out [[buffer(1)]],
                        device const float *x [[buffer(2)]],
                        device const uchar *weight [[buffer(3)]],
                        device const int *slots [[buffer(4)]],
                        device const float *bias [[buffer(5)]],
                        device const int *starts [[buffer(6)]],
                        device const int *order [[buffer(7)]],
                        uint2 group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]]) {
    matmul_job j = {out, x, weight, bias, out, order, a.n_cols, a.row_first, a.row_count,
                    a.out_stride, 0, 0, a.n_tokens, a.n_used, 0, a.bias != 0, false,
                    a.order != 0, a.x_per_pair};
    const int row = int(group.x * (MATVEC_THREADS / 32) + simdgroup) * MATVEC_FEW_ROWS;
    if (row >= a.row_count) return;
    find_pairs(j, a, starts, slots, int(group.y), EXPERTS_VEC_PAIRS, true, int(lane));
    if (j.count == 1)
        multiply_rows<W, MATVEC_FEW_ROWS, 1>(j, row, int(lane));
    else if (j.count > 1)
        multiply_rows<W, MATVEC_FEW_ROWS, EXPERTS_VEC_PAIRS>(j, row, int(lane));
}

typedef decltype(matmul_rows<weight_f32, 1, 1>) matmul_rows_fn;
typedef decltype(experts_vec<weight_f32>) experts_vec_fn;
#define WEIGHT(NAME, name, ...)                                                                   \
    template [[host_name("matmul_vec_" #name)]] kernel matmul_rows_fn                             \
        matmul_rows<weight_##name, MATVEC_ROWS, 1>;                                               \
    template [[host_name("matmul_few_" #name)]] kernel matmul_rows_fn                             \
        matmul_rows<weight_##name, MATVEC_FEW_ROWS, MATVEC_TOKENS>;                               \
    template [[host_name("experts_vec_" #name)]] kernel experts_vec_fn experts_vec<weight_##name>;
#include "kernels/weights.def"
#undef WEIGHT
