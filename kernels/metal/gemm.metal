/* gemm.metal: gemm_<type> and tiles_<type>, a weight times many tokens; experts_gemm_<type> and
 * experts_tiles_<type>, the same for the pairs of experts.
 *
 * Grid (token tiles, row tiles); for experts the tiles of job.metal. A threadgroup of GEMM_THREADS
 * threads multiplies GEMM_ROWS rows of the weight with GEMM_TOKENS tokens. It walks along the
 * columns by GEMM_COLS: every thread dequantises two eights of a row and copies one of a token to
 * threadgroup memory, where both lie as matrices of 8 by 8, one after another, so that a line of
 * one is an eight. Weights of types with blocks become halves there, plain ones and the activations
 * stay floats. Then gemm multiplies with simdgroup matrices, each simdgroup 32 rows with 16 tokens,
 * and tiles, for devices without them, with vectors, each thread 4 rows with 4 tokens. Sums are
 * floats. Threadgroup memory is gemm_memory_bytes. Rows and tokens past the end repeat the last one
 * and are not written. The products of a sum and their order depend on n_cols alone. Reads the
 * weight once per token tile. Tested by tests/kernels/test_metal_kernels.c and check_ops.c.
 */
#include "kernels/metal/blocks_iq.metal"
#include "kernels/metal/job.metal"

static_assert(GEMM_ROWS == 64 && GEMM_TOKENS == 32 && GEMM_COLS == 32 && GEMM_THREADS == 128,
              "a thread brings two eights of a row and one of a token");

// A line of a matrix in threadgroup memory.
static void store_eight(threadgroup float *line, eight v) {
    ((threadgroup float4 *)line)[0] = v.low;
    ((threadgroup float4 *)line)[1] = v.high;
}
static void store_eight(threadgroup half *line, eight v) {
    ((threadgroup half4 *)line)[0] = half4(v.low);
    ((threadgroup half4 *)line)[1] = half4(v.high);
}

// The line of eight i of the step in row or token n of a tile.
static int line_of(int n, int i) { return ((n / 8 * (GEMM_COLS / 8)) + i) * 64 + n % 8 * 8; }

struct gemm_thread {
    int row_tile, index, simdgroup;
};

// Products by simdgroup matrices. Simdgroups 0 and 1 have the rows of the first 16 tokens.
struct simdgroup_math {
    simdgroup_float8x8 sums[2][4]; // of 8 tokens, 8 rows

    template <class T>
    static void add(thread simdgroup_math &m, threadgroup const T *weights,
                    threadgroup const float *x, gemm_thread t) {
        threadgroup const T *rows = weights + (t.simdgroup & 1) * 4 * (GEMM_COLS / 8) * 64;
        threadgroup const float *tokens = x + (t.simdgroup >> 1) * 2 * (GEMM_COLS / 8) * 64;
        for (int k = 0; k < GEMM_COLS / 8; k++) {
            simdgroup_float8x8 v[2];
            for (int n = 0; n < 2; n++)
                simdgroup_load(v[n], tokens + (n * (GEMM_COLS / 8) + k) * 64, 8);
            for (int r = 0; r < 4; r++) {
                simdgroup_matrix<T, 8, 8> w;
                simdgroup_load(w, rows + (r * (GEMM_COLS / 8) + k) * 64, 8, ulong2(0), true);
                for (int n = 0; n < 2; n++)
                    simdgroup_multiply_accumulate(m.sums[n][r], v[n], w, m.sums[n][r]);
            }
        }
    }
    static void clear(thread simdgroup_math &m) {
        for (int n = 0; n < 2; n++)
            for (int r = 0; r < 4; r++) m.sums[n][r] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
    // Through threadgroup memory [GEMM_TOKENS, GEMM_ROWS], which is free by now.
    static void write(thread const simdgroup_math &m, thread const matmul_job &j,
                      threadgroup float *memory, gemm_thread t) {
        threadgroup float *part = memory + (t.simdgroup >> 1) * 16 * GEMM_ROWS + (t.simdgroup & 1) * 32;
        for (int n = 0; n < 2; n++)
            for (int r = 0; r < 4; r++)
                simdgroup_store(m.sums[n][r], part + n * 8 * GEMM_ROWS + r * 8, GEMM_ROWS);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const int row = t.index % GEMM_ROWS, row_in_all = t.row_tile * GEMM_ROWS + row;
        if (row_in_all >= j.row_count) return;
        for (int n = t.index / GEMM_ROWS; n < j.count; n += GEMM_THREADS / GEMM_ROWS)
            write_sum(j, row_in_all, n, memory[n * GEMM_ROWS + row]);
    }
};

// Four elements of a line as floats.
static float4 four_of(threadgroup const float *line) { return *(threadgroup const float4 *)line; }
static float4 four_of(threadgroup const half *line) {
    return float4(*(threadgroup const half4 *)line);
}

// Products by vectors: thread i has rows 4 (i % 16).. and tokens 4 (i / 16)...
struct vector_math {
    float sums[4][4]; // of 4 tokens, 4 rows

