/* attention_work_avx2.c: decides which lane takes which queries through which keys, for attention
 * at every x86 level.
 *
 * Blocks of queries that read the same keys are cut into segments of keys; the segments of all
 * blocks form one list, weighted by the time of each, which is cut into shares that are as equal
 * as whole segments allow. So all lanes are busy both with one head over many keys and with the end
 * of a prompt, which sees more keys than its start. Where there are many blocks, or none has two
 * segments, lanes take whole ones as they come. A block of few tokens has the queries of all kv
 * heads, so that a page of the cache is read from its start to its end. The lane that has the first
 * segment of a block merges the others, which lie in their lanes' rooms. Owns nothing; every lane
 * calls with the same arguments. Tested by tests/kernels/check_attention.c.
 */
#include "kernels/cpu/x86/attention_work_avx2.h"
#include "kernels/cpu/x86/vector_avx2.h"

#include "base/err.h"
#include "base/inline.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    SEGMENT_KEYS = 256, // at least; four pages cost more than a merge
    SEGMENTS_MAX = 17,  // of a query: 16, and one more if a window begins within a segment
    BLOCKS_A_LANE = 8,  // at least, where there are so many tokens
    BLOCKS_TAKEN = 8,   // a lane: so many are shared out as lanes come for them
    PARTIAL_HEAD = 16,  // floats before the sums in a stored part: maximum, sum, and room to align
};

// The merged segments of a query, whose sum of values is in out.
struct total {
    float max, sum;
};

// The work of all lanes.
struct work {
    const struct attention_args *a;
    const struct lane *lane;
    attend_fn *attend;
    int64_t total;                           // cost of all blocks
    int32_t tokens_max, heads_max, n_groups; // of a block
};

static int32_t n_keys(const struct attention_args *a, int64_t token) {
    int32_t position = a->positions[token];
    return a->window > 0 && position >= a->window ? a->window : position + 1;
}

static int32_t segment_keys(const struct attention_args *a, int64_t token) {
    int32_t keys = SEGMENT_KEYS, all = n_keys(a, token);
    while (keys * (SEGMENTS_MAX - 1) < all) keys *= 2;
    return keys;
}

// The most queries of a block: whole tiles.
static int32_t slots_max(const struct attention_args *a) {
    const int32_t fit = QUERY_FLOATS / query_dim(a) / TILE_QUERIES * TILE_QUERIES;
    return fit < QUERIES_MAX ? fit : QUERIES_MAX;
}

// Extends a block by its next token. Returns false if that needs a block of its own, as a token
// does whose keys are far from those of the others.
static bool add_token(const struct attention_args *a, struct query_block *b, int32_t tokens_max) {
    int64_t token = b->token + b->n_tokens;
    if (token == a->n_tokens || b->n_tokens == tokens_max) return false;
    if ((b->n_tokens + 1) * b->n_heads > slots_max(a) && b->n_tokens > 0) return false;
    int32_t last = a->positions[token], first = last + 1 - n_keys(a, token);
    if (b->n_tokens == 0) {
        b->segment_keys = segment_keys(a, token);
        b->first_key = first;
        b->last_key = last;
    }
    if (a->sequences[token] != a->sequences[b->token]) return false;
    if (segment_keys(a, token) != b->segment_keys) return false;
    first = first < b->first_key ? first : b->first_key;
    last = last > b->last_key ? last : b->last_key;
    // A lane's room takes SEGMENTS_MAX, which are all but the first one, of the first one's lane.
    if (last / b->segment_keys - first / b->segment_keys > SEGMENTS_MAX) return false;
    b->first_key = first;
    b->last_key = last;
    b->n_tokens++;
    return true;
}

// Floats of a stored part of a query.
static int64_t partial_floats(const struct attention_args *a) {
    return PARTIAL_HEAD + query_dim(a);
}

// The most heads of a block of one token, whose parts fit a lane's room, so that it can be cut.
static int32_t heads_of_block(const struct attention_args *a) {
    const int64_t part_bytes = SEGMENTS_MAX * partial_floats(a) * (int64_t)sizeof(float);
    const int64_t heads = LANE_ROOM_BYTES / part_bytes;
    return heads < slots_max(a) ? (int32_t)heads : slots_max(a);
}

