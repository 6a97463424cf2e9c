/* attention.cu: softmax(scale q K) V over the pages of a KV cache, with online softmax, for few
 * tokens, and for heads that attention_mma.cu and attention_tiles.cu do not take.
 *
 * attention_64, attention_128, attention_256, for that many columns of a block: grid (n_tokens,
 * n_kv_heads * column chunks, n_splits). A block takes one token, one kv
 * head and a run of whole pages of keys, so a row of K and V is read once for all query heads that
 * share it (GQA), up to ATTENTION_HEADS at a time. Keys come in tiles of ATTENTION_KEYS: the block
 * copies the tile's K to shared memory, a warp scores its query heads with a key per lane and keeps
 * their running maximum and sum, then a thread adds a pair of columns of the weighted V rows for
 * its share of the heads. Tiles start at multiples of ATTENTION_KEYS, so they never straddle a
 * page. Heads wider than ATTENTION_COLS columns have a block per ATTENTION_COLS columns of V, each
 * of which scores all keys, whose columns then pass through shared memory a part at a time.
 * attention_merge: grid (n_tokens, n_heads). Joins the sums that the splits of a head wrote to
 * partial; attention_merge_quantize also quantises them. head_dim is even and at most HEAD_DIM_MAX;
 * K and V are of any type of kv_types.def; keys of types with blocks lie in shared memory as
 * floats. ATTENTION_THREADS threads and attention_shared_bytes of dynamic shared memory. Tested by
 * tests/kernels/check_ops.c.
 */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/params.h"
#include "kernels/cuda/quantize.cuh"

static_assert(ATTENTION_KEYS == 32, "a key per lane");
static_assert(KV_PAGE % ATTENTION_KEYS == 0, "a tile lies within a page");
static_assert(ATTENTION_TOKENS == 1, "a block takes one token");
static_assert(ATTENTION_COLS <= 2 * ATTENTION_THREADS, "a thread per pair of columns");

enum {
    WARPS = ATTENTION_THREADS / 32,
    WARP_HEADS = ATTENTION_HEADS / WARPS, // query heads that a warp scores
    VALUES_AHEAD = 8,                     // rows of V that a thread loads before it uses the first
};

// The shared memory of a block. Keys and q are dynamic; see attention_shared_bytes.
struct attention_shared {
    uint4 *keys;    // [ATTENTION_KEYS, key_units], key_cols columns, zeros past head_dim
    float *q;       // [ATTENTION_HEADS, padded_dim], scaled, zeros past head_dim
    float *weights; // [ATTENTION_HEADS, ATTENTION_KEYS]
    float *shrink;  // [ATTENTION_HEADS], factor that a new maximum applies to the sums so far
    int padded_dim; // head_dim rounded up to 8
    int key_cols;   // columns of a key that lie there at once, a multiple of 8
    int key_units;  // 16-byte units from key to key, an odd number: no bank conflicts
};

// The part of the op that a block computes.
struct attention_job {
    int64_t token;
    int kv_head, head, n_heads; // query heads head..head+n_heads-1, at most ATTENTION_HEADS
    int column, n_cols;         // of V, at most ATTENTION_COLS
    int first, last;            // keys of this split, last < first if there are none
    const int32_t *pages;
};

// Sets the keys of split number split: whole pages, cut at the token's window and position.
DEVICE_FN void split_keys(const struct attention_params &p, attention_job *job, int split) {
    int last = p.a.positions[job->token];
    int first = first_key(last, p.a.window);
    int64_t first_page = first / KV_PAGE, n_pages = last / KV_PAGE - first_page + 1;
    int64_t start = first_page + n_pages * split / p.n_splits;
    int64_t end = first_page + n_pages * (split + 1) / p.n_splits;
    job->first = max(first, (int)start * KV_PAGE);
    job->last = min(last, (int)end * KV_PAGE - 1);
}

DEVICE_FN void load_queries(const struct attention_args &a, const attention_job &job,
                            const attention_shared &s) {
    const float *q = a.q + (job.token * a.n_heads + job.head) * a.head_dim;
    for (int h = 0; h < job.n_heads; h++)
        for (int i = (int)threadIdx.x; i < s.padded_dim; i += ATTENTION_THREADS)
            s.q[h * s.padded_dim + i] = i < a.head_dim ? a.scale * q[h * a.head_dim + i] : 0;
}

