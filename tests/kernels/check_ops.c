/* check_ops.c: every op of ops.def on every backend at hand against its definition,
 * kernels/cpu/ref.c.
 *
 *   check_ops [--seed N] [--isa NAME] [--op NAME] [--device cpu|PREFIX:SPEC] [--quick] [--tokens N]
 *
 * Random inputs of odd shapes; the CPU at every instruction-set level that it has, with 1, 2 and 3
 * lanes. Cases have up to 128 tokens, or as --tokens says. --quick, which sanitizers always take:
 * fewer sizes, up to 7 tokens, 1 and 2 lanes. A line per op, type and level: "ok matmul q4_1 avx2
 * nmse 3.1e-05 bits 9ae16a3b2f90404f" or "not ok ... : why". Exit code 1 if anything failed. An op
 * that is listed without a check, here or (the ops of experts, those with a state, and those with a
 * KV cache) in check_experts.c, check_state.c and check_attention.c, does not compile. "matmul
 * layer" are the ops of a layer in one list (check_chains.c, --op layer).
 */
#include "base/number.h"
#include "kernels/cpu/device/cpu_device.h"
#include "kernels/cpu/device/table.h"
#include "kernels/drivers.h"
#include "tests/kernels/check_attention.h"
#include "tests/kernels/check_chains.h"
#include "tests/kernels/check_experts.h"
#include "tests/kernels/check_state.h"
#include "tests/kernels/op_check.h"
#include "tests/lib/slow.h"
#include "tests/sim/sim_device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const TYPE_NAMES[WEIGHT_COUNT] = {
#define WEIGHT(NAME, name, ...) #name,
#include "kernels/weights.def"
#undef WEIGHT
};

// ---- embed --------------------------------------------------------------------------------------

struct embed_shape {
    uint64_t out, table, tokens;
    int32_t first, n_tokens, n_cols, n_rows;
};

static void place_embed(union op_args *args, const void *shape, char *base) {
    const struct embed_shape *s = shape;
    args->embed = (struct embed_args){
        .out = (float *)(base + s->out) + (int64_t)s->first * s->n_cols,
        .table = base + s->table,
        .tokens = (const int32_t *)(base + s->tokens) + s->first,
        .n_tokens = s->n_tokens,
        .n_cols = s->n_cols,
        .n_rows = s->n_rows,
        .scale = 1.25F,
    };
}

static void mark_embed(uint8_t *roles, const void *shape) {
    const struct embed_shape *s = shape;
    op_mark(roles, s->out + (uint64_t)s->first * (uint64_t)s->n_cols * 4,
            (uint64_t)s->n_tokens * (uint64_t)s->n_cols * 4, ROLE_F32);
}

static void check_embed(struct op_check *c, enum weight_type type) {
    struct op_case k = {
        .op = OP_embed, .type = type, .limit = 1e-6, .place = place_embed, .mark = mark_embed};
    bool plain = dtype_find((uint32_t)weight_dtype(type))->block_elements == 1;
    for (int i = 0; i < op_n_batches(c); i++) {
        struct embed_shape s = {.n_tokens = op_batch(c, i), .n_rows = 19};
        s.n_cols = plain ? 67 + i : 256 * (i + 1);
        op_describe(c, "%d tokens, %d columns", s.n_tokens, s.n_cols);
        op_scene_clear(c);
        s.table = op_scene_weights(c, type, (int64_t)s.n_rows * s.n_cols);
        s.tokens = op_scene_add(c, (uint64_t)s.n_tokens * 4);
        s.out = op_scene_add(c, (uint64_t)s.n_tokens * (uint64_t)s.n_cols * 4);
        int32_t *tokens = op_scene_at(c, s.tokens);
        for (int t = 0; t < s.n_tokens; t++) tokens[t] = (int32_t)op_random(c, 19);
        tokens[0] = s.n_rows - 1;
        op_run_whole(c, &k, &s);
        s.first = s.n_tokens / 2, s.n_tokens = 1;
        op_run_part(c, &k, &s);
    }
}

// ---- rms_norm -----------------------------------------------------------------------------------

struct rms_norm_shape {
    uint64_t out, x, weight, residual, scale, bias;
    bool has_weight, has_residual, has_scale, centred, has_bias;
    int32_t first, n_rows, n_cols;
};