// Goes on to the next block: tokens first, then heads. Begins with a zeroed one; returns false
// after the last.
static bool next_block(const struct work *w, struct query_block *b) {
    const struct attention_args *a = w->a;
    const int32_t share = a->n_heads / a->n_kv_heads;
    b->token += b->n_tokens;
    if (b->token == a->n_tokens) {
        b->token = 0;
        b->head += b->n_heads * b->n_groups;
    }
    if (b->head == a->n_heads) return false;
    int32_t left = share - (int32_t)(b->head % share);
    b->n_heads = left < w->heads_max ? left : w->heads_max;
    b->n_groups = w->n_groups;
    b->n_tokens = 0;
    while (add_token(a, b, w->tokens_max)) continue;
    return true;
}

static int32_t n_queries(const struct query_block *b) {
    return b->n_tokens * b->n_heads * b->n_groups;
}

// The slot, the token and the head of query number i of a block.
static int32_t slot_of(const struct query_block *b, int32_t i) {
    const int32_t n = b->n_tokens * b->n_heads;
    return i / n * group_slots(b) + i % n;
}

static int64_t token_of(const struct query_block *b, int32_t i) {
    return b->token + i / b->n_heads % b->n_tokens;
}

static int64_t head_of(const struct query_block *b, int32_t i) {
    return b->head + i / (b->n_tokens * b->n_heads) * b->n_heads + i % b->n_heads;
}

// Fills keys with the first and the last key of segment number i of a block. Returns false past the
// last one.
static bool segment_at(const struct query_block *b, int32_t i, int32_t keys[2]) {
    int32_t start = (b->first_key / b->segment_keys + i) * b->segment_keys;
    if (start > b->last_key) return false;
    keys[0] = start > b->first_key ? start : b->first_key;
    keys[1] = b->last_key - start < b->segment_keys ? b->last_key : start + b->segment_keys - 1;
    return true;
}

static int64_t cost_of(const struct query_block *b, const int32_t keys[2]) {
    return (int64_t)(keys[1] - keys[0] + 1) * n_queries(b);
}

static int64_t cost_of_block(const struct query_block *b) {
    return cost_of(b, (const int32_t[2]){b->first_key, b->last_key});
}

// The number of the lane that has a block, or a segment of one, of that cost.
static int32_t owner(const struct work *w, int64_t place, int64_t cost) {
    return lane_of_item(w->lane, place, cost, w->total);
}

// Fills lanes with those of the first and the last segment of a block that begins at place. Blocks
// with too many queries for a room are not cut.
static void owners(const struct work *w, const struct query_block *b, int64_t place,
                   int32_t lanes[2]) {
    const int64_t all = cost_of_block(b);
    const uint64_t size = (uint64_t)(n_queries(b) * partial_floats(w->a)) * sizeof(float);
    lanes[0] = lanes[1] = owner(w, place, all);
    if (size * SEGMENTS_MAX > LANE_ROOM_BYTES) return;
    int32_t first[2] = {0}, last[2] = {0}, next[2];
    (void)segment_at(b, 0, first);
    for (int32_t i = 0; segment_at(b, i, next); i++) memcpy(last, next, sizeof last);
    lanes[0] = owner(w, place, cost_of(b, first));
    lanes[1] = owner(w, place + all - cost_of(b, last), cost_of(b, last));
}

