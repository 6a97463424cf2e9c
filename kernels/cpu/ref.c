/* ref.c: the definition of every op but route (ref_route.c) and those with a state (ref_state.c),
 * in plain C.
 *
 * Every other kernel is tested against these. Sums run in double, in an order that depends on
 * nothing but the sizes of one row, so that a result is the same for every batch, row range and
 * number of lanes. Owns nothing; called by every lane of a team; lanes meet within an op only in
 * route. Must not use an instruction set. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/expert_pairs.h"
#include "kernels/cpu/kv_block.h"
#include "kernels/cpu/softplus.h"
#include "kernels/kv_page.h"

#include "base/err.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    CHUNK = 256,      // elements dequantised at once: the largest block of any weight type
    TOKEN_GROUP = 64, // tokens that share one dequantised chunk
    COMBINED = 256,   // columns of experts' outputs added up at once
};

static void embed(enum weight_type type, const struct lane *lane, const struct embed_args *a) {
    uint64_t row_bytes = dtype_bytes(weight_dtype(type), (uint64_t)a->n_cols);
    const float scale = a->scale;
    int64_t first, last;
    lane_share(lane, a->n_tokens, 1, &first, &last);
    for (int64_t t = first; t < last; t++) {
        ASSERT(a->tokens[t] >= 0 && a->tokens[t] < a->n_rows);
        float *out = a->out + t * a->n_cols;
        dequantize_row(type, (const char *)a->table + (uint64_t)a->tokens[t] * row_bytes, out,
                       a->n_cols);
        if (scale == 1) continue;
        for (int32_t c = 0; c < a->n_cols; c++) out[c] *= scale;
    }
}

static void rms_norm(const struct lane *lane, const struct rms_norm_args *a) {
    const double factor = a->scale ? *a->scale : 1;
    int64_t first, last;
    lane_share(lane, a->n_rows, 1, &first, &last);
    for (int64_t row = first; row < last; row++) {
        const float *x = a->x + row * a->n_cols;
        const float *residual = a->residual ? a->residual + row * a->n_cols : NULL;
        float *out = a->out + row * a->n_cols;
        double sum = 0, squares = 0;
        for (int32_t c = 0; c < a->n_cols && a->centred; c++) sum += x[c];
        const double mean = sum / a->n_cols;
        for (int32_t c = 0; c < a->n_cols; c++) squares += (x[c] - mean) * (x[c] - mean);
        double scale = 1 / sqrt(squares / a->n_cols + a->eps);
        for (int32_t c = 0; c < a->n_cols; c++) {
            double normed = scale * (x[c] - mean) * (a->weight ? a->weight[c] : 1);
            if (a->bias) normed += a->bias[c];
            out[c] = (float)(factor * (normed + (residual ? residual[c] : 0)));
        }
    }
}

// Keeps eight running sums and adds them up at the end: this order is always the same, and a
// compiler can vectorise it.
static double dot(const float *a, const float *b, int64_t n) {
    double sums[8] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) sums[j] += (double)a[i + j] * b[i + j];
    for (; i < n; i++) rest += (double)a[i] * b[i];
    return ((sums[0] + sums[4]) + (sums[1] + sums[5])) +
           ((sums[2] + sums[6]) + (sums[3] + sums[7])) + rest;
}

// sums[t] = a row of n_cols weights times the row x[t], for n_tokens up to TOKEN_GROUP. The row is
// dequantised chunk by chunk, once for all these tokens.
static void row_times_tokens(enum weight_type type, const char *row, int32_t n_cols,
                             const float *const *x, int32_t n_tokens, double *sums) {
    float chunk[CHUNK];
    for (int32_t t = 0; t < n_tokens; t++) sums[t] = 0;
    for (int64_t c = 0; c < n_cols; c += CHUNK) {
        int64_t n = n_cols - c < CHUNK ? n_cols - c : CHUNK;
        dequantize_row(type, row + dtype_bytes(weight_dtype(type), (uint64_t)c), chunk, n);
        for (int32_t t = 0; t < n_tokens; t++) sums[t] += dot(chunk, x[t] + c, n);
    }
}

static void matmul(enum weight_type type, const struct lane *lane, const struct matmul_args *a) {
    uint64_t row_bytes = dtype_bytes(weight_dtype(type), (uint64_t)a->n_cols);
    int64_t first, last;
    lane_share(lane, a->row_count, 16, &first, &last);
    for (int64_t row = a->row_first + first; row < a->row_first + last; row++) {
        const char *weights = (const char *)a->weight + (uint64_t)row * row_bytes;
        for (int32_t group = 0; group < a->n_tokens; group += TOKEN_GROUP) {
            int32_t n = a->n_tokens - group < TOKEN_GROUP ? a->n_tokens - group : TOKEN_GROUP;
            const float *x[TOKEN_GROUP];
            double sums[TOKEN_GROUP];
            for (int32_t t = 0; t < n; t++) x[t] = a->x + (int64_t)(group + t) * a->n_cols;
            row_times_tokens(type, weights, a->n_cols, x, n, sums);
            for (int32_t t = 0; t < n; t++) {
                int64_t place = (int64_t)(group + t) * a->out_stride + row;
                if (a->bias) sums[t] += a->bias[row];
                if (a->residual) sums[t] += a->residual[place];
                a->out[place] = (float)sums[t];
            }
        }
    }
}

// Multiplies rows first..last-1 of one expert's matrix with up to TOKEN_GROUP of its pairs, from
// its i-th on.
static void expert_rows(enum weight_type type, const struct matmul_experts_args *a, int32_t expert,
                        int32_t first, int32_t n, const int64_t rows[2]) {
    uint64_t row_bytes = dtype_bytes(weight_dtype(type), (uint64_t)a->n_cols);
    const int32_t slot = expert_slot(a, expert);
    const char *matrix = (const char *)a->weight + (uint64_t)slot * a->slot_bytes;
    const float *x[TOKEN_GROUP];
    double sums[TOKEN_GROUP];
    int32_t pairs[TOKEN_GROUP];
    for (int32_t i = 0; i < n; i++) {
        pairs[i] = expert_pair(a, expert, first + i);
        ASSERT(pairs[i] >= 0 && pairs[i] < a->n_tokens * a->n_used);
        x[i] = a->x + (int64_t)(a->x_per_pair ? pairs[i] : pairs[i] / a->n_used) * a->n_cols;
    }
    for (int64_t row = rows[0]; row < rows[1]; row++) {
        row_times_tokens(type, matrix + (uint64_t)row * row_bytes, a->n_cols, x, n, sums);
        for (int32_t i = 0; i < n; i++) {
            if (a->bias) sums[i] += a->bias[(int64_t)expert * a->n_rows + row];
            a->out[(int64_t)pairs[i] * a->out_stride + row] = (float)sums[i];
        }
    }
}

static void matmul_experts(enum weight_type type, const struct lane *lane,
                           const struct matmul_experts_args *a) {
    ASSERT(a->row_first >= 0 && a->row_first + a->row_count <= a->n_rows);
    ASSERT(a->order || a->n_used == a->n_experts);
    int64_t rows[2];
    lane_share(lane, a->row_count, 16, &rows[0], &rows[1]);
    rows[0] += a->row_first;
    rows[1] += a->row_first;
    for (int32_t e = 0; e < a->n_experts; e++) {
        const int32_t n = expert_n_pairs(a, e);
        for (int32_t i = 0; i < n; i += TOKEN_GROUP)
            expert_rows(type, a, e, i, n - i < TOKEN_GROUP ? n - i : TOKEN_GROUP, rows);
    }
}

// Adds up columns first..last-1 of one token, at most COMBINED.
static void combine_columns(const struct combine_experts_args *a, int64_t t, int64_t first,
                            int64_t last) {
    double sums[COMBINED] = {0};
    for (int64_t c = first; a->residual && c < last; c++)
        sums[c - first] = a->residual[t * a->n_cols + c];
    for (int64_t pair = t * a->n_used; pair < (t + 1) * a->n_used; pair++) {
        ASSERT(!a->slots || (a->chosen[pair] >= 0 && a->chosen[pair] < a->n_experts));
        const float *rows = a->slots && a->slots[a->chosen[pair]] < 0 ? a->absent : a->x;
        if (!rows) continue;
        double weight = a->weights[pair];
        const float *x = rows + pair * a->n_cols + first;
        for (int64_t c = 0; c < last - first; c++) sums[c] += weight * x[c];
    }
    for (int64_t c = first; c < last; c++) a->out[t * a->n_cols + c] = (float)sums[c - first];
}

static void combine_experts(const struct lane *lane, const struct combine_experts_args *a) {
    int64_t per_token = (a->n_cols + COMBINED - 1) / COMBINED, first, last;
    lane_share(lane, a->n_tokens * per_token, 1, &first, &last);
    for (int64_t item = first; item < last; item++) {
        int64_t column = item % per_token * COMBINED, end = column + COMBINED;
        combine_columns(a, item / per_token, column, end < a->n_cols ? end : a->n_cols);
    }
}

// Radians per position of pair i.
static double rope_frequency(const struct rope_table_args *a, int32_t i) {
    double f = pow(a->base, -2.0 * i / a->n_rot);
    if (a->freq_factors) f /= a->freq_factors[i];
    double width = fmax(0.001, (double)a->corr_high - a->corr_low);
    double ramp = fmin(1, fmax(0, (i - (double)a->corr_low) / width));
    double mix = a->ext_factor * (1 - ramp);
    return a->scale * f * (1 - mix) + f * mix;
}

static double rope_magnitude(const struct rope_table_args *a, int32_t position) {
    if (!a->period) return a->magnitude;
    return a->magnitude * (1 + a->temperature * log(1 + position / a->period));
}

static void rope_table(const struct lane *lane, const struct rope_table_args *a) {
    int32_t n_pairs = a->n_rot / 2;
    int64_t first, last;
    lane_share(lane, n_pairs, 8, &first, &last);
    for (int64_t i = first; i < last; i++) {
        double frequency = rope_frequency(a, (int32_t)i);
        for (int64_t t = 0; t < a->n_tokens; t++) {
            double angle = a->positions[t] * frequency;
            double magnitude = rope_magnitude(a, a->positions[t]);
            float *pair = a->out + (t * n_pairs + i) * 2;
            pair[0] = (float)(magnitude * cos(angle));
            pair[1] = (float)(magnitude * sin(angle));
        }
    }
}

static void rope_head(float *head, const float *table, int32_t n_rot, bool neox) {
    int32_t n_pairs = n_rot / 2, apart = neox ? n_pairs : 1;
    for (int32_t i = 0; i < n_pairs; i++) {
        float *pair = head + (neox ? i : 2 * i);
        float cosine = table[2 * i], sine = table[2 * i + 1];
        float x = pair[0], y = pair[apart];
        pair[0] = x * cosine - y * sine;
        pair[apart] = x * sine + y * cosine;
    }
}

static void rope(const struct lane *lane, const struct rope_args *a) {
    int64_t n_heads = a->n_heads + a->n_kv_heads, first, last;
    lane_share(lane, a->n_tokens * n_heads, 1, &first, &last);
    for (int64_t item = first; item < last; item++) {
        int64_t t = item / n_heads, h = item % n_heads;
        float *head = h < a->n_heads ? a->q + (t * a->n_heads + h) * a->head_dim
                                     : a->k + (t * a->n_kv_heads + h - a->n_heads) * a->head_dim;
        rope_head(head, a->table + t * a->n_rot, a->n_rot, a->neox);
    }
}

// Makes one Q8_0 block of 32 floats, as ops.h says.
static void store_q8_0(uint8_t *block, const float *x) {
    float top = 0;
    bool finite = true;
    for (int i = 0; i < 32; i++) {
        top = fmaxf(top, fabsf(x[i]));
        finite = finite && isfinite(x[i]);
    }
    float inverse = top >= 1e-30F ? 127 / top : 0;
    uint16_t d = finite ? float_to_half(top / 127) : 0x7e00;
    memcpy(block, &d, sizeof d);
    for (int i = 0; i < 32; i++) block[2 + i] = finite ? (uint8_t)lrintf(x[i] * inverse) : 0;
}

static void store_elements(char *at, enum dtype type, const float *x, int32_t n) {
    uint8_t *target = (uint8_t *)at;
    if (type == DTYPE_Q8_0 || type == DTYPE_Q4_0) {
        ASSERT(n % 32 == 0);
        for (int32_t i = 0; i < n; i += 32, target += dtype_bytes(type, 32))
            type == DTYPE_Q8_0 ? store_q8_0(target, x + i) : kv_block_q4_0(target, x + i);
        return;
    }
    if (type == DTYPE_F32) {
        memcpy(target, x, (size_t)n * sizeof *x);
        return;
    }
    ASSERT(type == DTYPE_F16);
    uint16_t *halves = (uint16_t *)(void *)target;
    for (int32_t i = 0; i < n; i++) halves[i] = float_to_half(x[i]);
}

static void kv_store(const struct lane *lane, const struct kv_store_args *a) {
    const int32_t head_dim = a->order == KV_BY_HEAD ? a->head_dim : a->n_cols;
    const int32_t n_heads = a->n_cols / head_dim;
    const struct kv_view k = kv_keys(a->order, a->k_cache, a->k_type, n_heads, head_dim);
    const struct kv_view v = kv_values(a->order, a->v_cache, a->v_type, n_heads, head_dim);
    int64_t first, last;
    lane_share(lane, a->n_tokens, 1, &first, &last);
    for (int64_t t = first; t < last; t++) {
        if (a->cache_rows[t] < 0) continue;
        kv_store_row(&k, a->cache_rows[t], a->k + t * a->n_cols, store_elements);
        if (a->v) kv_store_row(&v, a->cache_rows[t], a->v + t * a->n_cols, store_elements);
    }
}

// Reads one head's part of a cache row as floats.
static void load_head(const struct kv_view *cache, int64_t row, int64_t head, float *out) {
    const char *at = cache->base + kv_place(cache, row, head);
    _Alignas(float) char packed[HEAD_DIM_MAX * sizeof(float)];
    enum weight_type stored;
    bool known = dtype_weight(cache->type, &stored);
    ASSERT(known);
    if (cache->order == KV_BY_HEAD) kv_copy_row(cache, row, head, packed, false);
    dequantize_row(stored, cache->order == KV_BY_HEAD ? packed : at, out, cache->head_dim);
}

// The state of an online softmax: weights so far are exp(score - max), their sum is sum, and
// out[head_dim] is the sum of weighted V rows.
struct softmax {
    double max, sum, out[HEAD_DIM_MAX];
};

// Adds n keys of one page and kv head to the softmax, from a row of the cache on.
static void attend_page(const struct attention_args *a, const float *q, int64_t first, int64_t head,
                        int32_t n, struct softmax *s) {
    const struct kv_view k = kv_keys(a->order, a->k_cache, a->k_type, a->n_kv_heads, a->head_dim);
    const struct kv_view v = kv_values(a->order, a->v_cache, a->v_type, a->n_kv_heads, a->head_dim);
    float row[HEAD_DIM_MAX];
    double scores[KV_PAGE], max = s->max;
    for (int32_t j = 0; j < n; j++) {
        load_head(&k, first + j, head, row);
        scores[j] = a->scale * dot(q, row, a->head_dim);
        if (a->softcap > 0) scores[j] = a->softcap * tanh(scores[j] / a->softcap);
        max = fmax(max, scores[j]);
    }
    double shrink = exp(s->max - max);
    s->max = max;
    s->sum *= shrink;
    for (int32_t i = 0; i < a->head_dim; i++) s->out[i] *= shrink;
    for (int32_t j = 0; j < n; j++) {
        double weight = exp(scores[j] - max);
        load_head(&v, first + j, head, row);
        s->sum += weight;
        for (int32_t i = 0; i < a->head_dim; i++) s->out[i] += weight * row[i];
    }
}

static void attend_head(const struct attention_args *a, int64_t t, int64_t h) {
    const int32_t *pages = a->pages + (int64_t)a->sequences[t] * a->max_pages;
    int64_t kv_head = h / (a->n_heads / a->n_kv_heads), last = a->positions[t];
    int64_t key = a->window > 0 && last >= a->window ? last - a->window + 1 : 0;
    struct softmax s = {.max = -DBL_MAX}; // a key whose score is minus infinity has no weight
    if (a->sinks) s.max = a->sinks[h], s.sum = 1;
    while (key <= last) {
        int64_t in_page = key % KV_PAGE;
        int64_t n = last - key + 1 < KV_PAGE - in_page ? last - key + 1 : KV_PAGE - in_page;
        int64_t row = (int64_t)pages[key / KV_PAGE] * KV_PAGE + in_page;
        attend_page(a, a->q + (t * a->n_heads + h) * a->head_dim, row, kv_head, (int32_t)n, &s);
        key += n;
    }
    float *out = a->out + (t * a->n_heads + h) * a->head_dim;
    for (int32_t i = 0; i < a->head_dim; i++) out[i] = (float)(s.out[i] / s.sum);
}

static void attention(const struct lane *lane, const struct attention_args *a) {
    ASSERT(a->head_dim <= HEAD_DIM_MAX);
    ASSERT(a->n_heads % a->n_kv_heads == 0);
    ASSERT(dtype_bytes(a->k_type, (uint64_t)a->head_dim) > 0);
    ASSERT(dtype_bytes(a->v_type, (uint64_t)a->head_dim) > 0);
    int64_t first, last;
    lane_share(lane, (int64_t)a->n_tokens * a->n_heads, 1, &first, &last);
    for (int64_t item = first; item < last; item++)
        attend_head(a, item / a->n_heads, item % a->n_heads);
}

static double xielu(const struct xielu_numbers *n, double x) {
    const double p = x > 0 ? n->positive * x * x : n->negative * (expm1(fmin(x, n->top)) - x);
    return n->linear * x + p;
}

static double gated(const struct swiglu_args *a, double gate, double up) {
    switch (a->form) {
    case GLU_SILU: break;
    case GLU_GELU: // (1 + tanh(x)) / 2 = sigmoid(2 x); as a sum it is 0 where x is below -19
        return gate / (1 + exp(-1.5957691216057308 * (gate + 0.044715 * gate * gate * gate))) * up;
    case GLU_CLAMPED:
        gate = fmin(gate, a->limit);
        up = fmax(fmin(up, a->limit), -a->limit);
        return gate / (1 + exp(-1.702 * gate)) * (up + 1);
    case GLU_SIGMOID: return up / (1 + exp(-gate));
    case GLU_PRODUCT: return gate * up;
    case GLU_SQUARE: return gate > 0 ? gate * gate * up : 0;
    case GLU_XIELU: return xielu(&a->xielu, gate) * up;
    }
    return gate / (1 + exp(-gate)) * up;
}

static double share_of_row(const struct swiglu_args *a, int64_t row) {
    if (!a->row_gate) return 1;
    const double x = (double)a->row_gate[row];
    return a->row_form == ROW_SOFTPLUS ? softplus(x) : 1 / (1 + exp(-x));
}

static void swiglu(const struct lane *lane, const struct swiglu_args *a) {
    int64_t first, last;
    lane_share(lane, (int64_t)a->n_rows * a->n_cols, 64, &first, &last);
    for (int64_t item = first; item < last; item++) {
        const int64_t row = item / a->n_cols, column = item % a->n_cols;
        const int64_t i = row * a->stride + column;
        const double share = share_of_row(a, row);
        const double up = a->up ? a->up[row * a->up_stride + column] : 1;
        a->out[i] = (float)(share * gated(a, a->gate[i], up));
    }
}

static void gather_rows(const struct lane *lane, const struct gather_rows_args *a) {
    int64_t first, last;
    lane_share(lane, a->n_rows, 1, &first, &last);
    for (int64_t i = first; i < last; i++) {
        ASSERT(a->rows[i] >= 0 && a->rows[i] < a->n_x_rows);
        memcpy(a->out + i * a->n_cols, a->x + (int64_t)a->rows[i] * a->n_cols,
               (size_t)a->n_cols * sizeof *a->x);
    }
}

static void cap_logits(const struct lane *lane, const struct cap_logits_args *a) {
    int64_t first, last;
    lane_share(lane, (int64_t)a->n_rows * a->n_cols, 64, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const double x = (double)a->scale * a->x[i];
        a->x[i] = (float)(a->softcap > 0 ? a->softcap * tanh(x / a->softcap) : x);
    }
}

static void route(const struct lane *lane, const struct route_args *a) { cpu_route(lane, a); }

static void split_rows(const struct lane *lane, const struct split_rows_args *a) {
    const size_t first_bytes = (size_t)a->n_first * sizeof *a->x;
    const size_t second_bytes = (size_t)a->n_second * sizeof *a->x;
    int64_t i, last;
    lane_share(lane, a->n_rows, 8, &i, &last);
    for (; i < last; i++) {
        const float *x = a->x + i * (a->n_first + a->n_second);
        memcpy(a->first + i * a->first_stride, x, first_bytes);
        if (a->second) memcpy(a->second + i * a->second_stride, x + a->n_first, second_bytes);
    }
}

static void short_conv(const struct lane *lane, const struct short_conv_args *a) {
    cpu_short_conv(lane, a);
}

static void delta_rule(const struct lane *lane, const struct delta_rule_args *a) {
    cpu_delta_rule(lane, a);
}

static void mamba_scan(const struct lane *lane, const struct mamba_scan_args *a) {
    cpu_mamba_scan(lane, a);
}

// The table has one function per weight type.
#define WEIGHT(NAME, name, ...)                                                          \
    static void embed_##name(const struct lane *lane, const struct embed_args *args) {   \
        embed(WEIGHT_##NAME, lane, args);                                                \
    }                                                                                    \
    static void matmul_##name(const struct lane *lane, const struct matmul_args *args) { \
        matmul(WEIGHT_##NAME, lane, args);                                               \
    }                                                                                    \
    static void matmul_experts_##name(const struct lane *lane,                           \
                                      const struct matmul_experts_args *args) {          \
        matmul_experts(WEIGHT_##NAME, lane, args);                                       \
    }
#include "kernels/weights.def"
#undef WEIGHT

void cpu_table_ref(struct cpu_table *table) {
    *table = (struct cpu_table){
#define WEIGHT(NAME, name, ...)                                                   \
    .embed[WEIGHT_##NAME] = embed_##name, .matmul[WEIGHT_##NAME] = matmul_##name, \
    .matmul_experts[WEIGHT_##NAME] = matmul_experts_##name,
#include "kernels/weights.def"
#undef WEIGHT
#define OP(name, ...) .name = name,
#define OP_W(name, ...)
#include "kernels/ops.def"
#undef OP
#undef OP_W
    };
    for (int i = 0; i < WEIGHT_COUNT; i++)
        (void)snprintf(table->matmul_path[i], sizeof table->matmul_path[i], "ref");
}
