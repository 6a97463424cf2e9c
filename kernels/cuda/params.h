/* params.h: the parameters of kernels that differ from an op's own argument struct, and the shapes
 * of launches.
 *
 * Plain C, read by the host, by the device compilers and by the emulator; every struct is one
 * by-value parameter of at most 1 KiB without padding inside, so that two equal launches are equal
 * bytes. Owns nothing. Tokens lie along x of every grid, the only dimension that may exceed 65535.
 * The size of a kernel's block or tile is defined here and nowhere else. Tested by
 * tests/kernels/test_cuda.c.
 */
#ifndef TANDEM_KERNELS_CUDA_PARAMS_H
#define TANDEM_KERNELS_CUDA_PARAMS_H

#include "kernels/ops.h"

enum {
    // embed_<type>: grid (n_tokens, column chunks).
    EMBED_THREADS = 128,
    EMBED_COLS = 1024, // columns of one block

    // rms_norm, rms_norm_quantize: grid (n_rows); a block computes one row.
    RMS_NORM_THREADS = 128,

    // rope_table: grid (n_tokens, pair chunks); one thread per pair.
    ROPE_TABLE_THREADS = 64,

    // rope, rope_store: grid (n_tokens, n_heads + n_kv_heads); a block rotates one head.
    ROPE_THREADS = 64,

    // kv_store, gather_rows: grid (rows, column chunks).
    KV_STORE_THREADS = 128,
    KV_STORE_COLS = 512,
    GATHER_THREADS = 128,
    GATHER_COLS = 1024,

    // swiglu: grid (rows * column chunks).
    SWIGLU_THREADS = 128,
    SWIGLU_ELEMENTS = 1024,
    SWIGLU_QUANTIZE_COLS = 4 * SWIGLU_THREADS, // swiglu_quantize: grid (rows, column chunks)

    // cap_logits: grid (chunks of CAP_ELEMENTS elements of all rows).
    CAP_THREADS = 128,
    CAP_ELEMENTS = 1024,

    // quantize_acts: grid (n_tokens, chunks of 32-column groups); 8 threads quantise one group.
    QUANTIZE_THREADS = 128,
    QUANTIZE_GROUPS = 16,
    ACTS_TILE = 64, // tokens of a tile of quantised activations

    // matmul_one_<type>, matmul_mixed, matmul_vec_<type>: grid (row chunks); every block computes
    // the one token, or all tokens, at most MATVEC_TOKENS.
    MATVEC_THREADS = 128,
    MATVEC_ONE_ROWS = 2,  // of a warp, for one token
    MATVEC_ROWS = 2,      // the same for several, of a quantised weight
    MATVEC_WIDE_ROWS = 1, // the same of floats, and of experts
    MATVEC_TOKENS = 8,
    // Where there are tensor cores. On an H100 8192 x 8192 of F16 take 149 us with 4 tokens and 267
    // with 8, by tiles 108 and 110; of BF16 145 and 257, by tiles 210 and 217.
    MATVEC_F16_TOKENS = 3,
    MATVEC_BF16_TOKENS = 6,
    MATMUL_PARTS = 3, // weights of a launch for one token: grid (row chunks of all)

    // gemm_dp4a_<type>, gemm_mma_<type>, gemm_floats_<type>: grid (token tiles, row tiles): blocks
    // that share a tile of the weight have neighbouring numbers. narrow_<kind>_<type>: the same
    // with narrow tiles, and z splits of the columns. gemm_merge: grid (n_tokens, row chunks).
    GEMM_THREADS = 128,
    GEMM_ROWS = 64,
    GEMM_TOKENS = 64,
    GEMM_NARROW_TOKENS = 32,
    GEMM_BLOCKS = 5,       // narrow ones of a multiprocessor at once, which splits aim at
    GEMM_SPLIT_COLS = 512, // fewest columns of a split
    GEMM_SPLIT_UNIT = 256, // splits begin at multiples: blocks of weights, whole steps of the loop
    GEMM_MERGE_THREADS = 128,

