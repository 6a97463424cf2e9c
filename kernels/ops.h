/* ops.h: the arguments of every op and the table in which a backend puts its kernels.
 *
 * An argument struct begins with its pointers, as many as ops.def says. They are addresses in the
 * memory of the device whose table is called; the host never follows them. An op only encodes: it
 * copies its arguments, returns at once, and its outputs exist after stream_wait or on the same
 * stream. Everything is F32 row-major and contiguous unless said. Outputs must not overlap inputs
 * unless said. kernels/cpu/ref.c is the definition of each op. Any thread, one at a time per
 * stream. Tested by tests/kernels/check_ops.c.
 *
 * A batch is n_tokens tokens, each with a position and a sequence; sequences share one KV cache
 * through page tables.
 */
#ifndef TANDEM_KERNELS_OPS_H
#define TANDEM_KERNELS_OPS_H

#include "kernels/dtypes.h"

#include <stdbool.h>
#include <stdint.h>

struct stream; // device.h

enum {
    KV_PAGE = 64,          // positions in one page of the KV cache
    HEAD_DIM_MAX = 576,    // largest head_dim of attention, a multiple of 2
    EXPERTS_MAX = 1024,    // experts of one layer
    EXPERTS_USED_MAX = 32, // experts that one token goes to
    CONV_TAPS_MAX = 8,     // inputs of a short convolution, at least 2
    DELTA_DIM_MAX = 256,   // largest head_dim of the delta rule
    MAMBA_STATE_MAX = 256, // largest n_state of the scan of a state space model
};

// out[t] = scale * dequantised row tokens[t] of table.
struct embed_args {
    float *out;            // [n_tokens, n_cols]
    const void *table;     // [n_rows, n_cols] of the weight type
    const int32_t *tokens; // [n_tokens], each in 0..n_rows-1
    int32_t n_tokens, n_cols, n_rows;
    float scale;
};

// out = (y * weight / sqrt(mean(y^2) + eps) + bias + residual) * scale, per row, where y is x, or x
// less its mean (centred). out may be x or residual. Sources: Zhang and Sennrich 2019; centred, Ba
// et al. 2016.
struct rms_norm_args {
    float *out;            // [n_rows, n_cols]
    const float *x;        // [n_rows, n_cols]
    const float *weight;   // [n_cols] or NULL: all 1
    const float *residual; // [n_rows, n_cols] or NULL
    const float *scale;    // [1] or NULL: 1
    const float *bias;     // [n_cols] or NULL
    int32_t n_rows, n_cols;
    float eps;
    bool centred;
};

// out[t][r] = sum_c weight[r][c] * x[t][c] (+ bias[r]) (+ residual[t][r]) for r in
// row_first..row_first+row_count-1; other columns of out stay untouched, so a matrix can be split
// by rows between devices. The result for a token does not depend on which other tokens or rows are
// in the call: bit for bit the same for every n_tokens and row range (but for rounding, on a device
// that says so: device_info.rounds_by_batch).
struct matmul_args {
    float *out;     // [n_tokens, out_stride]
    const float *x; // [n_tokens, n_cols]
    const void
        *weight; // [n_rows, n_cols] of the weight type, whole (row_first is counted from here)
    const float *bias;     // [n_rows] or NULL
    const float *residual; // [n_tokens, out_stride] or NULL; may be out
    void *scratch; // matmul_scratch_bytes(type, n_cols, n_tokens, lanes) bytes, 64-byte aligned
    int32_t n_tokens, n_cols, row_first, row_count, out_stride;
};