// Rounds elements i to i + BLOCK - 1 of the query in a slot, which are q times scale, to integers,
// and stores these and their scale, which is NaN if one of them is not finite.
static void round_query(struct query_room *room, int32_t slot, int32_t dim, int32_t i,
                        const float *q, float scale) {
    const int32_t tile = slot / TILE_QUERIES, j = slot % TILE_QUERIES;
    float *to = room->q + (tile * dim + i) * TILE_QUERIES + j;
    int16_t *ints = room->ints + (tile * dim + i) * TILE_QUERIES + j * 8;
    float *scales = room->scales + ((tile * dim + i) / BLOCK * TILE_QUERIES + j) * 4;
    const __m256 scaled = _mm256_set1_ps(scale), sign = _mm256_set1_ps(-0.0F);
    __m256 v[BLOCK / 8], top = _mm256_setzero_ps(), zeros = top;
    for (int c = 0; c < BLOCK / 8; c++) {
        v[c] = _mm256_mul_ps(_mm256_loadu_ps(q + 8 * c), scaled);
        top = _mm256_max_ps(top, _mm256_andnot_ps(sign, v[c]));
        zeros = _mm256_add_ps(zeros, _mm256_sub_ps(v[c], v[c]));
    }
    const bool finite = _mm256_movemask_ps(_mm256_cmp_ps(zeros, zeros, _CMP_UNORD_Q)) == 0;
    top = _mm256_max_ps(top, _mm256_permute2f128_ps(top, top, 1));
    top = _mm256_max_ps(top, _mm256_permute_ps(top, 0x4e));
    const float max = _mm256_cvtss_f32(_mm256_max_ps(top, _mm256_permute_ps(top, 0xb1)));
    const float step = finite ? max / QUERY_INT_MAX : NAN;
    const __m256 per_step = _mm256_set1_ps(max > 1e-30F ? QUERY_INT_MAX / max : 0);
    for (int c = 0; c < BLOCK / 8; c++) {
        float floats[8];
        const __m256i whole = _mm256_cvtps_epi32(_mm256_mul_ps(v[c], per_step));
        const __m128i words =
            _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
        _mm_storeu_si128((void *)(ints + c * 8 * TILE_QUERIES), words);
        _mm256_storeu_ps(floats, _mm256_cvtepi32_ps(whole));
        for (int k = 0; k < 8; k++) to[(8 * c + k) * TILE_QUERIES] = floats[k];
    }
    for (int k = 0; k < 4; k++) scales[k] = step;
}

static void start_queries(const struct attention_args *a, const struct query_block *b,
                          struct query_room *room) {
    const int32_t dim = query_dim(a);
    const bool blocks = has_blocks(a->k_type);
    const float scale = a->softcap > 0 ? a->scale : a->scale * LOG2_E;
    const int32_t n_floats = b->n_groups * group_slots(b) * dim;
    memset(room->q, 0, (size_t)n_floats * sizeof *room->q);
    if (blocks) {
        memset(room->ints, 0, (size_t)n_floats * sizeof *room->ints);
        memset(room->scales, 0, (size_t)(n_floats / BLOCK * 4) * sizeof *room->scales);
    }
    for (int32_t i = 0; i < n_queries(b); i++) {
        const int32_t slot = slot_of(b, i);
        const float *q = a->q + (token_of(b, i) * a->n_heads + head_of(b, i)) * a->head_dim;
        float *to = room->q + slot / TILE_QUERIES * dim * TILE_QUERIES + slot % TILE_QUERIES;
        struct query *query = &room->queries[slot];
        query->last = a->positions[token_of(b, i)];
        query->first = query->last + 1 - n_keys(a, token_of(b, i));
        for (int32_t c = 0; blocks && c < a->head_dim; c += BLOCK)
            round_query(room, slot, dim, c, q + c, scale);
        for (int32_t c = 0; !blocks && c < a->head_dim; c++) to[c * TILE_QUERIES] = q[c] * scale;
    }
}

static float *out_of(const struct attention_args *a, const struct query_block *b, int32_t i) {
    return a->out + (token_of(b, i) * a->n_heads + head_of(b, i)) * a->head_dim;
}

static void start_totals(const struct attention_args *a, const struct query_block *b,
                         struct total *totals) {
    for (int32_t i = 0; i < n_queries(b); i++) {
        totals[i] = (struct total){-INFINITY, 0};
        if (a->sinks) totals[i] = (struct total){a->sinks[head_of(b, i)] * LOG2_E, 1};
        memset(out_of(a, b, i), 0, (size_t)a->head_dim * sizeof(float));
    }
}

// Adds a segment of a query to its total. One function, so that the compiler rounds alike wherever
// the segment was computed.
OUT_OF_LINE void merge(float *out, struct total *total, struct total part, const float *sum_v,
                       int32_t head_dim) {
    float max = total->max > part.max ? total->max : part.max;
    float old = _mm256_cvtss_f32(exp2_avx2(_mm256_set1_ps(total->max - max)));
    float new = _mm256_cvtss_f32(exp2_avx2(_mm256_set1_ps(part.max - max)));
    total->max = max;
    total->sum = total->sum * old + part.sum * new;
    for (int32_t i = 0; i < head_dim; i++) out[i] = out[i] * old + sum_v[i] * new;
}

