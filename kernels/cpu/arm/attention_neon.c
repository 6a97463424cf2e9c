/* attention_neon.c: attention with NEON.
 *
 * A query is one head of one token. Each goes through its keys page by page with an online softmax,
 * so the order of its operations depends on its position and window alone. Up to QUERIES heads of
 * a token that share a KV head are computed together: each element of the cache is loaded, and made
 * a float, once for them. Reads the cache rows of a query's keys and no others; writes out. Any
 * even head_dim up to HEAD_DIM_MAX; multiples of 32 for types with blocks. Owns nothing; lanes do
 * not meet. Simpler than the x86 kernel: the tokens of a prompt do not share a reading of the
 * cache. Emulated by qemu, not run on ARM hardware. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cpu/arm/attention_neon.h"
#include "kernels/cpu/arm/vector_neon.h"

#include "base/err.h"
#include "base/inline.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define UNROLL _Pragma("GCC unroll 16")

enum { QUERIES = 4 };

struct query {
    float q[HEAD_DIM_MAX + 4];     // times scale; zeros up to a multiple of 4
    float sum_v[HEAD_DIM_MAX + 4]; // V rows times their weights e^(score - max)
    float scores[KV_PAGE];         // of the current page, then its weights
    float max, sum;                // maximum of the scores so far; sum of the weights so far
};

// The keys of one page that a query sees: one head's part of rows of the cache.
struct span {
    const char *k, *v;          // of the first key
    int64_t k_stride, v_stride; // bytes from a key to the next
    int32_t n_keys, head_dim;
};

// Loads eight elements from i on, a multiple of 8.
INLINE void load8(const char *row, int32_t i, enum dtype type, float32x4_t out[2]) {
    if (type == DTYPE_F32) {
        out[0] = vld1q_f32((const float *)(const void *)row + i);
        out[1] = vld1q_f32((const float *)(const void *)row + i + 4);
        return;
    }
    if (type == DTYPE_F16) {
        const float16x8_t v = vld1q_f16((const float16_t *)(const void *)row + i);
        out[0] = vcvt_f32_f16(vget_low_f16(v));
        out[1] = vcvt_high_f32_f16(v);
        return;
    }
    const bool is_q8_0 = type == DTYPE_Q8_0;
    const char *block = row + i / 32 * (is_q8_0 ? BLOCK_BYTES_Q8_0 : BLOCK_BYTES_Q4_0);
    float16_t d;
    memcpy(&d, block, sizeof d);
    int8x8_t q = vld1_s8((const int8_t *)block + sizeof d + i % (is_q8_0 ? 32 : 16));
    if (!is_q8_0) {
        const uint8x8_t nibbles = vreinterpret_u8_s8(q), low = vand_u8(nibbles, vdup_n_u8(15));
        q = vreinterpret_s8_u8(i / 16 % 2 ? vshr_n_u8(nibbles, 4) : low);
        q = vsub_s8(q, vdup_n_s8(8));
    }
    const int16x8_t words = vmovl_s8(q);
    out[0] = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), (float)d);
    out[1] = vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(words)), (float)d);
}

// Loads four elements from i on, a multiple of 4, with zeros past n, of a type without blocks.
INLINE float32x4_t load4(const char *row, int32_t i, int32_t n, enum dtype type) {
    const size_t element_bytes = type == DTYPE_F32 ? 4 : 2;
    const void *p = row + (size_t)i * element_bytes;
    float rest[4] = {0};
    if (n - i < 4) p = memcpy(rest, p, (size_t)(n - i) * element_bytes);
    if (type == DTYPE_F32) return vld1q_f32(p);
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

// The order for a score is eight running sums over the dimensions, then the sum of the eight. n,
// the number of queries, is a constant after inlining.
INLINE void score_keys(struct query *queries, int n, const struct span *s, enum dtype type) {
    for (int32_t key = 0; key < s->n_keys; key++) {
        const char *row = s->k + key * s->k_stride;
        float32x4_t a[QUERIES], b[QUERIES];
        int32_t i = 0;
        UNROLL for (int q = 0; q < n; q++) a[q] = b[q] = vdupq_n_f32(0);
        for (; i + 8 <= s->head_dim; i += 8) {
            float32x4_t k[2];
            load8(row, i, type, k);
            UNROLL for (int q = 0; q < n; q++) {
                a[q] = vfmaq_f32(a[q], vld1q_f32(queries[q].q + i), k[0]);
                b[q] = vfmaq_f32(b[q], vld1q_f32(queries[q].q + i + 4), k[1]);
            }
        }
        for (; type != DTYPE_Q8_0 && type != DTYPE_Q4_0 && i < s->head_dim; i += 4) {
            const float32x4_t k = load4(row, i, s->head_dim, type);
            UNROLL for (int q = 0; q < n; q++) {
                a[q] = vfmaq_f32(a[q], vld1q_f32(queries[q].q + i), k);
            }
        }
        UNROLL for (int q = 0; q < n; q++) {
            queries[q].scores[key] = vaddvq_f32(vaddq_f32(a[q], b[q]));
        }
    }
}

// Adds the span's V rows times the weights of each query, 8 or 16 dimensions from i on.
INLINE void add_dims(struct query *queries, int n, const struct span *s, enum dtype type, int32_t i,
                     int vectors) {
    float32x4_t sums[QUERIES][4];
    UNROLL for (int q = 0; q < n; q++) {
        UNROLL for (int j = 0; j < vectors; j++) {
            sums[q][j] = vld1q_f32(queries[q].sum_v + i + (ptrdiff_t)4 * j);
        }
    }
    for (int32_t key = 0; key < s->n_keys; key++) {
        float32x4_t v[4];
        UNROLL for (int j = 0; j < vectors; j += 2) {
            load8(s->v + key * s->v_stride, i + 4 * j, type, v + j);
        }
        UNROLL for (int q = 0; q < n; q++) {
            UNROLL for (int j = 0; j < vectors; j++) {
                sums[q][j] = vfmaq_n_f32(sums[q][j], v[j], queries[q].scores[key]);
            }
        }
    }
    UNROLL for (int q = 0; q < n; q++) {
        UNROLL for (int j = 0; j < vectors; j++) {
            vst1q_f32(queries[q].sum_v + i + (ptrdiff_t)4 * j, sums[q][j]);
        }
    }
}

INLINE void add_values(struct query *queries, int n, const struct span *s, enum dtype type) {
    int32_t i = 0;
    for (; i + 16 <= s->head_dim; i += 16) add_dims(queries, n, s, type, i, 4);
    if (type == DTYPE_Q8_0 || type == DTYPE_Q4_0) return;
    for (; i + 8 <= s->head_dim; i += 8) add_dims(queries, n, s, type, i, 2);
    for (; i < s->head_dim; i += 4) {
        for (int q = 0; q < n; q++) {
            float32x4_t sum = vld1q_f32(queries[q].sum_v + i);
            for (int32_t key = 0; key < s->n_keys; key++) {
                const float32x4_t v = load4(s->v + key * s->v_stride, i, s->head_dim, type);
                sum = vfmaq_n_f32(sum, v, queries[q].scores[key]);
            }
            vst1q_f32(queries[q].sum_v + i, sum);
        }
    }
}

// Turns the n scores of a page into weights, and rescales the earlier sums if one of the scores is
// a new maximum. A NaN stays one.
static void weigh(struct query *query, int32_t n, int32_t head_dim, float cap) {
    float *scores = query->scores;
    for (int32_t i = n; i % 4; i++) scores[i] = 0;
    for (int32_t i = 0; cap > 0 && i < n; i += 4)
        vst1q_f32(scores + i, cap_neon(vld1q_f32(scores + i), cap));
    for (int32_t i = n; i % 4; i++) scores[i] = -INFINITY;
    float32x4_t largest = vld1q_f32(scores);
    for (int32_t i = 4; i < n; i += 4) largest = vmaxq_f32(largest, vld1q_f32(scores + i));
    const float top = vmaxvq_f32(largest);
    if (top > query->max) {
        float32x4_t shrink = exp_neon(vdupq_n_f32(query->max - top));
        query->max = top;
        query->sum *= vgetq_lane_f32(shrink, 0);
        for (int32_t i = 0; i < head_dim; i += 4)
            vst1q_f32(query->sum_v + i, vmulq_f32(vld1q_f32(query->sum_v + i), shrink));
    }
    float32x4_t sum = vdupq_n_f32(0);
    for (int32_t i = 0; i < n; i += 4) {
        float32x4_t score = vsubq_f32(vld1q_f32(scores + i), vdupq_n_f32(query->max));
        float32x4_t weight = exp_neon(score);
        vst1q_f32(scores + i, weight);
        sum = vaddq_f32(sum, weight);
    }
    query->sum += vaddvq_f32(sum);
}

// n queries, a constant after inlining.
INLINE void attend_span(const struct attention_args *a, struct query *queries, int n,
                        const struct span *s) {
#define KV_TYPE(NAME, name) \
    if (a->k_type == DTYPE_##NAME) score_keys(queries, n, s, DTYPE_##NAME);
#include "kernels/kv_types.def"
#undef KV_TYPE
    for (int q = 0; q < n; q++) weigh(queries + q, s->n_keys, a->head_dim, a->softcap);
#define KV_TYPE(NAME, name) \
    if (a->v_type == DTYPE_##NAME) add_values(queries, n, s, DTYPE_##NAME);
#include "kernels/kv_types.def"
#undef KV_TYPE
}

static void attend_queries(const struct attention_args *a, struct query *queries, int n,
                           const struct span *s) {
    if (n == 1) attend_span(a, queries, 1, s);
    if (n == 2) attend_span(a, queries, 2, s);
    if (n == 3) attend_span(a, queries, 3, s);
    if (n == 4) attend_span(a, queries, 4, s);
}

static int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }

static void begin_query(const struct attention_args *a, int64_t token, int64_t head,
                        struct query *query) {
    const float *q = a->q + (token * a->n_heads + head) * a->head_dim;
    query->max = a->sinks ? a->sinks[head] : -FLT_MAX; // beside it minus infinity has no weight
    query->sum = a->sinks ? 1 : 0;
    memset(query->q, 0, sizeof query->q);
    memset(query->sum_v, 0, sizeof query->sum_v);
    for (int32_t i = 0; i < a->head_dim; i++) query->q[i] = q[i] * a->scale;
}

// Computes n heads of one token from a head on, which share a KV head.
static void attend(const struct attention_args *a, int64_t token, int64_t head, int n) {
    const int32_t *pages = a->pages + (int64_t)a->sequences[token] * a->max_pages;
    const int64_t row_elements = (int64_t)a->n_kv_heads * a->head_dim;
    const int64_t kv_head = head / (a->n_heads / a->n_kv_heads);
    const int64_t end = (int64_t)a->positions[token] + 1;
    struct query queries[QUERIES];
    for (int q = 0; q < n; q++) begin_query(a, token, head + q, queries + q);
    int64_t key = a->window > 0 && end > a->window ? end - a->window : 0;
    for (int64_t last; key < end; key = last) {
        last = min_i64(end, (key / KV_PAGE + 1) * KV_PAGE);
        const int64_t row = (int64_t)pages[key / KV_PAGE] * KV_PAGE + key % KV_PAGE;
        const uint64_t first = (uint64_t)(row * row_elements + kv_head * a->head_dim);
        const struct span s = {.k = (const char *)a->k_cache + dtype_bytes(a->k_type, first),
                               .v = (const char *)a->v_cache + dtype_bytes(a->v_type, first),
                               .k_stride = (int64_t)dtype_bytes(a->k_type, (uint64_t)row_elements),
                               .v_stride = (int64_t)dtype_bytes(a->v_type, (uint64_t)row_elements),
                               .n_keys = (int32_t)(last - key),
                               .head_dim = a->head_dim};
        attend_queries(a, queries, n, &s);
    }
    for (int q = 0; q < n; q++) {
        float *out = a->out + (token * a->n_heads + head + q) * a->head_dim;
        for (int32_t i = 0; i < a->head_dim; i++) out[i] = queries[q].sum_v[i] / queries[q].sum;
    }
}

// How many heads of a KV head are computed together: fewer where lanes would have nothing to do.
static int32_t heads_together(const struct lane *lane, const struct attention_args *a) {
    const int32_t of_kv_head = a->n_heads / a->n_kv_heads;
    int32_t n = of_kv_head < QUERIES ? of_kv_head : QUERIES;
    while (n > 1 && (int64_t)a->n_tokens * a->n_kv_heads * ((of_kv_head + n - 1) / n) < lane->count)
        n = (n + 1) / 2;
    return n;
}

// Lanes take every lane->count-th item, so that each gets early and late tokens alike. Items are in
// the order of tokens, then KV heads, then the parts of their heads.
void attention_neon(const struct lane *lane, const struct attention_args *a) {
    ASSERT(a->order == KV_BY_ROW);
    ASSERT(a->head_dim <= HEAD_DIM_MAX);
    ASSERT(a->n_heads % a->n_kv_heads == 0);
    ASSERT(dtype_bytes(a->k_type, (uint64_t)a->head_dim) > 0);
    ASSERT(dtype_bytes(a->v_type, (uint64_t)a->head_dim) > 0);
    const int64_t of_kv_head = a->n_heads / a->n_kv_heads, most = heads_together(lane, a);
    const int64_t parts = (of_kv_head + most - 1) / most, of_token = a->n_kv_heads * parts;
    for (int64_t item = lane->index; item < a->n_tokens * of_token; item += lane->count) {
        const int64_t group = item % of_token / parts, first = item % parts * most;
        const int64_t n = min_i64(most, of_kv_head - first);
        attend(a, item / of_token, group * of_kv_head + first, (int)n);
    }
}
