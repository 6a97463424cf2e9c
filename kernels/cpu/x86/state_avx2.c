/* state_avx2.c: short_conv, delta_rule and mamba_scan with AVX2.
 *
 * short_conv: eight columns at a time, whose last inputs stay in registers from token to token.
 * delta_rule: a lane takes a head at a time. TOKENS tokens share what depends on no column of the
 * state; then 32 columns of the state at a time pass these tokens, 16 KiB for a head of 128, which
 * stay in the first-level cache. A column is added up in two sums, of the even and of the odd rows,
 * whichever columns are beside it. mamba_scan: a lane takes a head at a time, whose state passes
 * the tokens; a row of it is added up in eight sums. Sizes that no model has take the definition.
 * Owns nothing. Must not let a result depend on where a batch or a lane's share begins. Tested by
 * tests/kernels/check_ops.c.
 */
#include "kernels/cpu/x86/state_x86.h"

#include "kernels/cpu/softplus.h"
#include "kernels/cpu/x86/vector_avx2.h"

#include "base/inline.h"

#include <math.h>

enum {
    TAPS = 4,    // of short_conv here, or one less
    SHARE = 256, // values of short_conv that are worth waking a second lane for
    TOKENS = 16, // of delta_rule that pass a part of the state at once
};

// ---- short_conv ---------------------------------------------------------------------------------

// True if token t reads what token t - 1 writes.
static bool continues(const int32_t *steps, int64_t t) {
    return t > 0 && steps[2 * t] == steps[2 * t - 1];
}

// The result of a token in eight columns.
static inline __m256 finish(const struct short_conv_args *a, __m256 sum, int64_t c) {
    if (a->bias) sum = _mm256_add_ps(sum, _mm256_loadu_ps(a->bias + c));
    if (a->is_plain) return sum;
    const __m256 inverse = exp_avx2(_mm256_sub_ps(_mm256_setzero_ps(), sum));
    return _mm256_div_ps(sum, _mm256_add_ps(_mm256_set1_ps(1), inverse));
}

// All tokens in columns c..c+7, with 3 or 4 taps; the arguments by value as in step_columns.
INLINE void convolve_eight(struct short_conv_args a, int64_t c, int n_taps) {
    const __m256i eight = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i rows = _mm256_mullo_epi32(eight, _mm256_set1_epi32(n_taps));
    const int64_t n = a.n_cols, state = (n_taps - 1) * n;
    __m256 weights[TAPS], old[TAPS - 1];
    for (int j = 0; j < n_taps; j++)
        weights[j] = _mm256_i32gather_ps(a.weight + c * n_taps + j, rows, sizeof(float));
    for (int j = 0; j < n_taps - 1; j++) old[j] = _mm256_setzero_ps();
    for (int64_t t = 0; t < a.n_tokens; t++) {
        const int32_t *step = a.steps + 2 * t;
        const float *from = a.states + (int64_t)(step[0] < 0 ? 0 : step[0]) * state + c;
        if (!continues(a.steps, t)) {
            for (int j = 0; j < n_taps - 1; j++)
                old[j] = step[0] < 0 ? _mm256_setzero_ps() : _mm256_loadu_ps(from + j * n);
        }
        const __m256 x = _mm256_loadu_ps(a.x + t * a.x_stride + c);
        __m256 sum = _mm256_mul_ps(weights[0], old[0]);
        for (int j = 1; j < n_taps - 1; j++) sum = _mm256_fmadd_ps(weights[j], old[j], sum);
        sum = _mm256_fmadd_ps(weights[n_taps - 1], x, sum);
        _mm256_storeu_ps(a.out + t * n + c, finish(&a, sum, c));
        old[0] = old[1]; // not in a loop, which clang takes for a copy in memory
        if (n_taps == TAPS) old[1] = old[2];
        old[n_taps - 2] = x;
        if (t + 1 < a.n_tokens && continues(a.steps, t + 1)) continue;
        for (int j = 0; j < n_taps - 1; j++)
            _mm256_storeu_ps(a.states + step[1] * state + j * n + c, old[j]);
    }
}

void short_conv_avx2(const struct lane *lane, const struct short_conv_args *a) {
    if ((a->n_taps != TAPS && a->n_taps != TAPS - 1) || a->n_cols % 8) {
        cpu_short_conv(lane, a);
        return;
    }
    const int64_t grain = 1 + SHARE / (8 * (int64_t)a->n_tokens);
    for (int64_t range[2] = {0}; lane_take(lane, a->n_cols / 8, grain, range);) {
        for (int64_t i = range[0]; i < range[1]; i++) {
            if (a->n_taps == TAPS)
                convolve_eight(*a, 8 * i, TAPS);
            else
                convolve_eight(*a, 8 * i, TAPS - 1);
        }
    }
}

