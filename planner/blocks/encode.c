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
    const bool normed = unit_post_norm(f->unit);
    encode_product(f, &(struct product){.matrix = matrix,
                                        .bias = bias,
                                        .out = f->area[normed ? AREA_NORMED : AREA_RESIDUAL],
                                        .x = x,
                                        .n_rows = f->n_tokens,
                                        .out_stride = f->shape->n_embd,
                                        .adds = !normed});
}

void encode_post_norm(const struct forward *f) {
    const struct unit_tensor *norm = unit_post_norm(f->unit);
    float *residual = f->area[AREA_RESIDUAL];
    if (!norm) return;
    f->ops->rms_norm(f->stream,
                     &(struct rms_norm_args){residual, f->area[AREA_NORMED],
                                             encode_vector(f, norm->role), residual, NULL,
                                             f->n_tokens, f->shape->n_embd, f->hp->norm_eps});
}

void encode_norm(const struct forward *f, float *out, const float *x, enum tensor_role weight,
                 int32_t n_rows) {
    f->ops->rms_norm(f->stream,
                     &(struct rms_norm_args){out, x, encode_vector(f, weight), NULL, NULL, n_rows,
                                             f->shape->n_embd, f->hp->residual_eps});
}
