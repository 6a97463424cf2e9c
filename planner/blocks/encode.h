/* encode.h: what encoders of blocks share: a unit's weights by role, and calls of common ops.
 *
 * Only for planner/blocks/. Owns nothing; any thread. Tested with the blocks.
 */
#ifndef TANDEM_PLANNER_BLOCKS_ENCODE_H
#define TANDEM_PLANNER_BLOCKS_ENCODE_H

#include "planner/blocks/block.h"

// The members of struct block that say what tensors there are.
#define BLOCK_TENSORS(list) .tensors = (list), .n_tensors = sizeof(list) / sizeof *(list)

// The members that say which areas it needs.
#define BLOCK_AREAS(list) .areas = (list), .n_areas = sizeof(list) / sizeof *(list)

// What is defined in attention.c, experts.c, ffn.c and ends.c, for blocks.c.
extern const struct block block_embed, block_attention, block_ffn, block_experts, block_head;

// The weight of that role in a piece; NULL if the unit has none or the piece nothing of it.
const struct weight *encode_weight(const struct forward *f, int piece, enum tensor_role role);

// The numbers of a vector, which every device has whole, from first on; NULL if there is none.
const float *encode_vector(const struct forward *f, enum tensor_role role, int32_t first);

// The type whose kernels multiply with w. A model is read only if there are such kernels.
enum weight_type encode_type(const struct weight *w);

// out = w * x, every row of w; more says the rest: bias, residual, out_stride.
void encode_matmul(const struct forward *f, float *out, const float *x, const struct weight *w,
                   const struct matmul_args *more);

// The matrix of that role times x, plus a bias if the unit has one, added to the residual stream in
// the columns of the pieces' rows. bias may be ROLE_OTHER: none.
void encode_add(const struct forward *f, const float *x, enum tensor_role matrix,
                enum tensor_role bias);

// RMS norm of rows as wide as the residual stream. out may be x.
void encode_norm(const struct forward *f, float *out, const float *x, enum tensor_role weight,
                 int32_t n_rows);

#endif