// ---- delta_rule ---------------------------------------------------------------------------------

// One token of a head, without its columns of the state.
struct token {
    const float *q, *k, *v;     // [head_dim], as they are
    float decay, recall, learn; // the change of column j is k * learn * (v[j] - recall * (k S)[j])
    float q_scale;
    const float *from; // the head's state that it reads, NULL: zeros
    float *to;         // the one that it writes
    float *out;        // [head_dim]
};

static float inverse_length(const float *x, int32_t n, float eps) {
    __m256 squares = _mm256_setzero_ps();
    for (int32_t i = 0; i < n; i += 8) {
        const __m256 v = _mm256_loadu_ps(x + i);
        squares = _mm256_fmadd_ps(v, v, squares);
    }
    return 1 / sqrtf(sum_avx2(squares) + eps);
}

static void prepare(const struct delta_rule_args *a, int64_t t, int64_t h, struct token *out) {
    const int64_t n = a->head_dim, n_keys = (int64_t)a->n_key_heads * n, at = t * a->n_heads + h;
    const int64_t shared = a->n_heads / a->n_key_heads;
    const int64_t key = (a->order == KEYS_TILED ? h % a->n_key_heads : h / shared) * n;
    const float *qkv = a->qkv + t * (2 * n_keys + a->n_heads * n);
    const int32_t *step = a->steps + 2 * t;
    *out = (struct token){.q = qkv + key, .k = qkv + n_keys + key, .v = qkv + 2 * n_keys + h * n};
    const float z = a->alpha[at] + a->dt_bias[h];
    const float k_scale = inverse_length(out->k, a->head_dim, a->eps);
    out->decay = expf(a->a[h] * softplus_float(z));
    out->recall = out->decay * k_scale;
    out->learn = k_scale / (1 + expf(-a->beta[at]));
    out->q_scale = inverse_length(out->q, a->head_dim, a->eps) / sqrtf((float)a->head_dim);
    const int64_t state = a->n_heads * n * n;
    out->from = step[0] < 0 ? NULL : a->states + step[0] * state + h * n * n;
    out->to = a->states + step[1] * state + h * n * n;
    out->out = a->out + at * n;
}

// Adds rows i and i + 1 of the state times x[i] and x[i + 1] to the sums of even and of odd rows.
#define ADD_ROWS(sums, x, rows)                                                                 \
    do {                                                                                        \
        for (int v = 0; v < n_vectors; v++) {                                                   \
            (sums)[0][v] = _mm256_fmadd_ps(_mm256_set1_ps((x)[0]), (rows)[0][v], (sums)[0][v]); \
            (sums)[1][v] = _mm256_fmadd_ps(_mm256_set1_ps((x)[1]), (rows)[1][v], (sums)[1][v]); \
        }                                                                                       \
    } while (0)

// One token in 8 * n_vectors columns of the state from column c on. It comes by value, since a
// store of a vector may change any memory, for all that a compiler knows.
INLINE void step_columns(struct token k, int64_t n, int64_t c, int n_vectors) {
    __m256 sums[2][4], change[4], rows[2][4];
    for (int v = 0; v < n_vectors; v++) sums[0][v] = sums[1][v] = _mm256_setzero_ps();
    for (int64_t i = 0; i < n && k.from; i += 2) {
        for (int r = 0; r < 2; r++)
            for (int v = 0; v < n_vectors; v++)
                rows[r][v] = _mm256_loadu_ps(k.from + (i + r) * n + c + 8 * v);
        ADD_ROWS(sums, k.k + i, rows);
    }
    for (int v = 0; v < n_vectors; v++) {
        const __m256 recalled = _mm256_add_ps(sums[0][v], sums[1][v]);
        change[v] =
            _mm256_fnmadd_ps(_mm256_set1_ps(k.recall), recalled, _mm256_loadu_ps(k.v + c + 8 * v));
        change[v] = _mm256_mul_ps(_mm256_set1_ps(k.learn), change[v]);
        sums[0][v] = sums[1][v] = _mm256_setzero_ps();
    }
    for (int64_t i = 0; i < n; i += 2) {
        for (int r = 0; r < 2; r++) {
            const __m256 key = _mm256_set1_ps(k.k[i + r]), decay = _mm256_set1_ps(k.decay);
            for (int v = 0; v < n_vectors; v++) {
                const int64_t at = (i + r) * n + c + 8 * v;
                const __m256 old = k.from ? _mm256_loadu_ps(k.from + at) : _mm256_setzero_ps();
                rows[r][v] = _mm256_fmadd_ps(key, change[v], _mm256_mul_ps(decay, old));
                _mm256_storeu_ps(k.to + at, rows[r][v]);
            }
        }
        ADD_ROWS(sums, k.q + i, rows);
    }
    for (int v = 0; v < n_vectors; v++)
        _mm256_storeu_ps(k.out + c + 8 * v, _mm256_mul_ps(_mm256_set1_ps(k.q_scale),
                                                          _mm256_add_ps(sums[0][v], sums[1][v])));
}

