/* attention.c: attention with a cache of keys and values, and the tables of angles for its rotary
 * positions. Tested by tests/runtime/test_pipeline.c. Sources: Vaswani et al. 2017; Su et al. 2021.
 */
#include "planner/blocks/encode.h"

#include <math.h>

static void encode_table(const struct forward *f, enum area area, const struct rope_numbers *rope,
                         const float *freq_factors, int32_t n_rot) {
    f->ops->rope_table(f->stream, &(struct rope_table_args){.out = f->area[area],
                                                            .positions = f->tables.positions,
                                                            .freq_factors = freq_factors,
                                                            .n_tokens = f->n_tokens,
                                                            .n_rot = n_rot,
                                                            .period = rope->period,
                                                            .temperature = rope->temperature,
                                                            .base = rope->base,
                                                            .scale = rope->scale,
                                                            .magnitude = rope->magnitude,
                                                            .ext_factor = rope->ext,
                                                            .corr_low = rope->corr_low,
                                                            .corr_high = rope->corr_high});
}

static bool has_local_rope(const struct forward *f) { return f->hp->local_rope.base > 0; }

bool encode_has_query_rope(const struct forward *f) { return f->hp->query_rope.base > 0; }

void encode_angles(const struct forward *f) {
    const int32_t n_rot = f->shape->n_rot;
    const float *factors = f->area[AREA_FREQS];
    const bool latent = f->shape->latent.rank;
    encode_table(f, AREA_ANGLES, &f->hp->rope, factors, n_rot);
    if (has_local_rope(f))
        encode_table(f, AREA_OTHER_ANGLES, &f->hp->local_rope, NULL, f->shape->n_local_rot);
    if (encode_has_query_rope(f))
        encode_table(f, AREA_OTHER_ANGLES, &f->hp->query_rope, latent ? NULL : factors,
                     (int32_t)dims_of(f->shape, NULL, DIM_OTHER_ROT));
}

// Parts the rows of gated queries.
static void encode_split(const struct forward *f) {
    const struct unit *u = f->unit;
    if (!u->gated) return;
    const int32_t n = u->head_dim_k;
    f->ops->split_rows(f->stream, &(struct split_rows_args){f->area[AREA_Q], f->area[AREA_Q_GATE],
                                                            f->area[AREA_GATED_Q],
                                                            f->n_tokens * u->n_heads, n, n, n, n});
}

// q = Q x, k = K x, v = V x, gate = G x if the unit has that, where x is the unit's input: the
// columns of q for the pieces' rows; the others on the device that has their matrices.
static void encode_attention_in(const struct forward *f) {
    const struct unit *u = f->unit;
    const int32_t n = f->n_tokens, q = (int32_t)dims_of(f->shape, u, DIM_Q_ROWS),
                  k = u->n_kv_heads * u->head_dim_k, v = u->n_kv_heads * u->head_dim_v,
                  gates = (int32_t)dims_of(f->shape, u, DIM_GATES_APART);
    const float *x = encode_input(f, ROLE_ATTN_NORM);
    const struct product products[] = {
        {ROLE_ATTN_Q, ROLE_ATTN_Q_BIAS, f->area[u->gated ? AREA_GATED_Q : AREA_Q], x, n, q, false},
        {ROLE_ATTN_K, ROLE_ATTN_K_BIAS, f->area[AREA_K], x, n, k, false},
        {ROLE_ATTN_V, ROLE_ATTN_V_BIAS, f->area[AREA_V], x, n, v, false},
    };
    for (int i = 0; i < 3; i++) encode_product(f, &products[i]);
    if (u->gated_apart)
        encode_product(f, &(struct product){.matrix = ROLE_ATTN_GATE,
                                            .out = f->area[AREA_Q_GATE],
                                            .x = x,
                                            .n_rows = n,
                                            .out_stride = gates});
    encode_split(f);
}