static void place_rms_norm(union op_args *args, const void *shape, char *base) {
    const struct rms_norm_shape *s = shape;
    int64_t skip = (int64_t)s->first * s->n_cols;
    args->rms_norm = (struct rms_norm_args){
        .out = (float *)(base + s->out) + skip,
        .x = floats_at(base, s->x) + skip,
        .weight = s->has_weight ? floats_at(base, s->weight) : NULL,
        .residual = s->has_residual ? floats_at(base, s->residual) + skip : NULL,
        .scale = s->has_scale ? floats_at(base, s->scale) : NULL,
        .n_rows = s->n_rows,
        .n_cols = s->n_cols,
        .eps = 1e-5F,
        .centred = s->centred,
        .bias = s->has_bias ? floats_at(base, s->bias) : NULL,
    };
}

static void mark_rms_norm(uint8_t *roles, const void *shape) {
    const struct rms_norm_shape *s = shape;
    op_mark(roles, s->out + (uint64_t)s->first * (uint64_t)s->n_cols * 4,
            (uint64_t)s->n_rows * (uint64_t)s->n_cols * 4, ROLE_F32);
}

static void check_rms_norm(struct op_check *c) {
    static const int32_t COLS[] = {1, 7, 576, 2051};
    struct op_case k = {
        .op = OP_rms_norm, .limit = 1e-6, .place = place_rms_norm, .mark = mark_rms_norm};
    for (int i = 0; i < op_n_batches(c) * 16; i++) {
        struct rms_norm_shape s = {.n_rows = op_batch(c, i / 16), .n_cols = COLS[i % 4]};
        const int alias = i / 4 % 4; // out is its own, x, its own, or the residual
        s.has_residual = alias >= 2;
        s.has_weight = i % 5 > 0;
        s.has_scale = i % 3 == 0;
        s.centred = i % 7 > 3;
        s.has_bias = s.centred && i % 7 < 6;
        op_describe(c, "%d rows, %d columns, alias %d, weight %d, scale %d, centred %d, bias %d",
                    s.n_rows, s.n_cols, alias, s.has_weight, s.has_scale, s.centred, s.has_bias);
        op_scene_clear(c);
        s.x = op_scene_normal(c, (int64_t)s.n_rows * s.n_cols, i % 3 ? 1 : 50);
        s.weight = op_scene_normal(c, s.n_cols, 1);
        s.scale = op_scene_normal(c, 1, 1);
        s.bias = op_scene_normal(c, s.n_cols, 1);
        s.residual = op_scene_normal(c, (int64_t)s.n_rows * s.n_cols, 1);
        for (int64_t at = 0; at < (int64_t)s.n_rows * s.n_cols && s.centred; at++)
            ((float *)op_scene_at(c, s.x))[at] += 20; // a mean that is worth subtracting
        s.out = alias == 1   ? s.x
                : alias == 3 ? s.residual
                             : op_scene_add(c, (uint64_t)s.n_rows * (uint64_t)s.n_cols * 4);
        if (s.n_rows > 1) memset(op_scene_at(c, s.x), 0, (size_t)s.n_cols * 4); // a row of zeros
        op_run_whole(c, &k, &s);
        s.first = s.n_rows / 2, s.n_rows = 1;
        op_run_part(c, &k, &s);
    }
}

// ---- matmul -------------------------------------------------------------------------------------

struct matmul_shape {
    uint64_t out, x, weight, bias, residual, scratch, scratch_bytes;
    bool has_bias, has_residual;
    int32_t first, n_tokens, n_cols, n_rows, row_first, row_count, out_stride;
    const double *squares; // [n_rows], see op_row_squares
};

static void place_matmul(union op_args *args, const void *shape, char *base) {
    const struct matmul_shape *s = shape;
    int64_t skip = (int64_t)s->first * s->out_stride;
    args->matmul = (struct matmul_args){
        .out = (float *)(base + s->out) + skip,
        .x = floats_at(base, s->x) + (int64_t)s->first * s->n_cols,
        .weight = base + s->weight,
        .bias = s->has_bias ? floats_at(base, s->bias) : NULL,
        .residual = s->has_residual ? floats_at(base, s->residual) + skip : NULL,
        .scratch = base + s->scratch,
        .n_tokens = s->n_tokens,
        .n_cols = s->n_cols,
        .row_first = s->row_first,
        .row_count = s->row_count,
        .out_stride = s->out_stride,
    };
}

static void mark_matmul(uint8_t *roles, const void *shape) {
    const struct matmul_shape *s = shape;
    for (int32_t t = s->first; t < s->first + s->n_tokens; t++)
        op_mark(roles,
                s->out + ((uint64_t)t * (uint64_t)s->out_stride + (uint64_t)s->row_first) * 4,
                (uint64_t)s->row_count * 4, ROLE_F32);
    op_mark(roles, s->scratch, s->scratch_bytes, ROLE_SCRATCH);
}

static double expect_matmul(const void *shape) {
    const struct matmul_shape *s = shape;
    double sum = 0;
    for (int32_t r = s->row_first; r < s->row_first + s->row_count; r++) sum += s->squares[r];
    return sum * s->n_tokens;
}

