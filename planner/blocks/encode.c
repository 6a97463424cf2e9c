/* encode.c: see encode.h. */
#include "planner/blocks/encode.h"

const struct weight *encode_weight(const struct forward *f, int piece, enum tensor_role role) {
    const struct unit_tensor *t = unit_find(f->unit, role);
    if (!t) return NULL;
    const struct weight *w = &f->pieces[piece][t - f->unit->tensors];
    return w->n_rows ? w : NULL;
}

const float *encode_vector(const struct forward *f, enum tensor_role role, int32_t first) {
    const struct weight *w = encode_weight(f, 0, role);
    return w ? (const float *)w->data + first : NULL;
}

enum weight_type encode_type(const struct weight *w) {
    enum weight_type type;
    const bool known = dtype_weight(w->type, &type);
    ASSERT(known);
    return type;
}

void encode_matmul(const struct forward *f, float *out, const float *x, const struct weight *w,
                   const struct matmul_args *more) {
    struct matmul_args args = *more;
    args.out = out;
    args.x = x;
    args.weight = w->data;
    args.scratch = f->area[AREA_MATMUL];
    args.n_tokens = f->n_tokens;
    args.n_cols = w->n_cols;
    args.row_count = w->n_rows;
    f->ops->matmul(f->stream, encode_type(w), &args);
}

void encode_add(const struct forward *f, const float *x, enum tensor_role matrix,
                enum tensor_role bias) {
    for (int i = 0; i < f->n_pieces; i++) {
        const struct weight *w = encode_weight(f, i, matrix);
        float *out = f->area[AREA_RESIDUAL] + w->first_row;
        encode_matmul(f, out, x, w,
                      &(struct matmul_args){.bias = encode_vector(f, bias, w->first_row),
                                            .residual = out,
                                            .out_stride = f->shape->n_embd});
    }
}

void encode_norm(const struct forward *f, float *out, const float *x, enum tensor_role weight,
                 int32_t n_rows) {
    f->ops->rms_norm(f->stream, &(struct rms_norm_args){out, x, encode_vector(f, weight, 0), n_rows,
                                                        f->shape->n_embd, f->hp->norm_eps});
}
