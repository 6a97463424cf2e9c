/* dims.c: see dims.h. */
#include "planner/blocks/dims.h"

#include "base/number.h"

static int64_t ff_of(const struct shape *shape, const struct unit *unit) {
    const struct unit_tensor *down = unit ? unit_find(unit, ROLE_FFN_DOWN) : NULL;
    return down ? down->n_cols : shape->n_ff;
}

// A gated convolution makes three products, Mamba-2 a gate, x, B, C and time steps.
static int64_t mixer_in(const struct shape *shape) {
    const struct recurrent_shape *r = &shape->recurrent;
    if (r->kind == RECURRENCE_CONV) return 3 * (int64_t)shape->n_embd;
    if (r->kind != RECURRENCE_MAMBA) return 0;
    return (int64_t)r->n_heads * r->head_dim + recurrent_channels(r) + r->n_heads;
}

// Queries of latent attention are scaled whole.
static int64_t other_rot(const struct shape *shape) {
    const struct latent_shape *latent = &shape->latent;
    return latent->rank ? latent->rank + shape->n_rot : shape->n_local_rot;
}

int64_t dims_of(const struct shape *shape, const struct unit *unit, enum dim dim) {
    const int64_t n_heads = unit ? unit->n_heads : shape->n_heads;
    const int64_t n_kv_heads = unit ? unit->n_kv_heads : shape->n_kv_heads;
    const int64_t head_dim_k = unit ? unit->head_dim_k : shape->head_dim;
    const int64_t head_dim_v = unit ? unit->head_dim_v : shape->head_dim;
    const int64_t n_used = unit ? unit->n_experts_used : shape->n_experts_used;
    const int64_t n_experts = unit ? unit->n_experts : shape->n_experts;
    const int64_t gated = unit ? unit->gated : shape->has_gated_q;
    const bool has_gate = gated || (unit ? unit->gated_apart : shape->has_gates_apart);
    const int64_t gates = shape->gates_heads ? n_heads : n_heads * head_dim_v;
    const struct latent_shape *latent = &shape->latent;
    const struct recurrent_shape *r = &shape->recurrent;
    switch (dim) {
    case DIM_ONE: return 1;
    case DIM_EMBD: return shape->n_embd;
    case DIM_VOCAB: return shape->n_vocab;
    case DIM_QUERIES: return n_heads * head_dim_k;
    case DIM_Q_ROWS: return n_heads * head_dim_k * (1 + gated);
    case DIM_GATED_Q: return 2 * n_heads * head_dim_k * gated;
    case DIM_GATED: return gates * has_gate;
    case DIM_GATES_APART: return has_gate && !gated ? gates : 0;
    case DIM_KEYS: return n_kv_heads * head_dim_k;
    case DIM_VALUES: return n_kv_heads * head_dim_v;
    case DIM_ATTENDED: return n_heads * head_dim_v;
    case DIM_HEAD: return head_dim_k;
    case DIM_Q_NORM: return shape->norms_all_heads ? n_heads * head_dim_k : head_dim_k;
    case DIM_K_NORM: return shape->norms_all_heads ? n_kv_heads * head_dim_k : head_dim_k;
    case DIM_Q_NORMS: return shape->norms_each_head ? n_heads : 1;
    case DIM_K_NORMS: return shape->norms_each_head ? n_kv_heads : 1;
    case DIM_HEADS: return n_heads;
    case DIM_ROT: return shape->n_rot;
    case DIM_HALF_ROT: return shape->n_rot / 2;
    case DIM_OTHER_ROT: return shape->has_other_angles ? other_rot(shape) : 0;
    case DIM_FF: return ff_of(shape, unit);
    case DIM_FF_EXPERT: return unit ? unit->n_ff_expert : shape->n_ff_expert;
    case DIM_EXPERTS: return n_experts;
    case DIM_EXPERT_BOUNDS: return n_experts + 1;
    case DIM_EXPERT_ROWS: return n_used * shape->n_embd;
    case DIM_SHARED_GATE: return shape->has_shared_gates;
    case DIM_CHANNELS: return recurrent_channels(r);
    case DIM_MIXER_IN: return mixer_in(shape);
    case DIM_GROUP: return (int64_t)r->n_heads * r->head_dim / max_i32(r->n_key_heads, 1);
    case DIM_GROUPS: return r->n_key_heads;
    case DIM_TAPS: return r->n_taps;
    case DIM_DELTA: return (int64_t)r->n_heads * r->head_dim;
    case DIM_DELTA_HEADS: return r->n_heads;
    case DIM_DELTA_HEAD: return r->head_dim;
    case DIM_DELTA_GATES: return r->joins_gates ? 0 : r->n_heads;
    case DIM_JOINED_GATES: return r->joins_gates ? 2 * r->n_heads : 0;
    case DIM_RANK: return latent->rank;
    case DIM_QUERY_RANK: return latent->query_rank;
    case DIM_LATENT_ROW: return latent->rank + shape->n_rot;
    case DIM_LATENT_QUERIES: return n_heads * latent->key_dim;
    case DIM_DIRECT_QUERIES: return latent->query_rank ? 0 : n_heads * latent->key_dim;
    case DIM_PLAIN: return latent->key_dim - shape->n_rot;
    case DIM_LATENT_VALUE: return latent->value_dim;
    case DIM_LATENT_VALUES: return n_heads * latent->value_dim;
    case DIM_LAYER_INPUT: return shape->n_layer_input;
    case DIM_LAYER_INPUTS: return shape_layer_inputs(shape);
    case DIM_LAYER_EMBD: return shape->n_layer_input ? shape->n_embd : 0;
    case DIM_EXPERT_IN: return shape->has_expert_norms ? shape->n_embd : 0;
    case DIM_JOINT_IN: return shape->has_joint_norms ? shape->n_embd : 0;
    case DIMS: break;
    }
    ASSERT(false);
    return 0;
}