// out[t][i] = magnitude * (cos, sin) of the angle by which pair i is rotated at positions[t]. With
// f = base^(-2i/n_rot) / freq_factors[i]: angle = position * (scale*f*(1-mix_i) + f*mix_i), where
// mix_i = ext_factor * (1 - clamp((i - corr_low) / max(0.001, corr_high - corr_low), 0, 1)).
// With a temperature, magnitude is also times 1 + temperature * ln(1 + positions[t] / period), the
// quotient rounded down. Sources: Su et al. 2021; YaRN, Peng et al. 2023; temperature, Nakanishi
// 2025.
struct rope_table_args {
    float *out;                // [n_tokens, n_rot/2, 2]
    const int32_t *positions;  // [n_tokens]
    const float *freq_factors; // [n_rot/2] or NULL
    int32_t n_tokens, n_rot;
    int32_t period; // of the temperature, at least 1; 0: none
    float temperature;
    float base, scale, magnitude;          // scale: 1/factor of linear or YaRN scaling, 1 without
    float ext_factor, corr_low, corr_high; // ext_factor 0: no YaRN
};

// Rotates the first n_rot elements of every head of q and k in place: pairs (2i, 2i+1), or (i, i +
// n_rot/2) if neox.
struct rope_args {
    float *q;           // [n_tokens, n_heads, head_dim]
    float *k;           // [n_tokens, n_kv_heads, head_dim]
    const float *table; // [n_tokens, n_rot/2, 2] from rope_table
    int32_t n_tokens, n_heads, n_kv_heads, head_dim, n_rot;
    bool neox;
};

// How a page of a KV cache lies in memory; it takes the same bytes either way. kv_page.h has the
// strides. Only a CPU reads a cache by head, and only if device_info says so.
enum kv_order {
    KV_BY_ROW, // [KV_PAGE, n_kv_heads, head_dim]
    // Values of floats and halves: [n_kv_heads, KV_PAGE, head_dim]; keys [n_kv_heads, head_dim,
    // KV_PAGE], so that a vector holds an element of many keys. A head of blocks: its scales
    // [n_blocks, KV_PAGE], then the bytes of the blocks' numbers, n of each: of keys [KV_PAGE / 32,
    // n_blocks * n / 4, 32, 4], of values [n_blocks, KV_PAGE / 2, n, 2].
    KV_BY_HEAD,
};

// Writes row t of k and v into row cache_rows[t] of the caches, converted to their types: F32; F16,
// nearest even; or Q8_0 or Q4_0, with n_cols a multiple of 32. Blocks are the same bytes on every
// device: with top the element of largest magnitude of 32, the first of those, all in float,
// Q8_0: d = half(|top| / 127) and q = x * (127 / |top|), to the nearest, ties to even;
// Q4_0: d = half(top / -8) and q = min(15, x * (-8 / top) + 8), to the nearest, ties upwards.
// Where |top| < 1e-30 the product is 0. A block with an infinity or a NaN becomes d = NaN (0x7e00),
// q = 0.
struct kv_store_args {
    void *k_cache, *v_cache;   // [n_pages * KV_PAGE, n_cols] of k_type and v_type
    const float *k, *v;        // [n_tokens, n_cols]; v may be NULL: only keys are stored
    const int32_t *cache_rows; // [n_tokens], page * KV_PAGE + place in the page; < 0: not stored
    int32_t n_tokens, n_cols;
    enum dtype k_type, v_type;
    enum kv_order order;
    int32_t head_dim; // divides n_cols if the order is by head
};

// out[t][h] = softmax(scale * q[t][h] . K) V over the keys at positions max(0, p - window + 1)..p
// of the token's own sequence, p = positions[t]; window 0 means all. Key j of sequence s lies in
// cache row pages[s][j / KV_PAGE] * KV_PAGE
// + j % KV_PAGE. Query head h reads kv head h / (n_heads / n_kv_heads). softcap c > 0: scores
// become c * tanh(s / c). A sink is one more score of its head, without a value. The result for a
// token does not depend on the rest of the batch. Rows of the caches that no token sees may hold
// anything. A value that is not finite reaches the tokens that see it, and on GPUs perhaps others
// of the call: tiles of many tokens multiply what a token does not see by zero. A score of minus
// infinity has no weight. Source: Vaswani et al. 2017; online softmax, Milakov and Gimelshein 2018;
// paging, Kwon et al. 2023; sinks, Xiao et al. 2023.
struct attention_args {
    float *out;                    // [n_tokens, n_heads, head_dim]
    const float *q;                // [n_tokens, n_heads, head_dim]
    const void *k_cache, *v_cache; // pages of k_type and v_type, whose blocks divide head_dim
    const int32_t *pages;          // [n_sequences, max_pages]
    const int32_t *positions;      // [n_tokens]
    const int32_t *sequences;      // [n_tokens], row of pages
    const float *sinks;            // [n_heads] or NULL
    int32_t n_tokens, n_heads, n_kv_heads, head_dim, max_pages, window;
    enum dtype k_type, v_type;
    enum kv_order order;
    int32_t zero; // 0, in place of padding: equal arguments are equal bytes
    float scale, softcap;
};

