/* ops_neon.c: rms_norm, rope, kv_store, swiglu and cap_logits with NEON.
 *
 * Takes four elements at a time and the rest of a row in plain C or through a padded copy. These
 * ops read and write a few kilobytes per token, so a lane gets at least SHARE elements or none.
 * Owns nothing. Must not let an element's value depend on where a batch or a lane's share begins.
 * Emulated by qemu, not run on ARM hardware. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cpu/arm/arm.h"

#include "base/err.h"
#include "kernels/cpu/kv_block.h"
#include "kernels/cpu/rope_heads.h"
#include "kernels/cpu/softplus.h"
#include "kernels/cpu/arm/attention_neon.h"
#include "kernels/cpu/arm/quantize_neon.h"
#include "kernels/cpu/arm/vector_neon.h"

#include <math.h>
#include <string.h>

enum { SHARE = 1024 }; // elements that are worth waking a second lane for

// Sums the squares of what is left of x without its mean, in eight running sums and those of the
// rest.
static float sum_of_squares(const float *x, int32_t n, float mean) {
    const float32x4_t m = vdupq_n_f32(mean);
    float32x4_t a = vdupq_n_f32(0), b = a;
    float rest = 0;
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        float32x4_t u = vsubq_f32(vld1q_f32(x + i), m), v = vsubq_f32(vld1q_f32(x + i + 4), m);
        a = vfmaq_f32(a, u, u);
        b = vfmaq_f32(b, v, v);
    }
    for (; i < n; i++) rest += (x[i] - mean) * (x[i] - mean);
    return vaddvq_f32(vaddq_f32(a, b)) + rest;
}

// The mean of a row, in four running sums and that of the rest.
static float mean_of(const float *x, int32_t n) {
    float32x4_t a = vdupq_n_f32(0);
    float rest = 0;
    int32_t i = 0;
    for (; i + 4 <= n; i += 4) a = vaddq_f32(a, vld1q_f32(x + i));
    for (; i < n; i++) rest += x[i];
    return (vaddvq_f32(a) + rest) / (float)n;
}

// The numbers that all columns of a row share.
struct row_norm {
    float mean, factor, scale;
};

// out = (factor * (x - mean) * weight + bias + residual) * scale in one row.
static void norm_row(const struct rms_norm_args *a, int64_t row, const struct row_norm *norm) {
    const float *x = a->x + row * a->n_cols, *weight = a->weight;
    const float *residual = a->residual ? a->residual + row * a->n_cols : NULL;
    float *out = a->out + row * a->n_cols;
    int32_t c = 0;
    for (; c + 4 <= a->n_cols; c += 4) {
        float32x4_t v = vsubq_f32(vld1q_f32(x + c), vdupq_n_f32(norm->mean));
        v = vmulq_n_f32(v, norm->factor);
        if (weight) v = vmulq_f32(v, vld1q_f32(weight + c));
        if (a->bias) v = vaddq_f32(v, vld1q_f32(a->bias + c));
        if (residual) v = vaddq_f32(v, vld1q_f32(residual + c));
        vst1q_f32(out + c, vmulq_n_f32(v, norm->scale));
    }
    for (; c < a->n_cols; c++) {
        float v = norm->factor * (x[c] - norm->mean) * (weight ? weight[c] : 1);
        if (a->bias) v += a->bias[c];
        out[c] = (v + (residual ? residual[c] : 0)) * norm->scale;
    }
}

static void rms_norm(const struct lane *lane, const struct rms_norm_args *a) {
    const float scale = a->scale ? *a->scale : 1;
    int64_t first, last;
    lane_share(lane, a->n_rows, 1, &first, &last);
    for (int64_t row = first; row < last; row++) {
        const float *x = a->x + row * a->n_cols;
        const float mean = a->centred ? mean_of(x, a->n_cols) : 0;
        const float square = sum_of_squares(x, a->n_cols, mean) / (float)a->n_cols;
        norm_row(a, row, &(struct row_norm){mean, 1 / sqrtf(square + a->eps), scale});
    }
}

// Rotates the pairs (x, y) by the cosines and sines that lie side by side in turn.
static inline void turn(float32x4_t *x, float32x4_t *y, float32x4x2_t turn) {
    float32x4_t turned = vfmsq_f32(vmulq_f32(*x, turn.val[0]), *y, turn.val[1]);
    *y = vfmaq_f32(vmulq_f32(*y, turn.val[0]), *x, turn.val[1]);
    *x = turned;
}

// Rotates pairs (2i, 2i+1), four at a time; the table has cosine and sine side by side.
static void turn_adjacent(const struct rope_heads *heads, int32_t n_rot) {
    const float *const table = heads->table;
    float *const end = heads->first + (int64_t)heads->n * heads->dim;
    int32_t i = 0;
    for (; i + 8 <= n_rot; i += 8) {
        const float32x4x2_t turns = vld2q_f32(table + i);
        for (float *head = heads->first; head < end; head += heads->dim) {
            float32x4x2_t pairs = vld2q_f32(head + i);
            turn(&pairs.val[0], &pairs.val[1], turns);
            vst2q_f32(head + i, pairs);
        }
    }
    rope_turn_rest_adjacent(heads, i, n_rot);
}

// Rotates pairs (i, i + n_rot/2), four at a time.
static void turn_halves(const struct rope_heads *heads, int32_t n_rot) {
    const float *const table = heads->table;
    float *const end = heads->first + (int64_t)heads->n * heads->dim;
    const int32_t n_pairs = n_rot / 2;
    int32_t i = 0;
    for (; i + 4 <= n_pairs; i += 4) {
        const float32x4x2_t turns = vld2q_f32(table + (ptrdiff_t)2 * i);
        for (float *head = heads->first; head < end; head += heads->dim) {
            float32x4_t x = vld1q_f32(head + i), y = vld1q_f32(head + n_pairs + i);
            turn(&x, &y, turns);
            vst1q_f32(head + i, x);
            vst1q_f32(head + n_pairs + i, y);
        }
    }
    rope_turn_rest_halves(heads, i, n_rot);
}

static void rope(const struct lane *lane, const struct rope_args *a) {
    int64_t first, last;
    const int64_t grain = a->n_rot < SHARE ? SHARE / a->n_rot : 1;
    lane_share(lane, (int64_t)a->n_tokens * (a->n_heads + a->n_kv_heads), grain, &first, &last);
    while (first < last) {
        const struct rope_heads heads = rope_heads_at(a, first, last);
        a->neox ? turn_halves(&heads, a->n_rot) : turn_adjacent(&heads, a->n_rot);
        first += heads.n;
    }
}

// Activations are quantised as ops.h defines it for the cache, except for infinities and NaNs.
static void store_q8_0(uint8_t *block, const float *x) {
    struct act_head act;
    int8_t bytes[ACT_COLS];
    act_quantize(x, ACT_SUM, bytes, &act);
    const bool finite = isfinite(act.scale);
    const uint16_t d = finite ? float_to_half(act.scale) : 0x7e00;
    memcpy(block, &d, sizeof d);
    if (finite)
        memcpy(block + sizeof d, bytes, sizeof bytes);
    else
        memset(block + sizeof d, 0, sizeof bytes);
}

static void store_row(void *cache, enum dtype type, int64_t row, const float *x, int32_t n) {
    uint8_t *target = (uint8_t *)cache + dtype_bytes(type, (uint64_t)row * (uint64_t)n);
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
    int32_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1_u16(halves + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + i))));
    for (; i < n; i++) halves[i] = float_to_half(x[i]);
}

static void kv_store(const struct lane *lane, const struct kv_store_args *a) {
    ASSERT(a->order == KV_BY_ROW);
    int64_t first, last;
    lane_share(lane, a->n_tokens, 1, &first, &last);
    for (int64_t t = first; t < last; t++) {
        if (a->cache_rows[t] < 0) continue;
        store_row(a->k_cache, a->k_type, a->cache_rows[t], a->k + t * a->n_cols, a->n_cols);
        if (a->v)
            store_row(a->v_cache, a->v_type, a->cache_rows[t], a->v + t * a->n_cols, a->n_cols);
    }
}

// gate * sigmoid(x) * up
static inline float32x4_t gated_by(float32x4_t gate, float32x4_t x, float32x4_t up) {
    float32x4_t inverse = exp_neon(vnegq_f32(x));
    float32x4_t factor = vdivq_f32(gate, vaddq_f32(vdupq_n_f32(1), inverse));
    return vmulq_f32(factor, up);
}

static inline float32x4_t xielu(const struct xielu_numbers *n, float32x4_t x) {
    const float32x4_t one = vdupq_n_f32(1);
    float32x4_t above = vmulq_f32(vmulq_n_f32(x, n->positive), x);
    float32x4_t below = exp_neon(vminq_f32(x, vdupq_n_f32(n->top)));
    below = vmulq_n_f32(vsubq_f32(vsubq_f32(below, one), x), n->negative);
    float32x4_t part = vbslq_f32(vcgtq_f32(x, vdupq_n_f32(0)), above, below);
    return vfmaq_n_f32(part, x, n->linear);
}

// Every form but the last three is a sigmoid: (1 + tanh(x)) / 2 = sigmoid(2 x).
static inline float32x4_t gated(const struct swiglu_args *a, float32x4_t gate, float32x4_t up) {
    const float32x4_t limit = vdupq_n_f32(a->limit), one = vdupq_n_f32(1);
    if (a->form == GLU_GELU) {
        float32x4_t x = vmulq_f32(gate, gate);
        x = vfmaq_n_f32(vdupq_n_f32(1.5957691F), x, 0.044715F * 1.5957691F);
        return gated_by(gate, vmulq_f32(x, gate), up);
    }
    if (a->form == GLU_CLAMPED) {
        gate = vminq_f32(gate, limit);
        up = vmaxq_f32(vminq_f32(up, limit), vnegq_f32(limit));
        return gated_by(gate, vmulq_n_f32(gate, 1.702F), vaddq_f32(up, one));
    }
    if (a->form == GLU_PRODUCT) return vmulq_f32(gate, up);
    if (a->form == GLU_SQUARE) {
        gate = vmaxq_f32(gate, vdupq_n_f32(0));
        return vmulq_f32(vmulq_f32(gate, gate), up);
    }
    if (a->form == GLU_XIELU) return vmulq_f32(xielu(&a->xielu, gate), up);
    if (a->form == GLU_SIGMOID) return gated_by(one, gate, up);
    return gated_by(gate, gate, up);
}

// share: what multiplies all elements of the run, whose columns of up have the same numbers; ups
// may be NULL.
static void swiglu_run(const struct swiglu_args *a, const float *ups, float share, int64_t i,
                       int64_t last) {
    for (; i + 4 <= last; i += 4) {
        float32x4_t up = ups ? vld1q_f32(ups + i) : vdupq_n_f32(1);
        float32x4_t made = gated(a, vld1q_f32(a->gate + i), up);
        vst1q_f32(a->out + i, vmulq_n_f32(made, share));
    }
    if (i == last) return;
    const size_t rest_bytes = (size_t)(last - i) * sizeof(float);
    float gate[4] = {0}, up[4] = {1, 1, 1, 1};
    memcpy(gate, a->gate + i, rest_bytes);
    if (ups) memcpy(up, ups + i, rest_bytes);
    vst1q_f32(gate, vmulq_n_f32(gated(a, vld1q_f32(gate), vld1q_f32(up)), share));
    memcpy(a->out + i, gate, rest_bytes);
}

static void swiglu(const struct lane *lane, const struct swiglu_args *a) {
    int64_t item, last;
    // Rows without gaps and without gates of their own are one long row.
    const bool joined = a->n_cols == a->stride && a->n_cols == a->up_stride && !a->row_gate;
    const int64_t count = (int64_t)a->n_rows * a->n_cols, n_cols = joined ? count : a->n_cols;
    lane_share(lane, count, SHARE, &item, &last);
    while (item < last) {
        const int64_t row = item / n_cols,
                      end = (row + 1) * n_cols < last ? (row + 1) * n_cols : last;
        const int64_t gap = row * (a->stride - a->n_cols);
        const float share = swiglu_share(a, row);
        const float *ups = a->up ? a->up + row * (a->up_stride - a->stride) : NULL;
        swiglu_run(a, ups, share, item + gap, end + gap);
        item = end;
    }
}

static void cap_logits(const struct lane *lane, const struct cap_logits_args *a) {
    int64_t i, last;
    lane_share(lane, (int64_t)a->n_rows * a->n_cols, SHARE, &i, &last);
    for (; i < last; i += 4) {
        const size_t n_bytes = (size_t)(last - i < 4 ? last - i : 4) * sizeof(float);
        float values[4] = {0};
        memcpy(values, a->x + i, n_bytes);
        float32x4_t x = vmulq_n_f32(vld1q_f32(values), a->scale);
        vst1q_f32(values, a->softcap > 0 ? cap_neon(x, a->softcap) : x);
        memcpy(a->x + i, values, n_bytes);
    }
}

void cpu_ops_neon(struct cpu_table *table) {
    table->rms_norm = rms_norm;
    table->rope = rope;
    table->kv_store = kv_store;
    table->attention = attention_neon;
    table->swiglu = swiglu;
    table->cap_logits = cap_logits;
}
