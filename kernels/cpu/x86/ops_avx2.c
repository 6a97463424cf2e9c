/* ops_avx2.c: embed of F16, rms_norm, rope, kv_store, swiglu and cap_logits with AVX2 and F16C.
 *
 * Takes eight elements at a time and the rest of a row through masks or in plain C. These ops read
 * and write a few kilobytes per token, so a lane gets at least SHARE elements or none. Owns
 * nothing. Must not let an element's value depend on where a batch or a lane's share begins. Tested
 * by tests/kernels/check_ops.c.
 */
#include "kernels/cpu/x86/x86.h"

#include "base/err.h"
#include "kernels/cpu/kv_block.h"
#include "kernels/kv_page.h"
#include "kernels/cpu/rope_heads.h"
#include "kernels/cpu/softplus.h"
#include "kernels/cpu/x86/attention_x86.h"
#include "kernels/cpu/x86/quantize_x86.h"
#include "kernels/cpu/x86/state_x86.h"
#include "kernels/cpu/x86/vector_avx2.h"

#include <math.h>
#include <string.h>

enum { SHARE = 1024 }; // elements that are worth waking a second lane for: about 100 ns

static void embed_f16(const struct lane *lane, const struct embed_args *a) {
    const __m256 scale = _mm256_set1_ps(a->scale);
    int64_t first, last;
    lane_share(lane, a->n_tokens, 1, &first, &last);
    for (int64_t t = first; t < last; t++) {
        ASSERT(a->tokens[t] >= 0 && a->tokens[t] < a->n_rows);
        const uint16_t *row = (const uint16_t *)a->table + (int64_t)a->tokens[t] * a->n_cols;
        float *out = a->out + t * a->n_cols;
        int32_t c = 0;
        for (; c + 8 <= a->n_cols; c += 8) {
            const __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const void *)(row + c)));
            _mm256_storeu_ps(out + c, _mm256_mul_ps(x, scale));
        }
        for (; c < a->n_cols; c++) out[c] = half_to_float(row[c]) * a->scale;
    }
}

// Sums the squares of what is left of x without its mean, in 16 running sums and a masked rest.
static float sum_of_squares(const float *x, int32_t n, float mean) {
    __m256 a = _mm256_setzero_ps(), b = _mm256_setzero_ps(), m = _mm256_set1_ps(mean);
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256 u = _mm256_sub_ps(_mm256_loadu_ps(x + i), m);
        __m256 v = _mm256_sub_ps(_mm256_loadu_ps(x + i + 8), m);
        a = _mm256_fmadd_ps(u, u, a);
        b = _mm256_fmadd_ps(v, v, b);
    }
    for (; i < n; i += 8) {
        const __m256i rest = first_lanes_avx2(n - i);
        __m256 u = _mm256_sub_ps(_mm256_maskload_ps(x + i, rest), m);
        u = _mm256_and_ps(u, _mm256_castsi256_ps(rest));
        a = _mm256_fmadd_ps(u, u, a);
    }
    return sum_avx2(_mm256_add_ps(a, b));
}

// The mean of a row, in 8 running sums and a masked rest.
static float mean_of(const float *x, int32_t n) {
    __m256 a = _mm256_setzero_ps();
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) a = _mm256_add_ps(a, _mm256_loadu_ps(x + i));
    if (i < n) a = _mm256_add_ps(a, _mm256_maskload_ps(x + i, first_lanes_avx2(n - i)));
    return sum_avx2(a) / (float)n;
}

// The numbers that all columns of a row share.
struct row_norm {
    __m256 mean, factor, scale;
};

// The first n of eight floats, then zeros; n is 8 in all calls but the last of a row.
static inline __m256 load_first(const float *x, int32_t n) {
    return n == 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, first_lanes_avx2(n));
}