// Copies the tile's n keys from source (the first one) to shared memory. Sixteen threads copy a
// key, 16 bytes at a time where rows are multiples of that, else four; each has four loads under
// way.
template <class T>
DEVICE_FN void load_keys_by(const attention_shared &s, const char *source, int64_t stride, int n,
                            int row_count, int padded_count) {
    const int apart = ATTENTION_THREADS / 16, n_keys = ATTENTION_KEYS / apart;
    int thread = in_loop((int)threadIdx.x), first = thread / 16;
    NO_UNROLL
    for (int i = thread % 16; i < padded_count; i += 16) {
        T parts[n_keys] = {};
#pragma unroll
        for (int k = 0; k < n_keys; k++)
            if (i < row_count && first + k * apart < n)
                parts[k] = __ldg((const T *)(source + (first + k * apart) * stride) + i);
#pragma unroll
        for (int k = 0; k < n_keys; k++)
            ((T *)(s.keys + (first + k * apart) * s.key_units))[i] = parts[k];
    }
}

// Two neighbouring elements of the row of a head as they are stored: loads and conversion are
// apart, so that many loads are under way before the first conversion waits.
struct raw_pair {
    uint32_t words[2]; // F32: both elements; F16: both in the first; blocks: elements, scale
};

template <enum dtype TYPE> DEVICE_FN raw_pair load_pair(const char *row, int pair) {
    if (TYPE == DTYPE_F32) {
        uint2 two = __ldg((const uint2 *)row + pair);
        return raw_pair{{two.x, two.y}};
    }
    if (TYPE == DTYPE_F16) return raw_pair{{__ldg((const unsigned *)row + pair), 0}};
    const int block_bytes = TYPE == DTYPE_Q8_0 ? BLOCK_BYTES_Q8_0 : BLOCK_BYTES_Q4_0;
    const uint16_t *block = (const uint16_t *)(row + pair / 16 * block_bytes);
    return raw_pair{{block[1 + pair % (TYPE == DTYPE_Q8_0 ? 16 : 8)], block[0]}};
}

template <enum dtype TYPE> DEVICE_FN float2 pair_values(const raw_pair &raw, int pair) {
    uint32_t two = raw.words[0];
    if (TYPE == DTYPE_F32) return make_float2(__uint_as_float(two), __uint_as_float(raw.words[1]));
    if (TYPE == DTYPE_F16)
        return make_float2(__half2float(__half{(uint16_t)two}),
                           __half2float(__half{(uint16_t)(two >> 16)}));
    float d = __half2float(__half{(uint16_t)raw.words[1]});
    if (TYPE == DTYPE_Q8_0)
        return make_float2(d * (float)(int8_t)two, d * (float)(int8_t)(two >> 8));
    two >>= pair / 8 % 2 * 4; // eight pairs in the low halves of the bytes, then eight in the high
    return make_float2(d * (float)((int)(two & 15) - 8), d * (float)((int)(two >> 8 & 15) - 8));
}

// Loads n_cols columns of a tile of n keys in blocks as floats; sixteen threads convert a block.
template <enum dtype TYPE>
DEVICE_FN void load_keys_of_blocks(const attention_shared &s, const char *source, int64_t stride,
                                   int n, int n_cols) {
    const int apart = ATTENTION_THREADS / 16, n_keys = ATTENTION_KEYS / apart;
    int thread = in_loop((int)threadIdx.x), first = thread / 16;
    NO_UNROLL
    for (int pair = thread % 16; pair < n_cols / 2; pair += 16) {
        raw_pair raw[n_keys];
#pragma unroll
        for (int k = 0; k < n_keys; k++)
            raw[k] = load_pair<TYPE>(source + min(first + k * apart, n - 1) * stride, pair);
#pragma unroll
        for (int k = 0; k < n_keys; k++)
            ((float2 *)(s.keys + (first + k * apart) * s.key_units))[pair] =
                pair_values<TYPE>(raw[k], pair);
    }
}

// Bytes of one element of a key in shared memory; keys of types with blocks are floats there.
DEVICE_FN int tile_element_bytes(enum dtype type) { return type == DTYPE_F16 ? 2 : 4; }

