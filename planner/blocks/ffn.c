/* ffn.c: a dense FFN with a gate (SwiGLU); a shared expert is one. Tested by
 * tests/runtime/test_pipeline.c. Source: Shazeer 2020. */
#include "planner/blocks/encode.h"

// gate = silu(gate) * up in the columns first..first+count-1 of all tokens.
static void encode_swiglu(const struct forward *f, int32_t n_ff, int32_t first, int32_t count) {
    // One call over everything is cheapest, even if it makes rubbish of columns yet to come.
    if (count == n_ff || (f->n_tokens > 1 && !f->shares_hidden)) {
        f->ops->swiglu(f->stream,
                       &(struct swiglu_args){f->gate, f->gate, f->up, (int64_t)f->n_tokens * n_ff});
        return;
    }
    for (int32_t t = 0; t < f->n_tokens; t++) {
        float *gate = f->gate + (int64_t)t * n_ff + first;
        const float *up = f->up + (int64_t)t * n_ff + first;
        f->ops->swiglu(f->stream, &(struct swiglu_args){gate, gate, up, count});
    }
}

// gate = silu(gate x) * up x, x = norm(residual), in the columns of the pieces' rows.
static void encode_ffn_in(const struct forward *f) {
    const int32_t n_ff = unit_find(f->unit, ROLE_FFN_DOWN)->n_cols;
    const struct matmul_args columns = {.out_stride = n_ff};
    int32_t n_own = 0;
    encode_norm(f, f->normed, f->residual, ROLE_FFN_NORM, f->n_tokens);
    for (int i = 0; i < f->n_pieces; i++) {
        const struct weight *gate = encode_weight(f, i, ROLE_FFN_GATE);
        const struct weight *up = encode_weight(f, i, ROLE_FFN_UP);
        encode_matmul(f, f->gate + gate->first_row, f->normed, gate, &columns);
        encode_matmul(f, f->up + up->first_row, f->normed, up, &columns);
        n_own += gate->n_rows;
    }
    encode_swiglu(f, n_ff, encode_weight(f, 0, ROLE_FFN_GATE)->first_row, n_own);
}

static void encode_ffn(const struct forward *f) {
    if (f->phase != PHASE_OUT) encode_ffn_in(f);
    if (f->phase != PHASE_IN) encode_add(f, f->gate, ROLE_FFN_DOWN, ROLE_OTHER);
}

static const struct block_tensor TENSORS[] = {
    {ROLE_FFN_NORM, DIM_EMBD, DIM_ONE, false},
    {ROLE_FFN_GATE, DIM_EMBD, DIM_FF, false},
    {ROLE_FFN_UP, DIM_EMBD, DIM_FF, false},
    {ROLE_FFN_DOWN, DIM_FF, DIM_EMBD, false},
};

const struct block block_ffn = {BLOCK_TENSORS(TENSORS), .encode = encode_ffn};
