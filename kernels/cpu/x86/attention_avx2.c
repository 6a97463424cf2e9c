/* attention_avx2.c: attention with AVX2.
 *
 * A query is one head of one token. Up to four queries that read the same keys go through the cache
 * together, page by page: a vector of K or V is loaded (and converted from F16 or Q8_0 to floats)
 * once for all four. Each query keeps its own online softmax, and the order of its operations
 * depends on its position and window alone, so the other queries change no bit of its result. Reads
 * the cache rows of a query's keys and no others; writes out. Any even head_dim up to HEAD_DIM_MAX;
 * multiples of 32 for Q8_0. Owns nothing; lanes do not meet. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cpu/x86/attention_avx2.h"
#include "kernels/cpu/x86/vector_avx2.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

enum { TOGETHER = 4 }; // queries: with two vectors each they fill half of the 16 registers

struct query {
    float q[HEAD_DIM_MAX];     // times scale; zeros up to a multiple of 8
    float sum_v[HEAD_DIM_MAX]; // V rows times their weights e^(score - max)
    float scores[KV_PAGE];     // of the current page, then its weights
    float max, sum;            // maximum of the scores so far; sum of the weights so far
    int64_t token, head, first_key, last_key;
};

// The keys of one page that a query sees: one head's part of rows of the cache.
struct span {
    const char *k, *v;          // of the first key
    int64_t k_stride, v_stride; // bytes from a key to the next
    int32_t n_keys, head_dim;
};

// Loads eight elements from i on, with zeros past n. i is a multiple of 8.
INLINE __m256 load(const char *row, int32_t i, int32_t n, enum dtype type) {
    if (type == DTYPE_Q8_0) {
        const char *block = row + i / 32 * 34;
        uint16_t d;
        memcpy(&d, block, sizeof d);
        __m128i q = _mm_loadl_epi64((const void *)(block + sizeof d + i % 32));
        __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q));
        return _mm256_mul_ps(_mm256_set1_ps(_cvtsh_ss(d)), value);
    }
    if (type == DTYPE_F32) {
        const float *p = (const float *)(const void *)row + i;
        return n - i >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, first_lanes_avx2(n - i));
    }
    uint16_t rest[8] = {0};
    const void *p = row + 2 * i;
    if (n - i < 8) p = memcpy(rest, p, (size_t)(n - i) * sizeof *rest);
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

// Scores n queries (a constant after inlining) with every key of the span, two keys at a time. The
// order for a score is eight running sums over the dimensions, then the sum of the eight.
INLINE void score_keys(struct query *queries, const struct span *s, int n, enum dtype type) {
    for (int32_t key = 0; key < s->n_keys; key += 2) {
        const char *row = s->k + key * s->k_stride;
        const char *next = key + 1 < s->n_keys ? row + s->k_stride : row;
        __m256 a[TOGETHER], b[TOGETHER];
        UNROLL for (int j = 0; j < n; j++) a[j] = b[j] = _mm256_setzero_ps();
        for (int32_t i = 0; i < s->head_dim; i += 8) {
            __m256 k = load(row, i, s->head_dim, type), l = load(next, i, s->head_dim, type);
            UNROLL for (int j = 0; j < n; j++) {
                __m256 q = _mm256_loadu_ps(queries[j].q + i);
                a[j] = _mm256_fmadd_ps(q, k, a[j]);
                b[j] = _mm256_fmadd_ps(q, l, b[j]);
            }
        }
        UNROLL for (int j = 0; j < n; j++) {
            queries[j].scores[key] = sum_avx2(a[j]);
            queries[j].scores[key + 1] = sum_avx2(b[j]); // an odd last key is scored twice
        }
    }
}

// Adds the span's V rows times the weights to the sums of n queries, 16 dimensions at a time.
INLINE void add_values(struct query *queries, const struct span *s, int n, enum dtype type) {
    for (int32_t i = 0; i < s->head_dim; i += 16) {
        __m256 a[TOGETHER], b[TOGETHER];
        bool wide = i + 8 < s->head_dim;
        UNROLL for (int j = 0; j < n; j++) {
            a[j] = _mm256_loadu_ps(queries[j].sum_v + i);
            b[j] = _mm256_loadu_ps(queries[j].sum_v + i + 8);
        }
        for (int32_t key = 0; key < s->n_keys; key++) {
            const char *row = s->v + key * s->v_stride;
            __m256 v = load(row, i, s->head_dim, type);
            __m256 w = wide ? load(row, i + 8, s->head_dim, type) : v;
            UNROLL for (int j = 0; j < n; j++) {
                __m256 weight = _mm256_broadcast_ss(queries[j].scores + key);
                a[j] = _mm256_fmadd_ps(weight, v, a[j]);
                b[j] = _mm256_fmadd_ps(weight, w, b[j]);
            }
        }
        UNROLL for (int j = 0; j < n; j++) {
            _mm256_storeu_ps(queries[j].sum_v + i, a[j]);
            _mm256_storeu_ps(queries[j].sum_v + i + 8, b[j]);
        }
    }
}

typedef void (*span_fn)(struct query *queries, const struct span *s);

#define SPAN_FUNCTIONS(work, n)                                                \
    static void work##_f32_##n(struct query *queries, const struct span *s) {  \
        work(queries, s, n, DTYPE_F32);                                        \
    }                                                                          \
    static void work##_f16_##n(struct query *queries, const struct span *s) {  \
        work(queries, s, n, DTYPE_F16);                                        \
    }                                                                          \
    static void work##_q8_0_##n(struct query *queries, const struct span *s) { \
        work(queries, s, n, DTYPE_Q8_0);                                       \
    }
SPAN_FUNCTIONS(score_keys, 1)
SPAN_FUNCTIONS(score_keys, 2)
SPAN_FUNCTIONS(score_keys, 3)
SPAN_FUNCTIONS(score_keys, 4)
SPAN_FUNCTIONS(add_values, 1)
SPAN_FUNCTIONS(add_values, 2)
SPAN_FUNCTIONS(add_values, 3)
SPAN_FUNCTIONS(add_values, 4)

enum cache_row { ROW_F32, ROW_F16, ROW_Q8_0, ROW_TYPES };

static enum cache_row row_of(enum dtype type) {
    return type == DTYPE_Q8_0 ? ROW_Q8_0 : type == DTYPE_F16 ? ROW_F16 : ROW_F32;
}

static const span_fn SCORE_KEYS[ROW_TYPES][TOGETHER] = {
    [ROW_F32] = {score_keys_f32_1, score_keys_f32_2, score_keys_f32_3, score_keys_f32_4},
    [ROW_F16] = {score_keys_f16_1, score_keys_f16_2, score_keys_f16_3, score_keys_f16_4},
    [ROW_Q8_0] = {score_keys_q8_0_1, score_keys_q8_0_2, score_keys_q8_0_3, score_keys_q8_0_4},
};
static const span_fn ADD_VALUES[ROW_TYPES][TOGETHER] = {
    [ROW_F32] = {add_values_f32_1, add_values_f32_2, add_values_f32_3, add_values_f32_4},
    [ROW_F16] = {add_values_f16_1, add_values_f16_2, add_values_f16_3, add_values_f16_4},
    [ROW_Q8_0] = {add_values_q8_0_1, add_values_q8_0_2, add_values_q8_0_3, add_values_q8_0_4},
};

// Caps scores at c tanh(s / c), where tanh(x) is 1 - 2 / (e^(2x) + 1).
static void cap_scores(float *scores, int32_t n, float cap) {
    const __m256 one = _mm256_set1_ps(1), two = _mm256_set1_ps(2), c = _mm256_set1_ps(cap);
    for (int32_t i = 0; i < n; i += 8) {
        __m256 s = _mm256_loadu_ps(scores + i);
        __m256 e = exp_avx2(_mm256_mul_ps(s, _mm256_set1_ps(2 / cap)));
        __m256 tanh = _mm256_sub_ps(one, _mm256_div_ps(two, _mm256_add_ps(e, one)));
        _mm256_storeu_ps(scores + i, _mm256_mul_ps(c, tanh));
    }
}

static float largest(const float *scores, int32_t n) {
    __m256 top = _mm256_loadu_ps(scores);
    for (int32_t i = 8; i < n; i += 8) top = _mm256_max_ps(top, _mm256_loadu_ps(scores + i));
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

// Turns the n scores of a page into weights, and rescales the earlier sums if one of the scores is
// a new maximum.
static void weigh(struct query *query, int32_t n, int32_t head_dim, float cap) {
    float *scores = query->scores;
    if (cap > 0) cap_scores(scores, n, cap);
    for (int32_t i = n; i % 8; i++) scores[i] = -INFINITY;
    float top = largest(scores, n);
    if (top > query->max) {
        __m256 shrink = exp_avx2(_mm256_set1_ps(query->max - top));
        query->max = top;
        query->sum *= _mm256_cvtss_f32(shrink);
        for (int32_t i = 0; i < head_dim; i += 8) {
            __m256 sum = _mm256_loadu_ps(query->sum_v + i);
            _mm256_storeu_ps(query->sum_v + i, _mm256_mul_ps(sum, shrink));
        }
    }
    __m256 sum = _mm256_setzero_ps(), max = _mm256_set1_ps(query->max);
    for (int32_t i = 0; i < n; i += 8) {
        __m256 weight = exp_avx2(_mm256_sub_ps(_mm256_loadu_ps(scores + i), max));
        _mm256_storeu_ps(scores + i, weight);
        sum = _mm256_add_ps(sum, weight);
    }
    query->sum += sum_avx2(sum);
}

// The part of a page that a query sees: keys first..last-1, empty if first >= last.
static void keys_in_page(const struct query *query, int64_t page, int64_t *first, int64_t *last) {
    *first = query->first_key > page * KV_PAGE ? query->first_key : page * KV_PAGE;
    *last = query->last_key + 1 < (page + 1) * KV_PAGE ? query->last_key + 1 : (page + 1) * KV_PAGE;
}

static void attend_span(const struct attention_args *a, struct query *queries, int n, int64_t first,
                        int64_t last) {
    const int32_t *pages = a->pages + (int64_t)a->sequences[queries->token] * a->max_pages;
    int64_t row = (int64_t)pages[first / KV_PAGE] * KV_PAGE + first % KV_PAGE;
    int64_t kv_head = queries->head / (a->n_heads / a->n_kv_heads);
    int64_t row_elements = (int64_t)a->n_kv_heads * a->head_dim;
    uint64_t place = (uint64_t)(row * row_elements + kv_head * a->head_dim);
    struct span s = {.k = (const char *)a->k_cache + dtype_bytes(a->k_type, place),
                     .v = (const char *)a->v_cache + dtype_bytes(a->v_type, place),
                     .k_stride = (int64_t)dtype_bytes(a->k_type, (uint64_t)row_elements),
                     .v_stride = (int64_t)dtype_bytes(a->v_type, (uint64_t)row_elements),
                     .n_keys = (int32_t)(last - first),
                     .head_dim = a->head_dim};
    SCORE_KEYS[row_of(a->k_type)][n - 1](queries, &s);
    for (int j = 0; j < n; j++) weigh(&queries[j], s.n_keys, a->head_dim, a->softcap);
    ADD_VALUES[row_of(a->v_type)][n - 1](queries, &s);
}

// Computes queries of one sequence and one kv head, in order of tokens. In each page, neighbouring
// queries that see the same keys are computed together; they differ only in the first and the last
// page of each.
static void attend(const struct attention_args *a, struct query *queries, int n) {
    int64_t first_key = queries->first_key, last_key = queries->last_key;
    for (int j = 1; j < n; j++) {
        if (queries[j].first_key < first_key) first_key = queries[j].first_key;
        if (queries[j].last_key > last_key) last_key = queries[j].last_key;
    }
    for (int64_t page = first_key / KV_PAGE; page <= last_key / KV_PAGE; page++) {
        int j = 0;
        while (j < n) {
            int64_t first, last, next_first, next_last;
            int same = 1;
            keys_in_page(&queries[j], page, &first, &last);
            for (; j + same < n; same++) {
                keys_in_page(&queries[j + same], page, &next_first, &next_last);
                if (next_first != first || next_last != last) break;
            }
            if (first < last) attend_span(a, queries + j, same, first, last);
            j += same;
        }
    }
    for (int j = 0; j < n; j++) {
        float *out = a->out + (queries[j].token * a->n_heads + queries[j].head) * a->head_dim;
        for (int32_t i = 0; i < a->head_dim; i++) out[i] = queries[j].sum_v[i] / queries[j].sum;
    }
}

static int64_t n_keys(const struct attention_args *a, int64_t token) {
    int64_t all = (int64_t)a->positions[token] + 1;
    return a->window > 0 && all > a->window ? a->window : all;
}

// Fills the query of an item; items are in the order (kv head, token, head of the kv head).
static void start_query(const struct attention_args *a, int64_t item, struct query *query) {
    int64_t share = a->n_heads / a->n_kv_heads, per_kv_head = a->n_tokens * share;
    query->token = item % per_kv_head / share;
    query->head = item / per_kv_head * share + item % share;
    query->last_key = a->positions[query->token];
    query->first_key = query->last_key + 1 - n_keys(a, query->token);
    query->max = a->sinks ? a->sinks[query->head] : -INFINITY;
    query->sum = a->sinks ? 1 : 0;
    const float *q = a->q + (query->token * a->n_heads + query->head) * a->head_dim;
    int32_t i = 0;
    for (; i < a->head_dim; i++) query->q[i] = q[i] * a->scale;
    for (; i % 8; i++) query->q[i] = 0;
    memset(query->sum_v, 0, ((size_t)a->head_dim + 15) / 16 * 16 * sizeof *query->sum_v);
}

// The first item of a lane, so that every lane gets the same number of keys: the end of a prompt
// sees more keys than its start.
static int64_t share_start(const struct attention_args *a, int64_t index, int64_t count) {
    int64_t share = a->n_heads / a->n_kv_heads, per_token = 0;
    for (int64_t t = 0; t < a->n_tokens; t++) per_token += n_keys(a, t);
    int64_t total = per_token * a->n_heads, want = total * index / count;
    int64_t kv_head = want / (per_token * share);
    int64_t item = kv_head * a->n_tokens * share, left = want - kv_head * per_token * share;
    for (int64_t t = 0; t < a->n_tokens && kv_head < a->n_kv_heads; t++) {
        int64_t keys = n_keys(a, t);
        if (left < keys * share) return item + left / keys;
        left -= keys * share;
        item += share;
    }
    return item;
}

void attention_avx2(const struct lane *lane, const struct attention_args *a) {
    ASSERT(a->head_dim <= HEAD_DIM_MAX);
    ASSERT(a->n_heads % a->n_kv_heads == 0);
    ASSERT(a->head_dim % 32 == 0 || (a->k_type != DTYPE_Q8_0 && a->v_type != DTYPE_Q8_0));
    if (a->n_tokens == 0) return;
    struct query queries[TOGETHER];
    int64_t item = share_start(a, lane->index, lane->count);
    int64_t last = share_start(a, lane->index + 1, lane->count);
    int64_t per_kv_head = (int64_t)a->n_tokens * (a->n_heads / a->n_kv_heads);
    while (item < last) {
        int n = 0;
        do start_query(a, item++, &queries[n++]);
        while (n < TOGETHER && item < last && item % per_kv_head != 0 &&
               a->sequences[item % per_kv_head / (a->n_heads / a->n_kv_heads)] ==
                   a->sequences[queries->token]);
        attend(a, queries, n);
    }
}
