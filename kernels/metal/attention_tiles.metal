/* attention_tiles.metal: attention_tiles_<type>_<columns>, the attention of many tokens by matrices
 * of simdgroups, for any types of the cache and heads of at most 64, 128 or 256 columns.
 *
 * Grid (token tiles, n_kv_heads). The rows of a threadgroup are the query heads of one kv head for
 * as many tokens as give at most ATTENTION_TILE_ROWS; a simdgroup has eight of them, with their
 * sums in registers. For every tile of ATTENTION_TILE_KEYS keys the threadgroup copies K to its
 * memory, each simdgroup multiplies Q K^T and turns scores into weights, four lanes to a row; then
 * V takes the place of K and the weights are multiplied by it. Sums are floats; queries, keys,
 * values and weights are halves, or floats for a cache of F32. Tokens of a tile may belong to
 * several sequences: the threadgroup goes through the runs of tokens at neighbouring positions of
 * one sequence one after another, and rows of others do not take part. A tile of keys that a row
 * does not see leaves the row's sums unchanged. K and V are read once per tile of tokens. Columns
 * past head_dim are zeros. Threadgroup memory of attention_tile_bytes. Needs matrices of
 * simdgroups (Apple7) and n_heads / n_kv_heads <= ATTENTION_TILE_ROWS. Tested by
 * tests/kernels/check_ops.c.
 */
#include "kernels/metal/kv_cache.metal"

static_assert(ATTENTION_TILE_ROWS == ATTENTION_TILE_THREADS / 32 * 8, "8 rows of a simdgroup");
static_assert(ATTENTION_TILE_KEYS == 16, "four lanes of a row have four keys each");
static_assert(KV_PAGE % ATTENTION_TILE_KEYS == 0, "a tile lies within a page");

// The memory of a threadgroup; the last three are those of the simdgroup.
template <typename T> struct tile_memory {
    threadgroup T *q;          // [ATTENTION_TILE_ROWS, columns]
    threadgroup T *keys;       // [ATTENTION_TILE_KEYS, columns], keys and then values
    threadgroup T *weights;    // [8, ATTENTION_TILE_KEYS]
    threadgroup float *scores; // [8, ATTENTION_TILE_KEYS]
    threadgroup float *shrink; // [8, 8], on the diagonal the factors of the sums so far
};

struct tile_thread {
    int index, lane, simdgroup;
};

// A lane's row of its simdgroup is lane / 4; the four lanes of a row hold the same numbers but for
// sum, which each of them has of its own keys.
struct tile_row {
    int token, first, last; // token of the tile (-1: none), and the keys it sees
    long at;                // element of q and out at which its head starts
    float largest, sum;
};

// Tokens first_token..last_token of the tile, at neighbouring positions of one sequence, and the
// keys they see. Each of these keys is seen by some token and so was written. A key that was never
// written may be NaN, and a weight of zero does not remove a NaN.
struct tile_run {
    int first_token, last_token, first_key, last_key;
    device const int *pages;
};

// The tokens of the threadgroup.
struct tile_tokens {
    long first;
    int count, kv_head;
};

template <typename T, int COLUMNS>
static tile_memory<T> tile_layout(threadgroup float *memory, int simdgroup) {
    tile_memory<T> m;
    m.scores = memory + simdgroup * 8 * ATTENTION_TILE_KEYS;
    m.shrink = memory + ATTENTION_TILE_ROWS * ATTENTION_TILE_KEYS + simdgroup * 64;
    m.q = (threadgroup T *)(memory + ATTENTION_TILE_ROWS * (ATTENTION_TILE_KEYS + 8));
    m.keys = m.q + ATTENTION_TILE_ROWS * COLUMNS;
    m.weights = m.keys + ATTENTION_TILE_KEYS * COLUMNS + simdgroup * 8 * ATTENTION_TILE_KEYS;
    return m;
}

// The element of q and out at which the head of row number row starts.
static long tile_head(constant attention_args &a, tile_tokens tokens, int row) {
    const int heads = a.n_heads / a.n_kv_heads;
    return ((tokens.first + row / heads) * a.n_heads + tokens.kv_head * heads + row % heads) *
           a.head_dim;
}

