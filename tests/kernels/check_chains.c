/* check_chains.c: the ops of a layer of a model in one list, against the same ops each in a list of
 * its own: the same bits. A backend may compute neighbouring ops of a list at once. Used by
 * check_ops.c.
 */
#include "tests/kernels/check_chains.h"

#include <string.h>

enum product { Q, K, V, O, GATE, UP, DOWN, PRODUCTS };

enum { MAX_PAGES = 3, N_FREE = 70 }; // pages of a sequence; cache rows in front of the tokens

struct layer_shape {
    int32_t n_tokens, n_embd, n_ff, n_heads, n_kv_heads, head_dim;
    enum weight_type types[PRODUCTS];
    enum dtype k_type, v_type;
    bool has_bias, has_row_gate, neox;
    uint64_t weights[PRODUCTS], bias;
    uint64_t residual, normed, norm_weight, q, k, v, table, k_cache, v_cache, attended, gate, up;
    uint64_t row_gate, scratch, cache_rows, pages, positions, sequences;
};

// ---- The ops -----------------------------------------------------------------------------------

static struct op_command *next(struct op_chain *chain, enum op_id op, enum weight_type type) {
    struct op_command *command = &chain->commands[chain->n++];
    *command = (struct op_command){.op = op, .weight = type};
    return command;
}

static void place_norm(struct op_chain *chain, const struct layer_shape *s, char *base) {
    next(chain, OP_rms_norm, WEIGHT_F32)->args.rms_norm =
        (struct rms_norm_args){.out = (float *)(base + s->normed),
                               .x = floats_at(base, s->residual),
                               .weight = floats_at(base, s->norm_weight),
                               .n_rows = s->n_tokens,
                               .n_cols = s->n_embd,
                               .eps = 1e-5F};
}

static void place_product(struct op_chain *chain, const struct layer_shape *s, char *base,
                          enum product which, uint64_t out, uint64_t x) {
    const int32_t attended = s->n_heads * s->head_dim, stored = s->n_kv_heads * s->head_dim;
    const int32_t rows[] = {attended, stored, stored, s->n_embd, s->n_ff, s->n_ff, s->n_embd};
    const bool adds = which == O || which == DOWN;
    next(chain, OP_matmul, s->types[which])->args.matmul =
        (struct matmul_args){.out = (float *)(base + out),
                             .x = floats_at(base, x),
                             .weight = base + s->weights[which],
                             .bias = s->has_bias ? floats_at(base, s->bias) : NULL,
                             .residual = adds ? floats_at(base, out) : NULL,
                             .scratch = base + s->scratch,
                             .n_tokens = s->n_tokens,
                             .n_cols = which == O      ? attended
                                       : which == DOWN ? s->n_ff
                                                       : s->n_embd,
                             .row_count = rows[which],
                             .out_stride = rows[which]};
}

static void place_attention(struct op_chain *chain, const struct layer_shape *s, char *base) {
    next(chain, OP_rope, WEIGHT_F32)->args.rope =
        (struct rope_args){.q = (float *)(base + s->q),
                           .k = (float *)(base + s->k),
                           .table = floats_at(base, s->table),
                           .n_tokens = s->n_tokens,
                           .n_heads = s->n_heads,
                           .n_kv_heads = s->n_kv_heads,
                           .head_dim = s->head_dim,
                           .n_rot = s->head_dim - 8,
                           .neox = s->neox};
    next(chain, OP_kv_store, WEIGHT_F32)->args.kv_store =
        (struct kv_store_args){.k_cache = base + s->k_cache,
                               .v_cache = base + s->v_cache,
                               .k = floats_at(base, s->k),
                               .v = floats_at(base, s->v),
                               .cache_rows = (const int32_t *)(base + s->cache_rows),
                               .n_tokens = s->n_tokens,
                               .n_cols = s->n_kv_heads * s->head_dim,
                               .k_type = s->k_type,
                               .v_type = s->v_type};
    next(chain, OP_attention, WEIGHT_F32)->args.attention =
        (struct attention_args){.out = (float *)(base + s->attended),
                                .q = floats_at(base, s->q),
                                .k_cache = base + s->k_cache,
                                .v_cache = base + s->v_cache,
                                .pages = (const int32_t *)(base + s->pages),
                                .positions = (const int32_t *)(base + s->positions),
                                .sequences = (const int32_t *)(base + s->sequences),
                                .n_tokens = s->n_tokens,
                                .n_heads = s->n_heads,
                                .n_kv_heads = s->n_kv_heads,
                                .head_dim = s->head_dim,
                                .max_pages = MAX_PAGES,
                                .k_type = s->k_type,
                                .v_type = s->v_type,
                                .scale = 0.125F};
}

