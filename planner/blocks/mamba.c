/* mamba.c: a state space model (Mamba-2) in place of attention: a matrix for each head forgets and
 * takes up what a short convolution makes of the tokens. Tested by tests/cli/cli_tiny.sh and
 * tests/runtime/test_pipeline.c. Source: Dao and Gu 2024.
 */
#include "planner/blocks/encode.h"

static int32_t inner_width(const struct forward *f) {
    return f->shape->recurrent.n_heads * f->shape->recurrent.head_dim;
}

static int32_t in_width(const struct forward *f) {
    return (int32_t)dims_of(f->shape, f->unit, DIM_MIXER_IN);
}

// convolved = silu(conv(x, B, C) + bias); the rows of in are a gate, these three, then time steps.
static void encode_conv(const struct forward *f) {
    const struct recurrent_shape *r = &f->shape->recurrent;
    f->ops->short_conv(f->stream,
                       &(struct short_conv_args){.out = f->area[AREA_CONVOLVED],
                                                 .states = f->conv_states,
                                                 .x = f->area[AREA_MIXER_IN] + inner_width(f),
                                                 .weight = encode_vector(f, ROLE_SSM_CONV),
                                                 .bias = encode_vector(f, ROLE_SSM_CONV_BIAS),
                                                 .steps = f->tables.steps,
                                                 .n_tokens = f->n_tokens,
                                                 .n_cols = (int32_t)recurrent_channels(r),
                                                 .x_stride = in_width(f),
                                                 .n_taps = r->n_taps});
}

// out = scan of x, B and C
static void encode_scan(const struct forward *f) {
    const struct recurrent_shape *r = &f->shape->recurrent;
    const int32_t before = inner_width(f) + (int32_t)recurrent_channels(r);
    f->ops->mamba_scan(f->stream,
                       &(struct mamba_scan_args){.out = f->area[AREA_DELTA_OUT],
                                                 .states = f->matrix_states,
                                                 .x = f->area[AREA_CONVOLVED],
                                                 .dt = f->area[AREA_MIXER_IN] + before,
                                                 .a = encode_vector(f, ROLE_SSM_A),
                                                 .d = encode_vector(f, ROLE_SSM_D),
                                                 .dt_bias = encode_vector(f, ROLE_SSM_DT_BIAS),
                                                 .steps = f->tables.steps,
                                                 .n_tokens = f->n_tokens,
                                                 .n_heads = r->n_heads,
                                                 .n_groups = r->n_key_heads,
                                                 .head_dim = r->head_dim,
                                                 .n_state = r->n_state,
                                                 .dt_stride = in_width(f)});
}

// out = out * silu(gate), through the columns of the gate.
static void encode_gate(const struct forward *f) {
    const int32_t width = inner_width(f), stride = in_width(f);
    float *in = f->area[AREA_MIXER_IN], *out = f->area[AREA_DELTA_OUT];
    f->ops->swiglu(f->stream, &(struct swiglu_args){.out = in,
                                                    .gate = in,
                                                    .up = out,
                                                    .n_rows = f->n_tokens,
                                                    .n_cols = width,
                                                    .stride = stride,
                                                    .up_stride = width,
                                                    .form = GLU_SILU});
    f->ops->split_rows(f->stream, &(struct split_rows_args){.first = out,
                                                            .x = in,
                                                            .n_rows = f->n_tokens,
                                                            .n_first = width,
                                                            .n_second = stride - width,
                                                            .first_stride = width});
}

// out = norm(out) in each group. Where groups have weights of their own these come behind it.
static void encode_group_norm(const struct forward *f) {
    const int32_t width = inner_width(f), n_groups = f->shape->recurrent.n_key_heads;
    const float *weight = encode_vector(f, ROLE_SSM_NORM);
    float *out = f->area[AREA_DELTA_OUT];
    if (!weight) return;
    f->ops->rms_norm(f->stream, &(struct rms_norm_args){.out = out,
                                                        .x = out,
                                                        .weight = n_groups == 1 ? weight : NULL,
                                                        .n_rows = f->n_tokens * n_groups,
                                                        .n_cols = width / n_groups,
                                                        .eps = f->hp->norm_eps});
    if (n_groups == 1) return;
    f->ops->swiglu(f->stream, &(struct swiglu_args){.out = out,
                                                    .gate = out,
                                                    .up = weight,
                                                    .n_rows = f->n_tokens,
                                                    .n_cols = width,
                                                    .stride = width,
                                                    .form = GLU_PRODUCT});
}

void encode_mamba_of_normed(const struct forward *f) {
    encode_product(f, &(struct product){.matrix = ROLE_SSM_IN,
                                        .bias = ROLE_OTHER,
                                        .out = f->area[AREA_MIXER_IN],
                                        .x = f->area[AREA_NORMED],
                                        .n_rows = f->n_tokens,
                                        .out_stride = in_width(f)});
    encode_conv(f);
    encode_scan(f);
    encode_gate(f);
    encode_group_norm(f);
    encode_branch(f, ROLE_SSM_OUT, ROLE_OTHER, f->area[AREA_DELTA_OUT]);
    encode_post_norm(f);
}

static void encode_mamba(const struct forward *f) {
    encode_norm(f, f->area[AREA_NORMED], f->area[AREA_RESIDUAL], ROLE_ATTN_NORM, f->n_tokens);
    encode_mamba_of_normed(f);
}

static const struct block_tensor TENSORS[] = {
    {ROLE_ATTN_NORM, DIM_EMBD, DIM_ONE, false},
    {ROLE_SSM_IN, DIM_EMBD, DIM_MIXER_IN, false},
    {ROLE_SSM_CONV, DIM_TAPS, DIM_CHANNELS, false},
    {ROLE_SSM_CONV_BIAS, DIM_CHANNELS, DIM_ONE, true},
    {ROLE_SSM_DT_BIAS, DIM_DELTA_HEADS, DIM_ONE, false},
    {ROLE_SSM_A, DIM_ONE, DIM_DELTA_HEADS, false},
    {ROLE_SSM_D, DIM_ONE, DIM_DELTA_HEADS, false},
    {ROLE_SSM_NORM, DIM_GROUP, DIM_GROUPS, true},
    {ROLE_SSM_OUT, DIM_DELTA, DIM_EMBD, false},
};

static const struct block_area NEEDED[] = {
    {AREA_RESIDUAL, ROWS_TOKENS, DIM_EMBD},     {AREA_NORMED, ROWS_TOKENS, DIM_EMBD},
    {AREA_MIXER_IN, ROWS_TOKENS, DIM_MIXER_IN}, {AREA_CONVOLVED, ROWS_TOKENS, DIM_CHANNELS},
    {AREA_DELTA_OUT, ROWS_TOKENS, DIM_DELTA},   {AREA_MATMUL, ROWS_TOKENS, DIM_EMBD},
    {AREA_MATMUL, ROWS_TOKENS, DIM_DELTA},
};

const struct block block_mamba = {BLOCK_TENSORS(TENSORS), BLOCK_AREAS(NEEDED),
                                  .encode = encode_mamba};
