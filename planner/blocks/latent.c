/* latent.c: attention to latent values (MLA). The cache has a row for each position that all heads
 * share: a latent vector, of which keys and values are products, and one rotated key. Queries are
 * multiplied with the keys' matrices and the sums of latent vectors with the values', so that
 * neither keys nor values are ever made. Tested by tests/runtime/test_pipeline.c and
 * tests/cli/cli_tiny.sh. Source: DeepSeek-V2 2024.
 */
#include "planner/blocks/encode.h"

#include <math.h>

static int32_t row_width(const struct forward *f) {
    return f->shape->latent.rank + f->shape->n_rot;
}

// Normalises rows that are no residual stream.
static void encode_rank_norm(const struct forward *f, float *x, enum tensor_role role,
                             int32_t rank) {
    f->ops->rms_norm(f->stream, &(struct rms_norm_args){.out = x,
                                                        .x = x,
                                                        .weight = encode_vector(f, role),
                                                        .n_rows = f->n_tokens,
                                                        .n_cols = rank,
                                                        .eps = f->hp->norm_eps});
}

// Multiplies each head of x with a matrix of its own. out_stride: elements from head to head.
static void encode_heads(const struct forward *f, enum tensor_role role, float *out, int32_t stride,
                         const float *x) {
    const struct weight *w = encode_weight(f, 0, role);
    const int32_t n_heads = f->unit->n_heads;
    if (!w) return;
    const int32_t n_rows = w->n_rows / n_heads;
    const uint64_t matrix_bytes = dtype_bytes(w->type, (uint64_t)w->n_cols) * (uint64_t)n_rows;
    f->ops->matmul_experts(f->stream, encode_type(w),
                           &(struct matmul_experts_args){.out = out,
                                                         .x = x,
                                                         .weight = w->data,
                                                         .scratch = f->area[AREA_MATMUL],
                                                         .slot_bytes = matrix_bytes,
                                                         .n_tokens = f->n_tokens,
                                                         .n_used = n_heads,
                                                         .n_experts = n_heads,
                                                         .n_cols = w->n_cols,
                                                         .n_rows = n_rows,
                                                         .row_count = n_rows,
                                                         .out_stride = stride,
                                                         .x_per_pair = true});
}

// q = [K_h^T q_h of the columns without rotary positions | the others], x = norm(residual).
static void encode_queries(const struct forward *f, const float *x) {
    const struct latent_shape *l = &f->shape->latent;
    const int32_t n = f->n_tokens, n_heads = f->unit->n_heads,
                  n_plain = l->key_dim - f->shape->n_rot;
    float *whole = f->area[AREA_Q_WHOLE], *low = f->area[AREA_Q_LATENT];
    const int32_t width = n_heads * l->key_dim;
    const struct product products[] = {
        {ROLE_ATTN_Q, ROLE_OTHER, whole, x, n, width, false},
        {ROLE_ATTN_Q_A, ROLE_OTHER, low, x, n, l->query_rank, false},
        {ROLE_ATTN_Q_B, ROLE_OTHER, whole, low, n, width, false},
    };
    encode_product(f, &products[0]);
    encode_product(f, &products[1]);
    if (l->query_rank) encode_rank_norm(f, low, ROLE_ATTN_Q_A_NORM, l->query_rank);
    encode_product(f, &products[2]);
    f->ops->split_rows(f->stream, &(struct split_rows_args){.first = f->area[AREA_Q_PLAIN],
                                                            .second = f->area[AREA_Q] + l->rank,
                                                            .x = whole,
                                                            .n_rows = n * n_heads,
                                                            .n_first = n_plain,
                                                            .n_second = f->shape->n_rot,
                                                            .first_stride = n_plain,
                                                            .second_stride = row_width(f)});
    encode_heads(f, ROLE_ATTN_K_B, f->area[AREA_Q], row_width(f), f->area[AREA_Q_PLAIN]);
}

