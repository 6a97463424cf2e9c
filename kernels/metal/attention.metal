/* attention.metal: softmax(scale q K) V over the pages of a KV cache, with online softmax, for any
 * types of the cache and any head size.
 *
 * attention: grid (n_tokens, n_kv_heads * column chunks, n_splits). A threadgroup takes one token,
 * one kv head and a run of whole pages of keys, so a row of K and V is read once for all query
 * heads that share it (GQA), up to ATTENTION_HEADS at a time. Keys come in tiles of ATTENTION_KEYS,
 * which start at multiples of it and so never straddle a page: four threads score a key, each by
 * every fourth run of eight columns; then a simdgroup turns the scores of its heads into weights, a
 * key per lane, and keeps their running maximum and sum; then a thread adds a pair of columns of
 * the weighted V rows for its share of the heads. Heads wider than ATTENTION_COLS columns have a
 * threadgroup per ATTENTION_COLS columns of V, each of which scores all keys. Threadgroup memory
 * holds the queries, attention_query_bytes of them.
 *
 * attention_merge: grid (n_tokens, n_heads). Joins the sums that the splits of a head wrote to
 * partial: reads n_splits * (head_dim + 2) floats and writes head_dim. Tested by
 * tests/kernels/check_ops.c.
 */
#include "kernels/metal/kv_cache.metal"

static_assert(ATTENTION_THREADS == 4 * ATTENTION_KEYS && ATTENTION_KEYS == 32,
              "four threads per key, a key per lane");
static_assert(KV_PAGE % ATTENTION_KEYS == 0, "a tile lies within a page");
static_assert(ATTENTION_COLS <= 2 * ATTENTION_THREADS, "a thread per pair of columns");

enum {
    ATTENTION_SIMDGROUPS = ATTENTION_THREADS / 32,
    ATTENTION_SIMD_HEADS = ATTENTION_HEADS / ATTENTION_SIMDGROUPS, // of a simdgroup
};

// The part of the op that a threadgroup computes, and its memory.
struct attention_job {
    long token;
    int kv_head, head, n_heads; // query heads head..head+n_heads-1, at most ATTENTION_HEADS
    int column, n_cols;         // of V, at most ATTENTION_COLS
    int first, last;            // keys of this split, last < first if there are none
    long split;
    device const int *pages;
    threadgroup float *q;       // [ATTENTION_HEADS, padded_dim], scaled, zeros past head_dim
    threadgroup float *weights; // [ATTENTION_HEADS, ATTENTION_KEYS]; scores at first
    threadgroup float *shrink;  // [ATTENTION_HEADS], factor of the sums so far at a new maximum
    int padded_dim;             // head_dim rounded up to 8
    int thread_index, lane, simdgroup;
};

// The running softmax of a simdgroup's heads, the same in every lane. Head i of the simdgroup is
// head simdgroup + i * ATTENTION_SIMDGROUPS of the threadgroup.
struct attention_softmax {
    float largest[ATTENTION_SIMD_HEADS], sum[ATTENTION_SIMD_HEADS];
};

// Threads share the columns of V by pairs; a threadgroup with more threads than pairs shares the
// heads too: thread (part, pair) adds up heads part, part + n_parts, ... A thread whose part is
// n_parts or more has no work.
struct attention_share {
    int pair, part, n_parts;
};

// Sets the keys of the job's split: whole pages, cut at the token's window and position.
static void attention_keys(constant attention_params &p, int last, thread attention_job &job) {
    const int first = first_key(last, p.a.window);
    const long first_page = first / KV_PAGE, n_pages = last / KV_PAGE - first_page + 1;
    const long start = first_page + n_pages * job.split / p.n_splits;
    const long end = first_page + n_pages * (job.split + 1) / p.n_splits;
    job.first = max(first, int(start) * KV_PAGE);
    job.last = min(last, int(end) * KV_PAGE - 1);
}

static void attention_load_queries(constant attention_args &a, thread const attention_job &job,
                                   device const float *q) {
    device const float *source = q + (job.token * a.n_heads + job.head) * a.head_dim;
    for (int h = 0; h < job.n_heads; h++)
        for (int i = job.thread_index; i < job.padded_dim; i += ATTENTION_THREADS)
            job.q[h * job.padded_dim + i] =
                i < a.head_dim ? a.scale * source[h * a.head_dim + i] : 0.0f;
}

