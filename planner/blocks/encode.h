/* encode.h: helpers for the encoders of blocks: a unit's weights by role, and calls of common ops.
 *
 * An encoder leaves out tensors that its unit does not have: model_read refuses models that lack a
 * required tensor, and the planner counts the encoded ops for units that can only be planned. Only
 * for planner/blocks/. Owns nothing; any thread. Tested with the blocks.
 */
#ifndef TANDEM_PLANNER_BLOCKS_ENCODE_H
#define TANDEM_PLANNER_BLOCKS_ENCODE_H

#include "planner/blocks/block.h"

// The members of struct block for its tensors.
#define BLOCK_TENSORS(list) .tensors = (list), .n_tensors = sizeof(list) / sizeof *(list)

// The members of struct block for its areas.
#define BLOCK_AREAS(list) .areas = (list), .n_areas = sizeof(list) / sizeof *(list)

// The tensors and areas of the last unit of a layer, for what encode_post_norm does there.
#define BLOCK_LAYER_END_TENSORS                                 \
    {ROLE_FFN_POST_NORM, DIM_EMBD, DIM_ONE, true},              \
        {ROLE_LAYER_GATE, DIM_EMBD, DIM_LAYER_INPUT, false},    \
        {ROLE_LAYER_PROJ, DIM_LAYER_INPUT, DIM_EMBD, false},    \
        {ROLE_LAYER_POST_NORM, DIM_LAYER_EMBD, DIM_ONE, false}, \
        {ROLE_LAYER_SCALE, DIM_ONE, DIM_ONE, true},
#define BLOCK_LAYER_END_AREAS                            \
    {AREA_LAYER_INPUTS, ROWS_TOKENS, DIM_LAYER_INPUTS},  \
        {AREA_LAYER_GATE, ROWS_TOKENS, DIM_LAYER_INPUT}, \
        {AREA_MATMUL, ROWS_TOKENS, DIM_LAYER_INPUT},

// The blocks that attention.c, latent.c, delta.c, conv.c, mamba.c, experts.c, ffn.c and ends.c
// define, for blocks.c.
extern const struct block block_embed, block_attention, block_latent, block_delta, block_conv,
    block_mamba, block_beside, block_ffn, block_experts, block_head;

// Encodes the tables of angles of rotary positions, once per micro-batch. In attention.c.
void encode_angles(const struct forward *f);

// True if queries turn by a table of their own. A model has at most one of this and a table of
// layers with a window.
bool encode_has_query_rope(const struct forward *f);

// Encodes all of attention, which leaves the norm that it reads in AREA_NORMED if the unit ends
// without a norm; and Mamba-2 of what is in AREA_NORMED. In attention.c and mamba.c.
void encode_attention(const struct forward *f);
void encode_mamba_of_normed(const struct forward *f);

// Finds the weight of that role in a piece; NULL if the unit has none or the piece has no rows of
// it.
const struct weight *encode_weight(const struct forward *f, int piece, enum tensor_role role);

// Finds the elements of a vector, which every device has whole, or of the biases of experts; NULL
// if there is none.
const float *encode_vector(const struct forward *f, enum tensor_role role);

// The type whose kernels multiply with w. Models without such kernels are not read.
enum weight_type encode_type(const struct weight *w);

// A matrix times rows of x, plus a bias if the unit has one. Each piece computes the columns of out
// that correspond to its rows; a piece without rows is left out.
struct product {
    enum tensor_role matrix, bias; // bias may be ROLE_OTHER: none
    float *out;
    const float *x;
    int32_t n_rows, out_stride; // of x and out; in elements
    bool adds;                  // to what out holds
};
void encode_product(const struct forward *f, const struct product *p);

// The last matmul of a unit: adds its product to the residual stream, or leaves it in AREA_NORMED
// if the unit ends with a norm, or if experts behind it do, whose norm is of both.
void encode_branch(const struct forward *f, enum tensor_role matrix, enum tensor_role bias,
                   const float *x);
// Adds the norm of that product to the residual stream if the unit ends with one, and ends the
// layer: with what the embedding made for it, and the scale of all of it.
void encode_post_norm(const struct forward *f);

// Norm of rows as wide as the residual stream, with the bias that goes with the weight if the unit
// has one. out may be x.
void encode_norm(const struct forward *f, float *out, const float *x, enum tensor_role weight,
                 int32_t n_rows);

// out = norm(x) of rows of n_cols; returns out, or x if the unit has no such norm. out may be x.
const float *encode_sub_norm(const struct forward *f, enum tensor_role role, float *out,
                             const float *x, int32_t n_cols);

// The input of attention or a dense FFN: the norm of the residual stream, which it makes in
// AREA_NORMED, or has there already; or the residual stream itself if the unit has no such norm.
const float *encode_input(const struct forward *f, enum tensor_role norm);

#endif
