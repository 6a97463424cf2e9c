/* attention_neon.c: attention with NEON.
 *
 * A query is one head of one token. Each goes through its keys page by page with an online softmax,
 * so the order of its operations depends on its position and window alone. Reads the cache rows of
 * a query's keys and no others; writes out. Any even head_dim up to HEAD_DIM_MAX; multiples of 32
 * for types with blocks. Owns nothing; lanes do not meet. Simpler than the x86 kernel: queries do
 * not share a reading of the cache. Emulated by qemu, not run on ARM hardware. Tested by
 * tests/kernels/check_ops.c.
 */
#include "kernels/cpu/arm/attention_neon.h"
#include "kernels/cpu/arm/vector_neon.h"

#include "base/err.h"
#include "base/inline.h"

#include <math.h>
#include <string.h>

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

// Loads four elements from i on, with zeros past n. i is a multiple of 4.
INLINE float32x4_t load(const char *row, int32_t i, int32_t n, enum dtype type) {
    if (type == DTYPE_Q8_0 || type == DTYPE_Q4_0) {
        const bool is_q8_0 = type == DTYPE_Q8_0;
        const char *block = row + i / 32 * (is_q8_0 ? BLOCK_BYTES_Q8_0 : BLOCK_BYTES_Q4_0);
        float16_t d;
        int32_t bytes;
        memcpy(&d, block, sizeof d);
        memcpy(&bytes, block + sizeof d + i % (is_q8_0 ? 32 : 16), sizeof bytes);
        if (!is_q8_0) bytes = bytes >> i / 16 % 2 * 4 & 0x0f0f0f0f;
        int8x8_t q = vreinterpret_s8_s32(vdup_n_s32(bytes));
        int16x8_t words = vmovl_s8(is_q8_0 ? q : vsub_s8(q, vdup_n_s8(8)));
        return vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), (float)d);
    }
    const size_t element_bytes = type == DTYPE_F32 ? 4 : 2;
    const void *p = row + (size_t)i * element_bytes;
    float rest[4] = {0};
    if (n - i < 4) p = memcpy(rest, p, (size_t)(n - i) * element_bytes);
    if (type == DTYPE_F32) return vld1q_f32(p);
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

// The order for a score is eight running sums over the dimensions, then the sum of the eight.
INLINE void score_keys(struct query *query, const struct span *s, enum dtype type) {
    for (int32_t key = 0; key < s->n_keys; key++) {
        const char *row = s->k + key * s->k_stride;
        float32x4_t a = vdupq_n_f32(0), b = a;
        int32_t i = 0;
        for (; i + 8 <= s->head_dim; i += 8) {
            a = vfmaq_f32(a, vld1q_f32(query->q + i), load(row, i, s->head_dim, type));
            b = vfmaq_f32(b, vld1q_f32(query->q + i + 4), load(row, i + 4, s->head_dim, type));
        }
        for (; i < s->head_dim; i += 4)
            a = vfmaq_f32(a, vld1q_f32(query->q + i), load(row, i, s->head_dim, type));
        query->scores[key] = vaddvq_f32(vaddq_f32(a, b));
    }
}

// Adds the span's V rows times the weights, 16 dimensions at a time.
INLINE void add_values(struct query *query, const struct span *s, enum dtype type) {
    int32_t i = 0;
    for (; i + 16 <= s->head_dim; i += 16) {
        float32x4_t sums[4];
        for (int j = 0; j < 4; j++) sums[j] = vld1q_f32(query->sum_v + i + (ptrdiff_t)4 * j);
        for (int32_t key = 0; key < s->n_keys; key++) {
            const char *row = s->v + key * s->v_stride;
            for (int j = 0; j < 4; j++) {
                float32x4_t v = load(row, i + 4 * j, s->head_dim, type);
                sums[j] = vfmaq_n_f32(sums[j], v, query->scores[key]);
            }
        }
        for (int j = 0; j < 4; j++) vst1q_f32(query->sum_v + i + (ptrdiff_t)4 * j, sums[j]);
    }
    for (; i < s->head_dim; i += 4) {
        float32x4_t sum = vld1q_f32(query->sum_v + i);
        for (int32_t key = 0; key < s->n_keys; key++) {
            float32x4_t v = load(s->v + key * s->v_stride, i, s->head_dim, type);
            sum = vfmaq_n_f32(sum, v, query->scores[key]);
        }
        vst1q_f32(query->sum_v + i, sum);
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

static void attend_span(const struct attention_args *a, struct query *query, const struct span *s) {
#define KV_TYPE(NAME, name) \
    if (a->k_type == DTYPE_##NAME) score_keys(query, s, DTYPE_##NAME);
#include "kernels/kv_types.def"
#undef KV_TYPE
    weigh(query, s->n_keys, a->head_dim, a->softcap);
#define KV_TYPE(NAME, name) \
    if (a->v_type == DTYPE_##NAME) add_values(query, s, DTYPE_##NAME);
#include "kernels/kv_types.def"
#undef KV_TYPE
}

static int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }

// Computes one head of one token. Items are in the order of tokens, then heads.
static void attend(const struct attention_args *a, int64_t item, struct query *query) {
    const int64_t token = item / a->n_heads, head = item % a->n_heads;
    const int32_t *pages = a->pages + (int64_t)a->sequences[token] * a->max_pages;
    const int64_t row_elements = (int64_t)a->n_kv_heads * a->head_dim;
    const int64_t kv_head = head / (a->n_heads / a->n_kv_heads);
    const int64_t end = (int64_t)a->positions[token] + 1;
    const float *q = a->q + item * a->head_dim;
    query->max = a->sinks ? a->sinks[head] : -INFINITY;
    query->sum = a->sinks ? 1 : 0;
    memset(query->q, 0, sizeof query->q);
    memset(query->sum_v, 0, sizeof query->sum_v);
    for (int32_t i = 0; i < a->head_dim; i++) query->q[i] = q[i] * a->scale;
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
        attend_span(a, query, &s);
    }
    float *out = a->out + item * a->head_dim;
    for (int32_t i = 0; i < a->head_dim; i++) out[i] = query->sum_v[i] / query->sum;
}

// Lanes take every lane->count-th item, so that each gets early and late tokens alike.
void attention_neon(const struct lane *lane, const struct attention_args *a) {
    ASSERT(a->order == KV_BY_ROW);
    ASSERT(a->head_dim <= HEAD_DIM_MAX);
    ASSERT(a->n_heads % a->n_kv_heads == 0);
    ASSERT(dtype_bytes(a->k_type, (uint64_t)a->head_dim) > 0);
    ASSERT(dtype_bytes(a->v_type, (uint64_t)a->head_dim) > 0);
    struct query query;
    for (int64_t item = lane->index; item < (int64_t)a->n_tokens * a->n_heads; item += lane->count)
        attend(a, item, &query);
}