// x = norm(x), head by head, where each head has weights of its own: [n_heads, head_dim].
static void encode_own_norms(const struct forward *f, const float *weight, float *x,
                             int32_t n_heads) {
    const int32_t head_dim = f->unit->head_dim_k, width = n_heads * head_dim;
    f->ops->rms_norm(f->stream, &(struct rms_norm_args){.out = x,
                                                        .x = x,
                                                        .n_rows = f->n_tokens * n_heads,
                                                        .n_cols = head_dim,
                                                        .eps = f->hp->norm_eps,
                                                        .centred = f->hp->norms_centred});
    f->ops->swiglu(f->stream, &(struct swiglu_args){.out = x,
                                                    .gate = x,
                                                    .up = weight,
                                                    .n_rows = f->n_tokens,
                                                    .n_cols = width,
                                                    .stride = width,
                                                    .form = GLU_PRODUCT});
}

// x = norm(x), head by head or all heads together, if the unit has such a norm.
static void encode_head_norm(const struct forward *f, enum tensor_role role, enum area area,
                             int32_t n_heads) {
    const struct unit_tensor *weight = unit_find(f->unit, role);
    float *x = f->area[area];
    if (!weight || n_heads == 0) return;
    if (f->shape->norms_each_head) {
        encode_own_norms(f, encode_vector(f, role), x, n_heads);
        return;
    }
    const int32_t n_norms = n_heads * f->unit->head_dim_k / weight->n_cols; // of a token
    f->ops->rms_norm(f->stream, &(struct rms_norm_args){.out = x,
                                                        .x = x,
                                                        .weight = encode_vector(f, role),
                                                        .n_rows = f->n_tokens * n_norms,
                                                        .n_cols = weight->n_cols,
                                                        .eps = f->hp->norm_eps});
}

static void encode_head_norms(const struct forward *f) {
    encode_head_norm(f, ROLE_ATTN_Q_NORM, AREA_Q, f->unit->n_heads);
    encode_head_norm(f, ROLE_ATTN_K_NORM, AREA_K, f->unit->n_kv_heads);
}

// v = norm(v), head by head; of what is in k, if the unit makes its values of that.
static void encode_value_norm(const struct forward *f) {
    const struct unit *u = f->unit;
    float *v = f->area[AREA_V];
    const float *x = unit_find(u, ROLE_ATTN_V) ? v : f->area[AREA_K];
    if (!u->norms_values) return;
    f->ops->rms_norm(f->stream, &(struct rms_norm_args){.out = v,
                                                        .x = x,
                                                        .n_rows = f->n_tokens * u->n_kv_heads,
                                                        .n_cols = u->head_dim_v,
                                                        .eps = f->hp->norm_eps});
}

// True if the unit has rotary positions. The planner, which has no such number, counts them always.
static bool turns(const struct forward *f) {
    const int32_t period = f->hp->no_rope_period;
    if (f->hp->windows_turn) return f->unit->window > 0;
    return period == 0 || (f->unit->layer + 1) % period > 0;
}

// q = rope(q), k = rope(k), in two calls if queries have a table of their own.
static void encode_rope(const struct forward *f) {
    const struct unit *u = f->unit;
    const bool apart = encode_has_query_rope(f), local = u->window && has_local_rope(f);
    struct rope_args args = {.q = f->area[AREA_Q],
                             .k = f->area[AREA_K],
                             .table = f->area[local ? AREA_OTHER_ANGLES : AREA_ANGLES],
                             .n_tokens = f->n_tokens,
                             .n_heads = apart ? 0 : u->n_heads,
                             .n_kv_heads = u->n_kv_heads,
                             .head_dim = u->head_dim_k,
                             .n_rot = u->window ? f->shape->n_local_rot : f->shape->n_rot,
                             .neox = f->hp->rope_neox};
    if (!turns(f)) return;
    f->ops->rope(f->stream, &args);
    if (!apart) return;
    args.table = f->area[AREA_OTHER_ANGLES];
    args.n_heads = u->n_heads;
    args.n_kv_heads = 0;
    f->ops->rope(f->stream, &args);
}

