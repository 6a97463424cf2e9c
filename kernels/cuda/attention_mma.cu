/* attention_mma.cu: attention_mma_64 and attention_mma_128, the attention of many tokens on tensor
 * cores, for F16 caches and head sizes that are multiples of 8 up to 64 or 128.
 *
 * Grid (token tiles, n_kv_heads, n_splits): each split takes a run of whole pages of the keys, and
 * attention_merge joins them. The rows of a block are the query heads of one kv head for
 * attention_mma_tokens tokens, at most ATTENTION_MMA_ROWS; a warp keeps 16 of them, as halves, with
 * their sums and online softmax in registers. For every tile of 32 keys the block copies K and V to
 * shared memory (V as pairs of keys, the way mma wants its second operand), each warp multiplies Q
 * K^T, weighs, and multiplies by V: sums are floats, queries and weights are rounded to halves.
 * Tokens of one tile may belong to several sequences: the block goes through the runs of tokens at
 * neighbouring positions of one sequence one after another, and rows of others do not take part.
 * Tiles start at multiples of 32 keys, and a tile that a row does not see leaves the row's sums
 * unchanged, so a result does not depend on the rest of the batch. K and V are read once per tile
 * of tokens: 2 * 2 * head_dim bytes per key. Needs 7.5 with tensor cores, n_heads / n_kv_heads <=
 * ATTENTION_MMA_ROWS. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/params.h"

#if CUDA_ARCH >= 750

enum {
    TILE = 32, // keys
    WARP_ROWS = 16,
};
static_assert(ATTENTION_MMA_ROWS == ATTENTION_MMA_THREADS / 32 * WARP_ROWS, "16 rows of a warp");
static_assert(KV_PAGE % TILE == 0, "a tile lies within a page");

// Rows are padded by 16 bytes (K) or 8 words (V) to avoid bank conflicts.
template <int DIM> struct key_tile {
    static constexpr int UNITS = DIM / 8, K_STRIDE = UNITS + 1, V_STRIDE = DIM + 8;
    uint4 k[TILE * K_STRIDE];        // [TILE, DIM] halves
    uint32_t v[TILE / 2 * V_STRIDE]; // [TILE / 2, DIM]: keys 2i (low half) and 2i + 1 of a column
};

// A thread's rows are g and g + 8 of its warp's 16, with g = lane / 4; its columns of a tile of
// eight are 2t and 2t + 1, with t = lane % 4.
struct query_row {
    int64_t q;              // element of q and out at which its head starts
    int token, first, last; // token of the tile (-1: none), and the keys it sees
};

// Tokens first_token..last_token of the tile, at neighbouring positions of one sequence, and the
// keys they see. Each of these keys is seen by some token and so was written. A key that was never
// written may be NaN, and a weight of zero does not remove a NaN.
struct token_run {
    int first_token, last_token, first_key, last_key;
    const int32_t *pages;
};

template <int DIM> struct row_state {
    uint32_t q[DIM / 16][4]; // operands of mma_m16n8k16_f16
    float sums[DIM / 8][4];
    float max[2], sum[2]; // sum: of this thread's columns only
    query_row rows[2];
};

DEVICE_FN uint32_t pack_halves(float low, float high) {
    return (uint32_t)__float2half(low).bits | (uint32_t)__float2half(high).bits << 16;
}

DEVICE_FN void multiply_16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
#if CUDA_ARCH >= 800
    const uint32_t b[2] = {b0, b1};
    mma_m16n8k16_f16(d, a, b);
#else
    mma_m16n8k8_f16(d, a, b0);
    mma_m16n8k8_f16(d, a + 2, b1);
#endif
}

DEVICE_FN query_row find_row(const struct attention_args &a, int64_t first_token, int n_tokens,
                             int row) {
    int group = a.n_heads / a.n_kv_heads;
    query_row r = {0, -1, 0, -1};
    if (row >= n_tokens * group) return r;
    r.token = row / group;
    int64_t token = first_token + r.token;
    r.q = (token * a.n_heads + (int64_t)blockIdx.y * group + row % group) * a.head_dim;
    r.last = a.positions[token], r.first = first_key(r.last, a.window);
    return r;
}

// Loads two columns of a query, scaled, as halves; zeros past head_dim and without a token.
DEVICE_FN uint32_t load_query(const struct attention_args &a, const query_row &row, int column) {
    if (row.token < 0 || column >= a.head_dim) return 0;
    const float *q = a.q + row.q + column;
    return pack_halves(a.scale * q[0], a.scale * q[1]);
}

template <int DIM>
DEVICE_FN void start_rows(row_state<DIM> *s, const struct attention_args &a, int64_t first_token,
                          int n_tokens) {
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int i = 0; i < 2; i++) {
        s->rows[i] = find_row(a, first_token, n_tokens, warp * WARP_ROWS + lane / 4 + 8 * i);
        // A sink is a score before all others, which one of a row's four threads counts.
        int64_t head = s->rows[i].q / a.head_dim % a.n_heads;
        bool has_sink = a.sinks && blockIdx.z == 0 && s->rows[i].token >= 0;
        s->max[i] = has_sink ? a.sinks[head] : minus_infinity();
        s->sum[i] = has_sink && lane % 4 == 0 ? 1 : 0;
    }
#pragma unroll
    for (int k = 0; k < DIM / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s->q[k][i] = load_query(a, s->rows[i & 1], 16 * k + 2 * (lane % 4) + 8 * (i >> 1));
#pragma unroll
    for (int n = 0; n < DIM / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) s->sums[n][i] = 0;
}

// Loads eight halves of a key's row; zeros past head_dim and outside keys.
DEVICE_FN uint4 load_unit(const struct attention_args &a, const void *cache, tile_keys keys,
                          int key, int unit) {
    if (key < keys.from || key >= keys.to || unit >= a.head_dim / 8) return make_uint4(0, 0, 0, 0);
    const __half *row =
        (const __half *)cache + keys.start + (int64_t)key * a.n_kv_heads * a.head_dim;
    return __ldg((const uint4 *)row + unit);
}

DEVICE_FN uint4 interleave(uint32_t a0, uint32_t b0, uint32_t a1, uint32_t b1) {
    return make_uint4((a0 & 0xffff) | b0 << 16, a0 >> 16 | (b0 & 0xffff0000u),
                      (a1 & 0xffff) | b1 << 16, a1 >> 16 | (b1 & 0xffff0000u));
}

template <int DIM>
DEVICE_FN void load_tile(key_tile<DIM> *tile, const struct attention_args &a, tile_keys keys) {
    const int units = key_tile<DIM>::UNITS;
#pragma unroll
    for (int j = 0; j < TILE * units; j += ATTENTION_MMA_THREADS) {
        int i = j + (int)threadIdx.x, key = i / units, unit = i % units;
        tile->k[key * key_tile<DIM>::K_STRIDE + unit] = load_unit(a, a.k_cache, keys, key, unit);
    }
#pragma unroll
    for (int j = 0; j < TILE / 2 * units; j += ATTENTION_MMA_THREADS) {
        int i = j + (int)threadIdx.x, pair = i / units, unit = i % units;
        uint4 even = load_unit(a, a.v_cache, keys, 2 * pair, unit);
        uint4 odd = load_unit(a, a.v_cache, keys, 2 * pair + 1, unit);
        uint4 *out = (uint4 *)(tile->v + pair * key_tile<DIM>::V_STRIDE + 8 * unit);
        out[0] = interleave(even.x, odd.x, even.y, odd.y);
        out[1] = interleave(even.z, odd.z, even.w, odd.w);
    }
}

// scores[n] = the warp's rows times keys 8n..8n+7 of the tile.
template <int DIM>
DEVICE_FN void score_tile(float scores[TILE / 8][4], const row_state<DIM> &s,
                          const key_tile<DIM> &tile) {
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < TILE / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) scores[n][i] = 0;
        const uint4 *k = tile.k + (8 * n + lane % 8) * key_tile<DIM>::K_STRIDE + lane / 8;
#pragma unroll
        for (int c = 0; c < DIM / 32; c++) {
            uint32_t b[4];
            ldmatrix_x4(b, k + 4 * c);
            multiply_16(scores[n], s.q[2 * c], b[0], b[1]);
            multiply_16(scores[n], s.q[2 * c + 1], b[2], b[3]);
        }
    }
}

// Turns scores into weights and rescales the sums so far to the new maximum. Keys that a row does
// not see have weight 0; a row that has seen no key yet keeps the maximum minus infinity.
template <int DIM>
DEVICE_FN void weigh(float scores[TILE / 8][4], row_state<DIM> *s, const struct attention_args &a,
                     const token_run &run, int key) {
#pragma unroll
    for (int row = 0; row < 2; row++) {
        const query_row r = s->rows[row];
        bool runs = r.token >= run.first_token && r.token <= run.last_token;
        float max = s->max[row];
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int i = 2 * row; i < 2 * row + 2; i++) {
                int at = key + 8 * n + (int)threadIdx.x % 4 * 2 + (i & 1);
                bool seen = runs && at >= r.first && at <= r.last;
                float score = a.softcap > 0 ? cap_score(scores[n][i], a.softcap) : scores[n][i];
                scores[n][i] = seen ? score : minus_infinity();
                max = fmaxf(max, scores[n][i]);
            }
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
        float base = max == minus_infinity() ? 0 : max, sum = 0;
        float shrink = __expf(s->max[row] - base);
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int i = 2 * row; i < 2 * row + 2; i++)
                sum += scores[n][i] = __expf(scores[n][i] - base);
        s->max[row] = max, s->sum[row] = fmaf(s->sum[row], shrink, sum);
#pragma unroll
        for (int n = 0; n < DIM / 8; n++)
#pragma unroll
            for (int i = 2 * row; i < 2 * row + 2; i++) s->sums[n][i] *= shrink;
    }
}

template <int DIM>
DEVICE_FN void add_tile(row_state<DIM> *s, const float weights[TILE / 8][4],
                        const key_tile<DIM> &tile) {
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < TILE / 16; k++) {
        const float *low = weights[2 * k], *high = weights[2 * k + 1];
        const uint32_t a[4] = {pack_halves(low[0], low[1]), pack_halves(low[2], low[3]),
                               pack_halves(high[0], high[1]), pack_halves(high[2], high[3])};
        const uint32_t *v = tile.v + (8 * k + lane % 4) * key_tile<DIM>::V_STRIDE + lane / 4;
#pragma unroll
        for (int n = 0; n < DIM / 8; n++)
            multiply_16(s->sums[n], a, v[8 * n], v[4 * key_tile<DIM>::V_STRIDE + 8 * n]);
    }
}

// Writes the rows, or the undivided sums of a split of their keys for attention_merge.
template <int DIM> DEVICE_FN void write_rows(row_state<DIM> *s, const struct attention_params &p) {
    const struct attention_args &a = p.a;
    bool whole = p.n_splits == 1;
#pragma unroll
    for (int row = 0; row < 2; row++) {
        float sum = s->sum[row];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (s->rows[row].token < 0) continue;
        int64_t split = s->rows[row].q / a.head_dim * p.n_splits + blockIdx.z;
        float *out = whole ? a.out + s->rows[row].q : p.partial + split * (a.head_dim + 2);
        float factor = whole ? 1 / sum : 1;
        if (!whole && threadIdx.x % 4 == 0)
            out[a.head_dim] = s->max[row], out[a.head_dim + 1] = sum;
#pragma unroll
        for (int n = 0; n < DIM / 8; n++) {
            int column = 8 * n + (int)threadIdx.x % 4 * 2;
            if (column >= a.head_dim) continue;
            out[column] = factor * s->sums[n][2 * row];
            out[column + 1] = factor * s->sums[n][2 * row + 1];
        }
    }
}

DEVICE_FN bool row_sees_tile(const query_row &r, const token_run &run, int key) {
    return r.token >= run.first_token && r.token <= run.last_token && r.last >= key &&
           r.first < key + TILE;
}

template <int DIM>
DEVICE_FN void attend_run(row_state<DIM> *s, key_tile<DIM> *tile, const struct attention_args &a,
                          const token_run &run) {
    for (int key = run.first_key / TILE * TILE; key <= run.last_key; key += TILE) {
        load_tile(tile, a,
                  tile_keys{key_start(a, run.pages, (int)blockIdx.y, key), run.first_key - key,
                            run.last_key - key + 1});
        __syncthreads();
        bool sees = row_sees_tile(s->rows[0], run, key) || row_sees_tile(s->rows[1], run, key);
        if (__ballot_sync(0xffffffffu, sees)) {
            float scores[TILE / 8][4];
            score_tile(scores, *s, *tile);
            weigh(scores, s, a, run, key);
            add_tile(s, scores, *tile);
        }
        __syncthreads();
    }
}

// The run that starts at token t of the tile.
DEVICE_FN token_run find_run(const struct attention_args &a, int64_t first_token, int n_tokens,
                             int t) {
    const int32_t *positions = a.positions + first_token, *sequences = a.sequences + first_token;
    token_run run = {t, t, first_key(positions[t], a.window), positions[t],
                     a.pages + (int64_t)sequences[t] * a.max_pages};
    for (int next = t + 1; next < n_tokens && sequences[next] == sequences[t] &&
                           positions[next] == positions[next - 1] + 1;
         next++)
        run.last_token = next, run.last_key = positions[next];
    return run;
}

// Cuts a run to the keys of the block's split, whole pages.
DEVICE_FN void split_run(token_run *run, int n_splits) {
    int first_page = run->first_key / KV_PAGE, n_pages = run->last_key / KV_PAGE - first_page + 1;
    int split = (int)blockIdx.z;
    int start = first_page + n_pages * split / n_splits;
    int end = first_page + n_pages * (split + 1) / n_splits;
    run->first_key = max(run->first_key, start * KV_PAGE);
    run->last_key = min(run->last_key, end * KV_PAGE - 1);
}

template <int DIM> DEVICE_FN void attend_tokens(const struct attention_params &p) {
    const struct attention_args &a = p.a;
    __shared__ key_tile<DIM> tile;
    int tokens = ATTENTION_MMA_ROWS / (a.n_heads / a.n_kv_heads);
    int64_t first_token = (int64_t)blockIdx.x * tokens;
    if (a.n_tokens - first_token < tokens) tokens = (int)(a.n_tokens - first_token);
    row_state<DIM> s;
    start_rows(&s, a, first_token, tokens);
    for (int t = 0; t < tokens;) {
        token_run run = find_run(a, first_token, tokens, t);
        split_run(&run, (int)p.n_splits);
        attend_run(&s, &tile, a, run);
        t = run.last_token + 1;
    }
    write_rows(&s, p);
}

#else // never launched

template <int DIM> DEVICE_FN void attend_tokens(const struct attention_params &) {}

#endif

KERNEL void __launch_bounds__(ATTENTION_MMA_THREADS)
    attention_mma_64(const struct attention_params p) {
    attend_tokens<64>(p);
}
KERNEL void __launch_bounds__(ATTENTION_MMA_THREADS)
    attention_mma_128(const struct attention_params p) {
    attend_tokens<128>(p);
}