// n columns of a row of an op's arguments, from column c on: factor * (x - mean) * weight, plus the
// bias and the residual, times scale.
static inline __m256 norm_columns(const struct rms_norm_args *a, int64_t row, int32_t c,
                                  const struct row_norm *norm, int32_t n) {
    const int64_t at = row * a->n_cols + c;
    __m256 v = _mm256_sub_ps(load_first(a->x + at, n), norm->mean);
    v = _mm256_mul_ps(norm->factor, v);
    if (a->weight) v = _mm256_mul_ps(v, load_first(a->weight + c, n));
    if (a->bias) v = _mm256_add_ps(v, load_first(a->bias + c, n));
    if (a->residual) v = _mm256_add_ps(v, load_first(a->residual + at, n));
    return a->scale ? _mm256_mul_ps(v, norm->scale) : v;
}

static void norm_row(const struct rms_norm_args *args, int64_t row) {
    const struct rms_norm_args own = *args, *a = &own; // which no store to out can change
    const int64_t at = row * a->n_cols;
    const float mean = a->centred ? mean_of(a->x + at, a->n_cols) : 0;
    const float square = sum_of_squares(a->x + at, a->n_cols, mean) / (float)a->n_cols;
    const struct row_norm norm = {_mm256_set1_ps(mean), _mm256_set1_ps(1 / sqrtf(square + a->eps)),
                                  _mm256_set1_ps(a->scale ? *a->scale : 1)};
    int32_t c = 0;
    for (; c + 8 <= a->n_cols; c += 8)
        _mm256_storeu_ps(a->out + at + c, norm_columns(a, row, c, &norm, 8));
    if (c == a->n_cols) return;
    const int32_t n = a->n_cols - c;
    _mm256_maskstore_ps(a->out + at + c, first_lanes_avx2(n), norm_columns(a, row, c, &norm, n));
}

static void rms_norm(const struct lane *lane, const struct rms_norm_args *a) {
    for (int64_t rows[2] = {0}; lane_take(lane, a->n_rows, 1 + SHARE / a->n_cols, rows);)
        for (int64_t row = rows[0]; row < rows[1]; row++) norm_row(a, row);
}

// Rotates pairs (2i, 2i+1), four in a vector; the table has cosine and sine side by side.
static void turn_adjacent(const struct rope_heads *heads, int32_t n_rot) {
    const float *const table = heads->table;
    float *const end = heads->first + (int64_t)heads->n * heads->dim;
    int32_t i = 0;
    for (; i + 8 <= n_rot; i += 8) {
        const __m256 turn = _mm256_loadu_ps(table + i);
        const __m256 cosine = _mm256_moveldup_ps(turn), sine = _mm256_movehdup_ps(turn);
        for (float *head = heads->first; head < end; head += heads->dim) {
            const __m256 x = _mm256_loadu_ps(head + i);
            const __m256 crossed = _mm256_mul_ps(_mm256_permute_ps(x, 0xb1), sine);
            _mm256_storeu_ps(head + i, _mm256_fmaddsub_ps(x, cosine, crossed));
        }
    }
    rope_turn_rest_adjacent(heads, i, n_rot);
}

// Rotates pairs (i, i + n_rot/2), eight in two vectors.
static void turn_halves(const struct rope_heads *heads, int32_t n_rot) {
    const float *const table = heads->table;
    float *const end = heads->first + (int64_t)heads->n * heads->dim;
    const int32_t n_pairs = n_rot / 2;
    int32_t i = 0;
    for (; i + 8 <= n_pairs; i += 8) {
        const __m256 low = _mm256_loadu_ps(table + 2 * i);
        const __m256 high = _mm256_loadu_ps(table + 2 * i + 8);
        // Shuffling works within 128-bit halves; the permutation puts pairs in order again.
        const __m256d cosines = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88));
        const __m256d sines = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xdd));
        const __m256 cosine = _mm256_castpd_ps(_mm256_permute4x64_pd(cosines, 0xd8));
        const __m256 sine = _mm256_castpd_ps(_mm256_permute4x64_pd(sines, 0xd8));
        for (float *head = heads->first; head < end; head += heads->dim) {
            const __m256 x = _mm256_loadu_ps(head + i), y = _mm256_loadu_ps(head + n_pairs + i);
            _mm256_storeu_ps(head + i, _mm256_fmsub_ps(x, cosine, _mm256_mul_ps(y, sine)));
            _mm256_storeu_ps(head + n_pairs + i,
                             _mm256_fmadd_ps(x, sine, _mm256_mul_ps(y, cosine)));
        }
    }
    rope_turn_rest_halves(heads, i, n_rot);
}

