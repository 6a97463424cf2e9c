/* encode.c: see encode.h. */
#include "planner/blocks/encode.h"

const struct weight *encode_weight(const struct forward *f, int piece, enum tensor_role role) {
    const struct unit_tensor *t = unit_find(f->unit, role);
    if (!t) return NULL;
    const struct weight *w = &f->pieces[piece][t - f->unit->tensors];
    return w->n_rows ? w : NULL;
}

const float *encode_vector(const struct forward *f, enum tensor_role role) {
    const struct weight *w = encode_weight(f, 0, role);
    return w ? w->data : NULL;
}

enum weight_type encode_type(const struct weight *w) {
    enum weight_type type;
    const bool known = dtype_weight(w->type, &type);
    ASSERT(known);
    return type;
}

void encode_product(const struct forward *f, const struct product *p) {
    const float *bias = encode_vector(f, p->bias);
    for (int i = 0; i < f->n_pieces; i++) {
        const struct weight *w = encode_weight(f, i, p->matrix);
        if (!w) continue;
        float *out = p->out + w->first_row;
        f->ops->matmul(f->stream, encode_type(w),
                       &(struct matmul_args){.out = out,
                                             .x = p->x,
                                             .weight = w->data,
                                             .bias = bias ? bias + w->first_row : NULL,
                                             .residual = p->adds ? out : NULL,
                                             .scratch = f->area[AREA_MATMUL],
                                             .n_tokens = p->n_rows,
                                             .n_cols = w->n_cols,
                                             .row_count = w->n_rows,
                                             .out_stride = p->out_stride});
    }
}

void encode_branch(const struct forward *f, enum tensor_role matrix, enum tensor_role bias,
                   const float *x) {
    const bool leaves = unit_leaves_branch(f->unit);
    encode_product(f, &(struct product){.matrix = matrix,
                                        .bias = bias,
                                        .out = f->area[leaves ? AREA_NORMED : AREA_RESIDUAL],
                                        .x = x,
                                        .n_rows = f->n_tokens,
                                        .out_stride = f->shape->n_embd,
                                        .adds = !leaves});
}

// scale: of the sum; NULL: none. The norm before experts is added by them.
static void add_norm(const struct forward *f, enum tensor_role role, float eps,
                     const float *scale) {
    float *normed = f->area[AREA_NORMED];
    const bool beside = role == ROLE_FFN_POST_NORM_1;
    float *residual = beside ? NULL : f->area[AREA_RESIDUAL];
    f->ops->rms_norm(f->stream, &(struct rms_norm_args){.out = beside ? normed : residual,
                                                        .x = normed,
                                                        .weight = encode_vector(f, role),
                                                        .residual = residual,
                                                        .scale = scale,
                                                        .n_rows = f->n_tokens,
                                                        .n_cols = f->shape->n_embd,
                                                        .eps = eps});
}

// residual = scale * (residual + norm(P (gelu(G residual) * the layer's input))). The input is
// sqrt(2) times too large, which a norm with twice the epsilon takes back.
static void add_layer_input(const struct forward *f, const float *scale) {
    const int32_t n = f->n_tokens, width = f->shape->n_layer_input;
    float *gate = f->area[AREA_LAYER_GATE];
    const float *inputs = f->area[AREA_LAYER_INPUTS] + (int64_t)f->unit->layer * width;
    encode_product(f, &(struct product){.matrix = ROLE_LAYER_GATE,
                                        .out = gate,
                                        .x = f->area[AREA_RESIDUAL],
                                        .n_rows = n,
                                        .out_stride = width});
    f->ops->swiglu(f->stream, &(struct swiglu_args){.out = gate,
                                                    .gate = gate,
                                                    .up = inputs,
                                                    .n_rows = n,
                                                    .n_cols = width,
                                                    .stride = width,
                                                    .up_stride = f->shape->n_layers * width,
                                                    .form = f->hp->glu,
                                                    .limit = f->hp->glu_limit});
    encode_product(f, &(struct product){.matrix = ROLE_LAYER_PROJ,
                                        .out = f->area[AREA_NORMED],
                                        .x = gate,
                                        .n_rows = n,
                                        .out_stride = f->shape->n_embd});
    add_norm(f, ROLE_LAYER_POST_NORM, 2 * f->hp->norm_eps, scale);
}

void encode_post_norm(const struct forward *f) {
    const struct unit_tensor *norm = unit_post_norm(f->unit);
    const float *scale = encode_vector(f, ROLE_LAYER_SCALE);
    const bool more = unit_find(f->unit, ROLE_LAYER_GATE);
    if (norm) add_norm(f, norm->role, f->hp->norm_eps, more ? NULL : scale);
    if (more) add_layer_input(f, scale);
}

static enum tensor_role bias_of_norm(enum tensor_role weight) {
    switch (weight) {
    case ROLE_ATTN_NORM: return ROLE_ATTN_NORM_BIAS;
    case ROLE_FFN_NORM: return ROLE_FFN_NORM_BIAS;
    case ROLE_OUTPUT_NORM: return ROLE_OUTPUT_NORM_BIAS;
    default: return ROLE_OTHER;
    }
}

void encode_norm(const struct forward *f, float *out, const float *x, enum tensor_role weight,
                 int32_t n_rows) {
    f->ops->rms_norm(f->stream,
                     &(struct rms_norm_args){.out = out,
                                             .x = x,
                                             .weight = encode_vector(f, weight),
                                             .n_rows = n_rows,
                                             .n_cols = f->shape->n_embd,
                                             .eps = f->hp->residual_eps,
                                             .centred = f->hp->norms_centred,
                                             .bias = encode_vector(f, bias_of_norm(weight))});
}

const float *encode_sub_norm(const struct forward *f, enum tensor_role role, float *out,
                             const float *x, int32_t n_cols) {
    const float *weight = encode_vector(f, role);
    if (!weight) return x;
    f->ops->rms_norm(f->stream, &(struct rms_norm_args){.out = out,
                                                        .x = x,
                                                        .weight = weight,
                                                        .n_rows = f->n_tokens,
                                                        .n_cols = n_cols,
                                                        .eps = f->hp->norm_eps});
    return out;
}

const float *encode_input(const struct forward *f, enum tensor_role norm) {
    float *normed = f->area[AREA_NORMED], *residual = f->area[AREA_RESIDUAL];
    if (unit_find(f->unit, norm)) encode_norm(f, normed, residual, norm, f->n_tokens);
    return unit_find(f->unit, norm) || f->unit->reads_normed ? normed : residual;
}