// Variant bits: 1 bias, 2 residual, 4 residual in place, 8 not all rows.
static struct matmul_shape lay_matmul(struct op_check *c, enum weight_type type,
                                      struct matmul_shape s, int variant) {
    int64_t n_out = (int64_t)s.n_tokens * (s.n_rows + 5);
    op_scene_clear(c);
    s.out_stride = s.n_rows + 5;
    s.row_first = variant & 8 ? s.n_rows / 3 : 0;
    s.row_count = variant & 8 ? s.n_rows / 2 + 1 : s.n_rows;
    s.has_bias = variant & 1;
    s.has_residual = variant & 2;
    s.x = op_scene_normal(c, (int64_t)s.n_tokens * s.n_cols, 1);
    s.weight = op_scene_weights(c, type, (int64_t)s.n_rows * s.n_cols);
    s.bias = op_scene_normal(c, s.n_rows, 1);
    s.residual = op_scene_normal(c, n_out, 1);
    bool in_place = s.has_residual && variant & 4;
    s.out = in_place ? s.residual : op_scene_add(c, (uint64_t)n_out * 4);
    s.scratch_bytes = op_scratch_bytes(c, type, s.n_cols, s.n_tokens);
    s.scratch = op_scene_add(c, s.scratch_bytes);
    if (s.n_tokens > 1) // a token of zeros, and one with a large value among small ones
        memset(op_scene_at(c, s.x), 0, (size_t)s.n_cols * 4);
    if (s.n_tokens > 2) ((float *)op_scene_at(c, s.x))[2 * s.n_cols] = 6;
    return s;
}

// The same numbers must come out for fewer tokens and fewer rows.
static void check_matmul_parts(struct op_check *c, const struct op_case *k, struct matmul_shape s) {
    struct matmul_shape part = s;
    part.first = s.n_tokens - 1, part.n_tokens = 1;
    op_run_part(c, k, &part);
    part.first = s.n_tokens / 2, part.n_tokens = s.n_tokens - s.n_tokens / 2;
    part.row_count = 1;
    op_run_part(c, k, &part);
    part = s;
    part.row_first = s.row_first + s.row_count / 3, part.row_count = s.row_count - s.row_count / 3;
    op_run_part(c, k, &part);
    part.first = s.n_tokens / 3, part.n_tokens = (s.n_tokens + 2) / 3;
    part.row_count = (part.row_count + 1) / 2;
    op_run_part(c, k, &part);
}

static void check_matmul(struct op_check *c, enum weight_type type) {
    // Rows and columns. With 128 tokens, floats go by bands of tiles through 7407 columns, and by
    // several chunks of columns through 2048 rows, of which one lane takes eight tiles at once. The
    // last chunk of pairs has one vector, 32 columns. The sums are added to what is there, so that
    // what is stored before the last chunk shows.
    enum { ROWS_MAX = 2048 };
    static const int32_t FLOATS[][2] = {{3, 1}, {70, 592}, {141, 7407}, {ROWS_MAX, 1056}},
                         BLOCKS[][2] = {{3, 32}, {70, 608}, {101, 3872}},
                         SUPERBLOCKS[][2] = {{3, 256}, {70, 768}, {101, 2816}};
    uint32_t block = dtype_find((uint32_t)weight_dtype(type))->block_elements;
    const int32_t(*sizes)[2] = block == 1 ? FLOATS : block == 32 ? BLOCKS : SUPERBLOCKS;
    struct op_case k = {.op = OP_matmul,
                        .type = type,
                        .limit = op_product_limit(c, type),
                        .expect = expect_matmul,
                        .place = place_matmul,
                        .mark = mark_matmul};
    double squares[ROWS_MAX];
    int n_sizes = c->quick ? 2 : block == 1 ? 4 : 3;
    for (int i = 0; i < op_n_batches(c) * n_sizes; i++) {
        const int32_t *size = sizes[i % n_sizes];
        struct matmul_shape s = {
            .n_tokens = op_batch(c, i / n_sizes), .n_rows = size[0], .n_cols = size[1]};
        const int variant = (int)op_random(c, 16) | (s.n_rows == ROWS_MAX ? 6 : 0);
        op_describe(c, "%d tokens, %d x %d, variant %d", s.n_tokens, s.n_rows, s.n_cols, variant);
        s = lay_matmul(c, type, s, variant);
        op_row_squares(c, type, s.weight, s.n_rows, s.n_cols, squares);
        s.squares = squares;
        op_run_whole(c, &k, &s);
        check_matmul_parts(c, &k, s);
    }
}

