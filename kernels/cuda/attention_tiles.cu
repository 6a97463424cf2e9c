/* attention_tiles.cu: attention_tiles_64, _128 and _256, the attention of many tokens in floats,
 * for head sizes that are multiples of 8 up to these: where there are no tensor cores, and for
 * caches of F32, whose bits halves would lose, everywhere.
 *
 * Grid (token tiles, n_kv_heads, n_splits), as attention_mma.cu; attention_merge joins the splits.
 * A block has ATTENTION_TILE_ROWS rows, the query heads of one kv head for a tile of tokens, and
 * keeps their queries in shared memory. It goes through the keys by 32, and through these in steps:
 * 32 columns of K at a time, then 4 KiB of V at a time, as floats. A thread loads eight elements
 * for the next step before it computes this one, and there are two parts of shared memory, so one
 * barrier per step suffices. Sixteen threads share four rows: each scores them for two keys, which
 * takes 6 loads of 16 bytes from shared memory for 32 multiply-adds, and adds up a sixteenth of
 * their columns, 3 loads for 32 with heads of 128. The online softmax is in registers. K and V are
 * read once per tile of tokens, where attention.cu reads them for every token. 47 KiB of shared
 * memory at most, 30 for heads of 128. Over F32 caches it ran on an H100. Tested by
 * tests/kernels/check_ops.c and, without each barrier, tests/race.sh.
 */
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/params.h"

enum {
    THREADS = ATTENTION_TILE_THREADS, // each loads eight elements in a step
    ROWS = ATTENTION_TILE_ROWS,
    THREAD_ROWS = ROWS / (THREADS / 16), // of each of the sixteen threads that share them
    KEYS = 32,
    STEP_COLS = 8 * THREADS / KEYS, // of K in a step
    K_STRIDE = STEP_COLS / 4 + 1,   // from key to key, in units of 16 bytes: no bank conflicts
    WEIGHT_STRIDE = ROWS / 4 + 1,
};
static_assert(THREAD_ROWS == 4 && STEP_COLS == 32, "what the threads share fits four floats");
static_assert(KV_PAGE % KEYS == 0, "the keys of a tile lie within a page");

template <int DIM> struct row_tile {
    static constexpr int Q_STRIDE = DIM / 4 + 1, V_KEYS = 8 * THREADS / DIM;
    float4 q[ROWS * Q_STRIDE];            // [rows, DIM], scaled, zeros past head_dim
    float4 parts[2][KEYS * K_STRIDE];     // of K: [KEYS, STEP_COLS]; of V: [V_KEYS, DIM]
    float4 weights[KEYS * WEIGHT_STRIDE]; // [KEYS, rows]
    query_row rows[ROWS];
};

// The sums of a thread, and the softmax of its four rows.
template <int DIM> struct row_sums {
    float4 values[THREAD_ROWS][DIM / 64];     // columns 4 (thread % 16) + 64 j
    float max[THREAD_ROWS], sum[THREAD_ROWS]; // sum: of this thread's keys only
};

DEVICE_FN int first_row() { return (int)threadIdx.x / 16 * THREAD_ROWS; }
DEVICE_FN int place_in_row() { return (int)threadIdx.x % 16; }

// ---- Loading -----------------------------------------------------------------------------------

// Eight elements of a key's row as they are stored: floats, or as raw_unit has them.
struct wide_unit {
    uint32_t words[8];
};

// The unit that a thread brings in a step: of K in the first n_key_steps, then of V.
struct unit_place {
    bool is_key;
    int key, unit;
};
template <int DIM> DEVICE_FN unit_place place_of(int step, int n_key_steps) {
    const int t = in_loop((int)threadIdx.x);
    if (step < n_key_steps) return unit_place{true, t / 4, 4 * step + t % 4};
    return unit_place{false, (step - n_key_steps) * row_tile<DIM>::V_KEYS + t / (DIM / 8),
                      t % (DIM / 8)};
}