// k = [norm(latent vector) | the key with rotary positions], x = norm(residual).
static void encode_row(const struct forward *f, const float *x) {
    const int32_t n = f->n_tokens, rank = f->shape->latent.rank, n_rot = f->shape->n_rot;
    float *row = f->area[AREA_KV_LATENT], *normed = f->area[AREA_KV_NORMED], *k = f->area[AREA_K];
    encode_product(f,
                   &(struct product){ROLE_ATTN_KV_A, ROLE_OTHER, row, x, n, row_width(f), false});
    f->ops->split_rows(f->stream, &(struct split_rows_args){normed, k + rank, row, n, rank, n_rot,
                                                            rank, row_width(f)});
    encode_rank_norm(f, normed, ROLE_ATTN_KV_A_NORM, rank);
    f->ops->split_rows(
        f->stream,
        &(struct split_rows_args){
            .first = k, .x = normed, .n_rows = n, .n_first = rank, .first_stride = row_width(f)});
}

// Turns the last columns of q and k. Where scores have a temperature, all columns of q are scaled
// by it before: they turn by no angle.
static void encode_turn(const struct forward *f) {
    const int32_t rank = f->shape->latent.rank;
    if (encode_has_query_rope(f))
        f->ops->rope(f->stream, &(struct rope_args){.q = f->area[AREA_Q],
                                                    .k = f->area[AREA_K],
                                                    .table = f->area[AREA_OTHER_ANGLES],
                                                    .n_tokens = f->n_tokens,
                                                    .n_heads = f->unit->n_heads,
                                                    .head_dim = row_width(f),
                                                    .n_rot = row_width(f)});
    f->ops->rope(f->stream, &(struct rope_args){.q = f->area[AREA_Q] + rank,
                                                .k = f->area[AREA_K] + rank,
                                                .table = f->area[AREA_ANGLES],
                                                .n_tokens = f->n_tokens,
                                                .n_heads = f->unit->n_heads,
                                                .n_kv_heads = 1,
                                                .head_dim = row_width(f),
                                                .n_rot = f->shape->n_rot,
                                                .neox = f->hp->rope_neox});
}

// attended = attention(q, rows) of the rows, which are keys and values in one. The sums of the
// rotated keys are not used.
static void encode_rows(const struct forward *f) {
    const struct unit *u = f->unit;
    const float scale = f->hp->attention_scale;
    f->ops->kv_store(f->stream, &(struct kv_store_args){.k_cache = f->k_cache,
                                                        .v_cache = f->k_cache,
                                                        .k = f->area[AREA_K],
                                                        .cache_rows = f->tables.cache_rows,
                                                        .n_tokens = f->n_tokens,
                                                        .n_cols = row_width(f),
                                                        .k_type = f->k_type,
                                                        .v_type = f->k_type});
    f->ops->attention(f->stream, &(struct attention_args){.out = f->area[AREA_ATTENDED],
                                                          .q = f->area[AREA_Q],
                                                          .k_cache = f->k_cache,
                                                          .v_cache = f->k_cache,
                                                          .pages = f->tables.pages,
                                                          .positions = f->tables.positions,
                                                          .sequences = f->tables.sequences,
                                                          .n_tokens = f->n_tokens,
                                                          .n_heads = u->n_heads,
                                                          .n_kv_heads = 1,
                                                          .head_dim = row_width(f),
                                                          .max_pages = f->max_pages,
                                                          .k_type = f->k_type,
                                                          .v_type = f->k_type,
                                                          .scale = scale});
}