// ---- rope_table and rope ------------------------------------------------------------------------

struct rope_table_shape {
    uint64_t out, positions, factors;
    int32_t first;
    struct rope_table_args args; // without its pointers
};

static void place_rope_table(union op_args *args, const void *shape, char *base) {
    const struct rope_table_shape *s = shape;
    args->rope_table = s->args;
    args->rope_table.out = (float *)(base + s->out) + (int64_t)s->first * s->args.n_rot;
    args->rope_table.positions = (const int32_t *)(base + s->positions) + s->first;
    args->rope_table.freq_factors = s->factors ? floats_at(base, s->factors) : NULL;
}

static void mark_rope_table(uint8_t *roles, const void *shape) {
    const struct rope_table_shape *s = shape;
    uint64_t row_bytes = (uint64_t)s->args.n_rot * 4;
    op_mark(roles, s->out + (uint64_t)s->first * row_bytes, (uint64_t)s->args.n_tokens * row_bytes,
            ROLE_F32);
}

static void check_rope_table(struct op_check *c) {
    static const int32_t POSITIONS[] = {1000000, 0, 1, 4095, 131071, 37};
    static const int32_t N_ROTS[] = {64, 128, 2, 80, 50};
    struct op_case k = {
        .op = OP_rope_table, .limit = 1e-12, .place = place_rope_table, .mark = mark_rope_table};
    for (int i = 0; i < op_n_batches(c) * 3; i++) {
        struct rope_table_shape s = {.args = {.n_tokens = op_batch(c, i / 3),
                                              .n_rot = N_ROTS[i % 5],
                                              .base = i % 2 ? 1e4F : 5e5F,
                                              .scale = 1,
                                              .magnitude = 1}};
        if (i % 3 == 2) // YaRN by a factor of 4
            s.args.period = 8192, s.args.temperature = 0.1F, s.args.scale = 0.25F,
            s.args.magnitude = 1.1386F, s.args.ext_factor = 1, s.args.corr_low = 5.5F,
            s.args.corr_high = 20;
        op_describe(c, "%d tokens, n_rot %d, variant %d", s.args.n_tokens, s.args.n_rot, i % 3);
        op_scene_clear(c);
        s.positions = op_scene_add(c, (uint64_t)s.args.n_tokens * 4);
        int32_t *positions = op_scene_at(c, s.positions);
        for (int t = 0; t < s.args.n_tokens; t++)
            positions[t] = t < 6 ? POSITIONS[t] : (int32_t)op_random(c, 1000000);
        if (i % 3 == 1) {
            s.factors = op_scene_add(c, (uint64_t)s.args.n_rot * 2);
            float *factors = op_scene_at(c, s.factors);
            for (int p = 0; p < s.args.n_rot / 2; p++) factors[p] = 1 + (float)op_random(c, 8);
        }
        s.out = op_scene_add(c, (uint64_t)s.args.n_tokens * (uint64_t)s.args.n_rot * 4);
        op_run_whole(c, &k, &s);
        s.first = s.args.n_tokens / 2, s.args.n_tokens = 1;
        op_run_part(c, &k, &s);
    }
}

struct rope_shape {
    uint64_t q, k, table;
    int32_t first, n_tokens, n_heads, n_kv_heads, head_dim, n_rot;
    bool neox;
};

static void place_rope(union op_args *args, const void *shape, char *base) {
    const struct rope_shape *s = shape;
    args->rope = (struct rope_args){
        .q = (float *)(base + s->q) + (int64_t)s->first * s->n_heads * s->head_dim,
        .k = (float *)(base + s->k) + (int64_t)s->first * s->n_kv_heads * s->head_dim,
        .table = floats_at(base, s->table) + (int64_t)s->first * s->n_rot,
        .n_tokens = s->n_tokens,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .n_rot = s->n_rot,
        .neox = s->neox,
    };
}

static void mark_heads(uint8_t *roles, uint64_t start, const struct rope_shape *s,
                       int32_t n_heads) {
    for (int32_t i = s->first * n_heads; i < (s->first + s->n_tokens) * n_heads; i++)
        op_mark(roles, start + (uint64_t)i * (uint64_t)s->head_dim * 4, (uint64_t)s->n_rot * 4,
                ROLE_F32);
}

static void mark_rope(uint8_t *roles, const void *shape) {
    const struct rope_shape *s = shape;
    mark_heads(roles, s->q, s, s->n_heads);
    mark_heads(roles, s->k, s, s->n_kv_heads);
}

