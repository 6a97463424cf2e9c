/* params.h: the parameters of kernels that differ from an op's own argument struct, and the shapes
 * of dispatches.
 *
 * Plain C, read by the host; every struct begins with its pointers, which the kernels see as
 * numbers (0: NULL) and reach through the buffers that are bound beside. At most METAL_PARAMS_MAX
 * bytes each. Owns nothing. The size of a threadgroup or a tile is defined here and nowhere else.
 * Tested by tests/kernels/test_metal.c.
 */
#ifndef TANDEM_KERNELS_METAL_PARAMS_H
#define TANDEM_KERNELS_METAL_PARAMS_H

#include "kernels/ops.h"

enum {
    // embed_<type>: grid (n_tokens, chunks of columns).
    EMBED_THREADS = 128,
    EMBED_COLS = 1024, // columns of a threadgroup

    // matmul_vec_<type>, of one token: grid (chunks of MATVEC_THREADS / 32 * MATVEC_ROWS rows).
    // matmul_few_<type>, of up to MATVEC_TOKENS: (chunks of MATVEC_THREADS / 32 * MATVEC_FEW_ROWS).
    // experts_vec_<type>: (chunks as of matmul_few, pairs).
    MATVEC_THREADS = 64,
    MATVEC_ROWS = 4, // of a simdgroup
    MATVEC_FEW_ROWS = 2,
    MATVEC_TOKENS = 8,
    EXPERTS_VEC_PAIRS = 4,      // of one expert that a threadgroup takes at once
    EXPERTS_VEC_PER_EXPERT = 4, // average pairs up to which experts_vec is the faster kernel

    // gemm_<type>, and tiles_<type> without simdgroup matrices: grid (token tiles, row tiles);
    // experts_gemm_<type>, experts_tiles_<type>: (expert_tiles of GEMM_TOKENS, row tiles). All have
    // gemm_memory_bytes of threadgroup memory.
    GEMM_THREADS = 128,
    GEMM_ROWS = 64,
    GEMM_TOKENS = 32,
    GEMM_COLS = 32,

    // move_rows: grid (chunks of MOVE_BYTES of a row, rows).
    MOVE_THREADS = 128,
    MOVE_BYTES = 8192,

    // rms_norm: grid (n_rows); a threadgroup computes one row.
    RMS_NORM_THREADS = 128,

    // rope_table: grid (n_tokens); a thread per pair of the dispatch.
    ROPE_TABLE_PAIRS = 64,

    // rope: grid (n_tokens, n_heads + n_kv_heads); a threadgroup rotates one head.
    ROPE_THREADS = 64,

    // kv_store, gather_rows, split_rows, swiglu: grid (rows, column chunks).
    KV_STORE_THREADS = 128,
    KV_STORE_COLS = 512,
    GATHER_THREADS = 128,
    GATHER_COLS = 1024,
    SPLIT_THREADS = 128,
    SPLIT_COLS = 512,
    SWIGLU_THREADS = 128,
    SWIGLU_COLS = 1024,

    // cap_logits: grid (chunks of CAP_ELEMENTS elements of all rows).
    CAP_THREADS = 128,
    CAP_ELEMENTS = 1024,

    // attention: grid (n_tokens, n_kv_heads * column chunks, n_splits), attention_query_bytes of
    // threadgroup memory; attention_merge: grid (n_tokens, n_heads).
    ATTENTION_THREADS = 128,
    ATTENTION_HEADS = 8,   // query heads that a threadgroup takes at once
    ATTENTION_KEYS = 32,   // keys at once
    ATTENTION_COLS = 256,  // most columns of V that a threadgroup adds up
    ATTENTION_SPLITS = 32, // most runs that the keys of a token are cut into
    ATTENTION_GROUPS = 64, // threadgroups that keep a device busy
    ATTENTION_FEW = 8,     // most tokens that go by attention where tiles could take them
    ATTENTION_MERGE_THREADS = 128,

