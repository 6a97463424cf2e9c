/* embed.cu: embed_<type>, rows of the token table as floats.
 *
 * Grid (n_tokens, chunks of EMBED_COLS columns). A thread strides over the columns of the chunk by
 * EMBED_THREADS, so a warp reads neighbouring bytes; the scales of a block come from cache. Reads a
 * row's weights and writes 4 bytes per column; any n_cols that the type allows. Tested by
 * tests/kernels/check_ops.c.
 */
#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/params.h"

// Bytes of n columns in the type's blocks; a plain type is a block of one.
template <class W> DEVICE_FN int64_t row_bytes(int n_cols) {
    return (int64_t)(n_cols / W::BLOCK) * W::BYTES;
}

template <class W> DEVICE_FN void embed(const struct embed_args &a) {
    int64_t token = blockIdx.x;
    const uint8_t *row = (const uint8_t *)a.table + a.tokens[token] * row_bytes<W>(a.n_cols);
    float *out = a.out + token * a.n_cols;
    int first = (int)blockIdx.y * EMBED_COLS, last = min(first + EMBED_COLS, a.n_cols);
    for (int column = first + (int)threadIdx.x; column < last; column += EMBED_THREADS)
        out[column] = a.scale * W::element(row, column);
}

#define WEIGHT(NAME, name, ...)                                                            \
    KERNEL void __launch_bounds__(EMBED_THREADS) embed_##name(const struct embed_args a) { \
        embed<weight_##name>(a);                                                           \
    }
#include "kernels/weights.def"
#undef WEIGHT
