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

#endif