// Scores the tile's keys. A key that the token does not see is not read and scores NO_SCORE.
static void attention_score(constant attention_args &a, thread const attention_job &job,
                            device const uchar *k_cache, int tile) {
    const int in_tile = job.thread_index / 4, part = job.thread_index % 4, key = tile + in_tile;
    const bool seen = key >= job.first && key <= job.last;
    const long start = key_start(a, job.pages, job.kv_head, tile);
    const long row = long(a.n_kv_heads) * a.head_dim;
    float scores[ATTENTION_HEADS] = {0};
    if (seen) {
        device const uchar *k = k_cache + cache_bytes(a.k_type, start + in_tile * row);
        for (int c = 8 * part; c < job.padded_dim; c += 32) {
            float eight[8];
            cache_eight(eight, k, a.k_type, c, a.head_dim);
            const float4 low = float4(eight[0], eight[1], eight[2], eight[3]);
            const float4 high = float4(eight[4], eight[5], eight[6], eight[7]);
#pragma unroll
            for (int h = 0; h < ATTENTION_HEADS; h++) {
                if (h >= job.n_heads) continue;
                threadgroup const float4 *q =
                    (threadgroup const float4 *)(job.q + h * job.padded_dim + c);
                scores[h] += dot(low, q[0]) + dot(high, q[1]);
            }
        }
    }
#pragma unroll
    for (int h = 0; h < ATTENTION_HEADS; h++) {
        if (h >= job.n_heads) continue;
        float score = scores[h] + simd_shuffle_xor(scores[h], ushort(1));
        score += simd_shuffle_xor(score, ushort(2));
        if (h % 4 == part)
            job.weights[h * ATTENTION_KEYS + in_tile] =
                seen ? cap_score(score, a.softcap) : NO_SCORE;
    }
}

// Turns the tile's scores into weights. The token sees at least one key of every tile.
static void attention_weigh(thread const attention_job &job, thread attention_softmax &state) {
#pragma unroll
    for (int i = 0; i < ATTENTION_SIMD_HEADS; i++) {
        const int h = job.simdgroup + i * ATTENTION_SIMDGROUPS;
        if (h >= job.n_heads) continue; // the whole simdgroup
        const float score = job.weights[h * ATTENTION_KEYS + job.lane];
        const float largest = max(simd_max(score), state.largest[i]);
        const float weight = exp(score - largest), shrink = exp(state.largest[i] - largest);
        state.largest[i] = largest;
        state.sum[i] = state.sum[i] * shrink + simd_sum(weight);
        job.weights[h * ATTENTION_KEYS + job.lane] = weight;
        if (job.lane == 0) job.shrink[h] = shrink;
    }
}

static attention_share attention_thread_share(thread const attention_job &job) {
    const int n_pairs = job.n_cols / 2;
    const attention_share share = {job.column / 2 + job.thread_index % n_pairs,
                                   job.thread_index / n_pairs, ATTENTION_THREADS / n_pairs};
    return share;
}

// Adds the values of a tile's keys that the token sees.
static void attention_add_values(constant attention_args &a, thread const attention_job &job,
                                 attention_share share, device const uchar *v_cache, int tile,
                                 thread float2 *sums) {
    const long start = key_start(a, job.pages, job.kv_head, tile);
    const long stride = cache_bytes(a.v_type, long(a.n_kv_heads) * a.head_dim);
    device const uchar *v = v_cache + cache_bytes(a.v_type, start);
    const int from = max(job.first - tile, 0), to = min(job.last - tile + 1, int(ATTENTION_KEYS));
#pragma unroll
    for (int i = 0; i < ATTENTION_HEADS; i++) {
        const int h = share.part + i * share.n_parts;
        if (h < job.n_heads) sums[i] = sums[i] * job.shrink[h];
    }
    for (int j = from; j < to; j++) {
        const float2 two = cache_pair(v + j * stride, a.v_type, share.pair);
#pragma unroll
        for (int i = 0; i < ATTENTION_HEADS; i++) {
            const int h = share.part + i * share.n_parts;
            if (h >= job.n_heads) continue;
            const float weight = job.weights[h * ATTENTION_KEYS + j];
            sums[i] = float2(fma(weight, two.x, sums[i].x), fma(weight, two.y, sums[i].y));
        }
    }
}

// Where split number split of head h of the token writes its sums.
static long attention_partial_at(constant attention_params &p, long token, int h, long split) {
    return ((token * p.a.n_heads + h) * p.n_splits + split) * (p.a.head_dim + 2);
}

// Writes the maximum and the sum of the simdgroup's heads: to shrink for the threadgroup, and to
// partial for attention_merge.
static void attention_publish(constant attention_params &p, thread const attention_job &job,
                              thread const attention_softmax &state, device float *partial) {
    if (job.lane != 0) return;
#pragma unroll
    for (int i = 0; i < ATTENTION_SIMD_HEADS; i++) {
        const int h = job.simdgroup + i * ATTENTION_SIMDGROUPS;
        if (h >= job.n_heads) continue;
        job.shrink[h] = state.sum[i];
        if (p.n_splits == 1 || job.column > 0) continue;
        device float *tail = partial + p.a.head_dim +
                             attention_partial_at(p, job.token, job.head + h, job.split);
        tail[0] = state.largest[i];
        tail[1] = state.sum[i];
    }
}

