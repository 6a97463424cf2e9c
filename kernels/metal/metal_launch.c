/* metal_launch.c: turns the arguments of an op into dispatches of kernels.
 *
 * Chooses kernels by the number of tokens and the features of the device, and sizes grids; params.h
 * has the shapes. Neither may depend on the contents of device memory. Only encodes. Owns nothing.
 * One thread per device. Tested by tests/kernels/check_ops.c.
 */
#include "base/err.h"
#include "kernels/metal/metal_backend.h"
#include "kernels/metal/params.h"
#include "kernels/op_command.h"

#include <math.h>

static uint32_t parts(int64_t count, int64_t size) { return (uint32_t)((count + size - 1) / size); }

static void embed(struct metal_stream *s, enum weight_type type, const struct embed_args *a) {
    static const enum metal_kernel kernels[] = {
#define WEIGHT(NAME, name, ...) METAL_embed_##name,
#include "kernels/weights.def"
#undef WEIGHT
    };
    metal_add(s, kernels[type],
              (struct metal_grid){(uint32_t)a->n_tokens, parts(a->n_cols, EMBED_COLS), 1,
                                  EMBED_THREADS, 0},
              a, sizeof *a);
}

static void rms_norm(struct metal_stream *s, enum weight_type type, const struct rms_norm_args *a) {
    (void)type;
    metal_add(s, METAL_rms_norm,
              (struct metal_grid){(uint32_t)a->n_rows, 1, 1, RMS_NORM_THREADS, 0}, a, sizeof *a);
}

// Turns per position of pair i, without freq_factors.
static double rope_turns(const struct rope_table_args *a, int32_t i) {
    const double width = fmax(0.001, (double)a->corr_high - a->corr_low);
    const double ramp = fmin(1, fmax(0, (i - (double)a->corr_low) / width));
    const double mix = a->ext_factor * (1 - ramp);
    return pow(a->base, -2.0 * i / a->n_rot) * (a->scale * (1 - mix) + mix) / 6.2831853071795864769;
}

static void rope_table(struct metal_stream *s, enum weight_type type,
                       const struct rope_table_args *a) {
    (void)type;
    for (int32_t first = 0; first < a->n_rot / 2; first += ROPE_TABLE_PAIRS) {
        struct rope_table_params p = {.a = *a, .first_pair = first};
        p.n_pairs = a->n_rot / 2 - first;
        if (p.n_pairs > ROPE_TABLE_PAIRS) p.n_pairs = ROPE_TABLE_PAIRS;
        for (int32_t i = 0; i < p.n_pairs; i++) {
            const double turns = rope_turns(a, first + i);
            p.turns[2 * i] = (float)turns;
            p.turns[2 * i + 1] = (float)(turns - (double)p.turns[2 * i]);
        }
        metal_add(s, METAL_rope_table,
                  (struct metal_grid){(uint32_t)a->n_tokens, 1, 1, ROPE_TABLE_PAIRS, 0}, &p,
                  sizeof p);
    }
}

static void rope(struct metal_stream *s, enum weight_type type, const struct rope_args *a) {
    (void)type;
    metal_add(s, METAL_rope,
              (struct metal_grid){(uint32_t)a->n_tokens, (uint32_t)(a->n_heads + a->n_kv_heads), 1,
                                  ROPE_THREADS, 0},
              a, sizeof *a);
}

static void kv_store(struct metal_stream *s, enum weight_type type, const struct kv_store_args *a) {
    (void)type;
    ASSERT(a->order == KV_BY_ROW);
    metal_add(s, METAL_kv_store,
              (struct metal_grid){(uint32_t)a->n_tokens, parts(a->n_cols, KV_STORE_COLS), 1,
                                  KV_STORE_THREADS, 0},
              a, sizeof *a);
}

