/* op_cost.c: see op_cost.h. Bytes are those of a perfect kernel: each input read once, each output
 * written once, caches ignored. Tested by tests/kernels/check_ops.c. */
#include "kernels/op_cost.h"

#include "base/mem.h"

#include <math.h>

static uint64_t product(int64_t a, int64_t b) { return (uint64_t)a * (uint64_t)b; }

static uint64_t floats(int64_t a, int64_t b) { return product(a, b) * sizeof(float); }

struct op_cost op_cost_embed(enum weight_type type, const struct embed_args *a) {
    uint64_t row_bytes = dtype_bytes(weight_dtype(type), (uint64_t)a->n_cols);
    return (struct op_cost){
        .weight_bytes = (uint64_t)a->n_tokens * row_bytes,
        .read_bytes = floats(a->n_tokens, 1),
        .written_bytes = floats(a->n_tokens, a->n_cols),
        .flops = (double)product(a->n_tokens, a->n_cols),
    };
}

struct op_cost op_cost_rms_norm(const struct rms_norm_args *a, int64_t n_keys) {
    (void)n_keys;
    return (struct op_cost){
        .read_bytes = floats((a->residual ? 2 : 1) * (int64_t)a->n_rows + (a->weight ? 1 : 0) +
                                 (a->bias ? 1 : 0),
                             a->n_cols) +
                      (a->scale ? floats(1, 1) : 0),
        .written_bytes = floats(a->n_rows, a->n_cols),
        .flops = 4.0 * (double)product(a->n_rows, a->n_cols),
    };
}

struct op_cost op_cost_matmul(enum weight_type type, const struct matmul_args *a) {
    uint64_t row_bytes = dtype_bytes(weight_dtype(type), (uint64_t)a->n_cols);
    uint64_t outputs = floats(a->n_tokens, a->row_count);
    return (struct op_cost){
        .weight_bytes = (uint64_t)a->row_count * row_bytes,
        .read_bytes = floats(a->n_tokens, a->n_cols) + (a->bias ? floats(a->row_count, 1) : 0) +
                      (a->residual ? outputs : 0),
        .written_bytes = outputs,
        .flops = 2.0 * (double)product(a->n_tokens, a->row_count) * a->n_cols,
    };
}

struct op_cost op_cost_rope_table(const struct rope_table_args *a, int64_t n_keys) {
    (void)n_keys;
    return (struct op_cost){
        .read_bytes = floats(a->n_tokens, 1) + (a->freq_factors ? floats(a->n_rot / 2, 1) : 0),
        .written_bytes = floats(a->n_tokens, a->n_rot),
        .flops = 20.0 * (double)product(a->n_tokens, a->n_rot), // about 20 for a sine or a cosine
    };
}

struct op_cost op_cost_rope(const struct rope_args *a, int64_t n_keys) {
    (void)n_keys;
    uint64_t turned = floats(a->n_tokens, a->n_heads + a->n_kv_heads) * (uint64_t)a->n_rot;
    return (struct op_cost){
        .read_bytes = turned + floats(a->n_tokens, a->n_rot),
        .written_bytes = turned,
        .flops = 3.0 * (double)turned / sizeof(float),
    };
}

struct op_cost op_cost_kv_store(const struct kv_store_args *a, int64_t n_keys) {
    (void)n_keys;
    uint64_t elements = product(a->n_tokens, a->n_cols);
    uint64_t values = a->v ? elements : 0;
    return (struct op_cost){
        .read_bytes = (elements + values) * sizeof(float) + floats(a->n_tokens, 1),
        .written_bytes = dtype_bytes(a->k_type, elements) + dtype_bytes(a->v_type, values),
    };
}

