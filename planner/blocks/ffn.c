/* ffn.c: a dense FFN, with a gate (SwiGLU, GeGLU) or without. A shared expert is one, which may
 * have a gate for each token too; the routed experts behind it read the norm that it leaves in
 * AREA_NORMED. Tested by tests/runtime/test_pipeline.c. Source: Shazeer 2020. */
#include "planner/blocks/encode.h"

// Makes the logits of the tokens' gates, on every device that computes rows of the FFN; NULL if
// there are none.
static const float *encode_shared_gate(const struct forward *f) {
    const float *weight = encode_vector(f, ROLE_SHARED_GATE);
    float *out = f->area[AREA_SHARED_GATE];
    if (!weight) return NULL;
    f->ops->matmul(f->stream, WEIGHT_F32,
                   &(struct matmul_args){.out = out,
                                         .x = f->area[AREA_NORMED],
                                         .weight = weight,
                                         .scratch = f->area[AREA_MATMUL],
                                         .n_tokens = f->n_tokens,
                                         .n_cols = f->shape->n_embd,
                                         .row_count = 1,
                                         .out_stride = 1});
    return out;
}

// gate = the gated unit of gate and up in the columns of the pieces' rows; in all columns if a unit
// that can only be planned has other matrices. A unit without a gate has up there.
static void encode_swiglu(const struct forward *f, int32_t n_ff, const float *row_gate) {
    const bool has_gate = unit_find(f->unit, ROLE_FFN_GATE);
    int32_t n_own = 0, first = 0;
    for (int i = 0; i < f->n_pieces; i++) {
        const struct weight *w = encode_weight(f, i, has_gate ? ROLE_FFN_GATE : ROLE_FFN_UP);
        if (!w) continue;
        if (n_own == 0) first = w->first_row;
        n_own += w->n_rows;
    }
    float *gate = f->area[AREA_GATE] + first;
    const float *up = has_gate ? f->area[AREA_UP] + first : NULL;
    f->ops->swiglu(f->stream, &(struct swiglu_args){.out = gate,
                                                    .gate = gate,
                                                    .up = up,
                                                    .row_gate = row_gate,
                                                    .n_rows = f->n_tokens,
                                                    .n_cols = n_own ? n_own : n_ff,
                                                    .stride = n_ff,
                                                    .up_stride = n_ff,
                                                    .form = f->hp->glu,
                                                    .limit = f->hp->glu_limit,
                                                    .xielu = f->hp->xielu[f->unit->layer]});
}

// gate = the gated unit of gate x and up x in the columns of the pieces' rows, where x is the
// unit's input; of up x alone if it has no gate.
static void encode_ffn_in(const struct forward *f) {
    const int32_t n_ff = (int32_t)dims_of(f->shape, f->unit, DIM_FF);
    const int32_t n = f->n_tokens;
    const float *x = encode_input(f, ROLE_FFN_NORM);
    float *made = f->area[unit_find(f->unit, ROLE_FFN_GATE) ? AREA_UP : AREA_GATE];
    const struct product gate = {ROLE_FFN_GATE, ROLE_FFN_GATE_BIAS, f->area[AREA_GATE], x, n, n_ff,
                                 false};
    const struct product up = {ROLE_FFN_UP, ROLE_FFN_UP_BIAS, made, x, n, n_ff, false};
    encode_product(f, &gate);
    encode_product(f, &up);
    encode_swiglu(f, n_ff, encode_shared_gate(f));
}

// Down, of the columns of the pieces' rows, behind a norm of all columns if there is one. The norm
// goes elsewhere, since the own columns may still be on their way to the other device.
static void encode_ffn_out(const struct forward *f) {
    const int32_t n_ff = (int32_t)dims_of(f->shape, f->unit, DIM_FF);
    const float *x =
        encode_sub_norm(f, ROLE_FFN_SUB_NORM, f->area[AREA_UP], f->area[AREA_GATE], n_ff);
    encode_branch(f, ROLE_FFN_DOWN, ROLE_FFN_DOWN_BIAS, x);
}

static void encode_ffn(const struct forward *f) {
    const bool all = f->phase == PHASE_ALL;
    if (all || f->phase == PHASE_IN) encode_ffn_in(f);
    if (all || f->phase == PHASE_OUT) encode_ffn_out(f);
    if (all || f->phase == PHASE_NORM) encode_post_norm(f);
}

static const struct block_tensor TENSORS[] = {{ROLE_FFN_NORM, DIM_EMBD, DIM_ONE, false},
                                              {ROLE_FFN_NORM_BIAS, DIM_EMBD, DIM_ONE, true},
                                              {ROLE_FFN_GATE, DIM_EMBD, DIM_FF, false},
                                              {ROLE_FFN_UP, DIM_EMBD, DIM_FF, false},
                                              {ROLE_FFN_DOWN, DIM_FF, DIM_EMBD, false},
                                              {ROLE_FFN_GATE_BIAS, DIM_FF, DIM_ONE, true},
                                              {ROLE_FFN_UP_BIAS, DIM_FF, DIM_ONE, true},
                                              {ROLE_FFN_DOWN_BIAS, DIM_EMBD, DIM_ONE, true},
                                              {ROLE_FFN_SUB_NORM, DIM_FF, DIM_ONE, true},
                                              {ROLE_SHARED_GATE, DIM_EMBD, DIM_ONE, true},
                                              {ROLE_FFN_POST_NORM_1, DIM_EXPERT_IN, DIM_ONE, false},
                                              BLOCK_LAYER_END_TENSORS};

static const struct block_area NEEDED[] = {{AREA_RESIDUAL, ROWS_TOKENS, DIM_EMBD},
                                           {AREA_NORMED, ROWS_TOKENS, DIM_EMBD},
                                           {AREA_GATE, ROWS_TOKENS, DIM_FF},
                                           {AREA_UP, ROWS_TOKENS, DIM_FF},
                                           {AREA_MATMUL, ROWS_TOKENS, DIM_EMBD},
                                           {AREA_MATMUL, ROWS_TOKENS, DIM_FF},
                                           {AREA_SHARED_GATE, ROWS_TOKENS, DIM_SHARED_GATE},
                                           BLOCK_LAYER_END_AREAS};

const struct block block_ffn = {BLOCK_TENSORS(TENSORS), BLOCK_AREAS(NEEDED), .encode = encode_ffn};