static bool sees(const struct query *query, const int32_t keys[2]) {
    return query->first <= keys[1] && query->last >= keys[0];
}

// Computes a segment; adds it to totals, or stores it in parts if totals is NULL.
static void run_segment(const struct work *w, const struct query_block *b, struct query_room *room,
                        const int32_t keys[2], struct total *totals, float *parts) {
    const int32_t n = n_queries(b), dim = query_dim(w->a);
    const int32_t n_slots = b->n_groups * group_slots(b);
    for (int32_t slot = 0; slot < n_slots; slot++) {
        // Beside it scores of minus infinity have no weight, also where there are no others.
        room->queries[slot].max = -FLT_MAX;
        memset(room->queries[slot].lanes, 0, sizeof room->queries[slot].lanes);
    }
    memset(room->sum_v, 0, (size_t)(n_slots * dim) * sizeof *room->sum_v);
    w->attend(w->a, b, room, keys);
    for (int32_t i = 0; i < n; i++) {
        const struct query *q = &room->queries[slot_of(b, i)];
        const float *sum_v = room->sum_v + slot_of(b, i) * dim;
        float *part = parts ? parts + i * partial_floats(w->a) : NULL;
        if (!sees(q, keys)) continue;
        if (totals) {
            merge(out_of(w->a, b, i), &totals[i], (struct total){q->max, q->sum}, sum_v,
                  w->a->head_dim);
            continue;
        }
        part[0] = q->max;
        part[1] = q->sum;
        memcpy(part + PARTIAL_HEAD, sum_v, (size_t)w->a->head_dim * sizeof *part);
    }
}

static void finish(const struct attention_args *a, const struct query_block *b,
                   const struct total *totals) {
    for (int32_t i = 0; i < n_queries(b); i++) {
        float *out = out_of(a, b, i);
        for (int32_t c = 0; c < a->head_dim; c++) out[c] /= totals[i].sum;
    }
}

// Runs this lane's segments of a block that begins at place: those from its first owner on are
// added to totals, those of another owner go to the lane's room, first to last.
static void run_block(const struct work *w, const struct query_block *b, int64_t place,
                      const int32_t lanes[2], struct query_room *room, struct total *totals) {
    const int64_t slot = n_queries(b) * partial_floats(w->a);
    const int32_t self = w->lane->index;
    const bool first = lanes[0] == self, cut = lanes[0] != lanes[1];
    float *parts = cut && !first ? lane_room(w->lane, self) : NULL;
    start_queries(w->a, b, room);
    if (first) start_totals(w->a, b, totals);
    for (int32_t i = 0, keys[2]; segment_at(b, i, keys); i++) {
        const int64_t cost = cost_of(b, keys);
        if (!cut || owner(w, place, cost) == self) {
            run_segment(w, b, room, keys, first ? totals : NULL, parts);
            if (parts) parts += slot;
        }
        place += cost;
    }
}

// Merges the segments of other lanes, in order, after all of them are computed.
static void merge_others(const struct work *w, const struct query_block *b, int64_t place,
                         const struct query_room *room, struct total *totals) {
    const int64_t width = partial_floats(w->a), slot = n_queries(b) * width;
    int32_t last = w->lane->index;
    const float *parts = NULL;
    for (int32_t i = 0, keys[2]; segment_at(b, i, keys); place += cost_of(b, keys), i++) {
        int32_t lane = owner(w, place, cost_of(b, keys));
        if (lane == w->lane->index) continue;
        parts = lane == last ? parts + slot : lane_room(w->lane, lane);
        last = lane;
        for (int32_t j = 0; j < n_queries(b); j++) {
            const float *part = parts + j * width;
            if (!sees(&room->queries[slot_of(b, j)], keys)) continue;
            merge(out_of(w->a, b, j), &totals[j], (struct total){part[0], part[1]},
                  part + PARTIAL_HEAD, w->a->head_dim);
        }
    }
}