// Writes the sums of the heads, divided by the sums of the exponentials, which shrink holds by now,
// or undivided for attention_merge.
static void attention_write(constant attention_params &p, thread const attention_job &job,
                            attention_share share, thread const float2 *sums, device float *out,
                            device float *partial) {
#pragma unroll
    for (int i = 0; i < ATTENTION_HEADS; i++) {
        const int h = share.part + i * share.n_parts;
        if (h >= job.n_heads) continue;
        device float *target = out + (job.token * p.a.n_heads + job.head + h) * p.a.head_dim;
        if (p.n_splits > 1)
            target = partial + attention_partial_at(p, job.token, job.head + h, job.split);
        const float factor = p.n_splits > 1 ? 1.0f : 1 / job.shrink[h];
        target[2 * share.pair] = factor * sums[i].x;
        target[2 * share.pair + 1] = factor * sums[i].y;
    }
}

kernel void attention(constant attention_params &p [[buffer(0)]],
                      device float *partial [[buffer(1)]],
                      device float *out [[buffer(2)]],
                      device const float *q [[buffer(3)]],
                      device const uchar *k_cache [[buffer(4)]],
                      device const uchar *v_cache [[buffer(5)]],
                      device const int *pages [[buffer(6)]],
                      device const int *positions [[buffer(7)]],
                      device const int *sequences [[buffer(8)]],
                      device const float *sinks [[buffer(9)]],
                      threadgroup float *queries [[threadgroup(0)]],
                      uint3 group [[threadgroup_position_in_grid]],
                      uint index [[thread_index_in_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]]) {
    threadgroup float weights[ATTENTION_HEADS * ATTENTION_KEYS];
    threadgroup float shrink[ATTENTION_HEADS];
    const int heads_per_kv_head = p.a.n_heads / p.a.n_kv_heads;
    attention_job job;
    job.token = group.x;
    job.kv_head = int(group.y) % p.a.n_kv_heads;
    job.column = int(group.y) / p.a.n_kv_heads * ATTENTION_COLS;
    job.n_cols = min(p.a.head_dim - job.column, int(ATTENTION_COLS));
    job.split = group.z;
    job.pages = pages + long(sequences[job.token]) * p.a.max_pages;
    job.q = queries;
    job.weights = weights;
    job.shrink = shrink;
    job.padded_dim = (p.a.head_dim + 7) / 8 * 8;
    job.thread_index = int(index);
    job.lane = int(lane);
    job.simdgroup = int(simdgroup);
    attention_keys(p, positions[job.token], job);
    const attention_share share = attention_thread_share(job);
    for (int of_group = 0; of_group < heads_per_kv_head; of_group += ATTENTION_HEADS) {
        job.head = job.kv_head * heads_per_kv_head + of_group;
        job.n_heads = min(heads_per_kv_head - of_group, int(ATTENTION_HEADS));
        float2 sums[ATTENTION_HEADS];
        attention_softmax state;
#pragma unroll
        for (int i = 0; i < ATTENTION_HEADS; i++) sums[i] = float2(0);
#pragma unroll
        for (int i = 0; i < ATTENTION_SIMD_HEADS; i++) {
            // A sink counts in the first split, as a score that came before all others.
            const int h = job.simdgroup + i * ATTENTION_SIMDGROUPS;
            const bool has_sink = p.a.sinks != 0 && job.split == 0 && h < job.n_heads;
            state.largest[i] = has_sink ? sinks[job.head + h] : NO_SCORE;
            state.sum[i] = has_sink ? 1.0f : 0.0f;
        }
        attention_load_queries(p.a, job, q);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (int tile = job.first / ATTENTION_KEYS * ATTENTION_KEYS; tile <= job.last;
             tile += ATTENTION_KEYS) {
            attention_score(p.a, job, k_cache, tile);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            attention_weigh(job, state);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (share.part < share.n_parts)
                attention_add_values(p.a, job, share, v_cache, tile, sums);
            threadgroup_barrier(mem_flags::mem_threadgroup); // the next tile's scores overwrite
        }
        attention_publish(p, job, state, partial);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (share.part < share.n_parts) attention_write(p, job, share, sums, out, partial);
    }
}

kernel void attention_merge(constant attention_params &p [[buffer(0)]],
                            device const float *partial [[buffer(1)]],
                            device float *out [[buffer(2)]],
                            uint2 group [[threadgroup_position_in_grid]],
                            uint index [[thread_index_in_threadgroup]]) {
    const long stride = p.a.head_dim + 2, n_splits = p.n_splits;
    device const float *sums = partial + attention_partial_at(p, group.x, int(group.y), 0);
    device const float *tails = sums + p.a.head_dim;
    float largest = NO_SCORE, sum = 0;
    for (long split = 0; split < n_splits; split++) largest = max(largest, tails[split * stride]);
    for (long split = 0; split < n_splits; split++)
        sum += exp(tails[split * stride] - largest) * tails[split * stride + 1];
    device float *target = out + (long(group.x) * p.a.n_heads + group.y) * p.a.head_dim;
    for (int i = int(index); i < p.a.head_dim; i += ATTENTION_MERGE_THREADS) {
        float value = 0;
        for (long split = 0; split < n_splits; split++)
            value += exp(tails[split * stride] - largest) * sums[split * stride + i];
        target[i] = value / sum;
    }
}