static float score_scale(const struct forward *f) {
    const float scale = f->hp->attention_scale;
    return scale > 0 ? scale : 1 / sqrtf((float)f->unit->head_dim_k);
}

// Multiplies each head that attended by its gate.
static void encode_head_gates(const struct forward *f) {
    const struct unit *u = f->unit;
    float *attended = f->area[AREA_ATTENDED];
    f->ops->swiglu(f->stream, &(struct swiglu_args){.out = attended,
                                                    .gate = attended,
                                                    .row_gate = f->area[AREA_Q_GATE],
                                                    .n_rows = f->n_tokens * u->n_heads,
                                                    .n_cols = u->head_dim_v,
                                                    .stride = u->head_dim_v,
                                                    .form = GLU_PRODUCT,
                                                    .row_form = f->hp->gates_softly ? ROW_SOFTPLUS
                                                                                    : ROW_SIGMOID});
}

// attended = attended * sigmoid(gate), or head by head, if the unit has gates
static void encode_gates(const struct forward *f) {
    const int32_t n_cols = (int32_t)dims_of(f->shape, f->unit, DIM_GATED);
    float *attended = f->area[AREA_ATTENDED];
    if (!f->unit->gated && !f->unit->gated_apart) return;
    if (f->shape->gates_heads) {
        encode_head_gates(f);
        return;
    }
    f->ops->swiglu(f->stream, &(struct swiglu_args){.out = attended,
                                                    .gate = f->area[AREA_Q_GATE],
                                                    .up = attended,
                                                    .n_rows = f->n_tokens,
                                                    .n_cols = n_cols,
                                                    .stride = n_cols,
                                                    .up_stride = n_cols,
                                                    .form = GLU_SIGMOID});
}

// Adds keys and values to the cache, unless the unit reads that of another.
static void encode_store(const struct forward *f) {
    const int32_t n_cols = f->unit->n_kv_heads * f->unit->head_dim_k;
    if (f->unit->cache_unit) return;
    f->ops->kv_store(f->stream, &(struct kv_store_args){.k_cache = f->k_cache,
                                                        .v_cache = f->v_cache,
                                                        .k = f->area[AREA_K],
                                                        .v = f->area[AREA_V],
                                                        .cache_rows = f->tables.cache_rows,
                                                        .n_tokens = f->n_tokens,
                                                        .n_cols = n_cols,
                                                        .k_type = f->k_type,
                                                        .v_type = f->v_type,
                                                        .order = f->kv_order,
                                                        .head_dim = f->unit->head_dim_k});
}

// attended = attention(rope(norm(q)), rope(norm(k)), v), with earlier keys and values from the
// cache.
static void encode_attention_mid(const struct forward *f) {
    const struct unit *u = f->unit;
    float *attended = f->area[AREA_ATTENDED];
    encode_value_norm(f);
    if (!f->hp->norms_turned) encode_head_norms(f);
    encode_rope(f);
    if (f->hp->norms_turned) encode_head_norms(f);
    encode_store(f);
    f->ops->attention(
        f->stream, &(struct attention_args){.out = attended,
                                            .q = f->area[AREA_Q],
                                            .k_cache = f->k_cache,
                                            .v_cache = f->v_cache,
                                            .pages = f->tables.pages,
                                            .positions = f->tables.positions,
                                            .sequences = f->tables.sequences,
                                            .sinks = encode_vector(f, ROLE_ATTN_SINKS),
                                            .n_tokens = f->n_tokens,
                                            .n_heads = u->n_heads,
                                            .n_kv_heads = unit_with_cache(f->shape, u)->n_kv_heads,
                                            .head_dim = u->head_dim_k,
                                            .max_pages = f->max_pages,
                                            .window = u->window,
                                            .k_type = f->k_type,
                                            .v_type = f->v_type,
                                            .order = f->kv_order,
                                            .scale = score_scale(f),
                                            .softcap = f->hp->attention_softcap});
    encode_gates(f);
    (void)encode_sub_norm(f, ROLE_ATTN_SUB_NORM, attended, attended,
                          (int32_t)dims_of(f->shape, u, DIM_ATTENDED));
}