// Loads s.key_cols columns of the keys from the column on. Loads keys before keys.from too: they
// lie in the same page and have no weight.
DEVICE_FN void load_keys(const struct attention_args &a, const attention_shared &s, tile_keys keys,
                         int column) {
    const char *source = (const char *)a.k_cache + cache_bytes(a.k_type, keys.start + column);
    int n_cols = min(a.head_dim - column, s.key_cols), bytes = tile_element_bytes(a.k_type);
    int row_bytes = n_cols * bytes, padded_bytes = min(s.padded_dim - column, s.key_cols) * bytes;
    int64_t stride = cache_bytes(a.k_type, (int64_t)in_loop(a.n_kv_heads) * a.head_dim);
    if (a.k_type == DTYPE_Q8_0)
        load_keys_of_blocks<DTYPE_Q8_0>(s, source, stride, keys.to, n_cols);
    else if (a.k_type == DTYPE_Q4_0)
        load_keys_of_blocks<DTYPE_Q4_0>(s, source, stride, keys.to, n_cols);
    else if (a.head_dim * bytes % 16 == 0)
        load_keys_by<uint4>(s, source, stride, keys.to, row_bytes / 16, padded_bytes / 16);
    else
        load_keys_by<unsigned>(s, source, stride, keys.to, row_bytes / 4, padded_bytes / 4);
}

DEVICE_FN void unpack_eight(float *out, const uint4 *units, enum dtype type) {
    if (type == DTYPE_F16) {
        uint4 halves = units[0];
        uint32_t words[4] = {halves.x, halves.y, halves.z, halves.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[2 * i] = __half2float(__half{(uint16_t)words[i]});
            out[2 * i + 1] = __half2float(__half{(uint16_t)(words[i] >> 16)});
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint4 four = units[i];
        out[4 * i] = __uint_as_float(four.x), out[4 * i + 1] = __uint_as_float(four.y);
        out[4 * i + 2] = __uint_as_float(four.z), out[4 * i + 3] = __uint_as_float(four.w);
    }
}

// Adds n_cols columns of this lane's key times those of the warp's query heads to the scores.
template <enum dtype TYPE>
DEVICE_FN void score_key(float *scores, const attention_shared &s, const float *q, int n_cols) {
    const uint4 *key = s.keys + in_loop((int)threadIdx.x) % 32 * s.key_units;
    UNROLL_BY(2) // unrolled by four, nvcc's own choice, the loop spills registers on 7.5 and 8.0
    for (int c = 0; c < n_cols; c += 8) {
        float k[8];
        unpack_eight(k, key + c * (TYPE == DTYPE_F16 ? 2 : 4) / 16, TYPE);
#pragma unroll
        for (int i = 0; i < WARP_HEADS; i++) {
            const float4 *of_head = (const float4 *)(q + i * WARPS * s.padded_dim + c);
            float4 low = of_head[0], high = of_head[1];
            float sum = fmaf(k[0], low.x, scores[i]);
            sum = fmaf(k[1], low.y, sum), sum = fmaf(k[2], low.z, sum);
            sum = fmaf(k[3], low.w, sum), sum = fmaf(k[4], high.x, sum);
            sum = fmaf(k[5], high.y, sum), sum = fmaf(k[6], high.z, sum);
            scores[i] = fmaf(k[7], high.w, sum);
        }
    }
}

// Scores a tile of keys, whose columns come to shared memory in one or more parts. A warp without
// heads helps to load.
DEVICE_FN void score_tile(const struct attention_args &a, const attention_job &job,
                          const attention_shared &s, tile_keys keys, float *scores) {
    int warp = in_loop((int)threadIdx.x) / 32;
#pragma unroll
    for (int i = 0; i < WARP_HEADS; i++) scores[i] = 0;
    NO_UNROLL
    for (int column = 0; column < s.padded_dim; column += s.key_cols) {
        if (column > 0) __syncthreads(); // every warp has used the part before
        load_keys(a, s, keys, column);
        __syncthreads();
        if (warp >= job.n_heads) continue; // the whole warp
        const float *q = s.q + warp * s.padded_dim + column;
        int n_cols = min(s.padded_dim - column, s.key_cols);
        if (a.k_type == DTYPE_F16)
            score_key<DTYPE_F16>(scores, s, q, n_cols);
        else
            score_key<DTYPE_F32>(scores, s, q, n_cols);
    }
}

// The running softmax of the warp's heads, the same in every lane. Head i of the warp is head
// warp + i * WARPS of the block.
struct softmax_state {
    float max[WARP_HEADS], sum[WARP_HEADS];
};

// Turns the tile's scores into weights in shared memory. A lane whose key the token does not see
// scores minus infinity, which has no weight.
DEVICE_FN void weigh_tile(const struct attention_args &a, const attention_job &job,
                          const attention_shared &s, softmax_state *state, int tile,
                          const float *scores) {
    int thread = in_loop((int)threadIdx.x), warp = thread / 32, lane = thread % 32;
    int key = tile + lane;
    bool counts = key >= job.first && key <= job.last;
#pragma unroll
    for (int i = 0; i < WARP_HEADS; i++) {
        int h = warp + i * WARPS;
        if (h >= job.n_heads) continue;
        float score = a.softcap > 0 ? cap_score(scores[i], a.softcap) : scores[i];
        if (!counts) score = minus_infinity();
        float max = fmaxf(score, state->max[i]);
        for (int apart = 16; apart > 0; apart /= 2)
            max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, apart));
        float weight = __expf(score - max), shrink = __expf(state->max[i] - max), sum = weight;
        for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
        state->max[i] = max, state->sum[i] = fmaf(state->sum[i], shrink, sum);
        s.weights[h * ATTENTION_KEYS + lane] = weight;
        if (lane == 0) s.shrink[h] = shrink;
    }
}