// The tokens are taken to be of one sequence, so its cache rows count once; for tokens of several
// sequences add the costs of each.
struct op_cost op_cost_attention(const struct attention_args *a, int64_t n_keys) {
    uint64_t elements = product(n_keys, (int64_t)a->n_kv_heads * a->head_dim);
    uint64_t outputs = floats(a->n_tokens, (int64_t)a->n_heads * a->head_dim);
    return (struct op_cost){
        .read_bytes = dtype_bytes(a->k_type, elements) + dtype_bytes(a->v_type, elements) +
                      outputs + floats(a->n_tokens, 2) + (a->sinks ? floats(a->n_heads, 1) : 0),
        .written_bytes = outputs,
        .flops = 4.0 * (double)product(a->n_tokens, n_keys) * a->n_heads * a->head_dim,
    };
}

struct op_cost op_cost_swiglu(const struct swiglu_args *a, int64_t n_keys) {
    (void)n_keys;
    uint64_t made = floats(a->n_rows, a->n_cols);
    return (struct op_cost){
        .read_bytes = (a->up ? 2 : 1) * made + (a->row_gate ? floats(a->n_rows, 1) : 0),
        .written_bytes = made,
        // An exponential, a division and two products.
        .flops = 15.0 * (double)product(a->n_rows, a->n_cols),
    };
}

struct op_cost op_cost_gather_rows(const struct gather_rows_args *a, int64_t n_keys) {
    (void)n_keys;
    uint64_t moved = floats(a->n_rows, a->n_cols);
    return (struct op_cost){.read_bytes = moved + floats(a->n_rows, 1), .written_bytes = moved};
}

struct op_cost op_cost_cap_logits(const struct cap_logits_args *a, int64_t n_keys) {
    (void)n_keys;
    uint64_t capped = floats(a->n_rows, a->n_cols);
    return (struct op_cost){
        .read_bytes = capped,
        .written_bytes = capped,
        .flops = 15.0 * (double)product(a->n_rows, a->n_cols), // an exponential and a division
    };
}

struct op_cost op_cost_route(const struct route_args *a, int64_t n_keys) {
    (void)n_keys;
    uint64_t pairs = product(a->n_tokens, a->n_used);
    int32_t n_tables = (a->selection_bias ? 1 : 0) + (a->expert_scale ? 1 : 0);
    return (struct op_cost){
        .read_bytes = floats(a->n_tokens, a->n_experts) + floats(n_tables, a->n_experts),
        .written_bytes =
            pairs * (2 * sizeof(int32_t) + sizeof(float)) + floats(a->n_experts + 1, 1),
        .flops = 20.0 * (double)product(a->n_tokens, a->n_experts), // an exponential each
    };
}

double op_cost_distinct_experts(double n_tokens, int32_t n_experts, int32_t n_used) {
    return n_experts * (1 - pow(1 - (double)n_used / n_experts, n_tokens));
}

double op_cost_uneven_experts(double n_tokens, int32_t n_experts, int32_t n_used, double share) {
    if (!(share < 1)) return 1;
    const double chosen = op_cost_distinct_experts(n_tokens, n_experts, n_used);
    const double variance = chosen * share * (1 - share) * (n_experts - chosen) / (n_experts - 1.0);
    return 1 + 0.4 * sqrt(variance) / (chosen * share);
}

struct op_cost op_cost_matmul_experts(enum weight_type type, const struct matmul_experts_args *a) {
    uint64_t pairs = product(a->n_tokens, a->n_used);
    uint64_t row_bytes = dtype_bytes(weight_dtype(type), (uint64_t)a->n_cols);
    double n_rows = a->row_count * op_cost_distinct_experts(a->n_tokens, a->n_experts, a->n_used);
    return (struct op_cost){
        .weight_bytes = (uint64_t)llround(n_rows * (double)row_bytes),
        .read_bytes = (a->bias ? (uint64_t)llround(n_rows * sizeof(float)) : 0) +
                      floats(a->x_per_pair ? (int64_t)pairs : a->n_tokens, a->n_cols) +
                      floats(2 * (int64_t)a->n_experts + 1, 1) + floats((int64_t)pairs, 1),
        .written_bytes = floats((int64_t)pairs, a->row_count),
        .flops = 2.0 * (double)product((int64_t)pairs, a->row_count) * a->n_cols,
    };
}