    // experts_one_<type>, experts_vec_<type>: grid (row chunks, pairs); blocks like those of
    // matmul_one_<type> and matmul_vec_<type>.
    // experts_dp4a_<type>, experts_mma_<type>, experts_floats_<type>: grid (expert_tiles, row
    // tiles); blocks like those of the GEMMs.
    EXPERTS_VEC_PAIRS = 4,      // of one expert that a block takes at once
    EXPERTS_VEC_PER_EXPERT = 4, // average pairs up to which experts_vec is the faster kernel

    // route: grid (token chunks), a warp routes one token. sort_pairs: grid (n_experts), launched
    // after route with the same parameters.
    ROUTE_THREADS = 64,
    ROUTE_TOKENS = 2, // 12 KiB of shared memory each
    SORT_PAIRS_THREADS = 128,

    // combine_experts: grid (n_tokens, column chunks).
    COMBINE_THREADS = 128,
    COMBINE_COLS = 512,

    // split_rows: grid (n_rows, column chunks).
    SPLIT_THREADS = 128,
    SPLIT_COLS = 512,

    // move_rows: grid (rows, chunks of a row).
    MOVE_THREADS = 128,
    MOVE_BYTES = MOVE_THREADS * 16,
    MOVE_MAX_BYTES = 1 << 20, // of one copy; more is left to the device's copy engines

    // short_conv: grid (column chunks), one thread per column.
    SHORT_CONV_THREADS = 64,

    // delta_rule: grid (n_heads, column chunks), a warp for each DELTA_WARPS-th row of the state.
    DELTA_COLS = 32,
    DELTA_WARPS = 4,

    // mamba_scan: grid (n_heads, row chunks), a warp for each row of the state.
    MAMBA_ROWS = 4,

    // attention_64, _128, _256: grid (n_tokens, n_kv_heads * column chunks, n_splits),
    // attention_shared_bytes of dynamic shared memory; attention_merge, attention_merge_quantize:
    // grid (n_tokens, n_heads).
    ATTENTION_THREADS = 128,
    ATTENTION_TOKENS = 1,     // of one tile
    ATTENTION_BLOCKS = 4,     // of a multiprocessor at once, for which registers are kept
    ATTENTION_HEADS = 8,      // query heads that a block takes at once
    ATTENTION_KEYS = 32,      // keys in shared memory at once
    ATTENTION_COLS = 256,     // most columns of V that a block adds up
    ATTENTION_KEY_COLS = 128, // of wider heads that lie in shared memory at once
    ATTENTION_MERGE_THREADS = 128,
    // attention_mma_64, _128, _256: grid (token tiles, n_kv_heads, n_splits); a tile is as many
    // tokens as have at most ATTENTION_MMA_ROWS query heads of a kv head.
    ATTENTION_MMA_THREADS = 128,
    ATTENTION_MMA_ROWS = 64,
    // attention_tiles_64, _128, _256: the same in floats, with ATTENTION_TILE_ROWS.
    ATTENTION_TILE_THREADS = 128,
    ATTENTION_TILE_ROWS = 32,
    ATTENTION_SPLITS = 128, // most runs that the keys of a token are cut into
};

// Quantised activations lie in rows of acts_stride bytes, one per token, or in tiles; see
// activations.cuh.
struct quantize_params {
    void *out;           // [n_tokens] rows of acts_stride bytes, or tiles
    const float *x;      // [n_tokens, n_cols]
    int64_t acts_stride; // bytes; 0: tiles
    int32_t n_tokens, n_cols;
};

// The parameters of kernels that quantise what they write, for a matmul of it: acts has a row of
// acts_stride bytes for each of theirs. Their outputs are rows one behind the other.
struct norm_quantize_params { // n_cols is a multiple of 32
    struct rms_norm_args a;
    void *acts;
    int64_t acts_stride; // bytes
};
struct swiglu_quantize_params { // n_cols is a multiple of 32, all pointers and strides of 4 floats
    struct swiglu_args a;
    void *acts;
    int64_t acts_stride;
};

// rope_store: k of both is the same, all its heads side by side are n_cols columns, and head_dim is
// a multiple of 32.
struct rope_store_params {
    struct rope_args rope;
    struct kv_store_args store;
};