static void place_layer(struct op_chain *chain, const void *shape, char *base) {
    const struct layer_shape *s = shape;
    chain->n = 0;
    place_norm(chain, s, base);
    place_product(chain, s, base, Q, s->q, s->normed);
    place_product(chain, s, base, K, s->k, s->normed);
    place_product(chain, s, base, V, s->v, s->normed);
    place_attention(chain, s, base);
    place_product(chain, s, base, O, s->residual, s->attended);
    place_norm(chain, s, base);
    place_product(chain, s, base, GATE, s->gate, s->normed);
    place_product(chain, s, base, UP, s->up, s->normed);
    next(chain, OP_swiglu, WEIGHT_F32)->args.swiglu =
        (struct swiglu_args){.out = (float *)(base + s->gate),
                             .gate = floats_at(base, s->gate),
                             .up = floats_at(base, s->up),
                             .row_gate = s->has_row_gate ? floats_at(base, s->row_gate) : NULL,
                             .n_rows = s->n_tokens,
                             .n_cols = s->n_ff,
                             .stride = s->n_ff,
                             .up_stride = s->n_ff,
                             .form = GLU_SILU};
    place_product(chain, s, base, DOWN, s->residual, s->gate);
}

// ---- The shapes --------------------------------------------------------------------------------

static void choose_shape(struct op_check *c, struct layer_shape *s, int i) {
    static const int32_t HEADS[][3] = {
        {4, 2, 64}, {8, 2, 32}, {2, 1, 128}, {8, 8, 96}, {16, 4, 48}};
    static const enum dtype STORED[] = {DTYPE_F16, DTYPE_Q8_0, DTYPE_F32, DTYPE_Q4_0};
    const int h = i % 5;
    // Few tokens, since many have launches of their own; 33 once.
    s->n_tokens = op_batch(c, i % 3 < 2 ? 0 : i == 14 ? 3 : 1 + i / 3 % 2);
    s->n_heads = HEADS[h][0], s->n_kv_heads = HEADS[h][1], s->head_dim = HEADS[h][2];
    s->n_embd = 256 * (1 + i % 2), s->n_ff = 256 * (1 + i % 3);
    s->k_type = s->head_dim % 32 ? DTYPE_F16 : STORED[i % 4];
    s->v_type = s->head_dim % 32 ? DTYPE_F32 : STORED[i / 4 % 4];
    s->has_bias = i % 2, s->has_row_gate = i % 4 == 3, s->neox = i % 3 == 1;
    // Most models have one or two types.
    for (int p = 0; p < PRODUCTS; p++)
        s->types[p] = (enum weight_type)((i + (p == V || p == UP ? i % 3 : 0)) % WEIGHT_COUNT);
    op_describe(c, "%d tokens, %d heads of %d, %d columns, %d of the FFN", s->n_tokens, s->n_heads,
                s->head_dim, s->n_embd, s->n_ff);
}

static void lay_weights(struct op_check *c, struct layer_shape *s) {
    const int64_t attended = s->n_heads * s->head_dim, stored = s->n_kv_heads * s->head_dim;
    const int64_t embd = s->n_embd, ff = s->n_ff;
    const int64_t counts[] = {attended * embd, stored * embd, stored * embd, attended * embd,
                              ff * embd,       ff * embd,     ff * embd};
    for (int p = 0; p < PRODUCTS; p++) s->weights[p] = op_scene_weights(c, s->types[p], counts[p]);
    s->bias = op_scene_normal(c, 1024, 1);
    s->norm_weight = op_scene_normal(c, embd, 1);
}

