/* attention_mma.cu: attention_mma_64, _128 and _256, the attention of many tokens on tensor cores,
 * for caches of F16, Q8_0 and Q4_0 and head sizes that are multiples of 8 up to these.
 *
 * Grid (token tiles, n_kv_heads, n_splits): each split takes a run of whole pages of the keys, and
 * attention_merge joins them. The rows of a block are the query heads of one kv head for as many
 * tokens as have at most ATTENTION_MMA_ROWS; a warp keeps 16 of them, as halves, with their sums
 * and online softmax in registers. For every tile of 32 keys, 16 of wide heads, the block copies K
 * and V to shared memory as halves (V as pairs of keys, the way mma wants its second operand), each
 * warp multiplies Q K^T, weighs, and multiplies by V: sums are floats, queries, weights and the
 * elements of blocks are rounded to halves. Registers do not hold queries of 256 columns beside
 * their sums, so the last 7 steps of 16 columns lie in shared memory, where each thread reads its
 * own. Tokens of one tile may belong to several sequences: the block goes through the runs of
 * tokens at neighbouring positions of one sequence one after another, and rows of others do not
 * take part. Tiles start at multiples of their size, and a tile that a row does not see leaves the
 * row's sums unchanged, so a result does not depend on the rest of the batch. K and V are read once
 * per tile of tokens: 2 * head_dim elements per key. Needs 7.5 with tensor cores, n_heads /
 * n_kv_heads <= ATTENTION_MMA_ROWS. F32 caches are left to attention_tiles.cu: halves would lose
 * bits; a value of a block past 65,504 becomes infinite, as in an F16 cache. Emulated, not run on a
 * GPU. Tested by tests/kernels/check_ops.c and, without each barrier, tests/race.sh.
 */
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/params.h"

#if CUDA_ARCH >= 750

enum { WARP_ROWS = 16 };
static_assert(ATTENTION_MMA_ROWS == ATTENTION_MMA_THREADS / 32 * WARP_ROWS, "16 rows of a warp");

// The keys of a tile, and the steps of 16 columns of q that lie in shared memory since registers
// do not hold them beside the sums.
template <int DIM> struct tile_shape {
    static constexpr int KEYS = DIM > 128 ? 16 : 32, PARKED = DIM > 128 ? 7 : 0, UNITS = DIM / 8,
                         LOADS = KEYS * UNITS / ATTENTION_MMA_THREADS;
    static_assert(KV_PAGE % KEYS == 0, "a tile lies within a page");
};

// Rows are padded by 16 bytes (K) or 8 words (V) to avoid bank conflicts.
template <int DIM> struct key_tile {
    static constexpr int K_STRIDE = DIM / 8 + 1, V_STRIDE = DIM + 8;
    uint4 k[tile_shape<DIM>::KEYS * K_STRIDE]; // [KEYS, DIM] halves
    // [KEYS / 2, DIM]: keys 2i (low half) and 2i + 1 of a column
    uint32_t v[tile_shape<DIM>::KEYS / 2 * V_STRIDE];
};

// A thread's rows are g and g + 8 of its warp's 16, with g = lane / 4; its columns of a tile of
// eight are 2t and 2t + 1, with t = lane % 4.
template <int DIM> struct row_state {
    static constexpr int KEPT = DIM / 16 - tile_shape<DIM>::PARKED;
    uint32_t q[KEPT][4]; // operands of mma_m16n8k16_f16
    uint4 *parked; // those of later columns, ATTENTION_MMA_THREADS apart, of this thread alone
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

// Loads two columns of a query, scaled, as halves; zeros past head_dim and without a token.
DEVICE_FN uint32_t load_query(const struct attention_args &a, const query_row &row, int column) {
    if (row.head < 0 || column >= a.head_dim) return 0;
    const float *q = a.q + (int64_t)row.head * a.head_dim + column;
    return pack_halves(a.scale * q[0], a.scale * q[1]);
}

// Loads a thread's part of 16 columns of its two rows.
template <int DIM>
DEVICE_FN void load_query_step(uint32_t q[4], const row_state<DIM> &s,
                               const struct attention_args &a, int step) {
    int column = 16 * step + in_loop((int)threadIdx.x) % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; i++) q[i] = load_query(a, s.rows[i & 1], column + 8 * (i >> 1));
}

