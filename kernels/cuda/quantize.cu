/* quantize.cu: quantises activations to bytes with a scale per 32 columns, once for all rows of a
 * weight.
 *
 * Grid (n_tokens, chunks of QUANTIZE_GROUPS groups, of an even number for tiles). Eight threads
 * quantise a group, four columns each: 128 bytes read and 40 written per group. n_cols is a
 * multiple of 32, x 16-byte aligned. The caller launches it before matmul_vec_<type> or a GEMM of a
 * quantised type, unless the kernel that makes x does the same (cuda_fuse.h). Tested by
 * tests/kernels/check_ops.c.
 */
#include "kernels/cuda/activations.cuh"
#include "kernels/cuda/params.h"
#include "kernels/cuda/quantize.cuh"

static_assert(QUANTIZE_THREADS == 8 * QUANTIZE_GROUPS, "eight threads turn a group");

DEVICE_FN acts_place place_of(const struct quantize_params &p, int token, int g) {
    if (p.acts_stride != 0) return in_row((char *)p.out + token * p.acts_stride, p.n_cols, g);
    int height = acts_tile_height(token, p.n_tokens), line = token % ACTS_TILE;
    char *tile = (char *)p.out + acts_tile_at(token, g / 2, (p.n_cols + 63) / 64, height);
    return {tile + 64 * line + 32 * (g % 2), tile + 64 * height + 16 * line + 8 * (g % 2)};
}

KERNEL void __launch_bounds__(QUANTIZE_THREADS) quantize_acts(const struct quantize_params p) {
    int token = (int)blockIdx.x;
    int g = (int)blockIdx.y * QUANTIZE_GROUPS + (int)threadIdx.x / 8, lane = (int)threadIdx.x % 8;
    bool inside = g < p.n_cols / 32;
    float4 x = make_float4(0, 0, 0, 0);
    if (inside) x = __ldg((const float4 *)(p.x + (int64_t)token * p.n_cols + 32 * g) + lane);
    const bool written = inside || (p.acts_stride == 0 && g < (p.n_cols + 63) / 64 * 2);
    quantize_fours(place_of(p, token, g), x, written);
}
