/* dims.c: see dims.h. */
#include "planner/blocks/dims.h"

int64_t dims_of(const struct shape *shape, const struct unit *unit, enum dim dim) {
    const int64_t n_heads = unit->n_heads, n_kv_heads = unit->n_kv_heads;
    switch (dim) {
    case DIM_ONE: return 1;
    case DIM_EMBD: return shape->n_embd;
    case DIM_VOCAB: return shape->n_vocab;
    case DIM_QUERIES: return n_heads * unit->head_dim_k;
    case DIM_KEYS: return n_kv_heads * unit->head_dim_k;
    case DIM_VALUES: return n_kv_heads * unit->head_dim_v;
    case DIM_ATTENDED: return n_heads * unit->head_dim_v;
    case DIM_FF: return shape->n_ff;
    case DIMS: break;
    }
    ASSERT(false);
    return 0;
}