template <int DIM> DEVICE_FN void load_queries(row_state<DIM> *s, const struct attention_args &a) {
    const int kept = row_state<DIM>::KEPT;
    NO_UNROLL
    for (int step = kept; step < DIM / 16; step++) {
        uint32_t q[4];
        load_query_step(q, *s, a, step);
        s->parked[(step - kept) * ATTENTION_MMA_THREADS] = make_uint4(q[0], q[1], q[2], q[3]);
    }
#pragma unroll
    for (int step = 0; step < kept; step++) load_query_step(s->q[step], *s, a, step);
}

template <int DIM> DEVICE_FN void get_query(uint32_t q[4], const row_state<DIM> &s, int step) {
    const int kept = row_state<DIM>::KEPT;
    if (step < kept) {
#pragma unroll
        for (int i = 0; i < 4; i++) q[i] = s.q[step][i];
    } else {
        uint4 four = s.parked[(step - kept) * ATTENTION_MMA_THREADS];
        q[0] = four.x, q[1] = four.y, q[2] = four.z, q[3] = four.w;
    }
}

template <int DIM> DEVICE_FN void start_rows(row_state<DIM> *s, const struct attention_args &a) {
    const token_tile tile = find_tile(a, ATTENTION_MMA_ROWS);
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int i = 0; i < 2; i++) s->rows[i] = find_row(a, tile, warp * WARP_ROWS + lane / 4 + 8 * i);
    for (int i = 0; i < 2; i++) {
        // A sink is a score before all others, which one of a row's four threads counts.
        bool has_sink = a.sinks && blockIdx.z == 0 && s->rows[i].head >= 0;
        s->max[i] = has_sink ? a.sinks[s->rows[i].head % a.n_heads] : minus_infinity();
        s->sum[i] = has_sink && lane % 4 == 0 ? 1 : 0;
    }
    load_queries(s, a);
#pragma unroll
    for (int n = 0; n < DIM / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) s->sums[n][i] = 0;
}

// Loads a unit; zeros past head_dim and outside keys.
template <bool BLOCKS>
DEVICE_FN raw_unit load_unit(const struct attention_args &a, const void *cache,
                             const block_form &form, tile_keys keys, int key, int unit) {
    if (key < keys.from || key >= keys.to || unit >= a.head_dim / 8) return raw_unit{};
    if (BLOCKS) return load_block_unit(cache, form, block_of(a, keys, key, unit), unit);
    const __half *row =
        (const __half *)cache + keys.start + (int64_t)key * a.n_kv_heads * a.head_dim;
    uint4 halves = __ldg((const uint4 *)row + unit);
    return raw_unit{{halves.x, halves.y, halves.z, halves.w}};
}

// Two elements of a block, bytes 2 high and 2 high + 1 of word, as halves: the byte under the bits
// of 1,024 is the half 1,024 + byte, a difference of two such halves is exact, and its product with
// the scale is rounded once.
DEVICE_FN uint32_t scale_pair(uint32_t word, int high, uint32_t centre, uint32_t scale) {
    uint32_t pair = __byte_perm(word, 0x64646464u, high ? 0x4342 : 0x4140);
    return mul_halves(sub_halves(pair, centre), scale);
}

template <bool BLOCKS>
DEVICE_FN uint4 unit_halves(const raw_unit &raw, const block_form &form, int64_t number, int unit) {
    const uint32_t *w = raw.words;
    if (!BLOCKS) return make_uint4(w[0], w[1], w[2], w[3]);
    const uint32_t scale = __byte_perm(w[3], 0, 0x1010);
    const uint2 eight = block_bytes(w, form, number, unit);
    return make_uint4(
        scale_pair(eight.x, 0, form.centre, scale), scale_pair(eight.x, 1, form.centre, scale),
        scale_pair(eight.y, 0, form.centre, scale), scale_pair(eight.y, 1, form.centre, scale));
}

DEVICE_FN uint4 interleave(uint32_t a0, uint32_t b0, uint32_t a1, uint32_t b1) {
    return make_uint4((a0 & 0xffff) | b0 << 16, a0 >> 16 | (b0 & 0xffff0000u),
                      (a1 & 0xffff) | b1 << 16, a1 >> 16 | (b1 & 0xffff0000u));
}

// The units of K that a thread loads; those of V are two neighbouring keys' at a time.
template <int DIM> struct raw_tile {
    raw_unit k[tile_shape<DIM>::LOADS], v[tile_shape<DIM>::LOADS];
};

