/* cuda_launch.c: turns the arguments of an op into launches of kernels.
 *
 * Chooses the kernel of a matmul by the number of tokens and the features of the device, and sizes
 * grids; params.h has the shapes. Neither may depend on the contents of device memory, so that a
 * list of launches can be replayed. Only encodes: calls the driver only if the stream's list is
 * full. Owns nothing. One thread per device. Tested by tests/kernels/test_cuda.c and
 * tests/kernels/check_ops.c.
 */
#include "base/mem.h"
#include "kernels/cuda/cuda_fuse.h"
#include "kernels/op_command.h"
#include "kernels/op_cost.h"

#include <string.h>

// The byte where the last member of each argument struct ends; padding follows, whose bytes are
// undefined.
static const uint32_t ARGS_END[OP_COUNT] = {
#define OP(name, n_pointers, last) \
    [OP_##name] = offsetof(struct name##_args, last) + sizeof((struct name##_args *)0)->last,
#define OP_W OP
#include "kernels/ops.def"
#undef OP
#undef OP_W
};

static uint32_t parts(int64_t count, int64_t size) { return (uint32_t)((count + size - 1) / size); }

static void add(struct cuda_stream *s, enum cuda_kernel kernel, struct cuda_grid grid,
                const void *params, uint32_t params_bytes) {
    if (grid.x == 0 || grid.y == 0) return; // no rows or no tokens
    cuda_add(s, kernel, grid, params, params_bytes);
}

static void embed(struct cuda_stream *s, enum weight_type type, const struct embed_args *a) {
    static const enum cuda_kernel kernels[] = {
#define WEIGHT(NAME, name, ...) KERNEL_embed_##name,
#include "kernels/weights.def"
#undef WEIGHT
    };
    add(s, kernels[type],
        (struct cuda_grid){(uint32_t)a->n_tokens, parts(a->n_cols, EMBED_COLS), 1, EMBED_THREADS,
                           0},
        a, sizeof *a);
}

static void rms_norm(struct cuda_stream *s, enum weight_type type, const struct rms_norm_args *a) {
    (void)type;
    add(s, KERNEL_rms_norm, (struct cuda_grid){(uint32_t)a->n_rows, 1, 1, RMS_NORM_THREADS, 0}, a,
        sizeof *a);
}

static void rope_table(struct cuda_stream *s, enum weight_type type,
                       const struct rope_table_args *a) {
    (void)type;
    add(s, KERNEL_rope_table,
        (struct cuda_grid){(uint32_t)a->n_tokens, parts(a->n_rot / 2, ROPE_TABLE_THREADS), 1,
                           ROPE_TABLE_THREADS, 0},
        a, sizeof *a);
}

static void rope(struct cuda_stream *s, enum weight_type type, const struct rope_args *a) {
    (void)type;
    add(s, KERNEL_rope,
        (struct cuda_grid){(uint32_t)a->n_tokens, (uint32_t)(a->n_heads + a->n_kv_heads), 1,
                           ROPE_THREADS, 0},
        a, sizeof *a);
}

static void kv_store(struct cuda_stream *s, enum weight_type type, const struct kv_store_args *a) {
    (void)type;
    ASSERT(a->order == KV_BY_ROW);
    if (cuda_fuse_store(s, a)) return;
    add(s, KERNEL_kv_store,
        (struct cuda_grid){(uint32_t)a->n_tokens, parts(a->n_cols, KV_STORE_COLS), 1,
                           KV_STORE_THREADS, 0},
        a, sizeof *a);
}

static void swiglu(struct cuda_stream *s, enum weight_type type, const struct swiglu_args *a) {
    (void)type;
    add(s, KERNEL_swiglu,
        (struct cuda_grid){(uint32_t)a->n_rows * parts(a->n_cols, SWIGLU_ELEMENTS), 1, 1,
                           SWIGLU_THREADS, 0},
        a, sizeof *a);
}

static void gather_rows(struct cuda_stream *s, enum weight_type type,
                        const struct gather_rows_args *a) {
    (void)type;
    add(s, KERNEL_gather_rows,
        (struct cuda_grid){(uint32_t)a->n_rows, parts(a->n_cols, GATHER_COLS), 1, GATHER_THREADS,
                           0},
        a, sizeof *a);
}

static void cap_logits(struct cuda_stream *s, enum weight_type type,
                       const struct cap_logits_args *a) {
    (void)type;
    add(s, KERNEL_cap_logits,
        (struct cuda_grid){parts((int64_t)a->n_rows * a->n_cols, CAP_ELEMENTS), 1, 1, CAP_THREADS,
                           0},
        a, sizeof *a);
}

// ---- Matmul ------------------------------------------------------------------------------------

// The kernels of a weight type: for one token (of a matmul: see cuda_multiply_one), for a few, and
// tiles of devices without [0] and with tensor cores; of a matmul also narrow tiles.
struct matmul_kernels {
    enum cuda_kernel one, vec, tiles[2], narrow[2];
};
#define TILES_FLOATS(op, name) \
    { KERNEL_##op##_floats_##name, KERNEL_##op##_floats_##name }
#define TILES_HALVES(op, name) \
    { KERNEL_##op##_dp4a_##name, KERNEL_##op##_mma_##name }
#define TILES_BYTES TILES_HALVES
static const struct matmul_kernels MATMULS[] = {
#define WEIGHT(NAME, name, KIND, ...)   \
    {.vec = KERNEL_matmul_vec_##name,   \
     .tiles = TILES_##KIND(gemm, name), \
     .narrow = TILES_##KIND(narrow, name)},
#include "kernels/weights.def"
#undef WEIGHT
};
static const struct matmul_kernels EXPERT_MATMULS[] = {
#define WEIGHT(NAME, name, KIND, ...)  \
    {.one = KERNEL_experts_one_##name, \
     .vec = KERNEL_experts_vec_##name, \
     .tiles = TILES_##KIND(experts, name)},
#include "kernels/weights.def"
#undef WEIGHT
};

// A grid of chunks of row_count rows by n_runs, for kernels whose warps compute warp_rows.
static struct cuda_grid vec_grid(int32_t warp_rows, int32_t row_count, int32_t n_runs) {
    const uint32_t n_chunks = parts(row_count, MATVEC_THREADS / 32 * warp_rows);
    return (struct cuda_grid){n_chunks, (uint32_t)n_runs, 1, MATVEC_THREADS, 0};
}

// A grid of n_token_tiles tiles by as many tiles of rows as row_count takes.
static struct cuda_grid tile_grid(uint32_t n_token_tiles, int32_t row_count) {
    return (struct cuda_grid){n_token_tiles, parts(row_count, GEMM_ROWS), 1, GEMM_THREADS, 0};
}

static enum cuda_kernel tile_kernel(const struct cuda_stream *s,
                                    const struct matmul_kernels *kernels) {
    const struct cuda_device *d = (const struct cuda_device *)s->base.device;
    return kernels->tiles[d->tensor_cores];
}

// Quantises activations into the scratch unless they lie there already: q, k and v, or gate and up,
// share their activations.
static void quantize(struct cuda_stream *s, struct cuda_quantized wanted, void *scratch,
                     int64_t acts_stride) {
    struct cuda_quantized *have = &s->quantized;
    const bool enough =
        wanted.tiles ? have->n_tokens == wanted.n_tokens : have->n_tokens >= wanted.n_tokens;
    if (have->x == wanted.x && have->scratch == wanted.scratch && have->tiles == wanted.tiles &&
        enough && have->n_cols == wanted.n_cols)
        return;
    const struct quantize_params p = {scratch, wanted.x, wanted.tiles ? 0 : acts_stride,
                                      wanted.n_tokens, wanted.n_cols};
    if (wanted.tiles || !cuda_fuse_quantize(s, &p))
        add(s, KERNEL_quantize_acts,
            (struct cuda_grid){(uint32_t)wanted.n_tokens,
                               parts(parts(wanted.n_cols, 32), QUANTIZE_GROUPS), 1,
                               QUANTIZE_THREADS, 0},
            &p, sizeof p);
    *have = wanted;
}

// Forgets the quantised activations if a matmul overwrites the x that they were made of.
static void forget_written(struct cuda_stream *s, const float *out, int64_t n_rows,
                           int32_t out_stride) {
    const struct cuda_quantized *have = &s->quantized;
    uint64_t out_bytes = (uint64_t)n_rows * (uint64_t)out_stride * sizeof *out;
    uint64_t x_bytes = (uint64_t)have->n_tokens * (uint64_t)have->n_cols * sizeof *have->x;
    if (have->x && cuda_overlap(out, out_bytes, have->x, x_bytes))
        s->quantized = (struct cuda_quantized){0};
}

// Sets the splits of a product with narrow tiles: enough for GEMM_BLOCKS blocks per multiprocessor,
// each of at least GEMM_SPLIT_COLS columns, and as many as fit the stream's memory.
static void split_columns(const struct cuda_stream *s, struct narrow_params *p,
                          struct cuda_grid *grid) {
    const struct cuda_device *d = (const struct cuda_device *)s->base.device;
    const int64_t split_bytes = (int64_t)p->a.n_tokens * p->a.row_count * (int64_t)sizeof(float);
    int64_t n = (int64_t)GEMM_BLOCKS * d->n_multiprocessors / ((int64_t)grid->x * grid->y);
    if (n > CUDA_PARTIAL_BYTES / split_bytes) n = CUDA_PARTIAL_BYTES / split_bytes;
    if (n > p->a.n_cols / GEMM_SPLIT_COLS) n = p->a.n_cols / GEMM_SPLIT_COLS;
    if (n < 1) n = 1;
    p->split_cols = (int32_t)parts(parts(p->a.n_cols, n), GEMM_SPLIT_UNIT) * GEMM_SPLIT_UNIT;
    p->n_splits = (int32_t)parts(p->a.n_cols, p->split_cols);
    grid->z = (uint32_t)p->n_splits;
    if (p->n_splits > 1) p->partial = (float *)(uintptr_t)s->partial;
}

// Computes a product with narrow tiles if there are few tokens, or if full ones would be so few
// that the columns are worth splitting.
static bool multiply_narrow(struct cuda_stream *s, enum weight_type type,
                            const struct matmul_params *wide) {
    const struct matmul_kernels *kernels = &MATMULS[type];
    const struct cuda_device *d = (const struct cuda_device *)s->base.device;
    struct narrow_params p = {.weight_stride = wide->weight_stride};
    memcpy(&p.a, &wide->a, sizeof p.a);
    struct cuda_grid grid = tile_grid(parts(p.a.n_tokens, GEMM_NARROW_TOKENS), p.a.row_count);
    split_columns(s, &p, &grid);
    if (p.a.n_tokens > GEMM_NARROW_TOKENS && p.n_splits == 1) return false;
    add(s, kernels->narrow[d->tensor_cores], grid, &p, sizeof p);
    if (p.n_splits > 1)
        add(s, KERNEL_gemm_merge,
            (struct cuda_grid){(uint32_t)p.a.n_tokens, parts(p.a.row_count, GEMM_MERGE_THREADS), 1,
                               GEMM_MERGE_THREADS, 0},
            &p, sizeof p);
    return true;
}
static_assert(sizeof(struct narrow_params) == sizeof(struct matmul_args) + 24,
              "no padding but that of the op's: equal launches are equal bytes");

// Few tokens wait for the weight, more for arithmetic, which tiles do faster.
static bool takes_tiles(const struct cuda_stream *s, enum weight_type type, int32_t n_tokens) {
    const struct cuda_device *d = (const struct cuda_device *)s->base.device;
    int32_t most = MATVEC_TOKENS;
    if (d->tensor_cores && type == WEIGHT_F16) most = MATVEC_F16_TOKENS;
    if (d->tensor_cores && type == WEIGHT_BF16) most = MATVEC_BF16_TOKENS;
    return n_tokens > most;
}

static void matmul(struct cuda_stream *s, enum weight_type type, const struct matmul_args *a) {
    if (a->n_tokens == 0 || a->row_count == 0) return;
    struct matmul_params p;
    memset(&p, 0, sizeof p);
    memcpy(&p.a, a, sizeof p.a);
    p.acts_stride = (int64_t)matmul_scratch_bytes(type, a->n_cols, 1, 1);
    p.weight_stride = (int64_t)dtype_bytes(weight_dtype(type), (uint64_t)a->n_cols);
    const bool tiles = takes_tiles(s, type, a->n_tokens);
    const bool is_quantised = weight_kind(type) == KIND_BYTES;
    const int32_t vec_rows = is_quantised ? MATVEC_ROWS : MATVEC_WIDE_ROWS;
    if (is_quantised)
        quantize(s, (struct cuda_quantized){a->x, a->scratch, a->n_tokens, a->n_cols, tiles},
                 a->scratch, p.acts_stride);
    if (a->n_tokens == 1)
        cuda_multiply_one(s, type, &p);
    else if (!tiles)
        add(s, MATMULS[type].vec, vec_grid(vec_rows, a->row_count, 1), &p, sizeof p);
    else if (!multiply_narrow(s, type, &p))
        add(s, tile_kernel(s, &MATMULS[type]),
            tile_grid(parts(a->n_tokens, GEMM_TOKENS), a->row_count), &p, sizeof p);
    forget_written(s, a->out, a->n_tokens, a->out_stride);
}

// ---- Experts -----------------------------------------------------------------------------------

static void route(struct cuda_stream *s, enum weight_type type, const struct route_args *a) {
    (void)type;
    if (a->n_tokens == 0) return;
    struct route_args p;
    memcpy(&p, a, sizeof p);
    const size_t hole = offsetof(struct route_args, groups_by_best) + sizeof p.groups_by_best;
    memset((char *)&p + hole, 0, offsetof(struct route_args, scale) - hole); // padding
    add(s, KERNEL_route,
        (struct cuda_grid){parts(a->n_tokens, ROUTE_TOKENS), 1, 1, ROUTE_THREADS, 0}, &p, sizeof p);
    add(s, KERNEL_sort_pairs,
        (struct cuda_grid){(uint32_t)a->n_experts, 1, 1, SORT_PAIRS_THREADS, 0}, &p, sizeof p);
}

// Tiles are for experts with many tokens. The host does not know how the pairs spread, so it goes
// by the average.
static void matmul_experts(struct cuda_stream *s, enum weight_type type,
                           const struct matmul_experts_args *a) {
    const int32_t n_pairs = a->n_tokens * a->n_used, n_x = a->x_per_pair ? n_pairs : a->n_tokens;
    if (n_pairs == 0 || a->row_count == 0) return;
    struct experts_params p;
    memset(&p, 0, sizeof p);
    memcpy(&p.a, a, sizeof p.a);
    p.acts_stride = (int64_t)matmul_scratch_bytes(type, a->n_cols, 1, 1);
    p.weight_stride = (int64_t)dtype_bytes(weight_dtype(type), (uint64_t)a->n_cols);
    const bool tiles =
        a->n_tokens > MATVEC_TOKENS && n_pairs > EXPERTS_VEC_PER_EXPERT * a->n_experts;
    if (weight_kind(type) == KIND_BYTES)
        quantize(s, (struct cuda_quantized){a->x, a->scratch, n_x, a->n_cols, tiles}, a->scratch,
                 p.acts_stride);
    if (!tiles && a->n_tokens == 1)
        add(s, EXPERT_MATMULS[type].one, vec_grid(MATVEC_ONE_ROWS, a->row_count, n_pairs), &p,
            sizeof p);
    else if (!tiles)
        add(s, EXPERT_MATMULS[type].vec, vec_grid(MATVEC_WIDE_ROWS, a->row_count, n_pairs), &p,
            sizeof p);
    else
        add(s, tile_kernel(s, &EXPERT_MATMULS[type]),
            tile_grid(expert_tiles(n_pairs, a->n_experts, GEMM_TOKENS), a->row_count), &p,
            sizeof p);
    forget_written(s, a->out, n_pairs, a->out_stride);
}
static_assert(EXPERTS_VEC_PER_EXPERT * EXPERTS_MAX <= 65535, "pairs lie along y of the grid");

static void combine_experts(struct cuda_stream *s, enum weight_type type,
                            const struct combine_experts_args *a) {
    (void)type;
    add(s, KERNEL_combine_experts,
        (struct cuda_grid){(uint32_t)a->n_tokens, parts(a->n_cols, COMBINE_COLS), 1,
                           COMBINE_THREADS, 0},
        a, sizeof *a);
}

// ---- States ------------------------------------------------------------------------------------

static void split_rows(struct cuda_stream *s, enum weight_type type,
                       const struct split_rows_args *a) {
    (void)type;
    add(s, KERNEL_split_rows,
        (struct cuda_grid){(uint32_t)a->n_rows,
                           parts(a->n_first > a->n_second ? a->n_first : a->n_second, SPLIT_COLS),
                           1, SPLIT_THREADS, 0},
        a, sizeof *a);
}

static void short_conv(struct cuda_stream *s, enum weight_type type,
                       const struct short_conv_args *a) {
    (void)type;
    if (a->n_tokens == 0) return;
    add(s, KERNEL_short_conv,
        (struct cuda_grid){parts(a->n_cols, SHORT_CONV_THREADS), 1, 1, SHORT_CONV_THREADS, 0}, a,
        sizeof *a);
}

static void delta_rule(struct cuda_stream *s, enum weight_type type,
                       const struct delta_rule_args *a) {
    (void)type;
    if (a->n_tokens == 0) return;
    add(s, KERNEL_delta_rule,
        (struct cuda_grid){(uint32_t)a->n_heads, parts(a->head_dim, DELTA_COLS), 1,
                           DELTA_COLS * DELTA_WARPS, 0},
        a, sizeof *a);
}

static void mamba_scan(struct cuda_stream *s, enum weight_type type,
                       const struct mamba_scan_args *a) {
    (void)type;
    if (a->n_tokens == 0) return;
    add(s, KERNEL_mamba_scan,
        (struct cuda_grid){(uint32_t)a->n_heads, parts(a->head_dim, MAMBA_ROWS), 1, 32 * MAMBA_ROWS,
                           0},
        a, sizeof *a);
}

// ---- Attention ---------------------------------------------------------------------------------

// Blocks of one token and one run of keys: a chunk of the columns of a kv head each.
static uint32_t attention_columns(const struct attention_args *a) {
    return (uint32_t)a->n_kv_heads * parts(a->head_dim, ATTENTION_COLS);
}

// The number of runs that the keys of a token are cut into, so that few tokens keep the device
// busy: enough for ATTENTION_BLOCKS blocks per multiprocessor, at most one per page, and as many as
// fit the stream's memory. n_blocks: blocks of one run.
static int64_t attention_splits(const struct cuda_device *d, const struct attention_args *a,
                                int64_t n_blocks) {
    const int64_t row_bytes =
        (int64_t)a->n_tokens * a->n_heads * (a->head_dim + 2) * (int64_t)sizeof(float);
    int64_t n = ((int64_t)ATTENTION_BLOCKS * d->n_multiprocessors + n_blocks - 1) / n_blocks;
    if (n > ATTENTION_SPLITS) n = ATTENTION_SPLITS;
    if (n > a->max_pages) n = a->max_pages;
    if (n > CUDA_PARTIAL_BYTES / row_bytes) n = CUDA_PARTIAL_BYTES / row_bytes;
    return n > 1 ? n : 1;
}

// True for a batch of many tokens whose caches are read by eight elements, with at most n_rows
// query heads of a kv head.
static bool attention_in_tiles(const struct attention_args *a, int32_t n_rows) {
    return a->n_tokens > MATVEC_TOKENS && a->head_dim % 8 == 0 && a->head_dim <= 256 &&
           a->n_heads / a->n_kv_heads <= n_rows;
}

// F32 is left to the tiles of floats: halves would lose bits.
static bool attention_on_tensor_cores(const struct cuda_device *d, const struct attention_args *a) {
    return d->tensor_cores && a->k_type != DTYPE_F32 && a->v_type != DTYPE_F32 &&
           attention_in_tiles(a, ATTENTION_MMA_ROWS);
}

struct attention_kernel {
    enum cuda_kernel kernel;
    struct cuda_grid grid; // of one split
};

// Grid of blocks that take n_rows query heads of a kv head, of a tile of tokens.
static struct cuda_grid attention_grid(const struct attention_args *a, int32_t n_rows,
                                       uint32_t n_threads) {
    const int64_t tile_tokens = n_rows / (a->n_heads / a->n_kv_heads);
    return (struct cuda_grid){parts(a->n_tokens, tile_tokens), (uint32_t)a->n_kv_heads, 1,
                              n_threads, 0};
}

static struct attention_kernel attention_of_halves(const struct attention_args *a) {
    return (struct attention_kernel){a->head_dim <= 64    ? KERNEL_attention_mma_64
                                     : a->head_dim <= 128 ? KERNEL_attention_mma_128
                                                          : KERNEL_attention_mma_256,
                                     attention_grid(a, ATTENTION_MMA_ROWS, ATTENTION_MMA_THREADS)};
}

static struct attention_kernel attention_of_floats(const struct attention_args *a) {
    return (struct attention_kernel){
        a->head_dim <= 64    ? KERNEL_attention_tiles_64
        : a->head_dim <= 128 ? KERNEL_attention_tiles_128
                             : KERNEL_attention_tiles_256,
        attention_grid(a, ATTENTION_TILE_ROWS, ATTENTION_TILE_THREADS)};
}

static struct attention_kernel attention_of_few(const struct attention_args *a) {
    return (struct attention_kernel){a->head_dim <= 64    ? KERNEL_attention_64
                                     : a->head_dim <= 128 ? KERNEL_attention_128
                                                          : KERNEL_attention_256,
                                     {parts(a->n_tokens, ATTENTION_TOKENS), attention_columns(a), 1,
                                      ATTENTION_THREADS, attention_shared_bytes(a)}};
}

static void attention(struct cuda_stream *s, enum weight_type type,
                      const struct attention_args *a) {
    (void)type;
    ASSERT(a->order == KV_BY_ROW);
    if (a->n_tokens == 0) return;
    const struct cuda_device *d = (const struct cuda_device *)s->base.device;
    const struct attention_kernel k = attention_on_tensor_cores(d, a) ? attention_of_halves(a)
                                      : attention_in_tiles(a, ATTENTION_TILE_ROWS)
                                          ? attention_of_floats(a)
                                          : attention_of_few(a);
    struct cuda_grid grid = k.grid;
    struct attention_params p = {.a = *a,
                                 .n_splits = attention_splits(d, a, (int64_t)grid.x * grid.y)};
    grid.z = (uint32_t)p.n_splits;
    if (p.n_splits > 1) p.partial = (float *)(uintptr_t)s->partial;
    add(s, k.kernel, grid, &p, sizeof p);
    if (p.n_splits > 1)
        add(s, KERNEL_attention_merge,
            (struct cuda_grid){(uint32_t)a->n_tokens, (uint32_t)a->n_heads, 1,
                               ATTENTION_MERGE_THREADS, 0},
            &p, sizeof p);
}
static_assert(sizeof(struct attention_params) == sizeof(struct attention_args) + 16,
              "no padding: equal launches are equal bytes");

// ---- The table ---------------------------------------------------------------------------------

static void cuda_encode(struct stream *stream, enum op_id op, enum weight_type weight,
                        const void *args, uint32_t args_bytes) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    ASSERT(stream->kind == STREAM_COMPUTE);
    if (s->failure.status != OK) return;
    union op_args copy;
    memset(&copy, 0, sizeof copy);
    ASSERT(ARGS_END[op] <= args_bytes);
    memcpy(&copy, args, ARGS_END[op]);
    if (op != OP_matmul && op != OP_matmul_experts) s->quantized = (struct cuda_quantized){0};
    switch (op) {
#define OP(name, ...)                \
    case OP_##name:                  \
        name(s, weight, &copy.name); \
        break;
#define OP_W OP
#include "kernels/ops.def"
#undef OP
#undef OP_W
    case OP_COUNT: break;
    }
}

#define OP_ENCODE cuda_encode
#define OP_TABLE  cuda_ops
#include "kernels/op_table.inc"

const struct op_table *const cuda_op_table = &cuda_ops;