static void check_rope(struct op_check *c) {
    static const struct rope_shape SHAPES[] = {
        {.n_heads = 9, .n_kv_heads = 3, .head_dim = 64, .n_rot = 64},
        {.n_heads = 4, .n_kv_heads = 4, .head_dim = 128, .n_rot = 32},
        {.n_heads = 8, .n_kv_heads = 1, .head_dim = 80, .n_rot = 20},
        {.n_heads = 2, .n_kv_heads = 1, .head_dim = 256, .n_rot = 256},
        {.n_heads = 4, .n_kv_heads = 2, .head_dim = 2, .n_rot = 2},
    };
    struct op_case k = {.op = OP_rope, .limit = 1e-6, .place = place_rope, .mark = mark_rope};
    for (int i = 0; i < op_n_batches(c) * 10; i++) {
        struct rope_shape s = SHAPES[i % 5];
        s.n_tokens = op_batch(c, i / 10), s.neox = i / 5 % 2;
        op_describe(c, "%d tokens, head_dim %d, n_rot %d, neox %d", s.n_tokens, s.head_dim, s.n_rot,
                    s.neox);
        op_scene_clear(c);
        s.q = op_scene_normal(c, (int64_t)s.n_tokens * s.n_heads * s.head_dim, 1);
        s.k = op_scene_normal(c, (int64_t)s.n_tokens * s.n_kv_heads * s.head_dim, 1);
        s.table = op_scene_normal(c, (int64_t)s.n_tokens * s.n_rot, 1);
        op_run_whole(c, &k, &s);
        s.first = s.n_tokens / 2, s.n_tokens = 1;
        op_run_part(c, &k, &s);
    }
}

// ---- swiglu -------------------------------------------------------------------------------------

struct swiglu_shape {
    uint64_t out, gate, up, row_gate;
    int32_t n_rows, first, n_cols, stride, up_stride;
    enum glu form;
    enum row_gating row_form;
    bool has_row_gate, has_no_up;
};

static void place_swiglu(union op_args *args, const void *shape, char *base) {
    const struct swiglu_shape *s = shape;
    args->swiglu = (struct swiglu_args){
        .out = (float *)(base + s->out) + s->first,
        .gate = floats_at(base, s->gate) + s->first,
        .up = s->has_no_up ? NULL : floats_at(base, s->up) + s->first,
        .row_gate = s->has_row_gate ? floats_at(base, s->row_gate) : NULL,
        .n_rows = s->n_rows,
        .n_cols = s->n_cols,
        .stride = s->stride,
        .up_stride = s->up_stride,
        .form = s->form,
        .row_form = s->row_form,
        .limit = 1.5F,
        .xielu = {0.9F, 0.7F, 0.4F, -0.01F},
    };
}

static void mark_swiglu(uint8_t *roles, const void *shape) {
    const struct swiglu_shape *s = shape;
    for (int32_t row = 0; row < s->n_rows; row++)
        op_mark(roles, s->out + ((uint64_t)row * (uint64_t)s->stride + (uint64_t)s->first) * 4,
                (uint64_t)s->n_cols * 4, ROLE_F32);
}

// Kernels take e^88.4 for infinite, so they say 0 where an output is about as small as the least
// normal float, 1e-38, times the largest gate, up and share. An output alone may be off by a
// hundredth of the root of this.
static double expect_least(const void *shape) {
    (void)shape;
    return 1e-60;
}