// Tokens are the last ones of a sequence, behind N_FREE keys; the second is not stored.
static void lay_cache(struct op_check *c, struct layer_shape *s) {
    const int64_t n = s->n_tokens, cols = s->n_kv_heads * s->head_dim;
    const uint64_t count = (uint64_t)(MAX_PAGES * KV_PAGE * cols);
    const uint64_t k_bytes = dtype_bytes(s->k_type, count), v_bytes = dtype_bytes(s->v_type, count);
    s->k_cache = op_scene_add(c, k_bytes);
    s->v_cache = op_scene_add(c, v_bytes);
    memset(op_scene_at(c, s->k_cache), 0, k_bytes);
    memset(op_scene_at(c, s->v_cache), 0, v_bytes);
    s->cache_rows = op_scene_add(c, (uint64_t)n * 4);
    s->positions = op_scene_add(c, (uint64_t)n * 4);
    s->sequences = op_scene_add(c, (uint64_t)n * 4);
    s->pages = op_scene_add(c, MAX_PAGES * 4);
    int32_t *rows = op_scene_at(c, s->cache_rows), *positions = op_scene_at(c, s->positions);
    int32_t *sequences = op_scene_at(c, s->sequences), *pages = op_scene_at(c, s->pages);
    for (int32_t p = 0; p < MAX_PAGES; p++) pages[p] = p;
    for (int32_t t = 0; t < n; t++) {
        positions[t] = N_FREE + t % (MAX_PAGES * KV_PAGE - N_FREE);
        rows[t] = t == 1 ? -1 : positions[t];
        sequences[t] = 0;
    }
}

static uint64_t lay_activations(struct op_check *c, struct layer_shape *s) {
    const int64_t n = s->n_tokens, attended = s->n_heads * s->head_dim;
    const int64_t stored = s->n_kv_heads * s->head_dim;
    int32_t widest = s->n_embd > s->n_ff ? s->n_embd : s->n_ff;
    if (attended > widest) widest = (int32_t)attended;
    const uint64_t scratch_bytes = op_scratch_bytes(c, WEIGHT_BF16, widest, s->n_tokens);
    s->residual = op_scene_normal(c, n * s->n_embd, 1);
    s->normed = op_scene_add(c, (uint64_t)(n * s->n_embd) * 4);
    s->q = op_scene_add(c, (uint64_t)(n * attended) * 4);
    s->k = op_scene_add(c, (uint64_t)(n * stored) * 4);
    s->v = op_scene_add(c, (uint64_t)(n * stored) * 4);
    s->table = op_scene_normal(c, n * s->head_dim, 1);
    s->attended = op_scene_add(c, (uint64_t)(n * attended) * 4);
    s->gate = op_scene_add(c, (uint64_t)(n * s->n_ff) * 4);
    s->up = op_scene_add(c, (uint64_t)(n * s->n_ff) * 4);
    s->row_gate = op_scene_normal(c, n, 1);
    s->scratch = op_scene_add(c, scratch_bytes);
    return scratch_bytes;
}

void check_layer(struct op_check *c) {
    const int n_cases = c->quick ? 6 : WEIGHT_COUNT;
    for (int i = 0; i < n_cases; i++) {
        struct layer_shape s = {0};
        choose_shape(c, &s, i);
        op_scene_clear(c);
        lay_weights(c, &s);
        lay_cache(c, &s);
        const uint64_t scratch_bytes = lay_activations(c, &s);
        op_mark(c->roles, 0, c->used_bytes, ROLE_BITS);
        if (c->rigs[0].device->info.is_host) // whose lanes lay activations out as they like
            op_mark(c->roles, s.scratch, scratch_bytes, ROLE_SCRATCH);
        op_run_chain(c, place_layer, &s);
    }
}
