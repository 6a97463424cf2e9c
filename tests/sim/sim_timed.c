/* sim_timed.c: see sim_timed.h. */
#include "tests/sim/sim_timed.h"

#include "kernels/op_cost.h"

#include <string.h>

bool sim_is_timed(const struct sim_spec *spec) { return spec->read || spec->flops; }

// ---- Costs --------------------------------------------------------------------------------------

// Pairs of an expert that is on this device, else 0.
static int32_t pairs_here(const struct matmul_experts_args *a, int32_t expert) {
    if (!a->order) return a->n_tokens;
    return a->slots && a->slots[expert] < 0 ? 0 : a->starts[expert + 1] - a->starts[expert];
}

// Counts the experts that the tables name, where op_cost_matmul_experts expects some.
static struct op_cost cost_of_experts(enum weight_type type, const struct matmul_experts_args *a) {
    struct op_cost cost = op_cost_matmul_experts(type, a);
    const uint64_t row_bytes = dtype_bytes(weight_dtype(type), (uint64_t)a->n_cols);
    uint64_t n_experts = 0, n_pairs = 0;
    for (int32_t e = 0; e < a->n_experts; e++) {
        const int32_t n = pairs_here(a, e);
        n_experts += n > 0;
        n_pairs += (uint64_t)n;
    }
    const uint64_t outputs = n_pairs * (uint64_t)a->row_count;
    cost.weight_bytes = n_experts * (uint64_t)a->row_count * row_bytes;
    cost.written_bytes = outputs * sizeof(float);
    cost.flops = 2.0 * (double)outputs * a->n_cols;
    return cost;
}

// Each token computes the keys that it sees; those that the last one sees are read.
static struct op_cost cost_of_attention(const struct attention_args *a) {
    int64_t most = 0, sum = 0;
    for (int32_t t = 0; t < a->n_tokens; t++) {
        int64_t keys = a->positions[t] + 1;
        if (a->window && keys > a->window) keys = a->window;
        if (keys > most) most = keys;
        sum += keys;
    }
    struct op_cost cost = op_cost_attention(a, most);
    if (most > 0) cost.flops *= (double)sum / ((double)most * a->n_tokens);
    return cost;
}

static struct op_cost cost_of(const struct op_command *op) {
    struct op_cost cost = {0};
    if (op->op == OP_attention) return cost_of_attention(&op->args.attention);
    if (op->op == OP_matmul_experts) return cost_of_experts(op->weight, &op->args.matmul_experts);
    switch (op->op) {
#define OP(name, ...)                             \
    case OP_##name:                               \
        cost = op_cost_##name(&op->args.name, 0); \
        break;
#define OP_W(name, ...)                                    \
    case OP_##name:                                        \
        cost = op_cost_##name(op->weight, &op->args.name); \
        break;
#include "kernels/ops.def"
#undef OP
#undef OP_W
    case OP_COUNT: break;
    }
    return cost;
}

uint64_t sim_timed_ns(const struct sim_spec *spec, const struct op_command *op) {
    const struct op_cost cost = cost_of(op);
    const bool product = op->op == OP_matmul || op->op == OP_matmul_experts;
    const double besides = product ? (double)(cost.read_bytes + cost.written_bytes) : 0;
    const double bytes = op_cost_bytes(cost) - besides, rate = (double)spec->read;
    const double read = spec->read ? bytes / rate : 0;
    const double computed = spec->flops ? cost.flops / (double)spec->flops : 0;
    const double quantised = spec->read ? 2 * besides / rate : 0;
    return (uint64_t)(((read > computed ? read : computed) + quantised) * 1e9 + 0.5);
}

// ---- Results ------------------------------------------------------------------------------------

static void clear_rows(float *out, int64_t n_rows, int64_t stride, int64_t n_cols) {
    for (int64_t i = 0; i < n_rows; i++) memset(out + i * stride, 0, (size_t)n_cols * sizeof *out);
}

static void stand_for_product(const struct matmul_args *a) {
    if (!a->residual) {
        clear_rows(a->out + a->row_first, a->n_tokens, a->out_stride, a->row_count);
        return;
    }
    for (int64_t i = 0; i < a->n_tokens; i++) {
        const int64_t at = i * a->out_stride + a->row_first;
        memmove(a->out + at, a->residual + at, (size_t)a->row_count * sizeof *a->out);
    }
}

static void stand_for_experts(const struct matmul_experts_args *a) {
    if (!a->order) {
        clear_rows(a->out + a->row_first, (int64_t)a->n_tokens * a->n_used, a->out_stride,
                   a->row_count);
        return;
    }
    for (int32_t e = 0; e < a->n_experts; e++) {
        const int32_t n = pairs_here(a, e), *order = a->order + a->starts[e];
        for (int32_t i = 0; i < n; i++)
            clear_rows(a->out + (int64_t)order[i] * a->out_stride + a->row_first, 1, 0,
                       a->row_count);
    }
}

bool sim_stand_in(const struct op_command *op) {
    switch (op->op) {
    case OP_matmul:
        if (op->weight == WEIGHT_F32) return false; // a router's
        stand_for_product(&op->args.matmul);
        return true;
    case OP_matmul_experts: stand_for_experts(&op->args.matmul_experts); return true;
    case OP_attention: {
        const struct attention_args *a = &op->args.attention;
        clear_rows(a->out, a->n_tokens, (int64_t)a->n_heads * a->head_dim,
                   (int64_t)a->n_heads * a->head_dim);
        return true;
    }
    case OP_swiglu:
    case OP_rope: return true; // in place
    default: return false;
    }
}
