/* delta.c: a gated delta net in place of attention: a matrix for each head remembers values by
 * keys, and every token corrects what it remembers. Tested by tests/cli/cli_tiny.sh and
 * tests/runtime/test_state.c. Source: Yang, Kautz and Hatamizadeh 2024.
 */
#include "planner/blocks/encode.h"

// x = norm(residual); queries, keys and values = QKV x, and the gates of output, decay and
// learning.
static void encode_in(const struct forward *f) {
    const int32_t n = f->n_tokens, n_heads = f->shape->recurrent.n_heads;
    const int32_t n_channels = (int32_t)recurrent_channels(&f->shape->recurrent);
    const int32_t width = n_heads * f->shape->recurrent.head_dim;
    float *x = f->area[AREA_NORMED];
    const struct product products[] = {
        {ROLE_ATTN_QKV, ROLE_OTHER, f->area[AREA_CHANNELS], x, n, n_channels, false},
        {ROLE_ATTN_GATE, ROLE_OTHER, f->area[AREA_DELTA_GATE], x, n, width, false},
        {ROLE_SSM_ALPHA, ROLE_OTHER, f->area[AREA_ALPHA], x, n, n_heads, false},
        {ROLE_SSM_BETA, ROLE_OTHER, f->area[AREA_BETA], x, n, n_heads, false},
        {ROLE_SSM_BETA_ALPHA, ROLE_OTHER, f->area[AREA_BETA_ALPHA], x, n, 2 * n_heads, false},
    };
    encode_norm(f, x, f->area[AREA_RESIDUAL], ROLE_ATTN_NORM, n);
    for (int i = 0; i < 5; i++) encode_product(f, &products[i]);
    if (!f->shape->recurrent.joins_gates) return;
    const int32_t n_keys = f->shape->recurrent.n_key_heads, share = n_heads / n_keys;
    f->ops->split_rows(f->stream, &(struct split_rows_args){f->area[AREA_BETA], f->area[AREA_ALPHA],
                                                            f->area[AREA_BETA_ALPHA], n * n_keys,
                                                            share, share, share, share});
}

// convolved = silu(conv(q, k, v)), with the inputs before them from the state.
static void encode_conv(const struct forward *f) {
    f->ops->short_conv(f->stream, &(struct short_conv_args){
                                      .out = f->area[AREA_CONVOLVED],
                                      .states = f->conv_states,
                                      .x = f->area[AREA_CHANNELS],
                                      .weight = encode_vector(f, ROLE_SSM_CONV),
                                      .steps = f->tables.steps,
                                      .n_tokens = f->n_tokens,
                                      .n_cols = (int32_t)recurrent_channels(&f->shape->recurrent),
                                      .x_stride = (int32_t)recurrent_channels(&f->shape->recurrent),
                                      .n_taps = f->shape->recurrent.n_taps});
}

// out = delta rule of q, k and v, whatever the epsilon of the model's norms.
static void encode_rule(const struct forward *f) {
    const struct recurrent_shape *d = &f->shape->recurrent;
    f->ops->delta_rule(f->stream,
                       &(struct delta_rule_args){.out = f->area[AREA_DELTA_OUT],
                                                 .states = f->matrix_states,
                                                 .qkv = f->area[AREA_CONVOLVED],
                                                 .alpha = f->area[AREA_ALPHA],
                                                 .beta = f->area[AREA_BETA],
                                                 .a = encode_vector(f, ROLE_SSM_A),
                                                 .dt_bias = encode_vector(f, ROLE_SSM_DT_BIAS),
                                                 .steps = f->tables.steps,
                                                 .n_tokens = f->n_tokens,
                                                 .n_heads = d->n_heads,
                                                 .n_key_heads = d->n_key_heads,
                                                 .head_dim = d->head_dim,
                                                 .order = f->hp->key_order,
                                                 .eps = 1e-6F});
}

// residual += O (norm(out), head by head, times silu(gate))
static void encode_out(const struct forward *f) {
    const struct recurrent_shape *d = &f->shape->recurrent;
    const int32_t n = f->n_tokens, width = d->n_heads * d->head_dim;
    float *out = f->area[AREA_DELTA_OUT];
    f->ops->rms_norm(f->stream, &(struct rms_norm_args){.out = out,
                                                        .x = out,
                                                        .weight = encode_vector(f, ROLE_SSM_NORM),
                                                        .n_rows = n * d->n_heads,
                                                        .n_cols = d->head_dim,
                                                        .eps = f->hp->norm_eps});
    f->ops->swiglu(f->stream, &(struct swiglu_args){.out = out,
                                                    .gate = f->area[AREA_DELTA_GATE],
                                                    .up = out,
                                                    .n_rows = n,
                                                    .n_cols = width,
                                                    .stride = width,
                                                    .up_stride = width,
                                                    .form = GLU_SILU});
    encode_branch(f, ROLE_SSM_OUT, ROLE_OTHER, out);
}

static void encode_delta(const struct forward *f) {
    encode_in(f);
    encode_conv(f);
    encode_rule(f);
    encode_out(f);
    encode_post_norm(f);
}

static const struct block_tensor TENSORS[] = {
    {ROLE_ATTN_NORM, DIM_EMBD, DIM_ONE, false},
    {ROLE_ATTN_QKV, DIM_EMBD, DIM_CHANNELS, false},
    {ROLE_ATTN_GATE, DIM_EMBD, DIM_DELTA, false},
    {ROLE_SSM_CONV, DIM_TAPS, DIM_CHANNELS, false},
    {ROLE_SSM_DT_BIAS, DIM_DELTA_HEADS, DIM_ONE, false},
    {ROLE_SSM_A, DIM_DELTA_HEADS, DIM_ONE, false},
    {ROLE_SSM_ALPHA, DIM_EMBD, DIM_DELTA_GATES, false},
    {ROLE_SSM_BETA, DIM_EMBD, DIM_DELTA_GATES, false},
    {ROLE_SSM_BETA_ALPHA, DIM_EMBD, DIM_JOINED_GATES, false},
    {ROLE_SSM_NORM, DIM_DELTA_HEAD, DIM_ONE, false},
    {ROLE_SSM_OUT, DIM_DELTA, DIM_EMBD, false},
    {ROLE_ATTN_POST_NORM, DIM_EMBD, DIM_ONE, true},
};

static const struct block_area NEEDED[] = {
    {AREA_RESIDUAL, ROWS_TOKENS, DIM_EMBD},
    {AREA_NORMED, ROWS_TOKENS, DIM_EMBD},
    {AREA_CHANNELS, ROWS_TOKENS, DIM_CHANNELS},
    {AREA_CONVOLVED, ROWS_TOKENS, DIM_CHANNELS},
    {AREA_DELTA_GATE, ROWS_TOKENS, DIM_DELTA},
    {AREA_DELTA_OUT, ROWS_TOKENS, DIM_DELTA},
    {AREA_BETA_ALPHA, ROWS_TOKENS, DIM_JOINED_GATES},
    {AREA_ALPHA, ROWS_TOKENS, DIM_DELTA_HEADS},
    {AREA_BETA, ROWS_TOKENS, DIM_DELTA_HEADS},
    {AREA_MATMUL, ROWS_TOKENS, DIM_EMBD},
    {AREA_MATMUL, ROWS_TOKENS, DIM_DELTA},
};

const struct block block_delta = {BLOCK_TENSORS(TENSORS), BLOCK_AREAS(NEEDED),
                                  .encode = encode_delta};