// Threads share the columns of V by pairs; a block with more threads than pairs shares the heads
// too: thread (part, pair) adds up heads part, part + n_parts, ...
struct attention_share {
    int pair, part, n_parts; // part is n_parts or more for a thread without work
};

DEVICE_FN attention_share thread_share(const attention_job &job) {
    int n_pairs = job.n_cols / 2, thread = (int)threadIdx.x;
    return attention_share{job.column / 2 + thread % n_pairs, thread / n_pairs,
                           ATTENTION_THREADS / n_pairs};
}

// The rows from..to-1 of V of a tile; first is row 0.
struct value_rows {
    const char *first;
    int64_t stride; // bytes
    int from, to;
};

// Adds the values of a tile's keys to the sums, VALUES_AHEAD at a time. A key outside has no
// weight, and may hold a NaN, which a weight of zero does not remove: the nearest key is read in
// its place.
template <enum dtype TYPE, int HEADS>
DEVICE_FN void add_rows(const attention_job &job, const attention_shared &s, attention_share share,
                        value_rows rows, float2 *sums) {
    NO_UNROLL
    for (int j = rows.from / VALUES_AHEAD * VALUES_AHEAD; j < rows.to; j += VALUES_AHEAD) {
        raw_pair raw[VALUES_AHEAD];
#pragma unroll
        for (int k = 0; k < VALUES_AHEAD; k++) {
            int row = max(min(j + k, rows.to - 1), rows.from);
            raw[k] = load_pair<TYPE>(rows.first + row * rows.stride, share.pair);
        }
#pragma unroll
        for (int k = 0; k < VALUES_AHEAD; k += 4) {
            float2 pairs[4];
#pragma unroll
            for (int i = 0; i < 4; i++) pairs[i] = pair_values<TYPE>(raw[k + i], share.pair);
#pragma unroll
            for (int i = 0; i < HEADS; i++) {
                int h = share.part + i * share.n_parts;
                if (h >= job.n_heads) continue;
                float4 w = *(const float4 *)(s.weights + h * ATTENTION_KEYS + j + k);
                float x = fmaf(w.x, pairs[0].x, sums[i].x), y = fmaf(w.x, pairs[0].y, sums[i].y);
                x = fmaf(w.y, pairs[1].x, x), y = fmaf(w.y, pairs[1].y, y);
                x = fmaf(w.z, pairs[2].x, x), y = fmaf(w.z, pairs[2].y, y);
                sums[i].x = fmaf(w.w, pairs[3].x, x), sums[i].y = fmaf(w.w, pairs[3].y, y);
            }
        }
    }
}