    // attention_tiles_<type>_<columns>: grid (token tiles, n_kv_heads), attention_tile_bytes of
    // threadgroup memory; a tile is as many tokens as have at most ATTENTION_TILE_ROWS query heads
    // of a kv head.
    ATTENTION_TILE_THREADS = 128,
    ATTENTION_TILE_ROWS = 32,
    ATTENTION_TILE_KEYS = 16,

    // route: grid (token chunks), a simdgroup routes one token. sort_pairs: grid (n_experts), after
    // route with the same parameters.
    ROUTE_THREADS = 64,
    ROUTE_TOKENS = 2, // 6 KiB of threadgroup memory each
    SORT_PAIRS_THREADS = 128,

    // combine_experts: grid (n_tokens, column chunks).
    COMBINE_THREADS = 128,
    COMBINE_COLS = 512,

    // short_conv: grid (column chunks), one thread per column.
    SHORT_CONV_THREADS = 64,

    // delta_rule: grid (n_heads, column chunks), a simdgroup for each DELTA_SIMDGROUPS-th row of
    // the state.
    DELTA_COLS = 32,
    DELTA_SIMDGROUPS = 4,

    // mamba_scan: grid (n_heads, row chunks), a simdgroup for each row of the state.
    MAMBA_ROWS = 4,
};

// Row i goes from source + i * source_stride to target + i * target_stride.
struct move_params {
    void *target;
    const void *source;
    int64_t target_stride, source_stride, row_bytes;
    int32_t unit_bytes; // 16, 4 or 1: addresses, strides and row_bytes are multiples of it
    int32_t n_rows;
};

// Pairs first_pair..first_pair+n_pairs-1 of rope_table. The turns per position of each, without
// freq_factors, are the sum of two floats, the larger first.
struct rope_table_params {
    struct rope_table_args a;
    int32_t first_pair, n_pairs;
    float turns[2 * ROPE_TABLE_PAIRS];
};

// The keys that a token sees are cut into n_splits runs of whole pages, as even as possible; a run
// may be empty. With one split the kernel writes a.out. With more, split s of head h of token t
// writes its unnormalised sums [head_dim], its largest score and its sum of exponentials (a very
// small score and 0 for an empty run) to partial[((t * n_heads + h) * n_splits + s) * (head_dim +
// 2)], and attention_merge, launched with the same parameters, writes a.out. Tiles have one split.
struct attention_params {
    float *partial; // [n_tokens, n_heads, n_splits, head_dim + 2], or NULL with one split
    struct attention_args a;
    int64_t n_splits;
};

// Threadgroup memory of attention: query heads as floats, at most 18,432 bytes.
static inline uint32_t attention_query_bytes(int32_t head_dim) {
    return ATTENTION_HEADS * (((uint32_t)head_dim + 7) / 8 * 8) * (uint32_t)sizeof(float);
}

// Threadgroup memory of attention_tiles with elements of that size: scores, factors, queries, keys
// and weights. At most 29,696 bytes, with floats and 128 columns.
static inline uint32_t attention_tile_bytes(uint32_t columns, uint32_t element_bytes) {
    return ATTENTION_TILE_ROWS * (ATTENTION_TILE_KEYS + 8) * (uint32_t)sizeof(float) +
           (ATTENTION_TILE_ROWS * (columns + ATTENTION_TILE_KEYS) + ATTENTION_TILE_KEYS * columns) *
               element_bytes;
}

// A tile of the weight, halves for types with blocks and else floats, and one of the activations;
// then the results, which are no more.
static inline uint32_t gemm_memory_bytes(enum weight_kind kind) {
    return GEMM_ROWS * GEMM_COLS * (kind == KIND_BYTES ? 2U : 4U) + GEMM_TOKENS * GEMM_COLS * 4U;
}

// Tiles of size pairs that suffice for every way to spread the pairs over the experts; some of them
// stay empty. See job.metal.
static inline uint32_t expert_tiles(int64_t n_pairs, int32_t n_experts, int32_t size) {
    return (uint32_t)(n_pairs / size + n_experts);
}

#endif