static void run_blocks(const struct work *w) {
    struct query_room room;
    struct total totals[QUERIES_MAX];
    struct query_block b = {0}, open = {0}; // open: its first segment is here, its last elsewhere
    int64_t place = 0, open_place = 0;
    bool cut_any = false;
    for (; next_block(w, &b); place += cost_of_block(&b)) {
        int32_t lanes[2], self = w->lane->index;
        owners(w, &b, place, lanes);
        const bool cut = lanes[0] != lanes[1];
        cut_any |= cut;
        if (self < lanes[0] || self > lanes[1]) continue;
        run_block(w, &b, place, lanes, &room, totals);
        if (!cut) finish(w->a, &b, totals);
        if (!cut || lanes[0] != self) continue;
        open = b;
        open_place = place;
    }
    if (!cut_any) return;
    lane_barrier(w->lane);
    if (open.n_tokens == 0) return;
    merge_others(w, &open, open_place, &room, totals);
    finish(w->a, &open, totals);
}

// Runs the portions of whole blocks that this lane gets.
static void take_blocks(const struct work *w, int64_t n_blocks) {
    struct query_room room;
    struct total totals[QUERIES_MAX];
    struct query_block b = {0};
    int64_t at = -1; // number of b
    for (int64_t range[2] = {0}; lane_take(w->lane, n_blocks, 1, range);) {
        if (range[0] <= at) at = -1, b = (struct query_block){0}; // of another lane's share
        for (; at + 1 < range[1]; at++) {
            (void)next_block(w, &b);
            if (at + 1 < range[0]) continue;
            start_queries(w->a, &b, &room);
            start_totals(w->a, &b, totals);
            for (int32_t i = 0, keys[2]; segment_at(&b, i, keys); i++)
                run_segment(w, &b, &room, keys, totals, NULL);
            finish(w->a, &b, totals);
        }
    }
}

// The kv heads of a block: all, so that memory is read in sequence, where their queries fit and
// lanes get nearly equal shares of the segments.
static int32_t groups_of_block(const struct work *w) {
    const struct attention_args *a = w->a;
    const int64_t n_heads = (int64_t)w->tokens_max * (a->n_heads / a->n_kv_heads);
    const int64_t tiles = (n_heads + TILE_QUERIES - 1) / TILE_QUERIES;
    if (tiles * TILE_QUERIES * a->n_kv_heads > slots_max(a)) return 1;
    if (n_heads * a->n_kv_heads > heads_of_block(a)) return 1;
    int64_t segments = 0, lanes = w->lane->count;
    for (int64_t t = 0; t < a->n_tokens; t++) {
        const int32_t last = a->positions[t], first = last + 1 - n_keys(a, t);
        segments += last / segment_keys(a, t) - first / segment_keys(a, t) + 1;
    }
    segments /= w->tokens_max;
    return 8 * ((segments + lanes - 1) / lanes * lanes) <= 9 * segments ? a->n_kv_heads : 1;
}

void attention_work(const struct lane *lane, const struct attention_args *a, attend_fn *attend) {
    ASSERT(a->head_dim <= HEAD_DIM_MAX);
    ASSERT(a->n_heads % a->n_kv_heads == 0);
    ASSERT(dtype_bytes(a->k_type, (uint64_t)a->head_dim) > 0);
    ASSERT(dtype_bytes(a->v_type, (uint64_t)a->head_dim) > 0);
    if (a->n_tokens == 0) return;
    struct work w = {.a = a, .lane = lane, .attend = attend};
    struct query_block b = {0};
    int64_t tokens = (int64_t)a->n_tokens * a->n_kv_heads / (lane->count * BLOCKS_A_LANE);
    w.tokens_max = tokens < 1 ? 1 : tokens > QUERIES_MAX ? QUERIES_MAX : (int32_t)tokens;
    w.heads_max = heads_of_block(a);
    w.n_groups = groups_of_block(&w);
    int64_t n_blocks = 0;
    bool can_cut = false;
    for (; next_block(&w, &b); n_blocks++) {
        w.total += cost_of_block(&b);
        can_cut |= b.first_key / b.segment_keys != b.last_key / b.segment_keys;
    }
    if (!can_cut || n_blocks >= (int64_t)BLOCKS_TAKEN * lane->count)
        take_blocks(&w, n_blocks);
    else
        run_blocks(&w);
}