template <int HEADS>
DEVICE_FN void add_values(const struct attention_args &a, const attention_job &job,
                          const attention_shared &s, attention_share share, tile_keys keys,
                          float2 *sums) {
    const value_rows rows = {(const char *)a.v_cache + cache_bytes(a.v_type, keys.start),
                             cache_bytes(a.v_type, (int64_t)in_loop(a.n_kv_heads) * a.head_dim),
                             keys.from, keys.to};
    share.pair = in_loop(share.pair), share.part = in_loop(share.part);
#pragma unroll
    for (int i = 0; i < HEADS; i++) {
        int h = share.part + i * share.n_parts;
        if (h >= job.n_heads) continue;
        sums[i].x *= s.shrink[h], sums[i].y *= s.shrink[h];
    }
    switch (a.v_type) {
    case DTYPE_F16: add_rows<DTYPE_F16, HEADS>(job, s, share, rows, sums); break;
    case DTYPE_Q8_0: add_rows<DTYPE_Q8_0, HEADS>(job, s, share, rows, sums); break;
    case DTYPE_Q4_0: add_rows<DTYPE_Q4_0, HEADS>(job, s, share, rows, sums); break;
    default: add_rows<DTYPE_F32, HEADS>(job, s, share, rows, sums); break;
    }
}

// The address to which split number split of head h of the block's token writes its sums.
DEVICE_FN float *partial_of(const struct attention_params &p, int64_t token, int h, int64_t split) {
    return p.partial + ((token * p.a.n_heads + h) * p.n_splits + split) * (p.a.head_dim + 2);
}

// Writes the sums of the heads, divided by the sums of the exponentials, which s.shrink holds by
// now, or undivided for attention_merge.
template <int HEADS>
DEVICE_FN void write_heads(const struct attention_params &p, const attention_job &job,
                           const attention_shared &s, attention_share share, const float2 *sums) {
    bool whole = p.n_splits == 1;
    int64_t head_apart = whole ? p.a.head_dim : p.n_splits * (p.a.head_dim + 2);
    float *out = whole ? p.a.out + (job.token * p.a.n_heads + job.head) * p.a.head_dim
                       : partial_of(p, job.token, job.head, blockIdx.z);
    out += share.part * head_apart + 2 * share.pair;
#pragma unroll
    for (int i = 0; i < HEADS; i++) {
        int h = share.part + i * share.n_parts;
        if (h >= job.n_heads) continue;
        float factor = whole ? __fdividef(1, s.shrink[h]) : 1;
        out[0] = factor * sums[i].x, out[1] = factor * sums[i].y;
        out += share.n_parts * head_apart;
    }
}

// Writes the maximum and the sum of the warp's heads to s.shrink for the block, and to partial for
// attention_merge.
DEVICE_FN void publish_state(const struct attention_params &p, const attention_job &job,
                             const attention_shared &s, const softmax_state &state) {
    int warp = (int)threadIdx.x / 32;
    if (threadIdx.x % 32 != 0) return;
#pragma unroll
    for (int i = 0; i < WARP_HEADS; i++) {
        int h = warp + i * WARPS;
        if (h >= job.n_heads) continue;
        s.shrink[h] = state.sum[i];
        if (p.n_splits == 1 || job.column > 0) continue;
        float *tail = partial_of(p, job.token, job.head + h, blockIdx.z) + p.a.head_dim;
        tail[0] = state.max[i], tail[1] = state.sum[i];
    }
}

// A sink counts in the first split, as a score that came before all others.
DEVICE_FN void start_softmax(const struct attention_args &a, const attention_job &job,
                             softmax_state *state) {
    int warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < WARP_HEADS; i++) {
        int h = warp + i * WARPS;
        bool has_sink = a.sinks && blockIdx.z == 0 && h < job.n_heads;
        state->max[i] = has_sink ? a.sinks[job.head + h] : least_maximum();
        state->sum[i] = has_sink ? 1 : 0;
    }
}

template <int HEADS>
DEVICE_FN void attend_heads(const struct attention_params &p, const attention_job &job,
                            const attention_shared &s) {
    float2 sums[HEADS];
    softmax_state state;
#pragma unroll
    for (int i = 0; i < HEADS; i++) sums[i] = make_float2(0, 0);
    start_softmax(p.a, job, &state);
    attention_share share = thread_share(job);
    // Nobody reads the last heads' queries any more: that was before the barriers of their sums.
    load_queries(p.a, job, s);
    for (int tile = job.first / ATTENTION_KEYS * ATTENTION_KEYS; tile <= job.last;
         tile += ATTENTION_KEYS) {
        const tile_keys keys = {key_start(p.a, job.pages, job.kv_head, tile),
                                max(job.first - tile, 0),
                                min(job.last - tile + 1, (int)ATTENTION_KEYS)};
        float scores[WARP_HEADS];
        score_tile(p.a, job, s, keys, scores);
        weigh_tile(p.a, job, s, &state, tile, scores);
        __syncthreads();
        if (share.part < share.n_parts) add_values<HEADS>(p.a, job, s, share, keys, sums);
    }
    __syncthreads(); // every thread has used s.shrink of the last tile
    publish_state(p, job, s, state);
    __syncthreads();
    if (share.part < share.n_parts) write_heads<HEADS>(p, job, s, share, sums);
}