// Loads a unit; zeros past head_dim and outside keys.
DEVICE_FN void fetch_unit(wide_unit *raw, const struct attention_args &a, tile_keys keys,
                          const unit_place &p) {
    const enum dtype type = p.is_key ? a.k_type : a.v_type;
    const void *cache = p.is_key ? a.k_cache : a.v_cache;
#pragma unroll
    for (int i = 0; i < 8; i++) raw->words[i] = 0;
    if (p.key < keys.from || p.key >= keys.to || p.unit >= a.head_dim / 8) return;
    if (type != DTYPE_F32 && type != DTYPE_F16) {
        raw_unit block =
            load_block_unit(cache, form_of(type), block_of(a, keys, p.key, p.unit), p.unit);
#pragma unroll
        for (int i = 0; i < 4; i++) raw->words[i] = block.words[i];
        return;
    }
    const int64_t at = keys.start + (int64_t)p.key * a.n_kv_heads * a.head_dim + 8 * p.unit;
    const uint4 *source = (const uint4 *)((const char *)cache + at * (type == DTYPE_F32 ? 4 : 2));
    uint4 four = __ldg(source);
    raw->words[0] = four.x, raw->words[1] = four.y, raw->words[2] = four.z, raw->words[3] = four.w;
    if (type != DTYPE_F32) return;
    four = __ldg(source + 1);
    raw->words[4] = four.x, raw->words[5] = four.y, raw->words[6] = four.z, raw->words[7] = four.w;
}

DEVICE_FN float4 four_halves(uint32_t low, uint32_t high) {
    return make_float4(
        __half2float(__half{(uint16_t)low}), __half2float(__half{(uint16_t)(low >> 16)}),
        __half2float(__half{(uint16_t)high}), __half2float(__half{(uint16_t)(high >> 16)}));
}

// Byte i of word under the bits of the float 2^23 is 2^23 more than the byte.
DEVICE_FN float byte_above(uint32_t word, int i, float centre) {
    return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440 | i)) - (8388608.0F + centre);
}
DEVICE_FN float4 four_bytes(uint32_t word, float centre, float scale) {
    return make_float4(scale * byte_above(word, 0, centre), scale * byte_above(word, 1, centre),
                       scale * byte_above(word, 2, centre), scale * byte_above(word, 3, centre));
}

// Stores a unit as floats where its step's part has it.
template <int DIM>
DEVICE_FN void store_unit(float4 *part, const wide_unit &raw, const struct attention_args &a,
                          tile_keys keys, const unit_place &p) {
    const enum dtype type = p.is_key ? a.k_type : a.v_type;
    const uint32_t *w = raw.words;
    float4 *target = p.is_key ? part + p.key * K_STRIDE + p.unit % 4 * 2
                              : part + p.key % row_tile<DIM>::V_KEYS * (DIM / 4) + 2 * p.unit;
    if (type == DTYPE_F32) {
        target[0] = make_float4(__uint_as_float(w[0]), __uint_as_float(w[1]), __uint_as_float(w[2]),
                                __uint_as_float(w[3]));
        target[1] = make_float4(__uint_as_float(w[4]), __uint_as_float(w[5]), __uint_as_float(w[6]),
                                __uint_as_float(w[7]));
    } else if (type == DTYPE_F16) {
        target[0] = four_halves(w[0], w[1]), target[1] = four_halves(w[2], w[3]);
    } else {
        const block_form form = form_of(type);
        const uint2 eight = block_bytes(w, form, block_of(a, keys, p.key, p.unit), p.unit);
        const float centre = (float)(int)(form.centre & 255),
                    scale = __half2float(__half{(uint16_t)w[3]});
        target[0] = four_bytes(eight.x, centre, scale);
        target[1] = four_bytes(eight.y, centre, scale);
    }
}

// ---- A step ------------------------------------------------------------------------------------

DEVICE_FN float add_dot(float sum, float4 a, float4 b) {
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// Adds STEP_COLS columns to the scores of the thread's rows for keys place_in_row() and 16 more.
template <int DIM>
DEVICE_FN void add_scores(float scores[THREAD_ROWS][2], const row_tile<DIM> &tile,
                          const float4 *part, int step) {
    const float4 *q = tile.q + first_row() * row_tile<DIM>::Q_STRIDE + step * (STEP_COLS / 4);
    const float4 *k = part + place_in_row() * K_STRIDE;
    UNROLL_BY(4)
    for (int c = 0; c < STEP_COLS / 4; c++) {
        const float4 low = k[c], high = k[16 * K_STRIDE + c];
#pragma unroll
        for (int i = 0; i < THREAD_ROWS; i++) {
            const float4 x = q[i * row_tile<DIM>::Q_STRIDE + c];
            scores[i][0] = add_dot(scores[i][0], x, low);
            scores[i][1] = add_dot(scores[i][1], x, high);
        }
    }
}

// Turns scores into weights, which the rows' sixteen threads read next, and rescales the sums so
// far to the new maximum. Keys that a row does not see have weight 0; a row that has seen no key
// yet keeps the maximum minus infinity.
template <int DIM>
DEVICE_FN void weigh(row_sums<DIM> *s, row_tile<DIM> *tile, float scores[THREAD_ROWS][2],
                     const struct attention_args &a, const token_run &run, int key) {
#pragma unroll
    for (int i = 0; i < THREAD_ROWS; i++) {
        const query_row r = tile->rows[first_row() + i];
        const bool runs = r.head >= run.first_head && r.head <= run.last_head;
        float max = s->max[i];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int at = key + place_in_row() + 16 * j;
            const bool seen = runs && at >= r.first && at <= r.last;
            const float score = a.softcap > 0 ? cap_score(scores[i][j], a.softcap) : scores[i][j];
            scores[i][j] = seen ? score : minus_infinity();
            max = fmaxf(max, scores[i][j]);
        }
#pragma unroll
        for (int apart = 8; apart > 0; apart /= 2)
            max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, apart));
        const float base = max == minus_infinity() ? 0 : max, shrink = __expf(s->max[i] - base);
        scores[i][0] = __expf(scores[i][0] - base), scores[i][1] = __expf(scores[i][1] - base);
        s->max[i] = max, s->sum[i] = fmaf(s->sum[i], shrink, scores[i][0] + scores[i][1]);