// Forms of gated linear units.
enum glu {
    GLU_SILU,    // gate * sigmoid(gate) * up
    GLU_GELU,    // gate / 2 * (1 + tanh(sqrt(2/pi) * (gate + 0.044715 gate^3))) * up
    GLU_CLAMPED, // g * sigmoid(1.702 g) * (u + 1) with g = min(gate, limit) and u = up within
                 // -limit..limit
    GLU_SIGMOID, // sigmoid(gate) * up
    GLU_PRODUCT, // gate * up
    GLU_SQUARE,  // max(gate, 0)^2 * up
    GLU_XIELU,   // (linear * gate + p) * up, where p is positive * gate^2 if gate > 0, else
                 // negative * (e^min(gate, top) - 1 - gate)
};

// Forms of the gate of a whole row.
enum row_gating {
    ROW_SIGMOID,  // 1 / (1 + e^-x)
    ROW_SOFTPLUS, // ln(1 + e^x)
};

// The numbers of GLU_XIELU.
struct xielu_numbers {
    float positive, negative, linear, top;
};

// out = the unit of gate and up (1 where there is none) in the first n_cols columns, times the
// row_form of its row's row_gate if there are such gates; other columns of out stay untouched. out
// may be gate or up. An up_stride of 0 lets all rows have one row of up. Sources: Shazeer 2020;
// GELU, Hendrycks and Gimpel 2016; squares, So et al. 2021; xIELU, Huang and Schlag 2024; softplus,
// Dugas et al. 2001.
struct swiglu_args {
    float *out;            // [n_rows, stride]
    const float *gate;     // [n_rows, stride]
    const float *up;       // [n_rows, up_stride] or NULL; if it is out, up_stride is stride
    const float *row_gate; // [n_rows] or NULL
    int32_t n_rows, n_cols, stride, up_stride;
    enum glu form;
    enum row_gating row_form;
    float limit; // of GLU_CLAMPED
    struct xielu_numbers xielu;
};

// out[i] = x[rows[i]]: only the rows whose logits are wanted go to the head.
struct gather_rows_args {
    float *out;          // [n_rows, n_cols]
    const float *x;      // [n_x_rows, n_cols]
    const int32_t *rows; // [n_rows], each in 0..n_x_rows-1
    int32_t n_rows, n_cols, n_x_rows;
};

// x = scale * x, then with softcap c > 0 c * tanh(x / c), in place.
struct cap_logits_args {
    float *x; // [n_rows, n_cols]
    int32_t n_rows, n_cols;
    float scale, softcap;
};

// The function from a router's logits to the weights of experts. GATE_CHOSEN is softmax over the
// chosen logits alone.
enum expert_gate { GATE_SOFTMAX, GATE_SIGMOID, GATE_CHOSEN };