static void rope(const struct lane *lane, const struct rope_args *a) {
    const int64_t n = (int64_t)a->n_tokens * (a->n_heads + a->n_kv_heads);
    const int64_t grain = a->n_rot < SHARE ? SHARE / a->n_rot : 1;
    for (int64_t items[2] = {0}; lane_take(lane, n, grain, items);) {
        while (items[0] < items[1]) {
            const struct rope_heads heads = rope_heads_at(a, items[0], items[1]);
            a->neox ? turn_halves(&heads, a->n_rot) : turn_adjacent(&heads, a->n_rot);
            items[0] += heads.n;
        }
    }
}

// Activations are quantised as ops.h defines it for the cache, except for infinities and NaNs.
static void store_q8_0(uint8_t *block, const float *x) {
    struct act_head act;
    int8_t bytes[ACT_COLS];
    act_quantize(x, ACT_SUM, bytes, &act);
    bool finite = isfinite(act.scale);
    uint16_t d = finite ? float_to_half(act.scale) : 0x7e00;
    memcpy(block, &d, sizeof d);
    if (finite)
        memcpy(block + sizeof d, bytes, sizeof bytes);
    else
        memset(block + sizeof d, 0, sizeof bytes);
}

// The first of 32 finite numbers whose magnitude is the largest; 0 if all are zeros.
static float largest_of_32(const float *x, const __m256 v[4]) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    __m256 magnitude[4], top = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        magnitude[i] = _mm256_andnot_ps(sign, v[i]);
        top = _mm256_max_ps(magnitude[i], top);
    }
    top = _mm256_max_ps(top, _mm256_permute2f128_ps(top, top, 1));
    top = _mm256_max_ps(top, _mm256_permute_ps(top, 0x4e));
    top = _mm256_max_ps(top, _mm256_permute_ps(top, 0xb1));
    uint32_t is_top = 0;
    for (int i = 0; i < 4; i++) {
        const __m256 same = _mm256_cmp_ps(magnitude[i], top, _CMP_EQ_OQ);
        is_top |= (uint32_t)_mm256_movemask_ps(same) << 8 * i;
    }
    return _mm256_cvtss_f32(top) == 0 ? 0 : x[__builtin_ctz(is_top)];
}

// As kv_block_q4_0.
static void store_q4_0(uint8_t *block, const float *x) {
    const __m256 infinite = _mm256_set1_ps(INFINITY), sign = _mm256_set1_ps(-0.0F);
    __m256 v[4], finite = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    __m256i q[4];
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        const __m256 magnitude = _mm256_andnot_ps(sign, v[i]);
        finite = _mm256_and_ps(finite, _mm256_cmp_ps(magnitude, infinite, _CMP_LT_OQ));
    }
    if (_mm256_movemask_ps(finite) != 255) {
        kv_block_q4_0(block, x);
        return;
    }
    const float top = largest_of_32(x, v);
    const __m256 twice = _mm256_set1_ps(fabsf(top) >= 1e-30F ? -16 / top : 0);
    const uint16_t d = float_to_half(top / -8);
    for (int i = 0; i < 4; i++) {
        q[i] = _mm256_cvttps_epi32(_mm256_floor_ps(_mm256_mul_ps(v[i], twice)));
        q[i] = _mm256_srai_epi32(_mm256_add_epi32(q[i], _mm256_set1_epi32(1)), 1);
        q[i] = _mm256_add_epi32(q[i], _mm256_set1_epi32(8));
        q[i] = _mm256_min_epi32(q[i], _mm256_set1_epi32(15));
    }
    const __m256i low = _mm256_or_si256(q[0], _mm256_slli_epi32(q[2], 4));
    const __m256i high = _mm256_or_si256(q[1], _mm256_slli_epi32(q[3], 4));
    // Packing works within 128-bit halves.
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
    const __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    memcpy(block, &d, sizeof d);
    _mm_storeu_si128((__m128i *)(void *)(block + sizeof d), bytes);
}

