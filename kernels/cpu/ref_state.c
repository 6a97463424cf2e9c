/* ref_state.c: the definitions of short_conv, delta_rule and mamba_scan, which keep a state for
 * each sequence, in plain C. NEON runs them too, and every level for sizes that its own kernels do
 * not take.
 *
 * Sums run in double; a state is rounded to floats after each token, so it does not matter whether
 * the next token is in the same call. A lane has columns or heads to itself and takes all tokens in
 * order. Owns nothing. Must not use an instruction set. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/softplus.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

// Computes columns first..last-1 of a token with the state from, NULL: zeros, and writes the state
// to, which may be from.
static void convolve(const struct short_conv_args *a, int64_t t, const float *from, float *to,
                     const int64_t range[2]) {
    const int64_t n = a->n_cols, n_old = a->n_taps - 1;
    for (int64_t c = range[0]; c < range[1]; c++) {
        float inputs[CONV_TAPS_MAX] = {0};
        double sum = 0;
        for (int64_t j = 0; j < n_old && from; j++) inputs[j] = from[j * n + c];
        inputs[n_old] = a->x[t * a->x_stride + c];
        for (int64_t j = 0; j <= n_old; j++)
            sum += (double)a->weight[c * a->n_taps + j] * inputs[j];
        for (int64_t j = 0; j < n_old; j++) to[j * n + c] = inputs[j + 1];
        if (a->bias) sum += a->bias[c];
        a->out[t * n + c] = (float)(a->is_plain ? sum : sum / (1 + exp(-sum)));
    }
}

void cpu_short_conv(const struct lane *lane, const struct short_conv_args *a) {
    const int64_t state = (int64_t)(a->n_taps - 1) * a->n_cols;
    int64_t range[2];
    ASSERT(a->n_taps >= 2 && a->n_taps <= CONV_TAPS_MAX);
    lane_share(lane, a->n_cols, 64, &range[0], &range[1]);
    for (int64_t t = 0; t < a->n_tokens; t++) {
        const int32_t *step = a->steps + 2 * t;
        ASSERT(step[1] >= 0);
        convolve(a, t, step[0] < 0 ? NULL : a->states + step[0] * state,
                 a->states + step[1] * state, range);
    }
}

// 1 / the length of x.
static double inverse_length(const float *x, int32_t n, float eps) {
    double squares = 0;
    for (int32_t i = 0; i < n; i++) squares += (double)x[i] * x[i];
    return 1 / sqrt(squares + (double)eps);
}

// Computes head h of token t. from: the head's state, NULL: zeros; to may be from.
static void step_head(const struct delta_rule_args *a, int64_t t, int64_t h, const float *from,
                      float *to) {
    const int64_t n = a->head_dim, n_keys = (int64_t)a->n_key_heads * n, per_token = t * a->n_heads;
    const int64_t shared = a->n_heads / a->n_key_heads;
    const int64_t key = (a->order == KEYS_TILED ? h % a->n_key_heads : h / shared) * n;
    const float *q = a->qkv + t * (2 * n_keys + a->n_heads * n) + key, *k = q + n_keys;
    const float *v = q - key + 2 * n_keys + h * n;
    const double z = (double)a->alpha[per_token + h] + (double)a->dt_bias[h];
    const double decay = exp((double)a->a[h] * softplus(z));
    const double rate = 1 / (1 + exp(-(double)a->beta[per_token + h]));
    const double k_scale = inverse_length(k, a->head_dim, a->eps);
    const double q_scale = inverse_length(q, a->head_dim, a->eps) / sqrt(a->head_dim);
    double recalled[DELTA_DIM_MAX] = {0}, out[DELTA_DIM_MAX] = {0};
    if (!from) memset(to, 0, (size_t)(n * n) * sizeof *to);
    if (!from) from = to;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) recalled[j] += (double)k[i] * from[i * n + j];
    for (int64_t j = 0; j < n; j++)
        recalled[j] = rate * k_scale * ((double)v[j] - decay * k_scale * recalled[j]);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            to[i * n + j] = (float)(decay * from[i * n + j] + (double)k[i] * recalled[j]);
            out[j] += (double)q[i] * to[i * n + j];
        }
    }
    for (int64_t j = 0; j < n; j++) a->out[(per_token + h) * n + j] = (float)(out[j] * q_scale);
}

void cpu_delta_rule(const struct lane *lane, const struct delta_rule_args *a) {
    const int64_t size = (int64_t)a->head_dim * a->head_dim, state = a->n_heads * size;
    int64_t first, last;
    ASSERT(a->head_dim >= 1 && a->head_dim <= DELTA_DIM_MAX);
    ASSERT(a->n_heads % a->n_key_heads == 0);
    lane_share(lane, a->n_heads, 1, &first, &last);
    for (int64_t h = first; h < last; h++) {
        for (int64_t t = 0; t < a->n_tokens; t++) {
            const int32_t *step = a->steps + 2 * t;
            ASSERT(step[1] >= 0);
            step_head(a, t, h, step[0] < 0 ? NULL : a->states + step[0] * state + h * size,
                      a->states + step[1] * state + h * size);
        }
    }
}

// Computes head h of token t. from: the head's state, NULL: zeros; to may be from.
static void scan_head(const struct mamba_scan_args *a, int64_t t, int64_t h, const float *from,
                      float *to) {
    const int64_t n = a->n_state, width = (int64_t)a->n_heads * a->head_dim;
    const int64_t groups_width = a->n_groups * n, group = h / (a->n_heads / a->n_groups);
    const float *row = a->x + t * (width + 2 * groups_width), *x = row + h * a->head_dim;
    const float *b = row + width + group * n, *c = b + groups_width;
    const double step = softplus((double)a->dt[t * a->dt_stride + h] + (double)a->dt_bias[h]);
    const double decay = exp((double)a->a[h] * step);
    for (int64_t p = 0; p < a->head_dim; p++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            const double old = from ? decay * from[p * n + i] : 0;
            to[p * n + i] = (float)(old + step * x[p] * b[i]);
            sum += (double)to[p * n + i] * c[i];
        }
        a->out[(t * a->n_heads + h) * a->head_dim + p] = (float)(sum + (double)a->d[h] * x[p]);
    }
}

void cpu_mamba_scan(const struct lane *lane, const struct mamba_scan_args *a) {
    const int64_t size = (int64_t)a->head_dim * a->n_state, state = a->n_heads * size;
    int64_t first, last;
    ASSERT(a->n_state >= 1 && a->n_state <= MAMBA_STATE_MAX);
    ASSERT(a->n_heads % a->n_groups == 0);
    lane_share(lane, a->n_heads, 1, &first, &last);
    for (int64_t h = first; h < last; h++) {
        for (int64_t t = 0; t < a->n_tokens; t++) {
            const int32_t *step = a->steps + 2 * t;
            ASSERT(step[1] >= 0);
            scan_head(a, t, h, step[0] < 0 ? NULL : a->states + step[0] * state + h * size,
                      a->states + step[1] * state + h * size);
        }
    }
}
