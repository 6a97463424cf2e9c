/* ends.c: the two ends of a model: the embedding and the head. Tested by
 * tests/runtime/test_pipeline.c. */
#include "planner/blocks/encode.h"

#include <math.h>

// Makes the inputs of the layers: rows of a table of their own, plus the norm of a product with the
// embedding. Both would be divided by sqrt(2), and the product by sqrt(n_embd).
static void encode_layer_inputs(const struct forward *f) {
    const struct weight *table = encode_weight(f, 0, ROLE_LAYER_EMBED);
    const int32_t width = f->shape->n_layer_input, n_layers = f->shape->n_layers, n = f->n_tokens;
    float *inputs = f->area[AREA_LAYER_INPUTS], *product = f->area[AREA_LAYER_PRODUCT];
    if (!table) return;
    f->ops->embed(f->stream, encode_type(table),
                  &(struct embed_args){inputs, table->data, f->tables.tokens, n, table->n_cols,
                                       table->n_rows, sqrtf((float)width)});
    encode_product(f, &(struct product){.matrix = ROLE_LAYER_EMBED_PROJ,
                                        .out = product,
                                        .x = f->area[AREA_RESIDUAL],
                                        .n_rows = n,
                                        .out_stride = n_layers * width});
    f->ops->rms_norm(f->stream,
                     &(struct rms_norm_args){.out = inputs,
                                             .x = product,
                                             .weight = encode_vector(f, ROLE_LAYER_EMBED_NORM),
                                             .residual = inputs,
                                             .n_rows = n * n_layers,
                                             .n_cols = width,
                                             .eps = f->hp->norm_eps * (float)f->shape->n_embd});
}

static void encode_embed(const struct forward *f) {
    const struct weight *w = encode_weight(f, 0, ROLE_TOKEN_EMBED);
    const float scale = f->hp->embed_scale > 0 ? f->hp->embed_scale : 1;
    if (!w) return;
    f->ops->embed(f->stream, encode_type(w),
                  &(struct embed_args){f->area[AREA_RESIDUAL], w->data, f->tables.tokens,
                                       f->n_tokens, w->n_cols, w->n_rows, scale});
    encode_layer_inputs(f);
}

static void encode_caps(const struct forward *f) {
    const struct hparams *hp = f->hp;
    if (!(hp->logit_scale > 0) && !(hp->logit_softcap > 0)) return;
    f->ops->cap_logits(
        f->stream,
        &(struct cap_logits_args){f->area[AREA_LOGITS], f->n_logits, f->shape->n_vocab,
                                  hp->logit_scale > 0 ? hp->logit_scale : 1, hp->logit_softcap});
}

// logits = output * norm(residual), for the rows that are wanted, scaled and capped
static void encode_head(const struct forward *f) {
    float *gathered = f->area[AREA_GATHERED];
    f->ops->gather_rows(f->stream,
                        &(struct gather_rows_args){gathered, f->area[AREA_RESIDUAL], f->tables.rows,
                                                   f->n_logits, f->shape->n_embd, f->n_tokens});
    encode_norm(f, gathered, gathered, ROLE_OUTPUT_NORM, f->n_logits);
    encode_product(f, &(struct product){.matrix = ROLE_OUTPUT,
                                        .bias = ROLE_OUTPUT_BIAS,
                                        .out = f->area[AREA_LOGITS],
                                        .x = gathered,
                                        .n_rows = f->n_logits,
                                        .out_stride = f->shape->n_vocab});
    encode_caps(f);
}

static const struct block_tensor EMBED_TENSORS[] = {
    {ROLE_TOKEN_EMBED, DIM_EMBD, DIM_VOCAB, false},
    {ROLE_LAYER_EMBED, DIM_LAYER_INPUTS, DIM_VOCAB, false},
    {ROLE_LAYER_EMBED_PROJ, DIM_EMBD, DIM_LAYER_INPUTS, false},
    {ROLE_LAYER_EMBED_NORM, DIM_LAYER_INPUT, DIM_ONE, false},
};
static const struct block_tensor HEAD_TENSORS[] = {
    {ROLE_OUTPUT, DIM_EMBD, DIM_VOCAB, false},
    {ROLE_OUTPUT_NORM, DIM_EMBD, DIM_ONE, false},
    {ROLE_OUTPUT_NORM_BIAS, DIM_EMBD, DIM_ONE, true},
    {ROLE_OUTPUT_BIAS, DIM_VOCAB, DIM_ONE, true},
};

static const struct block_area EMBED_AREAS[] = {
    {AREA_RESIDUAL, ROWS_TOKENS, DIM_EMBD},
    {AREA_LAYER_INPUTS, ROWS_TOKENS, DIM_LAYER_INPUTS},
    {AREA_LAYER_PRODUCT, ROWS_TOKENS, DIM_LAYER_INPUTS},
    {AREA_MATMUL, ROWS_TOKENS, DIM_LAYER_EMBD},
};
static const struct block_area HEAD_AREAS[] = {
    {AREA_RESIDUAL, ROWS_TOKENS, DIM_EMBD},
    {AREA_GATHERED, ROWS_LOGITS, DIM_EMBD},
    {AREA_MATMUL, ROWS_LOGITS, DIM_EMBD},
    {AREA_LOGITS, ROWS_LOGITS, DIM_VOCAB},
};

const struct block block_embed = {BLOCK_TENSORS(EMBED_TENSORS), BLOCK_AREAS(EMBED_AREAS),
                                  .encode = encode_embed};
const struct block block_head = {BLOCK_TENSORS(HEAD_TENSORS), BLOCK_AREAS(HEAD_AREAS),
                                 .encode = encode_head};