template <int DIM, bool BLOCKS>
DEVICE_FN void fetch_keys(raw_tile<DIM> *raw, const struct attention_args &a, tile_keys keys) {
    const int units = tile_shape<DIM>::UNITS, thread = in_loop((int)threadIdx.x);
    const block_form form = form_of(a.k_type);
#pragma unroll
    for (int j = 0; j < tile_shape<DIM>::LOADS; j++) {
        int i = j * ATTENTION_MMA_THREADS + thread;
        raw->k[j] = load_unit<BLOCKS>(a, a.k_cache, form, keys, i / units, i % units);
    }
}

template <int DIM, bool BLOCKS>
DEVICE_FN void fetch_values(raw_tile<DIM> *raw, const struct attention_args &a, tile_keys keys) {
    const int units = tile_shape<DIM>::UNITS, thread = in_loop((int)threadIdx.x);
    const block_form form = form_of(a.v_type);
#pragma unroll
    for (int j = 0; j < tile_shape<DIM>::LOADS; j++) {
        int i = j / 2 * ATTENTION_MMA_THREADS + thread;
        raw->v[j] = load_unit<BLOCKS>(a, a.v_cache, form, keys, i / units * 2 + j % 2, i % units);
    }
}

template <int DIM, bool BLOCKS>
DEVICE_FN void place_keys(key_tile<DIM> *tile, const raw_tile<DIM> &raw,
                          const struct attention_args &a, tile_keys keys) {
    const int units = tile_shape<DIM>::UNITS, thread = in_loop((int)threadIdx.x);
    const block_form form = form_of(a.k_type);
#pragma unroll
    for (int j = 0; j < tile_shape<DIM>::LOADS; j++) {
        int i = j * ATTENTION_MMA_THREADS + thread, key = i / units, unit = i % units;
        tile->k[key * key_tile<DIM>::K_STRIDE + unit] =
            unit_halves<BLOCKS>(raw.k[j], form, block_of(a, keys, key, unit), unit);
    }
}

template <int DIM, bool BLOCKS>
DEVICE_FN void place_values(key_tile<DIM> *tile, const raw_tile<DIM> &raw,
                            const struct attention_args &a, tile_keys keys) {
    const int units = tile_shape<DIM>::UNITS, thread = in_loop((int)threadIdx.x);
    const block_form form = form_of(a.v_type);
#pragma unroll
    for (int j = 0; j < tile_shape<DIM>::LOADS; j += 2) {
        int i = j / 2 * ATTENTION_MMA_THREADS + thread, pair = i / units;
        int unit = i % units;
        uint4 even = unit_halves<BLOCKS>(raw.v[j], form, block_of(a, keys, 2 * pair, unit), unit);
        uint4 odd =
            unit_halves<BLOCKS>(raw.v[j + 1], form, block_of(a, keys, 2 * pair + 1, unit), unit);
        uint4 *out = (uint4 *)(tile->v + pair * key_tile<DIM>::V_STRIDE + 8 * unit);
        out[0] = interleave(even.x, odd.x, even.y, odd.y);
        out[1] = interleave(even.z, odd.z, even.w, odd.w);
    }
}

template <int DIM>
DEVICE_FN void place_any_keys(key_tile<DIM> *tile, const raw_tile<DIM> &raw,
                              const struct attention_args &a, tile_keys keys) {
    if (a.k_type == DTYPE_F16)
        place_keys<DIM, false>(tile, raw, a, keys);
    else
        place_keys<DIM, true>(tile, raw, a, keys);
}

// Brings a tile to shared memory. The loads of K and V are under way together but for wide heads,
// which lack the registers.
template <int DIM>
DEVICE_FN void load_tile(key_tile<DIM> *tile, const struct attention_args &a, tile_keys keys) {
    raw_tile<DIM> raw;
    if (a.k_type == DTYPE_F16)
        fetch_keys<DIM, false>(&raw, a, keys);
    else
        fetch_keys<DIM, true>(&raw, a, keys);
    if (DIM > 128) place_any_keys(tile, raw, a, keys);
    if (a.v_type == DTYPE_F16)
        fetch_values<DIM, false>(&raw, a, keys);
    else
        fetch_values<DIM, true>(&raw, a, keys);
    if (DIM <= 128) place_any_keys(tile, raw, a, keys);
    if (a.v_type == DTYPE_F16)
        place_values<DIM, false>(tile, raw, a, keys);
    else
        place_values<DIM, true>(tile, raw, a, keys);
}

