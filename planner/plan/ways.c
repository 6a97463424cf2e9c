/* ways.c: see ways.h. */
#include "planner/plan/ways.h"

static bool can_cut(const struct unit_tensor *t) {
    return t->n_rows >= 2 * SPLIT_STEP &&
           dtype_bytes(t->type, (uint64_t)t->n_cols) * (uint64_t)t->n_rows == t->size_bytes;
}

// True if queries and output are cut. Both may be square, so their sizes alone do not identify
// them.
static bool can_split_attention(const struct unit *unit) {
    const struct unit_tensor *q = unit_find(unit, ROLE_ATTN_Q);
    const struct unit_tensor *o = unit_find(unit, ROLE_ATTN_OUTPUT);
    const int64_t width = (int64_t)unit->n_heads * unit->head_dim_k;
    return q && o && unit->n_kv_heads > 0 && unit->state_bytes == 0 &&
           unit->head_dim_k == unit->head_dim_v && q->n_rows == width && o->n_cols == width &&
           q->n_cols == o->n_rows && can_cut(q) && can_cut(o);
}

// True if every matrix but those of the end of a layer is cut, and each matrix of the first phase
// makes the columns that the last phase reads.
static bool can_split_ffn(const struct unit *unit) {
    const struct unit_tensor *down = unit_find(unit, ROLE_FFN_DOWN);
    int n_first = 0;
    for (int i = 0; i < unit->n_tensors; i++) {
        const struct unit_tensor *t = &unit->tensors[i];
        if (t->use == USE_VECTOR || t == down) continue;
        const bool at_end = t->role == ROLE_LAYER_GATE || t->role == ROLE_LAYER_PROJ;
        if (at_end && unit_post_norm(unit)) continue; // the accelerator's, with the norm
        if (!down || !unit_is_cut(t) || !can_cut(t)) return false;
        if (t->n_rows != down->n_cols || t->n_cols != down->n_rows) return false;
        n_first++;
    }
    return n_first > 0 && can_cut(down);
}

// True if every matrix but the router is one of each expert.
static bool can_split_experts(const struct unit *unit) {
    if (unit->n_experts < 2 || unit_find(unit, ROLE_EXPERT_NORM)) return false;
    for (int i = 0; i < unit->n_tensors; i++) {
        const struct unit_tensor *t = &unit->tensors[i];
        if (tensor_role_is_f32(t->role)) continue;
        if (!unit_is_cut(t) || t->n_matrices != unit->n_experts) return false;
    }
    return unit_find(unit, ROLE_ROUTER) && unit_find(unit, ROLE_EXPERT_DOWN);
}

bool unit_can_split(const struct unit *unit) {
    if (unit->kind == UNIT_FFN) return can_split_ffn(unit);
    if (unit->kind == UNIT_EXPERTS) return can_split_experts(unit);
    return unit->kind == UNIT_ATTENTION && can_split_attention(unit);
}

bool unit_is_cut(const struct unit_tensor *tensor) {
    return tensor_role_info(tensor->role)->cut != CUT_NONE;
}

bool unit_can_stream(const struct unit *unit) {
    if (unit->kind == UNIT_FFN || unit->kind == UNIT_EXPERTS) return true;
    return unit->kind == UNIT_ATTENTION && unit->n_kv_heads > 0 && unit->state_bytes == 0 &&
           !unit->lends_cache;
}