// residual += O [V_h sums_h of each head]
static void encode_values(const struct forward *f) {
    const struct latent_shape *l = &f->shape->latent;
    float *sums = f->area[AREA_Q], *values = f->area[AREA_Q_WHOLE]; // both have been used
    f->ops->split_rows(f->stream,
                       &(struct split_rows_args){.first = sums,
                                                 .x = f->area[AREA_ATTENDED],
                                                 .n_rows = f->n_tokens * f->unit->n_heads,
                                                 .n_first = l->rank,
                                                 .n_second = f->shape->n_rot,
                                                 .first_stride = l->rank});
    encode_heads(f, ROLE_ATTN_V_B, values, l->value_dim, sums);
    encode_branch(f, ROLE_ATTN_OUTPUT, ROLE_OTHER, values);
}

static void encode_latent(const struct forward *f) {
    float *x = f->area[AREA_NORMED];
    encode_norm(f, x, f->area[AREA_RESIDUAL], ROLE_ATTN_NORM, f->n_tokens);
    encode_queries(f, x);
    encode_row(f, x);
    encode_turn(f);
    encode_rows(f);
    encode_values(f);
    encode_post_norm(f);
}

static const struct block_tensor TENSORS[] = {
    {ROLE_ATTN_NORM, DIM_EMBD, DIM_ONE, false},
    {ROLE_ATTN_Q, DIM_EMBD, DIM_DIRECT_QUERIES, false},
    {ROLE_ATTN_OUTPUT, DIM_LATENT_VALUES, DIM_EMBD, false},
    {ROLE_ATTN_Q_A, DIM_EMBD, DIM_QUERY_RANK, false},
    {ROLE_ATTN_Q_A_NORM, DIM_QUERY_RANK, DIM_ONE, false},
    {ROLE_ATTN_Q_B, DIM_QUERY_RANK, DIM_LATENT_QUERIES, false},
    {ROLE_ATTN_KV_A, DIM_EMBD, DIM_LATENT_ROW, false},
    {ROLE_ATTN_KV_A_NORM, DIM_RANK, DIM_ONE, false},
    {ROLE_ATTN_K_B, DIM_PLAIN, DIM_RANK, false},
    {ROLE_ATTN_V_B, DIM_RANK, DIM_LATENT_VALUE, false},
};

static const struct block_area NEEDED[] = {
    {AREA_RESIDUAL, ROWS_TOKENS, DIM_EMBD},
    {AREA_NORMED, ROWS_TOKENS, DIM_EMBD},
    {AREA_FREQS, ROWS_ONE, DIM_HALF_ROT},
    {AREA_ANGLES, ROWS_TOKENS, DIM_ROT},
    {AREA_OTHER_ANGLES, ROWS_TOKENS, DIM_OTHER_ROT},
    {AREA_Q, ROWS_HEADS, DIM_LATENT_ROW},
    {AREA_ATTENDED, ROWS_HEADS, DIM_LATENT_ROW},
    {AREA_K, ROWS_TOKENS, DIM_LATENT_ROW},
    {AREA_Q_LATENT, ROWS_TOKENS, DIM_QUERY_RANK},
    {AREA_Q_WHOLE, ROWS_TOKENS, DIM_LATENT_QUERIES},
    {AREA_Q_WHOLE, ROWS_TOKENS, DIM_LATENT_VALUES},
    {AREA_Q_PLAIN, ROWS_HEADS, DIM_PLAIN},
    {AREA_KV_LATENT, ROWS_TOKENS, DIM_LATENT_ROW},
    {AREA_KV_NORMED, ROWS_TOKENS, DIM_RANK},
    {AREA_MATMUL, ROWS_TOKENS, DIM_EMBD},
    {AREA_MATMUL, ROWS_TOKENS, DIM_QUERY_RANK},
    {AREA_MATMUL, ROWS_TOKENS, DIM_LATENT_VALUES},
    {AREA_MATMUL, ROWS_HEADS, DIM_PLAIN},
    {AREA_MATMUL, ROWS_HEADS, DIM_RANK},
};

const struct block block_latent = {BLOCK_TENSORS(TENSORS), BLOCK_AREAS(NEEDED),
                                   .encode = encode_latent, .encode_shared = encode_angles};
