/* conv.c: a gated short convolution in place of attention: of three products of a token the first
 * and the third meet, a few such tokens are added up column by column, and the second gates the
 * sum. Tested by tests/cli/cli_tiny.sh and tests/runtime/test_pipeline.c. Source: LFM2, Liquid AI
 * 2025.
 */
#include "planner/blocks/encode.h"

// out = a * b, which may be columns of wider rows. out has the stride of a.
static void encode_gate(const struct forward *f, float *out, const float *a, int32_t stride,
                        const float *b) {
    const int32_t n_cols = f->shape->n_embd;
    f->ops->swiglu(f->stream, &(struct swiglu_args){.out = out,
                                                    .gate = a,
                                                    .up = b,
                                                    .n_rows = f->n_tokens,
                                                    .n_cols = n_cols,
                                                    .stride = stride,
                                                    .up_stride = 3 * n_cols,
                                                    .form = GLU_PRODUCT});
}

// convolved = conv(first product * third), times the second; x = norm(residual).
static void encode_conv(const struct forward *f) {
    const int32_t n_cols = f->shape->n_embd, stride = 3 * n_cols;
    float *x = f->area[AREA_NORMED], *in = f->area[AREA_MIXER_IN], *out = f->area[AREA_CONVOLVED];
    encode_norm(f, x, f->area[AREA_RESIDUAL], ROLE_ATTN_NORM, f->n_tokens);
    encode_product(f, &(struct product){.matrix = ROLE_SHORTCONV_IN,
                                        .bias = ROLE_OTHER,
                                        .out = in,
                                        .x = x,
                                        .n_rows = f->n_tokens,
                                        .out_stride = stride});
    encode_gate(f, in, in, stride, in + 2 * n_cols);
    f->ops->short_conv(f->stream,
                       &(struct short_conv_args){.out = out,
                                                 .states = f->conv_states,
                                                 .x = in,
                                                 .weight = encode_vector(f, ROLE_SHORTCONV),
                                                 .steps = f->tables.steps,
                                                 .n_tokens = f->n_tokens,
                                                 .n_cols = n_cols,
                                                 .x_stride = stride,
                                                 .n_taps = f->shape->recurrent.n_taps,
                                                 .is_plain = true});
    encode_gate(f, out, out, n_cols, in + n_cols);
    encode_branch(f, ROLE_SHORTCONV_OUT, ROLE_OTHER, out);
    encode_post_norm(f);
}

static const struct block_tensor TENSORS[] = {
    {ROLE_ATTN_NORM, DIM_EMBD, DIM_ONE, false},
    {ROLE_SHORTCONV_IN, DIM_EMBD, DIM_MIXER_IN, false},
    {ROLE_SHORTCONV, DIM_TAPS, DIM_CHANNELS, false},
    {ROLE_SHORTCONV_OUT, DIM_CHANNELS, DIM_EMBD, false},
};

static const struct block_area NEEDED[] = {
    {AREA_RESIDUAL, ROWS_TOKENS, DIM_EMBD},     {AREA_NORMED, ROWS_TOKENS, DIM_EMBD},
    {AREA_MIXER_IN, ROWS_TOKENS, DIM_MIXER_IN}, {AREA_CONVOLVED, ROWS_TOKENS, DIM_CHANNELS},
    {AREA_MATMUL, ROWS_TOKENS, DIM_EMBD},
};

const struct block block_conv = {BLOCK_TENSORS(TENSORS), BLOCK_AREAS(NEEDED),
                                 .encode = encode_conv};