static tile_row tile_find_row(constant attention_args &a, tile_tokens tokens, int row,
                              device const int *positions) {
    const int heads = a.n_heads / a.n_kv_heads;
    tile_row r = {-1, 0, -1, 0, NO_SCORE, 0};
    if (row >= tokens.count * heads) return r;
    r.token = row / heads;
    r.at = tile_head(a, tokens, row);
    r.last = positions[tokens.first + r.token];
    r.first = first_key(r.last, a.window);
    return r;
}

// The run that starts at token t of the tile.
static tile_run tile_find_run(constant attention_args &a, tile_tokens tokens, int t,
                              device const int *positions, device const int *sequences,
                              device const int *pages) {
    device const int *position = positions + tokens.first, *sequence = sequences + tokens.first;
    tile_run run = {t, t, first_key(position[t], a.window), position[t],
                    pages + long(sequence[t]) * a.max_pages};
    for (int next = t + 1; next < tokens.count; next++) {
        if (sequence[next] != sequence[t] || position[next] != position[next - 1] + 1) break;
        run.last_token = next;
        run.last_key = position[next];
    }
    return run;
}

template <typename T, int COLUMNS>
static void tile_load_queries(constant attention_args &a, tile_tokens tokens, tile_memory<T> m,
                              tile_thread thread_of, device const float *q) {
    const int n_rows = tokens.count * (a.n_heads / a.n_kv_heads);
    for (int i = thread_of.index; i < ATTENTION_TILE_ROWS * COLUMNS; i += ATTENTION_TILE_THREADS) {
        const int row = i / COLUMNS, c = i % COLUMNS;
        const bool is_there = row < n_rows && c < a.head_dim;
        m.q[i] = is_there ? T(a.scale * q[tile_head(a, tokens, row) + c]) : T(0);
    }
}

// Copies the tile's keys, or values, that are the run's; zeros in place of the others.
template <typename T, int COLUMNS>
static void tile_load(constant attention_args &a, thread const tile_run &run, tile_memory<T> m,
                      tile_thread thread_of, device const uchar *cache, enum dtype type, long start,
                      int key) {
    const int n_runs = COLUMNS / 8;
    const long row = long(a.n_kv_heads) * a.head_dim;
    for (int i = thread_of.index; i < ATTENTION_TILE_KEYS * n_runs; i += ATTENTION_TILE_THREADS) {
        const int in_tile = i / n_runs, c = i % n_runs * 8;
        const bool is_there = key + in_tile >= run.first_key && key + in_tile <= run.last_key;
        float eight[8] = {0};
        if (is_there && c < a.head_dim)
            cache_eight(eight, cache + cache_bytes(type, start + in_tile * row), type, c,
                        a.head_dim);
        for (int j = 0; j < 8; j++) m.keys[in_tile * COLUMNS + c + j] = T(eight[j]);
    }
}

// Multiplies the simdgroup's rows by the tile's keys.
template <typename T, int COLUMNS> static void tile_score(tile_memory<T> m, int simdgroup) {
    simdgroup_matrix<float, 8, 8> low = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    simdgroup_matrix<float, 8, 8> high = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (int c = 0; c < COLUMNS; c += 8) {
        simdgroup_matrix<T, 8, 8> q, k;
        simdgroup_load(q, m.q + simdgroup * 8 * COLUMNS + c, COLUMNS);
        simdgroup_load(k, m.keys + c, COLUMNS, ulong2(0, 0), true);
        simdgroup_multiply_accumulate(low, q, k, low);
        simdgroup_load(k, m.keys + 8 * COLUMNS + c, COLUMNS, ulong2(0, 0), true);
        simdgroup_multiply_accumulate(high, q, k, high);
    }
    simdgroup_store(low, m.scores, ATTENTION_TILE_KEYS);
    simdgroup_store(high, m.scores + 8, ATTENTION_TILE_KEYS);
    simdgroup_barrier(mem_flags::mem_threadgroup);
}