#pragma unroll
        for (int j = 0; j < DIM / 64; j++) {
            float4 *v = &s->values[i][j];
            v->x *= shrink, v->y *= shrink, v->z *= shrink, v->w *= shrink;
        }
    }
#pragma unroll
    for (int j = 0; j < 2; j++)
        tile->weights[(place_in_row() + 16 * j) * WEIGHT_STRIDE + first_row() / 4] =
            make_float4(scores[0][j], scores[1][j], scores[2][j], scores[3][j]);
}

DEVICE_FN void add_scaled(float4 *sum, float weight, float4 x) {
    sum->x = fmaf(weight, x.x, sum->x), sum->y = fmaf(weight, x.y, sum->y);
    sum->z = fmaf(weight, x.z, sum->z), sum->w = fmaf(weight, x.w, sum->w);
}

// Adds the weighted rows of V of a step, whose first key is key of the tile.
template <int DIM>
DEVICE_FN void add_values(row_sums<DIM> *s, const row_tile<DIM> &tile, const float4 *part,
                          int key) {
    const float4 *weights = tile.weights + key * WEIGHT_STRIDE + first_row() / 4;
    const float4 *v = part + place_in_row();
    UNROLL_BY(4)
    for (int k = 0; k < row_tile<DIM>::V_KEYS; k++) {
        const float4 w = weights[k * WEIGHT_STRIDE];
#pragma unroll
        for (int j = 0; j < DIM / 64; j++) {
            const float4 x = v[k * (DIM / 4) + 16 * j];
            add_scaled(&s->values[0][j], w.x, x), add_scaled(&s->values[1][j], w.y, x);
            add_scaled(&s->values[2][j], w.z, x), add_scaled(&s->values[3][j], w.w, x);
        }
    }
}

// ---- A block -----------------------------------------------------------------------------------

template <int DIM>
DEVICE_FN void start_rows(row_sums<DIM> *s, row_tile<DIM> *tile, const struct attention_args &a,
                          token_tile tokens) {
    const int t = (int)threadIdx.x;
    if (t < ROWS) tile->rows[t] = find_row(a, tokens, t);
    __syncthreads();
    for (int i = t; i < ROWS * (DIM / 4); i += THREADS) {
        const int row = i / (DIM / 4), four = i % (DIM / 4), head = tile->rows[row].head;
        const float *q = a.q + (int64_t)head * a.head_dim + 4 * four;
        float4 x = make_float4(0, 0, 0, 0);
        if (head >= 0 && 4 * four < a.head_dim)
            x = make_float4(a.scale * q[0], a.scale * q[1], a.scale * q[2], a.scale * q[3]);
        tile->q[row * row_tile<DIM>::Q_STRIDE + four] = x;
    }
#pragma unroll
    for (int i = 0; i < THREAD_ROWS; i++) {
        // A sink is a score before all others, which one of a row's threads counts.
        const int head = tile->rows[first_row() + i].head;
        const bool has_sink = a.sinks && blockIdx.z == 0 && head >= 0;
        s->max[i] = has_sink ? a.sinks[head % a.n_heads] : minus_infinity();
        s->sum[i] = has_sink && place_in_row() == 0 ? 1 : 0;
#pragma unroll
        for (int j = 0; j < DIM / 64; j++) s->values[i][j] = make_float4(0, 0, 0, 0);
    }
}

// True if a row of the warp sees one of the keys of a tile.
template <int DIM>
DEVICE_FN bool warp_sees(const row_tile<DIM> &tile, const token_run &run, int key) {
    bool sees = false;
#pragma unroll
    for (int i = 0; i < THREAD_ROWS; i++)
        sees = sees || row_sees(tile.rows[first_row() + i], run, key, KEYS);
    return __ballot_sync(0xffffffffu, sees) != 0;
}