static void swiglu(struct metal_stream *s, enum weight_type type, const struct swiglu_args *a) {
    (void)type;
    metal_add(s, METAL_swiglu,
              (struct metal_grid){(uint32_t)a->n_rows, parts(a->n_cols, SWIGLU_COLS), 1,
                                  SWIGLU_THREADS, 0},
              a, sizeof *a);
}

static void gather_rows(struct metal_stream *s, enum weight_type type,
                        const struct gather_rows_args *a) {
    (void)type;
    metal_add(s, METAL_gather_rows,
              (struct metal_grid){(uint32_t)a->n_rows, parts(a->n_cols, GATHER_COLS), 1,
                                  GATHER_THREADS, 0},
              a, sizeof *a);
}

static void split_rows(struct metal_stream *s, enum weight_type type,
                       const struct split_rows_args *a) {
    (void)type;
    const int32_t wider = a->n_first > a->n_second ? a->n_first : a->n_second;
    metal_add(
        s, METAL_split_rows,
        (struct metal_grid){(uint32_t)a->n_rows, parts(wider, SPLIT_COLS), 1, SPLIT_THREADS, 0}, a,
        sizeof *a);
}

static void cap_logits(struct metal_stream *s, enum weight_type type,
                       const struct cap_logits_args *a) {
    (void)type;
    metal_add(s, METAL_cap_logits,
              (struct metal_grid){parts((int64_t)a->n_rows * a->n_cols, CAP_ELEMENTS), 1, 1,
                                  CAP_THREADS, 0},
              a, sizeof *a);
}

// ---- Matmul ------------------------------------------------------------------------------------