// x, or 0 if that is no number.
static float number_or_zero(float x) { return x == x ? x : 0.0f; }

// Turns scores into weights. Keys that a row does not see have weight 0; a row that has seen no key
// yet keeps the least maximum, and sums of 0. Returns the factor of the row's sums so far. A NaN
// stays in the row's sum, by which it is divided at the end: among its weights or factors it would
// become one of its sums, and tile_shrink multiplies those by the zeros of the rows beside it.
template <typename T>
static float tile_weigh(constant attention_args &a, thread const tile_run &run, tile_memory<T> m,
                        thread tile_row &r, int lane, int key) {
    const bool runs = r.token >= run.first_token && r.token <= run.last_token;
    const int in_row = lane / 4 * ATTENTION_TILE_KEYS + lane % 4 * 4;
    float scores[4], largest = r.largest, sum = 0;
    for (int i = 0; i < 4; i++) {
        const int at = key + lane % 4 * 4 + i;
        const bool seen = runs && at >= r.first && at <= r.last;
        scores[i] = seen ? cap_score(m.scores[in_row + i], a.softcap) : NO_SCORE;
        largest = max(largest, scores[i]);
    }
    largest = max(largest, simd_shuffle_xor(largest, ushort(1)));
    largest = max(largest, simd_shuffle_xor(largest, ushort(2)));
    const float shrink = exp(r.largest - largest);
    for (int i = 0; i < 4; i++) {
        const float weight = scores[i] == NO_SCORE ? 0.0f : exp(scores[i] - largest);
        m.weights[in_row + i] = T(number_or_zero(weight));
        sum += weight;
    }
    r.largest = largest;
    r.sum = r.sum * shrink + sum;
    const float factor = number_or_zero(shrink);
    if (lane % 4 == 0) m.shrink[lane / 4 * 9] = factor;
    return factor;
}

// Multiplies the sums so far by their factors, which are 1 unless a maximum is new.
template <int COLUMNS>
static void tile_shrink(thread simdgroup_matrix<float, 8, 8> *sums, threadgroup const float *shrink,
                        float own) {
    if (simd_min(own) == 1) return;
    const simdgroup_matrix<float, 8, 8> zeros = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    simdgroup_matrix<float, 8, 8> factors;
    simdgroup_load(factors, shrink, 8);
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i++)
        simdgroup_multiply_accumulate(sums[i], factors, sums[i], zeros);
}

template <typename T, int COLUMNS>
static void tile_add_values(thread simdgroup_matrix<float, 8, 8> *sums, tile_memory<T> m) {
    simdgroup_matrix<T, 8, 8> low, high, v;
    simdgroup_load(low, m.weights, ATTENTION_TILE_KEYS);
    simdgroup_load(high, m.weights + 8, ATTENTION_TILE_KEYS);
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i++) {
        simdgroup_load(v, m.keys + 8 * i, COLUMNS);
        simdgroup_multiply_accumulate(sums[i], low, v, sums[i]);
        simdgroup_load(v, m.keys + 8 * COLUMNS + 8 * i, COLUMNS);
        simdgroup_multiply_accumulate(sums[i], high, v, sums[i]);
    }
}

// Writes the sums divided by those of the exponentials, eight columns at a time through the memory
// of the scores.
template <typename T, int COLUMNS>
static void tile_write(constant attention_args &a, thread simdgroup_matrix<float, 8, 8> *sums,
                       tile_memory<T> m, tile_row r, int lane, device float *out) {
    float sum = r.sum + simd_shuffle_xor(r.sum, ushort(1));
    sum += simd_shuffle_xor(sum, ushort(2));
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i++) {
        simdgroup_store(sums[i], m.scores, 8);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        const int c = 8 * i + lane % 4 * 2;
        if (r.token >= 0 && c < a.head_dim) {
            out[r.at + c] = m.scores[2 * lane] / sum;
            out[r.at + c + 1] = m.scores[2 * lane + 1] / sum;
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
    }
}