    template <class T>
    static void add(thread vector_math &m, threadgroup const T *weights, threadgroup const float *x,
                    gemm_thread t) {
        const int row = t.index % 16 * 4, token = t.index / 16 * 4;
        for (int c = 0; c < GEMM_COLS; c += 4) {
            float4 w[4];
            for (int r = 0; r < 4; r++) w[r] = four_of(weights + line_of(row + r, c / 8) + c % 8);
            for (int n = 0; n < 4; n++) {
                const float4 v = four_of(x + line_of(token + n, c / 8) + c % 8);
                for (int r = 0; r < 4; r++) m.sums[n][r] += dot(w[r], v);
            }
        }
    }
    static void clear(thread vector_math &m) {
        for (int n = 0; n < 4; n++)
            for (int r = 0; r < 4; r++) m.sums[n][r] = 0;
    }
    static void write(thread const vector_math &m, thread const matmul_job &j, threadgroup float *,
                      gemm_thread t) {
        const int row = t.row_tile * GEMM_ROWS + t.index % 16 * 4, token = t.index / 16 * 4;
        for (int n = 0; n < 4; n++)
            for (int r = 0; r < 4; r++)
                if (token + n < j.count && row + r < j.row_count)
                    write_sum(j, row + r, token + n, m.sums[n][r]);
    }
};

template <class W, class Math>
static void multiply_tile(thread const matmul_job &j, threadgroup float *memory, gemm_thread t) {
    typedef typename W::tile element;
    threadgroup element *weights = (threadgroup element *)memory;
    threadgroup float *x = (threadgroup float *)(weights + GEMM_ROWS * GEMM_COLS);
    // Of this thread: the line of a row, from its first of two eights on, and one of a token.
    const int row = t.index / 2, i = t.index % 2 * 2, token = t.index / 4, k = t.index % 4;
    const int weight_row = min(t.row_tile * GEMM_ROWS + row, j.row_count - 1);
    device const uchar *from =
        j.weight + long(j.row_first + weight_row) * row_bytes<W>(j.n_cols);
    device const uchar *x_from = (device const uchar *)(j.x + long(x_row(j, token)) * j.n_cols);
    const int n_eights = (j.n_cols + 7) / 8;
    Math math;
    Math::clear(math);
    for (int first = 0; first < n_eights; first += GEMM_COLS / 8) {
        const eight nothing = {float4(0.0f), float4(0.0f)};
        for (int n = 0; n < 2; n++)
            store_eight(weights + line_of(row, i + n),
                        first + i + n < n_eights ? read_eight<W>(from, first + i + n, j.n_cols)
                                                 : nothing);
        store_eight(x + line_of(token, k), first + k < n_eights
                                               ? read_eight<weight_f32>(x_from, first + k, j.n_cols)
                                               : nothing);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        Math::add(math, (threadgroup const element *)weights, (threadgroup const float *)x, t);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    Math::write(math, j, memory, t);
}

template <class W, class Math>
kernel void matmul_tile(constant matmul_args &a [[buffer(0)]],
                        device float *out [[buffer(1)]],
                        device const float *x [[buffer(2)]],
                        device const uchar *weight [[buffer(3)]],
                        device const float *bias [[buffer(4)]],
                        device const float *residual [[buffer(5)]],
                        threadgroup float *memory [[threadgroup(0)]],
                        uint2 group [[threadgroup_position_in_grid]],
                        uint index [[thread_index_in_threadgroup]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]]) {
    const int first = int(group.x) * GEMM_TOKENS;
    matmul_job j = {out, x, weight, bias, residual, 0, a.n_cols, a.row_first, a.row_count,
                    a.out_stride, first, min(a.n_tokens - first, int(GEMM_TOKENS)), a.n_tokens, 0,
                    0, a.bias != 0, a.residual != 0, false, false};
    const gemm_thread t = {int(group.y), int(index), int(simdgroup)};
    multiply_tile<W, Math>(j, memory, t);
}

template <class W, class Math>
kernel void experts_tile(constant matmul_experts_args &a [[buffer(0)]],
                         device float *out [[buffer(1)]],
                         device const float *x [[buffer(2)]],
                         device const uchar *weight [[buffer(3)]],
                         device const int *slots [[buffer(4)]],
                         device const float *bias [[buffer(5)]],
                         device const int *starts [[buffer(6)]],
                         device const int *order [[buffer(7)]],
                         threadgroup float *memory [[threadgroup(0)]],
                         uint2 group [[threadgroup_position_in_grid]],
                         uint index [[thread_index_in_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]],
                         uint simdgroup [[simdgroup_index_in_threadgroup]]) {
    matmul_job j = {out, x, weight, bias, out, order, a.n_cols, a.row_first, a.row_count,
                    a.out_stride, 0, 0, a.n_tokens, a.n_used, 0, a.bias != 0, false,
                    a.order != 0, a.x_per_pair};
    const gemm_thread t = {int(group.y), int(index), int(simdgroup)};
    find_pairs(j, a, starts, slots, int(group.x), GEMM_TOKENS, false, int(lane));
    if (j.count > 0) multiply_tile<W, Math>(j, memory, t);
}

typedef decltype(matmul_tile<weight_f32, vector_math>) matmul_tile_fn;
typedef decltype(experts_tile<weight_f32, vector_math>) experts_tile_fn;
#define WEIGHT(NAME, name, ...)                                                \
    template [[host_name("gemm_" #name)]] kernel matmul_tile_fn                \
        matmul_tile<weight_##name, simdgroup_math>;                            \
    template [[host_name("tiles_" #name)]] kernel matmul_tile_fn               \
        matmul_tile<weight_##name, vector_math>;                               \
    template [[host_name("experts_gemm_" #name)]] kernel experts_tile_fn       \
        experts_tile<weight_##name, simdgroup_math>;                           \
    template [[host_name("experts_tiles_" #name)]] kernel experts_tile_fn      \
        experts_tile<weight_##name, vector_math>;
#include "kernels/weights.def"
#undef WEIGHT
