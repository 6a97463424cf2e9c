/* activations.cuh: the layouts of quantised activations, written by quantize_acts and read by the
 * matmul kernels of quantised types.
 *
 * Every 32 columns of a token are signed bytes with a scale and the sum of those 32 values, i.e.
 * scale times the sum of the bytes, which carries the offset of a weight group: sum((scale_w n +
 * offset) x) = scale_w scale_x sum(n q) + offset sum(x). 40 bytes per 32 columns.
 *
 * In rows, for up to MATVEC_TOKENS tokens: a token's row is acts_stride bytes, a multiple of 64:
 * n_cols bytes, then a scale and a sum for each group of 32. n_cols is a multiple of 32, so the
 * bytes of 16 columns and the two floats of a group can each be loaded at once.
 *
 * In tiles, for GEMMs, so that what a warp loads lies side by side: 64 columns of up to ACTS_TILE
 * tokens are a tile: the bytes of each token, 64 apiece, then scales and sums of its two groups, 16
 * bytes apiece. The tiles of the first ACTS_TILE tokens come first, in the order of their columns;
 * the last tokens may be fewer, with lower tiles. Where the number of groups is odd, a group of
 * zeros completes them. Owns nothing; device code only. Tested by tests/kernels/check_ops.c on
 * every matmul.
 */
#ifndef TANDEM_KERNELS_CUDA_ACTIVATIONS_CUH
#define TANDEM_KERNELS_CUDA_ACTIVATIONS_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

static constexpr int ACTS_LINE = 80; // bytes of a token in a tile

// The bytes of group g (columns 32 g ...) of a row: 32-byte aligned.
DEVICE_FN const int8_t *acts_bytes(const void *row, int g) { return (const int8_t *)row + 32 * g; }

// {scale, sum} of group g.
DEVICE_FN float2 acts_scale(const void *row, int n_cols, int g) {
    uint2 bits = __ldg((const uint2 *)((const int8_t *)row + n_cols) + g);
    return make_float2(__uint_as_float(bits.x), __uint_as_float(bits.y));
}

// The tokens in the tiles of a token, of n_tokens in all.
DEVICE_FN int acts_tile_height(int token, int n_tokens) {
    return min(n_tokens - token / ACTS_TILE * ACTS_TILE, (int)ACTS_TILE);
}
// Where the tile of a token and a step of 64 columns begins, in bytes; height is that of the tile.
DEVICE_FN int64_t acts_tile_at(int token, int step, int n_steps, int height) {
    return ((int64_t)(token / ACTS_TILE) * ACTS_TILE * n_steps + (int64_t)step * height) *
           ACTS_LINE;
}

#endif