static void run_head(const struct delta_rule_args *a, int64_t h) {
    const int64_t n = a->head_dim;
    for (int64_t first = 0; first < a->n_tokens; first += TOKENS) {
        struct token tokens[TOKENS];
        const int64_t left = a->n_tokens - first, count = left < TOKENS ? left : TOKENS;
        for (int64_t t = 0; t < count; t++) prepare(a, first + t, h, &tokens[t]);
        int64_t c = 0;
        for (; c + 32 <= n; c += 32)
            for (int64_t t = 0; t < count; t++) step_columns(tokens[t], n, c, 4);
        for (; c < n; c += 8)
            for (int64_t t = 0; t < count; t++) step_columns(tokens[t], n, c, 1);
    }
}

void delta_rule_avx2(const struct lane *lane, const struct delta_rule_args *a) {
    if (a->head_dim % 8) {
        cpu_delta_rule(lane, a);
        return;
    }
    ASSERT(a->n_heads % a->n_key_heads == 0);
    for (int64_t range[2] = {0}; lane_take(lane, a->n_heads, 1, range);)
        for (int64_t h = range[0]; h < range[1]; h++) run_head(a, h);
}

// ---- mamba_scan ---------------------------------------------------------------------------------

// One token of a head: of each row of the state the head keeps decay, and takes up step * x[row] b.
struct scan {
    const float *x, *b, *c;
    float decay, step, skip;
    const float *from; // the head's state that it reads, NULL: zeros
    float *to;         // the one that it writes
    float *out;        // [head_dim]
};

static struct scan prepare_scan(const struct mamba_scan_args *a, int64_t t, int64_t h) {
    const int64_t width = (int64_t)a->n_heads * a->head_dim,
                  size = (int64_t)a->head_dim * a->n_state;
    const int64_t groups_width = (int64_t)a->n_groups * a->n_state;
    const int64_t group = h / (a->n_heads / a->n_groups) * a->n_state;
    const float *row = a->x + t * (width + 2 * groups_width);
    const int32_t *step = a->steps + 2 * t;
    const float z = a->dt[t * a->dt_stride + h] + a->dt_bias[h];
    struct scan s = {.x = row + h * a->head_dim,
                     .b = row + width + group,
                     .c = row + width + groups_width + group,
                     .step = softplus_float(z),
                     .skip = a->d[h],
                     .to = a->states + (step[1] * (int64_t)a->n_heads + h) * size,
                     .out = a->out + t * width + h * a->head_dim};
    s.decay = expf(a->a[h] * s.step);
    if (step[0] >= 0) s.from = a->states + (step[0] * (int64_t)a->n_heads + h) * size;
    return s;
}

static void scan_token(const struct scan *s, int64_t head_dim, int64_t n) {
    const __m256 decay = _mm256_set1_ps(s->decay);
    for (int64_t p = 0; p < head_dim; p++) {
        const __m256 x = _mm256_set1_ps(s->step * s->x[p]);
        __m256 sum = _mm256_setzero_ps();
        for (int64_t i = 0; i < n; i += 8) {
            __m256 cell = _mm256_mul_ps(x, _mm256_loadu_ps(s->b + i));
            if (s->from) cell = _mm256_fmadd_ps(decay, _mm256_loadu_ps(s->from + p * n + i), cell);
            _mm256_storeu_ps(s->to + p * n + i, cell);
            sum = _mm256_fmadd_ps(cell, _mm256_loadu_ps(s->c + i), sum);
        }
        s->out[p] = sum_avx2(sum) + s->skip * s->x[p];
    }
}

void mamba_scan_avx2(const struct lane *lane, const struct mamba_scan_args *a) {
    if (a->n_state % 8) {
        cpu_mamba_scan(lane, a);
        return;
    }
    ASSERT(a->n_heads % a->n_groups == 0);
    for (int64_t range[2] = {0}; lane_take(lane, a->n_heads, 1, range);) {
        for (int64_t h = range[0]; h < range[1]; h++) {
            for (int64_t t = 0; t < a->n_tokens; t++) {
                const struct scan s = prepare_scan(a, t, h);
                scan_token(&s, a->head_dim, a->n_state);
            }
        }
    }
}