// Chooses n_used experts for each token and sorts the pairs (token, place among its experts) by
// expert. With g = softmax of the token's logits, their sigmoid, or (GATE_CHOSEN) the logits
// themselves: the score of expert e is g[e] + selection_bias[e], or, where there is neither a bias
// nor groups, the logit itself, which has the same order and is not rounded. With n_groups > 1 the
// experts are that many equal runs; only those in the n_groups_used groups with the largest sum of
// their two best scores can be chosen, or (groups_by_best) with the largest best score. The n_used
// best scores win, the best first; of equal ones, and of equal groups, the lower number; a NaN is
// less than everything. weights = g of the chosen
// (GATE_CHOSEN: softmax over their logits); if normalise, divided by max(their sum, 2^-14), a sum
// that is NaN counting as 0; times scale; times expert_scale[e]. Sources: Shazeer et al. 2017;
// groups by their best score, DeepSeek-V2 2024; by two, and the bias, DeepSeek-V3 2024.
struct route_args {
    int32_t *chosen; // [n_tokens, n_used]
    float *weights;  // [n_tokens, n_used]
    int32_t *starts; // [n_experts + 1]: pairs of expert e are order[starts[e]..starts[e+1]-1]
    int32_t *order;  // [n_tokens * n_used], pairs token * n_used + place, by expert, then ascending
    const float *logits;                 // [n_tokens, n_experts]
    const float *selection_bias;         // [n_experts] or NULL
    const float *expert_scale;           // [n_experts] or NULL
    int32_t n_tokens, n_experts, n_used; // n_used <= n_experts, at most the limits above
    int32_t n_groups, n_groups_used;     // n_groups 0 or 1: none; else n_experts is a multiple of
                                         // it, with at least 2 experts and n_used in what remains
    enum expert_gate gate;
    bool normalise, groups_by_best;
    float scale;
};

// For each pair i of expert e = its chosen expert: out[i][r] = sum_c W[r][c] * x[i or its
// token][c] (+ bias[e][r]) for r in row_first..row_first+row_count-1, where W is the matrix that
// starts slots[e] * slot_bytes after weight. Where slots[e] is negative, the expert is not on this
// device and the rows of its pairs stay untouched. The result for a pair does not depend on the
// other pairs, tokens or rows (as for matmul). Without slots, starts and order every token goes to
// every expert: n_used is n_experts, pair t * n_used + e is of expert e, which is in slot e. So a
// matrix of each attention head is multiplied.
struct matmul_experts_args {
    float *out;           // [n_tokens * n_used, out_stride]
    const float *x;       // [n_tokens, n_cols], or if x_per_pair [n_tokens * n_used, n_cols]
    const void *weight;   // slots of slot_bytes, each [n_rows, n_cols] of the weight type at first
    const int32_t *slots; // [n_experts]: where the expert is; several may share a slot; or NULL
    const float *bias;    // [n_experts, n_rows] or NULL
    const int32_t *starts, *order; // from route, or NULL with slots
    void *scratch;       // matmul_scratch_bytes(type, n_cols, rows of x, lanes), 64-byte aligned
    uint64_t slot_bytes; // a multiple of 16
    int32_t n_tokens, n_used, n_experts, n_cols, n_rows, row_first, row_count, out_stride;
    bool x_per_pair;
};

// out[t] = (residual[t] +) sum_k weights[t][k] * x[t * n_used + k], k ascending, over the experts
// chosen[t][k] with slots[..] >= 0; the other rows of x are not read. Those of other experts are
// rows of absent, if there is one, and are left out else.
struct combine_experts_args {
    float *out;            // [n_tokens, n_cols]; may be residual
    const float *x;        // [n_tokens * n_used, n_cols]
    const float *weights;  // [n_tokens, n_used]
    const int32_t *chosen; // [n_tokens, n_used], each in 0..n_experts-1; read with slots only
    const int32_t *slots;  // [n_experts], or NULL: all are here
    const float *residual; // [n_tokens, n_cols] or NULL
    const float *absent;   // [n_tokens * n_used, n_cols] or NULL
    int32_t n_tokens, n_cols, n_used, n_experts;
};

// Parts rows: first[i] = x[i][0..n_first-1], second[i] = the rest of x[i]. Other columns of first
// and second stay untouched.
struct split_rows_args {
    float *first;   // [n_rows, first_stride]
    float *second;  // [n_rows, second_stride], or NULL: the rest is left out
    const float *x; // [n_rows, n_first + n_second]
    int32_t n_rows, n_first, n_second, first_stride, second_stride;
};