// O attended, in the columns of the pieces' rows.
static void encode_attention_out(const struct forward *f) {
    encode_branch(f, ROLE_ATTN_OUTPUT, ROLE_ATTN_OUTPUT_BIAS, f->area[AREA_ATTENDED]);
}

void encode_attention(const struct forward *f) {
    const bool all = f->phase == PHASE_ALL;
    if (all || f->phase == PHASE_IN) encode_attention_in(f);
    if (all || f->phase == PHASE_MID) encode_attention_mid(f);
    if (all || f->phase == PHASE_OUT) encode_attention_out(f);
    if (all || f->phase == PHASE_NORM) encode_post_norm(f);
}

static const struct block_tensor TENSORS[] = {
    {ROLE_ATTN_NORM, DIM_EMBD, DIM_ONE, false},
    {ROLE_ATTN_NORM_BIAS, DIM_EMBD, DIM_ONE, true},
    {ROLE_ATTN_Q, DIM_EMBD, DIM_Q_ROWS, false},
    {ROLE_ATTN_K, DIM_EMBD, DIM_KEYS, false},
    {ROLE_ATTN_V, DIM_EMBD, DIM_VALUES, false},
    {ROLE_ATTN_OUTPUT, DIM_ATTENDED, DIM_EMBD, false},
    {ROLE_ATTN_Q_BIAS, DIM_Q_ROWS, DIM_ONE, true},
    {ROLE_ATTN_K_BIAS, DIM_KEYS, DIM_ONE, true},
    {ROLE_ATTN_V_BIAS, DIM_VALUES, DIM_ONE, true},
    {ROLE_ATTN_OUTPUT_BIAS, DIM_EMBD, DIM_ONE, true},
    {ROLE_ATTN_Q_NORM, DIM_Q_NORM, DIM_Q_NORMS, true},
    {ROLE_ATTN_K_NORM, DIM_K_NORM, DIM_K_NORMS, true},
    {ROLE_ATTN_SINKS, DIM_HEADS, DIM_ONE, true},
    {ROLE_ATTN_GATE, DIM_EMBD, DIM_GATES_APART, false},
    {ROLE_ATTN_SUB_NORM, DIM_ATTENDED, DIM_ONE, true},
    {ROLE_ATTN_POST_NORM, DIM_EMBD, DIM_ONE, true},
};

static const struct block_area NEEDED[] = {
    {AREA_RESIDUAL, ROWS_TOKENS, DIM_EMBD},
    {AREA_NORMED, ROWS_TOKENS, DIM_EMBD},
    {AREA_FREQS, ROWS_ONE, DIM_HALF_ROT},
    {AREA_ANGLES, ROWS_TOKENS, DIM_ROT},
    {AREA_OTHER_ANGLES, ROWS_TOKENS, DIM_OTHER_ROT},
    {AREA_Q, ROWS_TOKENS, DIM_QUERIES},
    {AREA_ATTENDED, ROWS_TOKENS, DIM_ATTENDED},
    {AREA_K, ROWS_TOKENS, DIM_KEYS},
    {AREA_V, ROWS_TOKENS, DIM_VALUES},
    {AREA_GATED_Q, ROWS_TOKENS, DIM_GATED_Q},
    {AREA_Q_GATE, ROWS_TOKENS, DIM_GATED},
    {AREA_MATMUL, ROWS_TOKENS, DIM_EMBD},
    {AREA_MATMUL, ROWS_TOKENS, DIM_ATTENDED},
};

const struct block block_attention = {BLOCK_TENSORS(TENSORS), BLOCK_AREAS(NEEDED),
                                      .encode = encode_attention, .encode_shared = encode_angles};