static void store_elements(char *at, enum dtype type, const float *x, int32_t n) {
    uint8_t *target = (uint8_t *)at;
    if (type == DTYPE_Q8_0 || type == DTYPE_Q4_0) {
        ASSERT(n % 32 == 0);
        for (int32_t i = 0; i < n; i += 32, target += dtype_bytes(type, 32))
            type == DTYPE_Q8_0 ? store_q8_0(target, x + i) : store_q4_0(target, x + i);
        return;
    }
    if (type == DTYPE_F32) {
        memcpy(target, x, (size_t)n * sizeof *x);
        return;
    }
    ASSERT(type == DTYPE_F16);
    uint16_t *halves = (uint16_t *)(void *)target;
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(halves + i), half);
    }
    for (; i < n; i++) halves[i] = float_to_half(x[i]);
}

static void kv_store(const struct lane *lane, const struct kv_store_args *a) {
    const int32_t head_dim = a->order == KV_BY_HEAD ? a->head_dim : a->n_cols;
    const int32_t n_heads = a->n_cols / head_dim;
    const struct kv_view k = kv_keys(a->order, a->k_cache, a->k_type, n_heads, head_dim);
    const struct kv_view v = kv_values(a->order, a->v_cache, a->v_type, n_heads, head_dim);
    for (int64_t range[2] = {0}; lane_take(lane, a->n_tokens, 1 + SHARE / a->n_cols, range);) {
        for (int64_t t = range[0]; t < range[1]; t++) {
            if (a->cache_rows[t] < 0) continue;
            kv_store_row(&k, a->cache_rows[t], a->k + t * a->n_cols, store_elements);
            if (a->v) kv_store_row(&v, a->cache_rows[t], a->v + t * a->n_cols, store_elements);
        }
    }
}

// gate * sigmoid(x) * up
static inline __m256 gated_by(__m256 gate, __m256 x, __m256 up) {
    __m256 inverse = exp_avx2(_mm256_sub_ps(_mm256_setzero_ps(), x));
    __m256 factor = _mm256_div_ps(gate, _mm256_add_ps(_mm256_set1_ps(1), inverse));
    return _mm256_mul_ps(factor, up);
}

static inline __m256 xielu(const struct xielu_numbers *n, __m256 x) {
    const __m256 zero = _mm256_setzero_ps();
    __m256 above = _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(n->positive), x), x);
    __m256 below = exp_avx2(_mm256_min_ps(_mm256_set1_ps(n->top), x));
    below = _mm256_sub_ps(_mm256_sub_ps(below, _mm256_set1_ps(1)), x);
    below = _mm256_mul_ps(_mm256_set1_ps(n->negative), below);
    __m256 part = _mm256_blendv_ps(below, above, _mm256_cmp_ps(x, zero, _CMP_GT_OQ));
    return _mm256_fmadd_ps(_mm256_set1_ps(n->linear), x, part);
}

// Every form but the last three is a sigmoid: (1 + tanh(x)) / 2 = sigmoid(2 x).
static inline __m256 gated(const struct swiglu_args *a, __m256 gate, __m256 up) {
    const __m256 limit = _mm256_set1_ps(a->limit);
    if (a->form == GLU_GELU) {
        const __m256 cubic = _mm256_set1_ps(0.044715F * 1.5957691F);
        __m256 x = _mm256_mul_ps(gate, gate);
        x = _mm256_fmadd_ps(x, cubic, _mm256_set1_ps(1.5957691F));
        return gated_by(gate, _mm256_mul_ps(x, gate), up);
    }
    if (a->form == GLU_CLAMPED) {
        gate = _mm256_min_ps(gate, limit);
        up = _mm256_min_ps(up, limit);
        up = _mm256_max_ps(up, _mm256_sub_ps(_mm256_setzero_ps(), limit));
        return gated_by(gate, _mm256_mul_ps(gate, _mm256_set1_ps(1.702F)),
                        _mm256_add_ps(up, _mm256_set1_ps(1)));
    }
    if (a->form == GLU_PRODUCT) return _mm256_mul_ps(gate, up);
    if (a->form == GLU_SQUARE) {
        gate = _mm256_max_ps(gate, _mm256_setzero_ps());
        return _mm256_mul_ps(_mm256_mul_ps(gate, gate), up);
    }
    if (a->form == GLU_XIELU) return _mm256_mul_ps(xielu(&a->xielu, gate), up);
    if (a->form == GLU_SIGMOID) return gated_by(_mm256_set1_ps(1), gate, up);
    return gated_by(gate, gate, up);
}