template <typename T, int COLUMNS>
kernel void attention_tiles(constant attention_params &p [[buffer(0)]],
                            device float *out [[buffer(2)]],
                            device const float *q [[buffer(3)]],
                            device const uchar *k_cache [[buffer(4)]],
                            device const uchar *v_cache [[buffer(5)]],
                            device const int *pages [[buffer(6)]],
                            device const int *positions [[buffer(7)]],
                            device const int *sequences [[buffer(8)]],
                            device const float *sinks [[buffer(9)]],
                            threadgroup float *memory [[threadgroup(0)]],
                            uint2 group [[threadgroup_position_in_grid]],
                            uint index [[thread_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]],
                            uint simdgroup [[simdgroup_index_in_threadgroup]]) {
    const tile_thread t = {int(index), int(lane), int(simdgroup)};
    const tile_memory<T> m = tile_layout<T, COLUMNS>(memory, t.simdgroup);
    const int heads = p.a.n_heads / p.a.n_kv_heads, most = ATTENTION_TILE_ROWS / heads;
    const long first_token = long(group.x) * most;
    const tile_tokens tokens = {first_token, int(min(long(most), p.a.n_tokens - first_token)),
                                int(group.y)};
    const int row = t.simdgroup * 8 + t.lane / 4;
    tile_row r = tile_find_row(p.a, tokens, row, positions);
    if (p.a.sinks != 0 && r.token >= 0) { // a score before all others, which one lane counts
        r.largest = sinks[tokens.kv_head * heads + row % heads];
        r.sum = t.lane % 4 == 0 ? 1.0f : 0.0f;
    }
    simdgroup_matrix<float, 8, 8> sums[COLUMNS / 8];
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i++)
        sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    m.shrink[2 * t.lane] = 0;
    m.shrink[2 * t.lane + 1] = 0;
    tile_load_queries<T, COLUMNS>(p.a, tokens, m, t, q);
    for (int token = 0; token < tokens.count;) {
        const tile_run run = tile_find_run(p.a, tokens, token, positions, sequences, pages);
        for (int key = run.first_key / ATTENTION_TILE_KEYS * ATTENTION_TILE_KEYS;
             key <= run.last_key; key += ATTENTION_TILE_KEYS) {
            const long start = key_start(p.a, run.pages, tokens.kv_head, key);
            const bool sees = r.token >= run.first_token && r.token <= run.last_token &&
                              r.last >= key && r.first < key + ATTENTION_TILE_KEYS;
            const bool any_sees = simd_max(sees ? 1 : 0) == 1;
            float shrink = 1;
            tile_load<T, COLUMNS>(p.a, run, m, t, k_cache, p.a.k_type, start, key);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (any_sees) {
                tile_score<T, COLUMNS>(m, t.simdgroup);
                shrink = tile_weigh(p.a, run, m, r, t.lane, key);
            }
            threadgroup_barrier(mem_flags::mem_threadgroup); // the values take the keys' place
            tile_load<T, COLUMNS>(p.a, run, m, t, v_cache, p.a.v_type, start, key);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (any_sees) {
                tile_shrink<COLUMNS>(sums, m.shrink, shrink);
                tile_add_values<T, COLUMNS>(sums, m);
            }
            threadgroup_barrier(mem_flags::mem_threadgroup); // the next keys take the values' place
        }
        token = run.last_token + 1;
    }
    tile_write<T, COLUMNS>(p.a, sums, m, r, t.lane, out);
}

typedef decltype(attention_tiles<half, 64>) tiles_fn;
template [[host_name("attention_tiles_half_64")]] kernel tiles_fn attention_tiles<half, 64>;
template [[host_name("attention_tiles_half_128")]] kernel tiles_fn attention_tiles<half, 128>;
template [[host_name("attention_tiles_half_256")]] kernel tiles_fn attention_tiles<half, 256>;
template [[host_name("attention_tiles_float_64")]] kernel tiles_fn attention_tiles<float, 64>;
template [[host_name("attention_tiles_float_128")]] kernel tiles_fn attention_tiles<float, 128>;