DEVICE_FN tile_keys keys_at(const struct attention_args &a, const token_run &run, int key) {
    return tile_keys{key_start(a, run.pages, (int)blockIdx.y, key), run.first_key - key,
                     run.last_key - key + 1};
}

template <int DIM>
DEVICE_FN void attend_run(row_sums<DIM> *s, row_tile<DIM> *tile, const struct attention_args &a,
                          const token_run &run) {
    const int n_key_steps = (a.head_dim + STEP_COLS - 1) / STEP_COLS,
              n_steps = n_key_steps + KEYS / row_tile<DIM>::V_KEYS;
    int key = run.first_key / KEYS * KEYS, n_done = 0;
    if (key > run.last_key) return; // the split has no key
    tile_keys keys = keys_at(a, run, key);
    wide_unit raw;
    fetch_unit(&raw, a, keys, place_of<DIM>(0, n_key_steps));
    store_unit<DIM>(tile->parts[0], raw, a, keys, place_of<DIM>(0, n_key_steps));
    __syncthreads();
    for (; key <= run.last_key; key += KEYS) {
        const bool sees = warp_sees(*tile, run, key);
        float scores[THREAD_ROWS][2] = {};
        NO_UNROLL
        for (int step = 0; step < n_steps; step++, n_done++) {
            const bool ends = step + 1 == n_steps, more = !ends || key + KEYS <= run.last_key;
            const int next = ends ? 0 : step + 1;
            const float4 *part = tile->parts[n_done % 2];
            if (ends && more) keys = keys_at(a, run, key + KEYS);
            if (more) fetch_unit(&raw, a, keys, place_of<DIM>(next, n_key_steps));
            if (sees && step < n_key_steps) add_scores(scores, *tile, part, step);
            if (sees && step + 1 == n_key_steps) weigh(s, tile, scores, a, run, key);
            if (sees && step >= n_key_steps)
                add_values(s, *tile, part, (step - n_key_steps) * row_tile<DIM>::V_KEYS);
            if (more)
                store_unit<DIM>(tile->parts[(n_done + 1) % 2], raw, a, keys,
                                place_of<DIM>(next, n_key_steps));
            __syncthreads();
        }
    }
}

// Writes the rows, or the undivided sums of a split of their keys for attention_merge.
template <int DIM>
DEVICE_FN void write_rows(const row_sums<DIM> &s, const row_tile<DIM> &tile,
                          const struct attention_params &p) {
    const bool whole = p.n_splits == 1;
#pragma unroll
    for (int i = 0; i < THREAD_ROWS; i++) {
        float sum = s.sum[i];
#pragma unroll
        for (int apart = 8; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
        const int64_t head = tile.rows[first_row() + i].head;
        if (head < 0) continue;
        const int64_t split = head * p.n_splits + blockIdx.z;
        float *out = whole ? p.a.out + head * p.a.head_dim : p.partial + split * (p.a.head_dim + 2);
        const float factor = whole ? 1 / sum : 1;
        if (!whole && place_in_row() == 0)
            out[p.a.head_dim] = s.max[i], out[p.a.head_dim + 1] = sum;
#pragma unroll
        for (int j = 0; j < DIM / 64; j++) {
            const int column = 4 * place_in_row() + 64 * j;
            if (column >= p.a.head_dim) continue;
            const float4 v = s.values[i][j];
            out[column] = factor * v.x, out[column + 1] = factor * v.y;
            out[column + 2] = factor * v.z, out[column + 3] = factor * v.w;
        }
    }
}

template <int DIM> DEVICE_FN void attend_tiles(const struct attention_params &p) {
    __shared__ row_tile<DIM> tile;
    row_sums<DIM> s;
    const token_tile tokens = find_tile(p.a, ROWS);
    start_rows(&s, &tile, p.a, tokens);
    for (int token = tokens.first; token < tokens.first + tokens.count;) {
        token_run run = find_run(p.a, tokens, token);
        token = (run.last_head + 1) / p.a.n_heads;
        split_run(&run, (int)p.n_splits);
        attend_run(&s, &tile, p.a, run);
    }
    write_rows(s, tile, p);
}

KERNEL void __launch_bounds__(THREADS) attention_tiles_64(const struct attention_params p) {
    attend_tiles<64>(p);
}
KERNEL void __launch_bounds__(THREADS) attention_tiles_128(const struct attention_params p) {
    attend_tiles<128>(p);
}
KERNEL void __launch_bounds__(THREADS) attention_tiles_256(const struct attention_params p) {
    attend_tiles<256>(p);
}