// scores[n] = the warp's rows times keys 8n..8n+7 of the tile.
template <int DIM>
DEVICE_FN void score_tile(float scores[tile_shape<DIM>::KEYS / 8][4], const row_state<DIM> &s,
                          const key_tile<DIM> &tile) {
    const int n_blocks = tile_shape<DIM>::KEYS / 8, stride = key_tile<DIM>::K_STRIDE;
    int lane = (int)threadIdx.x % 32;
    const uint4 *k = tile.k + lane % 8 * stride + lane / 8;
#pragma unroll
    for (int n = 0; n < n_blocks; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) scores[n][i] = 0;
#pragma unroll
    for (int c = 0; c < DIM / 32; c++) {
        uint32_t low[4], high[4];
        get_query(low, s, 2 * c), get_query(high, s, 2 * c + 1);
#pragma unroll
        for (int n = 0; n < n_blocks; n++) {
            uint32_t b[4];
            ldmatrix_x4(b, k + 8 * n * stride + 4 * c);
            multiply_16(scores[n], low, b[0], b[1]);
            multiply_16(scores[n], high, b[2], b[3]);
        }
    }
}

// Turns scores into weights and rescales the sums so far to the new maximum. Keys that a row does
// not see have weight 0; a row that has seen no key yet keeps the maximum minus infinity.
template <int DIM>
DEVICE_FN void weigh(float scores[tile_shape<DIM>::KEYS / 8][4], row_state<DIM> *s,
                     const struct attention_args &a, const token_run &run, int key) {
#pragma unroll
    for (int row = 0; row < 2; row++) {
        const query_row r = s->rows[row];
        bool runs = r.head >= run.first_head && r.head <= run.last_head;
        float max = s->max[row];
#pragma unroll
        for (int n = 0; n < tile_shape<DIM>::KEYS / 8; n++)
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
        for (int n = 0; n < tile_shape<DIM>::KEYS / 8; n++)
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
DEVICE_FN void add_tile(row_state<DIM> *s, const float weights[tile_shape<DIM>::KEYS / 8][4],
                        const key_tile<DIM> &tile) {
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < tile_shape<DIM>::KEYS / 16; k++) {
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
        if (s->rows[row].head < 0) continue;
        int64_t head = s->rows[row].head, split = head * p.n_splits + blockIdx.z;
        float *out = whole ? a.out + head * a.head_dim : p.partial + split * (a.head_dim + 2);
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

template <int DIM>
DEVICE_FN void attend_run(row_state<DIM> *s, key_tile<DIM> *tile, const struct attention_args &a,
                          const token_run &run) {
    const int n_keys = tile_shape<DIM>::KEYS;
    for (int key = run.first_key / n_keys * n_keys; key <= run.last_key; key += n_keys) {
        load_tile(tile, a,
                  tile_keys{key_start(a, run.pages, (int)blockIdx.y, key), run.first_key - key,
                            run.last_key - key + 1});
        __syncthreads();
        bool sees =
            row_sees(s->rows[0], run, key, n_keys) || row_sees(s->rows[1], run, key, n_keys);
        if (__ballot_sync(0xffffffffu, sees)) {
            float scores[n_keys / 8][4];
            score_tile(scores, *s, *tile);
            weigh(scores, s, a, run, key);
            add_tile(s, scores, *tile);
        }
        __syncthreads();
    }
}

template <int DIM> DEVICE_FN void attend_tokens(const struct attention_params &p) {
    const struct attention_args &a = p.a;
    constexpr int n_parked = tile_shape<DIM>::PARKED;
    __shared__ key_tile<DIM> tile;
    __shared__ uint4 parked[(n_parked > 0 ? n_parked : 1) * ATTENTION_MMA_THREADS];
    row_state<DIM> s;
    s.parked = parked + threadIdx.x;
    start_rows(&s, a);
    const token_tile tokens =
        find_tile(a, ATTENTION_MMA_ROWS); // again, rather than kept while queries are loaded
    for (int token = tokens.first; token < tokens.first + tokens.count;) {
        token_run run = find_run(a, tokens, token);
        split_run(&run, (int)p.n_splits);
        attend_run(&s, &tile, a, run);
        token = (run.last_head + 1) / a.n_heads;
    }
    write_rows(&s, p);
}

#else // never launched

template <int DIM> DEVICE_FN void attend_tokens(const struct attention_params &) {}

#endif

KERNEL void __launch_bounds__(ATTENTION_MMA_THREADS, 4)
    attention_mma_64(const struct attention_params p) {
    attend_tokens<64>(p);
}
KERNEL void __launch_bounds__(ATTENTION_MMA_THREADS)
    attention_mma_128(const struct attention_params p) {
    attend_tokens<128>(p);
}
KERNEL void __launch_bounds__(ATTENTION_MMA_THREADS)
    attention_mma_256(const struct attention_params p) {
    attend_tokens<256>(p);
}
