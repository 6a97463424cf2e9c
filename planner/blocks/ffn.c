/* ffn.c: a dense FFN with a gate (SwiGLU); a shared expert is one. Tested by
 * tests/runtime/test_pipeline.c. Source: Shazeer 2020. */
#include "planner/blocks/encode.h"

// gate = silu(gate) * up in the columns first..first+count-1 of all tokens.
static void encode_swiglu(const struct forward *f, int32_t n_ff, int32_t first, int32_t count) {
    // One call over everything is cheapest, even if it makes rubbish of columns yet to come.
    if (count == n_ff || (f->n_tokens > 1 && !f->shares_hidden)) {
        f->ops->swiglu(f->stream,
                       &(struct swiglu_args){f->area[AREA_GATE], f->area[AREA_GATE],
                                             f->area[AREA_UP], (int64_t)f->n_tokens * n_ff});
        return;
    }
    for (int32_t t = 0; t < f->n_tokens; t++) {
        float *gate = f->area[AREA_GATE] + (int64_t)t * n_ff + first;
        const float *up = f->area[AREA_UP] + (int64_t)t * n_ff + first;
        f->ops->swiglu(f->stream, &(struct swiglu_args){gate, gate, up, count});
    }
}

// gate = silu(gate x) * up x, x = norm(residual), in the columns of the pieces' rows.
static void encode_ffn_in(const struct forward *f) {
    const int32_t n_ff = unit_find(f->unit, ROLE_FFN_DOWN)->n_cols;
    const struct matmul_args columns = {.out_stride = n_ff};
    int32_t n_own = 0;
    encode_norm(f, f->area[AREA_NORMED], f->area[AREA_RESIDUAL], ROLE_FFN_NORM, f->n_tokens);
    for (int i = 0; i < f->n_pieces; i++) {
        const struct weight *gate = encode_weight(f, i, ROLE_FFN_GATE);
        const struct weight *up = encode_weight(f, i, ROLE_FFN_UP);
        encode_matmul(f, f->area[AREA_GATE] + gate->first_row, f->area[AREA_NORMED], gate,
                      &columns);
        encode_matmul(f, f->area[AREA_UP] + up->first_row, f->area[AREA_NORMED], up, &columns);
        n_own += gate->n_rows;
    }
    encode_swiglu(f, n_ff, encode_weight(f, 0, ROLE_FFN_GATE)->first_row, n_own);
}

static void encode_ffn(const struct forward *f) {
    if (f->phase != PHASE_OUT) encode_ffn_in(f);
    if (f->phase != PHASE_IN) encode_add(f, f->area[AREA_GATE], ROLE_FFN_DOWN, ROLE_OTHER);
}

static const struct block_tensor TENSORS[] = {
    {ROLE_FFN_NORM, DIM_EMBD, DIM_ONE, false},
    {ROLE_FFN_GATE, DIM_EMBD, DIM_FF, false},
    {ROLE_FFN_UP, DIM_EMBD, DIM_FF, false},
    {ROLE_FFN_DOWN, DIM_FF, DIM_EMBD, false},
};

static const struct block_area NEEDED[] = {
    {AREA_RESIDUAL, ROWS_TOKENS, DIM_EMBD}, {AREA_NORMED, ROWS_TOKENS, DIM_EMBD},
    {AREA_GATE, ROWS_TOKENS, DIM_FF},       {AREA_UP, ROWS_TOKENS, DIM_FF},
    {AREA_MATMUL, ROWS_TOKENS, DIM_EMBD},   {AREA_MATMUL, ROWS_TOKENS, DIM_FF},
};

const struct block block_ffn = {BLOCK_TENSORS(TENSORS), BLOCK_AREAS(NEEDED), .encode = encode_ffn};