static void check_form(struct op_check *c, enum glu form) {
    static const struct {
        int32_t n_rows, n_cols;
    } SIZES[] = {{1, 1},   {1, 7},    {1, 63},   {1, 576},    {1, 1536}, {1, 4099},
                 {7, 100}, {33, 576}, {3, 1100}, {1, 100000}, {20, 5000}};
    static const float HARD[] = {-200, 200, -88, -104, 3e38F, -3e38F, 0, -0.0F, -7.5F, -10.1F};
    struct op_case k = {.op = OP_swiglu,
                        .limit = 1e-6,
                        .expect = expect_least,
                        .place = place_swiglu,
                        .mark = mark_swiglu};
    for (int i = 0; i < 66; i++) {
        const int32_t n_rows = SIZES[i / 6].n_rows, n_cols = SIZES[i / 6].n_cols;
        const int64_t count = (int64_t)n_rows * n_cols;
        struct swiglu_shape s = {.n_rows = n_rows,
                                 .n_cols = n_cols,
                                 .stride = n_cols,
                                 .up_stride = n_cols + (i % 3 < 2 && i % 2 ? 5 : 0),
                                 .form = form,
                                 .row_form = i % 4 > 1 ? ROW_SOFTPLUS : ROW_SIGMOID,
                                 .has_row_gate = i % 6 > 2,
                                 .has_no_up = i % 3 < 2 && i % 4 == 0};
        op_describe(c, "form %d, %d rows of %d, alias %d, row gates %d of form %d, no up %d", form,
                    n_rows, n_cols, i % 3, s.has_row_gate, s.row_form, s.has_no_up);
        op_scene_clear(c);
        s.row_gate = op_scene_normal(c, n_rows, i % 8 > 4 ? 15 : 3);
        if (i % 8 > 6) *(float *)op_scene_at(c, s.row_gate) = 200; // e^200 is infinite
        s.gate = op_scene_normal(c, count, 4);
        s.up = op_scene_normal(c, (int64_t)n_rows * s.up_stride, 1);
        s.out = i % 3 == 0 ? op_scene_add(c, (uint64_t)count * 4) : i % 3 == 1 ? s.gate : s.up;
        op_run_whole(c, &k, &s);
        if (n_cols < 64) continue;
        s.first = 13, s.n_cols = n_cols / 2;
        op_run_part(c, &k, &s);
    }
    // One at a time: a large one would hide the error of the others.
    for (size_t i = 0; i < sizeof HARD / sizeof *HARD; i++) {
        struct swiglu_shape s = {
            .n_rows = 1, .n_cols = 1, .stride = 1, .up_stride = 1, .form = form};
        const bool squares = form == GLU_SQUARE || form == GLU_XIELU;
        if (squares && HARD[i] > 1e19F) continue; // its square is infinite
        op_describe(c, "form %d, gate %g", form, HARD[i]);
        op_scene_clear(c);
        s.gate = op_scene_normal(c, 1, 1);
        s.up = op_scene_normal(c, 1, 1);
        s.out = op_scene_add(c, 4);
        *(float *)op_scene_at(c, s.gate) = HARD[i];
        *(float *)op_scene_at(c, s.up) = 0.5F;
        op_run_whole(c, &k, &s);
    }
}

static void check_swiglu(struct op_check *c) {
    static const enum glu FORMS[] = {GLU_SILU,    GLU_GELU,   GLU_CLAMPED, GLU_SIGMOID,
                                     GLU_PRODUCT, GLU_SQUARE, GLU_XIELU};
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++) check_form(c, FORMS[i]);
}

// ---- gather_rows --------------------------------------------------------------------------------

struct gather_rows_shape {
    uint64_t out, x, rows;
    int32_t first, n_rows, n_cols, n_x_rows;
};

static void place_gather_rows(union op_args *args, const void *shape, char *base) {
    const struct gather_rows_shape *s = shape;
    args->gather_rows = (struct gather_rows_args){
        .out = (float *)(base + s->out) + (int64_t)s->first * s->n_cols,
        .x = floats_at(base, s->x),
        .rows = (const int32_t *)(base + s->rows) + s->first,
        .n_rows = s->n_rows,
        .n_cols = s->n_cols,
        .n_x_rows = s->n_x_rows,
    };
}

static void mark_gather_rows(uint8_t *roles, const void *shape) {
    const struct gather_rows_shape *s = shape;
    op_mark(roles, s->out + (uint64_t)s->first * (uint64_t)s->n_cols * 4,
            (uint64_t)s->n_rows * (uint64_t)s->n_cols * 4, ROLE_F32);
}

static void check_gather_rows(struct op_check *c) {
    static const int32_t COLS[] = {1, 67, 576};
    struct op_case k = {.op = OP_gather_rows, .place = place_gather_rows, .mark = mark_gather_rows};
    for (int i = 0; i < op_n_batches(c) * 3; i++) {
        struct gather_rows_shape s = {
            .n_rows = op_batch(c, i / 3), .n_cols = COLS[i % 3], .n_x_rows = 41};
        op_describe(c, "%d rows, %d columns", s.n_rows, s.n_cols);
        op_scene_clear(c);
        s.x = op_scene_normal(c, (int64_t)s.n_x_rows * s.n_cols, 1);
        s.rows = op_scene_add(c, (uint64_t)s.n_rows * 4);
        s.out = op_scene_add(c, (uint64_t)s.n_rows * (uint64_t)s.n_cols * 4);
        int32_t *rows = op_scene_at(c, s.rows);
        for (int r = 0; r < s.n_rows; r++) rows[r] = (int32_t)op_random(c, 41);
        op_run_whole(c, &k, &s);
        s.first = s.n_rows / 2, s.n_rows = 1;
        op_run_part(c, &k, &s);
    }
}

// ---- cap_logits ---------------------------------------------------------------------------------

struct cap_logits_shape {
    uint64_t x;
    int32_t first, n_rows, n_cols;
    float scale, softcap;
};

static void place_cap_logits(union op_args *args, const void *shape, char *base) {
    const struct cap_logits_shape *s = shape;
    args->cap_logits = (struct cap_logits_args){
        .x = (float *)(base + s->x) + (int64_t)s->first * s->n_cols,
        .n_rows = s->n_rows,
        .n_cols = s->n_cols,
        .scale = s->scale,
        .softcap = s->softcap,
    };
}