// A block has at most COLS columns of V, so that a thread has at most HEADS of its query heads.
template <int COLS> DEVICE_FN void attend(const struct attention_params &p) {
    constexpr int HEADS = ATTENTION_HEADS * COLS / (2 * ATTENTION_THREADS);
    DYN_SHARED(uint4, memory);
    __shared__ float4 weights[ATTENTION_HEADS * ATTENTION_KEYS / 4];
    __shared__ float shrink[ATTENTION_HEADS];
    int padded_dim = (p.a.head_dim + 7) / 8 * 8;
    int key_cols = padded_dim > ATTENTION_COLS ? (int)ATTENTION_KEY_COLS : padded_dim;
    attention_shared s = {memory + ATTENTION_HEADS * padded_dim / 4,
                          (float *)memory,
                          (float *)weights,
                          shrink,
                          padded_dim,
                          key_cols,
                          (key_cols * tile_element_bytes(p.a.k_type) / 16) | 1};
    attention_job job;
    job.token = blockIdx.x, job.kv_head = (int)blockIdx.y % p.a.n_kv_heads;
    job.column = (int)blockIdx.y / p.a.n_kv_heads * ATTENTION_COLS;
    job.n_cols = min(p.a.head_dim - job.column, (int)ATTENTION_COLS);
    job.pages = p.a.pages + (int64_t)p.a.sequences[job.token] * p.a.max_pages;
    split_keys(p, &job, (int)blockIdx.z);
    int group = p.a.n_heads / p.a.n_kv_heads;
    for (int h = 0; h < group; h += ATTENTION_HEADS) {
        job.head = job.kv_head * group + h;
        job.n_heads = min(group - h, (int)ATTENTION_HEADS);
        attend_heads<HEADS>(p, job, s);
    }
}

KERNEL void __launch_bounds__(ATTENTION_THREADS, ATTENTION_BLOCKS)
    attention_64(const struct attention_params p) {
    attend<64>(p);
}
KERNEL void __launch_bounds__(ATTENTION_THREADS, ATTENTION_BLOCKS)
    attention_128(const struct attention_params p) {
    attend<128>(p);
}
KERNEL void __launch_bounds__(ATTENTION_THREADS, ATTENTION_BLOCKS)
    attention_256(const struct attention_params p) {
    attend<256>(p);
}

// A block joins one head: a thread takes every ATTENTION_MERGE_THREADS-th column. Reads n_splits
// (head_dim + 2) floats and writes head_dim. acts: the token's quantised row, or NULL.
DEVICE_FN void merge_head(const struct attention_params &p, char *acts) {
    int64_t token = blockIdx.x, stride = p.a.head_dim + 2;
    int h = (int)blockIdx.y;
    const float *partial = partial_of(p, token, h, 0), *tails = partial + p.a.head_dim;
    float max = minus_infinity(), sum = 0;
    for (int64_t split = 0; split < p.n_splits; split++) max = fmaxf(max, tails[split * stride]);
    for (int64_t split = 0; split < p.n_splits; split++)
        sum = fmaf(__expf(tails[split * stride] - max), tails[split * stride + 1], sum);
    float *out = p.a.out + (token * p.a.n_heads + h) * p.a.head_dim;
    for (int i = (int)threadIdx.x; i < p.a.head_dim; i += ATTENTION_MERGE_THREADS) {
        float value = 0;
        for (int64_t split = 0; split < p.n_splits; split++)
            value = fmaf(__expf(tails[split * stride] - max), partial[split * stride + i], value);
        value /= sum;
        out[i] = value;
        if (acts) quantize_ones(acts, p.a.n_heads * p.a.head_dim, h * p.a.head_dim + i, value);
    }
}

KERNEL void __launch_bounds__(ATTENTION_MERGE_THREADS)
    attention_merge(const struct attention_params p) {
    merge_head(p, nullptr);
}
KERNEL void __launch_bounds__(ATTENTION_MERGE_THREADS)
    attention_merge_quantize(const struct merge_quantize_params m) {
    merge_head(m.p, (char *)m.acts + blockIdx.x * m.acts_stride);
}