// The kernels of a weight type: for one token and for a few (for experts the same), and tiles with
// and without matrices of simdgroups.
struct matmul_kernels {
    enum metal_kernel vec, few, gemm, tiles;
};
static const struct matmul_kernels MATMULS[] = {
#define WEIGHT(NAME, name, ...) \
    {METAL_matmul_vec_##name, METAL_matmul_few_##name, METAL_gemm_##name, METAL_tiles_##name},
#include "kernels/weights.def"
#undef WEIGHT
};
static const struct matmul_kernels EXPERT_MATMULS[] = {
#define WEIGHT(NAME, name, ...)                                                     \
    {METAL_experts_vec_##name, METAL_experts_vec_##name, METAL_experts_gemm_##name, \
     METAL_experts_tiles_##name},
#include "kernels/weights.def"
#undef WEIGHT
};

// A grid of n_token_tiles tiles by as many tiles of rows as row_count takes.
static struct metal_grid tile_grid(enum weight_type type, uint32_t n_token_tiles,
                                   int32_t row_count) {
    return (struct metal_grid){n_token_tiles, parts(row_count, GEMM_ROWS), 1, GEMM_THREADS,
                               gemm_memory_bytes(weight_kind(type))};
}

static enum metal_kernel tile_kernel(const struct metal_stream *s,
                                     const struct matmul_kernels *kernels) {
    return metal_of(s->base.device)->features.has_simdgroup_matrix ? kernels->gemm : kernels->tiles;
}

// A grid of chunks of rows, rows_each of them for a simdgroup.
static struct metal_grid row_grid(int32_t row_count, int32_t rows_each, int32_t n_pairs) {
    return (struct metal_grid){parts(row_count, MATVEC_THREADS / 32 * rows_each), (uint32_t)n_pairs,
                               1, MATVEC_THREADS, 0};
}

static void matmul(struct metal_stream *s, enum weight_type type, const struct matmul_args *a) {
    const struct matmul_kernels *kernels = &MATMULS[type];
    if (a->n_tokens == 0) return;
    if (a->n_tokens == 1)
        metal_add(s, kernels->vec, row_grid(a->row_count, MATVEC_ROWS, 1), a, sizeof *a);
    else if (a->n_tokens <= MATVEC_TOKENS)
        metal_add(s, kernels->few, row_grid(a->row_count, MATVEC_FEW_ROWS, 1), a, sizeof *a);
    else
        metal_add(s, tile_kernel(s, kernels),
                  tile_grid(type, parts(a->n_tokens, GEMM_TOKENS), a->row_count), a, sizeof *a);
}

// Tiles are for experts with many tokens. The host does not know how the pairs spread, so it goes
// by the average.
static void matmul_experts(struct metal_stream *s, enum weight_type type,
                           const struct matmul_experts_args *a) {
    const struct matmul_kernels *kernels = &EXPERT_MATMULS[type];
    const int32_t n_pairs = a->n_tokens * a->n_used;
    if (n_pairs == 0) return;
    if (a->n_tokens <= MATVEC_TOKENS || n_pairs <= EXPERTS_VEC_PER_EXPERT * a->n_experts)
        metal_add(s, kernels->vec, row_grid(a->row_count, MATVEC_FEW_ROWS, n_pairs), a, sizeof *a);
    else
        metal_add(s, tile_kernel(s, kernels),
                  tile_grid(type, expert_tiles(n_pairs, a->n_experts, GEMM_TOKENS), a->row_count),
                  a, sizeof *a);
}

// ---- Experts -----------------------------------------------------------------------------------

static void route(struct metal_stream *s, enum weight_type type, const struct route_args *a) {
    (void)type;
    if (a->n_tokens == 0) return;
    metal_add(s, METAL_route,
              (struct metal_grid){parts(a->n_tokens, ROUTE_TOKENS), 1, 1, ROUTE_THREADS, 0}, a,
              sizeof *a);
    metal_add(s, METAL_sort_pairs,
              (struct metal_grid){(uint32_t)a->n_experts, 1, 1, SORT_PAIRS_THREADS, 0}, a,
              sizeof *a);
}

static void combine_experts(struct metal_stream *s, enum weight_type type,
                            const struct combine_experts_args *a) {
    (void)type;
    metal_add(s, METAL_combine_experts,
              (struct metal_grid){(uint32_t)a->n_tokens, parts(a->n_cols, COMBINE_COLS), 1,
                                  COMBINE_THREADS, 0},
              a, sizeof *a);
}

// ---- States ------------------------------------------------------------------------------------

static void short_conv(struct metal_stream *s, enum weight_type type,
                       const struct short_conv_args *a) {
    (void)type;
    metal_add(
        s, METAL_short_conv,
        (struct metal_grid){parts(a->n_cols, SHORT_CONV_THREADS), 1, 1, SHORT_CONV_THREADS, 0}, a,
        sizeof *a);
}

static void delta_rule(struct metal_stream *s, enum weight_type type,
                       const struct delta_rule_args *a) {
    (void)type;
    metal_add(s, METAL_delta_rule,
              (struct metal_grid){(uint32_t)a->n_heads, parts(a->head_dim, DELTA_COLS), 1,
                                  32 * DELTA_SIMDGROUPS, 0},
              a, sizeof *a);
}

static void mamba_scan(struct metal_stream *s, enum weight_type type,
                       const struct mamba_scan_args *a) {
    (void)type;
    metal_add(s, METAL_mamba_scan,
              (struct metal_grid){(uint32_t)a->n_heads, parts(a->head_dim, MAMBA_ROWS), 1,
                                  32 * MAMBA_ROWS, 0},
              a, sizeof *a);
}

// ---- Attention ---------------------------------------------------------------------------------

// Threadgroups of one token and one run of keys: a chunk of the columns of a kv head each.
static uint32_t attention_columns(const struct attention_args *a) {
    return (uint32_t)a->n_kv_heads * parts(a->head_dim, ATTENTION_COLS);
}

// The number of runs that the keys of a token are cut into, so that few tokens keep the device
// busy: at most one per page, and as many as fit the stream's memory.
static int64_t attention_splits(const struct attention_args *a) {
    const int64_t n_groups = (int64_t)a->n_tokens * attention_columns(a);
    const int64_t row_bytes =
        (int64_t)a->n_tokens * a->n_heads * (a->head_dim + 2) * (int64_t)sizeof(float);
    int64_t n = ATTENTION_GROUPS / n_groups;
    if (n > ATTENTION_SPLITS) n = ATTENTION_SPLITS;
    if (n > a->max_pages) n = a->max_pages;
    if (n > METAL_PARTIAL_BYTES / row_bytes) n = METAL_PARTIAL_BYTES / row_bytes;
    return n > 1 ? n : 1;
}

// A kernel for tiles of tokens: its columns, and the bytes of its elements.
struct attention_tiles {
    int32_t columns;
    uint32_t element_bytes;
    enum metal_kernel kernel;
};

// The kernel whose tiles take these heads. NULL: none. Halves would lose bits of floats.
static const struct attention_tiles *find_tiles(const struct metal_device *d,
                                                const struct attention_args *a) {
    static const struct attention_tiles tiles[] = {{64, 2, METAL_attention_tiles_half_64},
                                                   {128, 2, METAL_attention_tiles_half_128},
                                                   {256, 2, METAL_attention_tiles_half_256},
                                                   {64, 4, METAL_attention_tiles_float_64},
                                                   {128, 4, METAL_attention_tiles_float_128}};
    const bool floats = a->k_type == DTYPE_F32 || a->v_type == DTYPE_F32;
    if (!d->features.has_simdgroup_matrix || a->n_tokens <= ATTENTION_FEW ||
        a->n_heads / a->n_kv_heads > ATTENTION_TILE_ROWS)
        return NULL;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        if (a->head_dim <= tiles[i].columns && (tiles[i].element_bytes == 4) == floats)
            return &tiles[i];
    return NULL;
}

static void attention(struct metal_stream *s, enum weight_type type,
                      const struct attention_args *a) {
    (void)type;
    ASSERT(a->order == KV_BY_ROW);
    if (a->n_tokens == 0) return;
    const struct attention_tiles *tiles = find_tiles(metal_of(s->base.device), a);
    struct attention_params p = {.a = *a, .n_splits = 1};
    if (tiles) {
        const int64_t n_tokens = ATTENTION_TILE_ROWS / (a->n_heads / a->n_kv_heads); // of a tile
        metal_add(s, tiles->kernel,
                  (struct metal_grid){
                      parts(a->n_tokens, n_tokens), (uint32_t)a->n_kv_heads, 1,
                      ATTENTION_TILE_THREADS,
                      attention_tile_bytes((uint32_t)tiles->columns, tiles->element_bytes)},
                  &p, sizeof p);
        return;
    }
    p.n_splits = attention_splits(a);
    if (p.n_splits > 1) p.partial = s->partial;
    metal_add(s, METAL_attention,
              (struct metal_grid){(uint32_t)a->n_tokens, attention_columns(a), (uint32_t)p.n_splits,
                                  ATTENTION_THREADS, attention_query_bytes(a->head_dim)},
              &p, sizeof p);
    if (p.n_splits > 1)
        metal_add(s, METAL_attention_merge,
                  (struct metal_grid){(uint32_t)a->n_tokens, (uint32_t)a->n_heads, 1,
                                      ATTENTION_MERGE_THREADS, 0},
                  &p, sizeof p);
}

// ---- The table ---------------------------------------------------------------------------------

static void metal_encode(struct stream *stream, enum op_id op, enum weight_type weight,
                         const void *args, uint32_t args_bytes) {
    struct metal_stream *s = (struct metal_stream *)stream;
    ASSERT(stream->kind == STREAM_COMPUTE);
    ASSERT(args_bytes <= sizeof(union op_args));
    switch (op) {
#define OP(name, ...)          \
    case OP_##name:            \
        name(s, weight, args); \
        break;
#define OP_W OP
#include "kernels/ops.def"
#undef OP
#undef OP_W
    case OP_COUNT: break;
    }
}

#define OP_ENCODE metal_encode
#define OP_TABLE  metal_ops
#include "kernels/op_table.inc"

const struct op_table *const metal_op_table = &metal_ops;