static void mark_cap_logits(uint8_t *roles, const void *shape) {
    const struct cap_logits_shape *s = shape;
    op_mark(roles, s->x + (uint64_t)s->first * (uint64_t)s->n_cols * 4,
            (uint64_t)s->n_rows * (uint64_t)s->n_cols * 4, ROLE_F32);
}

static void check_cap_logits(struct op_check *c) {
    static const int32_t COLS[] = {1, 67, 1100};
    static const float CAPS[] = {0, 30, 2.5F};
    struct op_case k = {
        .op = OP_cap_logits, .limit = 1e-6, .place = place_cap_logits, .mark = mark_cap_logits};
    for (int i = 0; i < op_n_batches(c) * 9; i++) {
        struct cap_logits_shape s = {.n_rows = op_batch(c, i / 9),
                                     .n_cols = COLS[i % 3],
                                     .scale = i % 2 ? 0.125F : 1,
                                     .softcap = CAPS[i / 3 % 3]};
        op_describe(c, "%d rows, %d columns, scale %g, cap %g", s.n_rows, s.n_cols, s.scale,
                    s.softcap);
        op_scene_clear(c);
        s.x = op_scene_normal(c, (int64_t)s.n_rows * s.n_cols, i % 4 ? 8 : 300);
        op_run_whole(c, &k, &s);
        s.first = s.n_rows / 2, s.n_rows = 1;
        op_run_part(c, &k, &s);
    }
}

// ---- The program --------------------------------------------------------------------------------

struct options {
    uint64_t seed;
    enum cpu_isa isa; // ISA_AUTO: every level
    const char *op;   // NULL: all
    const char *device;
    bool quick;
    int32_t max_tokens; // of a case; 0: as quick says
};

static bool wanted(const struct options *o, const char *name) {
    return !o->op || !strcmp(o->op, name);
}

// Products of integer types have the same bits on every level of the CPU but the definition's.
static bool is_integer_product(enum op_id op, enum weight_type type) {
    const bool is_product = op == OP_matmul || op == OP_matmul_experts;
    return is_product && dtype_find((uint32_t)weight_dtype(type))->block_elements > 1;
}

// The kernels of a level of the CPU, and those of the level below, which were checked; NULL: none.
struct kernels {
    const struct cpu_table *own, *checked;
};

#define IS_NEW(kernels, name) (!(kernels).checked || (kernels).own->name != (kernels).checked->name)