// Rows to copy: row i goes from source + i * source_stride to target + i * target_stride, in units
// of unit_bytes (16 or 4), whose multiples all else is.
struct move_params {
    void *target;
    const void *source;
    int64_t target_stride, source_stride;
    int32_t row_bytes, unit_bytes;
};

// a.scratch holds the quantised activations of all tokens when a kernel of a quantised type starts;
// kernels of F32, F16 and BF16 read a.x.
struct matmul_params {
    struct matmul_args a;
    int64_t acts_stride;   // bytes between the tokens' rows in a.scratch, unless they lie in tiles
    int64_t weight_stride; // bytes of a row of the weight
};

// Split z of a narrow GEMM multiplies columns z * split_cols to the next one's first, at most
// n_cols. With one split the kernel writes a.out. With more, split z writes the sum of row
// row_first + r and token t to partial[(z * n_tokens + t) * row_count + r], and gemm_merge,
// launched with the same parameters, adds them up in the order of the splits and writes a.out.
struct narrow_params {
    struct matmul_args a;
    int64_t weight_stride; // bytes of a row of the weight
    float *partial;        // [n_splits, n_tokens, row_count], or NULL with one split
    int32_t n_splits, split_cols;
};

// The types that matmul_mixed knows: those that files mix within a layer. More of them would take
// more registers.
#define MATMUL_MIXED(X) X(Q4_K, q4_k) X(Q5_K, q5_k) X(Q6_K, q6_k) X(Q8_0, q8_0)

// The parameters of matmul_one_<type> and matmul_mixed: products of one token with one to
// MATMUL_PARTS weights. x, n_cols and scratch of all are the same, and none writes what another
// reads or writes. starts[i] is the first block of part i: 0 for the first, INT32_MAX if there is
// no such part.
struct products_params {
    struct matmul_params parts[MATMUL_PARTS];
    int32_t types[MATMUL_PARTS]; // enum weight_type
    int32_t starts[MATMUL_PARTS];
};

// The parameters of matmul_experts; a.scratch has a row for each row of a.x.
struct experts_params {
    struct matmul_experts_args a;
    int64_t acts_stride;
    int64_t weight_stride;
};

// Tiles of size pairs that suffice for every way to spread the pairs over the experts; some of them
// stay empty. See rows.cuh.
static inline uint32_t expert_tiles(int64_t n_pairs, int32_t n_experts, int32_t size) {
    return (uint32_t)(n_pairs / size + n_experts);
}

// The keys that a token sees are cut into n_splits runs of whole pages, as even as possible; a run
// may be empty. With one split the kernel writes a.out. With more, split s of head h of token t
// writes its unnormalised sums [head_dim], its largest score and its sum of exponentials (-INFINITY
// and 0 for an empty run) to partial[((t * n_heads + h) * n_splits + s) * (head_dim + 2)], and
// attention_merge, launched with the same parameters, writes a.out.
struct attention_params {
    struct attention_args a;
    float *partial; // [n_tokens, n_heads, n_splits, head_dim + 2], or NULL with one split
    int64_t n_splits;
};

// attention_merge_quantize is attention_merge for a head_dim that is a multiple of 32.
struct merge_quantize_params {
    struct attention_params p;
    void *acts;
    int64_t acts_stride;
};

// Dynamic shared memory of a block of attention: query heads as floats, then a tile of keys, whose
// rows are an odd number of 16 bytes apart. At most 41,472 bytes, with keys that are no halves
// (floats there) and ATTENTION_COLS columns.
static inline uint32_t attention_shared_bytes(const struct attention_args *a) {
    uint32_t padded_dim = ((uint32_t)a->head_dim + 7) / 8 * 8;
    uint32_t key_cols = padded_dim > ATTENTION_COLS ? (uint32_t)ATTENTION_KEY_COLS : padded_dim;
    uint32_t key_units = (key_cols * (a->k_type == DTYPE_F16 ? 2U : 4U) / 16) | 1U;
    return ATTENTION_HEADS * padded_dim * (uint32_t)sizeof(float) + ATTENTION_KEYS * key_units * 16;
}

#endif
