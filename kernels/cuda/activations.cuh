/* activations.cuh: the layout of quantised activations, written by quantize_acts and read by
 * matmul_vec_<type> and the GEMM kernels of quantised types.
 *
 * A token's row is acts_stride bytes, a multiple of 64: n_cols signed bytes, then for every 32
 * columns a scale and the sum of those 32 values, i.e. scale times the sum of the bytes, which
 * carries the offset of a weight group: sum((scale_w n + offset) x) = scale_w scale_x sum(n q) +
 * offset sum(x). n_cols is a multiple of 32, so the bytes of 16 columns and the two floats of a
 * group can each be loaded at once. 40 bytes per 32 columns. Owns nothing; device code only.
 * Tested by tests/kernels/check_ops.c on every matmul.
 */
#ifndef TANDEM_KERNELS_CUDA_ACTIVATIONS_CUH
#define TANDEM_KERNELS_CUDA_ACTIVATIONS_CUH

#include "kernels/cuda/device.cuh"

// The bytes of group g (columns 32 g ...) of a row: 32-byte aligned.
DEVICE_FN const int8_t *acts_bytes(const void *row, int g) { return (const int8_t *)row + 32 * g; }

// {scale, sum} of group g.
DEVICE_FN float2 acts_scale(const void *row, int n_cols, int g) {
    uint2 bits = __ldg((const uint2 *)((const int8_t *)row + n_cols) + g);
    return make_float2(__uint_as_float(bits.x), __uint_as_float(bits.y));
}

#endif