static void check_all(struct op_check *c, const struct options *o, struct kernels kernels) {
#define OP(name, ...)                                \
    if (wanted(o, #name) && IS_NEW(kernels, name)) { \
        op_line_start(c, OP_##name, "-");            \
        check_##name(c);                             \
        op_line_end(c);                              \
    }
#define OP_W(name, ...)                                                                  \
    for (int w = 0; wanted(o, #name) && w < WEIGHT_COUNT; w++) {                         \
        if (!IS_NEW(kernels, name[w])) continue;                                         \
        op_line_start(c, OP_##name, TYPE_NAMES[w]);                                      \
        check_##name(c, (enum weight_type)w);                                            \
        if (is_integer_product(OP_##name, (enum weight_type)w)) op_compare_levels(c, w); \
        op_line_end(c);                                                                  \
    }
#include "kernels/ops.def"
#undef OP
#undef OP_W
    if (!wanted(o, "layer")) return;
    op_line_start(c, OP_matmul, "layer");
    check_layer(c);
    op_line_end(c);
}

static bool open_failed(const struct err *e) {
    char text[512];
    fprintf(stderr, "check_ops: %s\n", err_text(e, text, sizeof text));
    return false;
}

static bool rounds_bf16(enum cpu_isa isa) {
    struct cpu_table table;
    cpu_table_init(&table, isa);
    return !strcmp(table.matmul_path[WEIGHT_BF16], cpu_isa_name(ISA_AVX512BF16));
}

static void set_sizes(struct op_check *c, const struct options *o, bool quick) {
    c->quick = quick;
    c->max_tokens = o->max_tokens ? o->max_tokens : quick ? 7 : 128;
}

// The CPU at one level, with as many lanes as there are rigs to fill. The definition is compared
// with itself, which shows how it is cut: few sizes will do, unless it is asked for.
static bool check_level(struct op_check *c, const struct options *o, enum cpu_isa isa,
                        struct kernels kernels) {
    struct err e;
    c->backend = cpu_isa_name(isa);
    c->rounds_bf16 = rounds_bf16(isa);
    set_sizes(c, o, o->quick || (isa == ISA_REF && o->isa == ISA_AUTO));
    for (int32_t lanes = 1; lanes <= (c->quick ? 2 : OP_RIGS_MAX); lanes++) {
        const struct cpu_options cpu = {isa, lanes, lanes, true};
        struct device *device;
        if (device_open_cpu(&device, &cpu, NULL, &e) != OK) return open_failed(&e);
        if (!op_check_add(c, device)) return false;
    }
    check_all(c, o, kernels);
    op_check_close_rigs(c);
    return true;
}

// If all levels are checked, a kernel that a level takes from the one below is checked there alone.
static bool check_cpu(struct op_check *c, const struct options *o) {
    struct cpu_table tables[2];
    struct kernels kernels = {NULL, NULL};
    if (o->isa != ISA_AUTO) return check_level(c, o, o->isa, kernels);
    for (int isa = ISA_REF; isa < ISA_AUTO; isa++) {
        if (!cpu_has_isa((enum cpu_isa)isa)) continue;
        struct cpu_table *own = kernels.own == tables ? tables + 1 : tables;
        cpu_table_init(own, (enum cpu_isa)isa);
        kernels = (struct kernels){own, kernels.own};
        if (!check_level(c, o, (enum cpu_isa)isa, kernels)) return false;
    }
    return true;
}

// The simulated accelerator and those built into this program, by prefix. NULL: no such one.
static const struct device_driver *find_driver(const char *prefix, size_t length) {
    int n_drivers;
    const struct device_driver *drivers = device_drivers(&n_drivers);
    for (int i = -1; i < n_drivers; i++) {
        const struct device_driver *driver = i < 0 ? &sim_driver : &drivers[i];
        if (strlen(driver->prefix) == length && !strncmp(driver->prefix, prefix, length))
            return driver;
    }
    return NULL;
}

// An accelerator: PREFIX or PREFIX:SPEC.
static bool check_driver(struct op_check *c, const struct options *o) {
    const struct cpu_options cpu = {o->isa, 1, 1, true};
    const char *colon = strchr(o->device, ':');
    const struct device_driver *driver =
        find_driver(o->device, colon ? (size_t)(colon - o->device) : strlen(o->device));
    struct device *device;
    struct err e;
    if (!driver) {
        fprintf(stderr, "check_ops: no device %s is built into this program\n", o->device);
        return false;
    }
    c->backend = driver->prefix;
    c->rounds_bf16 = driver == &sim_driver && rounds_bf16(o->isa);
    if (driver->open(&device, colon ? colon + 1 : "", &cpu, NULL, &e) != OK) return open_failed(&e);
    if (!op_check_add(c, device)) return false;
    check_all(c, o, (struct kernels){NULL, NULL});
    return true;
}

static bool parse_option(struct options *o, const char *name, const char *value) {
    if (!strcmp(name, "--op")) return o->op = value, true;
    if (!strcmp(name, "--device")) return o->device = value, true;
    if (!strcmp(name, "--isa")) return cpu_isa_parse(value, &o->isa);
    char *end;
    uint64_t number = strtoull(value, &end, 10);
    if (!*value || *end) return false;
    if (!strcmp(name, "--seed")) return o->seed = number, true;
    o->max_tokens = (int32_t)(number < INT32_MAX ? number : INT32_MAX);
    return !strcmp(name, "--tokens") && number > 0;
}

static bool parse_options(struct options *o, int argc, char **argv) {
    *o = (struct options){.seed = 1, .isa = ISA_AUTO, .device = "cpu", .quick = SLOW};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick"))
            o->quick = true;
        else if (i + 1 >= argc || !parse_option(o, argv[i], argv[i + 1]))
            return false;
        else
            i++;
    }
    return true;
}

int main(int argc, char **argv) {
    struct options o;
    struct op_check c;
    if (!parse_options(&o, argc, argv)) {
        fprintf(stderr, "check_ops [--seed N] [--isa NAME] [--op NAME] "
                        "[--device cpu|PREFIX:SPEC] [--quick] [--tokens N]\n");
        return 2;
    }
    if (!op_check_open(&c, o.seed)) return 1;
    set_sizes(&c, &o, o.quick);
    printf("# seed %llu\n", (unsigned long long)o.seed);
    bool done = strcmp(o.device, "cpu") ? check_driver(&c, &o) : check_cpu(&c, &o);
    int n_passed = c.n_passed, n_failed = c.n_failed;
    op_check_close(&c);
    printf("1..%d\n# %d passed, %d failed\n", n_passed + n_failed, n_passed, n_failed);
    return done && n_failed == 0 && n_passed > 0 ? 0 : 1;
}
