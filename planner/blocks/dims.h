/* dims.h: the widths of a unit's tensors and scratch areas.
 *
 * Pure functions over a shape. Any thread. Included through planner/planner.h. Tested by
 * tests/runtime/test_model.c.
 */
#ifndef TANDEM_PLANNER_BLOCKS_DIMS_H
#define TANDEM_PLANNER_BLOCKS_DIMS_H

#include "planner/shape/shape.h"

enum dim {
    DIM_ONE,
    DIM_EMBD,
    DIM_VOCAB,
    DIM_QUERIES,     // n_heads * head_dim_k
    DIM_Q_ROWS,      // of the matrix of the queries: DIM_QUERIES, with gates twice as many
    DIM_GATED,       // n_heads * head_dim_v with gates, else 0
    DIM_GATED_Q,     // DIM_Q_ROWS with gates, else 0
    DIM_KEYS,        // n_kv_heads * head_dim_k
    DIM_VALUES,      // n_kv_heads * head_dim_v
    DIM_ATTENDED,    // n_heads * head_dim_v
    DIM_GATES_APART, // the same if gates of attention have a matrix of their own, else 0
    DIM_HEAD,        // head_dim_k
    DIM_Q_NORM,      // of the norm of queries: DIM_HEAD, or DIM_QUERIES if it is one for all heads
    DIM_K_NORM,      // of that of keys
    DIM_Q_NORMS,     // rows of its weights: n_heads if each head has its own, else 1
    DIM_K_NORMS,     // of those of keys
    DIM_HEADS,       // n_heads
    DIM_ROT,
    DIM_HALF_ROT,  // n_rot / 2
    DIM_OTHER_ROT, // n_local_rot, or DIM_LATENT_ROW, if the model has other angles, else 0
    DIM_FF,        // of a unit that has no tensors yet, the largest of any
    DIM_FF_EXPERT,
    DIM_EXPERTS,
    DIM_EXPERT_BOUNDS, // n_experts + 1
    DIM_EXPERT_ROWS,   // n_experts_used * n_embd
    DIM_SHARED_GATE,   // 1 if a shared expert of the model has a gate, else 0
    DIM_CHANNELS,      // of the convolution of a recurrent layer
    DIM_TAPS,          // of it
    DIM_MIXER_IN,      // what a gated convolution or Mamba-2 makes of a token at first, else 0
    DIM_GROUP,         // columns of a group of Mamba-2
    DIM_GROUPS,        // number of these
    DIM_DELTA,         // n_heads * head_dim of a recurrent layer
    DIM_DELTA_HEADS,
    DIM_DELTA_HEAD,     // head_dim
    DIM_DELTA_GATES,    // n_heads if alphas and betas are tensors of their own, else 0
    DIM_JOINED_GATES,   // 2 * n_heads if they are one, else 0
    DIM_RANK,           // of a latent vector
    DIM_QUERY_RANK,     // of queries, 0: they are made in one step
    DIM_LATENT_ROW,     // DIM_RANK + n_rot, a row of the cache
    DIM_LATENT_QUERIES, // n_heads * key_dim of latent attention
    DIM_DIRECT_QUERIES, // the same if they are made in one step, else 0
    DIM_PLAIN,          // key_dim - n_rot of latent attention
    DIM_LATENT_VALUE,   // value_dim of it
    DIM_LATENT_VALUES,  // n_heads * value_dim of it
    DIM_LAYER_INPUT,
    DIM_LAYER_INPUTS, // of all layers
    DIM_LAYER_EMBD,   // n_embd if the embedding makes such inputs, else 0
    DIM_EXPERT_IN,    // n_embd if experts read another norm than the FFN beside them, else 0
    DIM_JOINT_IN,     // n_embd if experts and a shared one have a norm of their sum, else 0
    DIMS
};
// The width in one unit, or the largest of any unit if unit is NULL.
int64_t dims_of(const struct shape *shape, const struct unit *unit, enum dim dim);

#endif