// share: what multiplies all elements of the run, whose columns of up have the same numbers; ups
// may be NULL.
static void swiglu_run(const struct swiglu_args *a, const float *ups, float share, int64_t i,
                       int64_t last) {
    const __m256 shares = _mm256_set1_ps(share), one = _mm256_set1_ps(1);
    for (; i + 8 <= last; i += 8) {
        __m256 up = ups ? _mm256_loadu_ps(ups + i) : one;
        __m256 made = gated(a, _mm256_loadu_ps(a->gate + i), up);
        _mm256_storeu_ps(a->out + i, _mm256_mul_ps(shares, made));
    }
    if (i == last) return;
    __m256i rest = first_lanes_avx2((int)(last - i));
    __m256 gate = _mm256_maskload_ps(a->gate + i, rest);
    __m256 up = ups ? _mm256_maskload_ps(ups + i, rest) : one;
    _mm256_maskstore_ps(a->out + i, rest, _mm256_mul_ps(shares, gated(a, gate, up)));
}

static void swiglu(const struct lane *lane, const struct swiglu_args *a) {
    // Rows without gaps and without gates of their own are one long row.
    const bool joined = a->n_cols == a->stride && a->n_cols == a->up_stride && !a->row_gate;
    const int64_t count = (int64_t)a->n_rows * a->n_cols, n_cols = joined ? count : a->n_cols;
    for (int64_t range[2] = {0}; lane_take(lane, count, SHARE, range);) {
        for (int64_t item = range[0], end; item < range[1]; item = end) {
            const int64_t row = item / n_cols, gap = row * (a->stride - a->n_cols);
            end = (row + 1) * n_cols < range[1] ? (row + 1) * n_cols : range[1];
            const float share = swiglu_share(a, row);
            const float *ups = a->up ? a->up + row * (a->up_stride - a->stride) : NULL;
            swiglu_run(a, ups, share, item + gap, end + gap);
        }
    }
}

// c tanh(x / c), where tanh(y) is 1 - 2 / (e^(2 y) + 1); x if cap is 0.
static inline __m256 capped(__m256 x, float cap) {
    const __m256 one = _mm256_set1_ps(1), two = _mm256_set1_ps(2);
    if (!(cap > 0)) return x;
    __m256 e = exp_avx2(_mm256_mul_ps(x, _mm256_set1_ps(2 / cap)));
    __m256 tanh = _mm256_sub_ps(one, _mm256_div_ps(two, _mm256_add_ps(e, one)));
    return _mm256_mul_ps(_mm256_set1_ps(cap), tanh);
}

static void cap_logits(const struct lane *lane, const struct cap_logits_args *a) {
    const __m256 scale = _mm256_set1_ps(a->scale);
    int64_t i, last;
    lane_share(lane, (int64_t)a->n_rows * a->n_cols, SHARE, &i, &last);
    for (; i + 8 <= last; i += 8) {
        __m256 x = _mm256_mul_ps(scale, _mm256_loadu_ps(a->x + i));
        _mm256_storeu_ps(a->x + i, capped(x, a->softcap));
    }
    if (i >= last) return;
    __m256i rest = first_lanes_avx2((int)(last - i));
    __m256 x = _mm256_mul_ps(scale, _mm256_maskload_ps(a->x + i, rest));
    _mm256_maskstore_ps(a->x + i, rest, capped(x, a->softcap));
}

void cpu_ops_avx2(struct cpu_table *table) {
    table->embed[WEIGHT_F16] = embed_f16;
    table->rms_norm = rms_norm;
    table->rope = rope;
    table->kv_store = kv_store;
    table->kv_order = KV_BY_HEAD;
    table->attention = attention_avx2;
    table->swiglu = swiglu;
    table->cap_logits = cap_logits;
    table->short_conv = short_conv_avx2;
    table->delta_rule = delta_rule_avx2;
    table->mamba_scan = mamba_scan_avx2;
}
