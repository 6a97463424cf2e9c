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
};

// Row i goes from source + i * source_stride to target + i * target_stride.
struct move_params {
    void *target;
    const void *source;
    int64_t target_stride, source_stride, row_bytes;
    int32_t unit_bytes; // 16, 4 or 1: addresses, strides and row_bytes are multiples of it
    int32_t n_rows;
};

#endif