// Counts all experts as if they were on this device.
struct op_cost op_cost_combine_experts(const struct combine_experts_args *a, int64_t n_keys) {
    (void)n_keys;
    uint64_t pairs = product(a->n_tokens, a->n_used), outputs = floats(a->n_tokens, a->n_cols);
    return (struct op_cost){
        .read_bytes = floats((int64_t)pairs, a->n_cols) + floats((int64_t)pairs, a->slots ? 3 : 2) +
                      (a->residual ? outputs : 0),
        .written_bytes = outputs,
        .flops = 2.0 * (double)pairs * a->n_cols,
    };
}

struct op_cost op_cost_split_rows(const struct split_rows_args *a, int64_t n_keys) {
    (void)n_keys;
    uint64_t moved = floats(a->n_rows, a->n_first + (a->second ? a->n_second : 0));
    return (struct op_cost){.read_bytes = moved, .written_bytes = moved};
}

// The tokens are taken to be of one sequence, here, in the delta rule and in a scan, so a state
// counts once.
struct op_cost op_cost_short_conv(const struct short_conv_args *a, int64_t n_keys) {
    (void)n_keys;
    uint64_t state = floats(a->n_taps - 1, a->n_cols), moved = floats(a->n_tokens, a->n_cols);
    return (struct op_cost){
        .read_bytes = moved + floats(a->n_taps + (a->bias ? 1 : 0), a->n_cols) +
                      floats(a->n_tokens, 2) + state,
        .written_bytes = moved + state,
        // The products, then an exponential and a division.
        .flops = (2.0 * a->n_taps + 15) * (double)product(a->n_tokens, a->n_cols),
    };
}

struct op_cost op_cost_delta_rule(const struct delta_rule_args *a, int64_t n_keys) {
    (void)n_keys;
    int64_t n_heads = a->n_heads, width = n_heads * a->head_dim;
    uint64_t state = floats(width, a->head_dim);
    return (struct op_cost){
        .read_bytes = floats(a->n_tokens, width + 2 * (int64_t)a->n_key_heads * a->head_dim) +
                      floats(a->n_tokens, 2 * n_heads + 2) + floats(2, n_heads) + state,
        .written_bytes = floats(a->n_tokens, width) + state,
        // A product with the state before and after it changes, its decay and its change.
        .flops = 7.0 * (double)product(a->n_tokens, width) * a->head_dim,
    };
}

struct op_cost op_cost_mamba_scan(const struct mamba_scan_args *a, int64_t n_keys) {
    (void)n_keys;
    const int64_t width = (int64_t)a->n_heads * a->head_dim;
    const uint64_t state = floats(width, a->n_state);
    return (struct op_cost){
        .read_bytes = floats(a->n_tokens, width + 2 * (int64_t)a->n_groups * a->n_state) +
                      floats(a->n_tokens, a->n_heads + 2) + floats(3, a->n_heads) + state,
        .written_bytes = floats(a->n_tokens, width) + state,
        // The decay, what is taken up, and a product with the state.
        .flops = 5.0 * (double)product(a->n_tokens, width) * a->n_state,
    };
}

// A row of quantised activations ends with 64 bytes to spare, so that rows whose length is a
// multiple of 4096 bytes do not all fall into the same cache sets.
uint64_t matmul_scratch_bytes(enum weight_type type, int32_t n_cols, int32_t n_tokens,
                              int32_t n_lanes) {
    const uint64_t groups = ((uint64_t)n_cols + 31) / 32;
    const uint64_t group_bytes = type == WEIGHT_BF16 ? 64 : 40;
    const uint64_t rows = (uint64_t)(n_tokens > n_lanes ? n_tokens : n_lanes);
    return round_up(groups * group_bytes + 64, 64) * rows;
}