// The next three ops take the tokens in order, and each token makes a new state of an old one.
// Token t reads state steps[t][0], or zeros if that is negative, and writes state steps[t][1],
// which may be the same. A token of the same call may read it, so the tokens of a sequence form a
// chain, and chains may be mixed. A state that a later token of the call overwrites need not reach
// memory. The result for a token depends on the values of its state alone, not on where the chain
// was cut.

// out[t][c] = silu(sum_j weight[c][j] * input[j] (+ bias[c])), j = 0..n_taps-1: the last input is
// x[t][c], those before it are the state's, which then holds the last n_taps - 1 of them, the
// oldest first. A plain one leaves out silu.
struct short_conv_args {
    float *out;           // [n_tokens, n_cols]
    float *states;        // [states, n_taps - 1, n_cols]
    const float *x;       // [n_tokens, x_stride], of which the first n_cols columns are read
    const float *weight;  // [n_cols, n_taps]
    const float *bias;    // [n_cols] or NULL
    const int32_t *steps; // [n_tokens, 2]
    int32_t n_tokens, n_cols, x_stride, n_taps;
    bool is_plain;
};

// The order in which value heads share key heads.
enum key_order {
    KEYS_TILED,   // head h has key head h % n_key_heads
    KEYS_GROUPED, // head h has key head h / (n_heads / n_key_heads)
};

// The gated delta rule. For head h of token t with its state S, and q and k scaled to length 1 (x /
// sqrt(sum x^2 + eps)), q also by 1 / sqrt(head_dim): with g = exp(a[h] * ln(1 + e^(alpha[t][h] +
// dt_bias[h]))), S = g S, then S = S + sigmoid(beta[t][h]) * k (v - k S), and out[t][h] = q S.
// Source: Yang, Kautz and Hatamizadeh 2024.
struct delta_rule_args {
    float *out;                // [n_tokens, n_heads, head_dim]
    float *states;             // [states, n_heads, head_dim of k, head_dim of v]
    const float *qkv;          // [n_tokens, q then k of n_key_heads, v of n_heads; head_dim each]
    const float *alpha, *beta; // [n_tokens, n_heads]
    const float *a, *dt_bias;  // [n_heads]
    const int32_t *steps;      // [n_tokens, 2]
    int32_t n_tokens, n_heads, n_key_heads, head_dim; // n_heads is a multiple of n_key_heads
    enum key_order order;
    float eps;
};

// The scan of a state space model. For head h of token t with its state S, its group g = h /
// (n_heads / n_groups), and s = ln(1 + e^(dt[t][h] + dt_bias[h])): S = e^(a[h] s) S + s x_h B_g^T
// and out[t][h] = S C_g + d[h] x_h. Source: Mamba-2, Dao and Gu 2024.
struct mamba_scan_args {
    float *out;                          // [n_tokens, n_heads, head_dim]
    float *states;                       // [states, n_heads, head_dim, n_state]
    const float *x;                      // [n_tokens, x of n_heads, head_dim each; then B and C of
                                         // n_groups, n_state each]
    const float *dt;                     // [n_tokens, dt_stride], of which n_heads are read
    const float *a, *d, *dt_bias;        // [n_heads]
    const int32_t *steps;                // [n_tokens, 2]
    int32_t n_tokens, n_heads, n_groups; // n_heads is a multiple of n_groups
    int32_t head_dim, n_state, dt_stride;
};

// One per backend, filled by expanding ops.def in order; no entry may be NULL, and those of OP_W
// take every weight type.
struct op_table {
#define OP(name, ...)   void (*name)(struct stream *, const struct name##_args *);
#define OP_W(name, ...) void (*name)(struct stream *, enum weight_type, const struct name##_args *);
#include "kernels/ops.def"
#undef OP
#undef OP_W
};

#endif
