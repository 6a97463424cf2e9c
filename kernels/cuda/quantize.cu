/* quantize.cu: quantises activations to bytes with a scale per 32 columns, once for all rows of a
 * weight.
 *
 * Grid (n_tokens, chunks of QUANTIZE_GROUPS groups). Eight threads quantise a group, four columns
 * each: 128 bytes read and 40 written per group. q = round to nearest even of x / scale, scale =
 * largest |x| / 127. n_cols is a multiple of 32, x 16-byte aligned. The caller launches it before
 * matmul_vec_<type> or a GEMM of a quantised type. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cuda/activations.cuh"
#include "kernels/cuda/params.h"

static_assert(QUANTIZE_THREADS == 8 * QUANTIZE_GROUPS, "eight threads turn a group");

KERNEL void __launch_bounds__(QUANTIZE_THREADS) quantize_acts(const struct quantize_params p) {
    int64_t token = blockIdx.x;
    int g = (int)blockIdx.y * QUANTIZE_GROUPS + (int)threadIdx.x / 8, lane = (int)threadIdx.x % 8;
    bool inside = g < p.n_cols / 32;
    float4 x = make_float4(0, 0, 0, 0);
    if (inside) x = __ldg((const float4 *)(p.x + token * p.n_cols + 32 * g) + lane);
    float largest = fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
    for (int apart = 4; apart > 0; apart /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, apart));
    // Below 1e-30 the quotient could overflow; such a group counts as zeros.
    float inverse = largest > 1e-30F ? 127 / largest : 0, scale = largest / 127;
    int q0 = __float2int_rn(x.x * inverse), q1 = __float2int_rn(x.y * inverse);
    int q2 = __float2int_rn(x.z * inverse), q3 = __float2int_rn(x.w * inverse);
    int sum = (q0 + q1) + (q2 + q3);
    for (int apart = 4; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    if (!inside) return;
    char *row = (char *)p.out + token * p.acts_stride;
    ((uint32_t *)(row + 32 * g))[lane] = (uint32_t)(q0 & 0xff) | (uint32_t)(q1 & 0xff) << 8 |
                                         (uint32_t)(q2 & 0xff) << 16 | (uint32_t)q3 << 24;
    if (lane == 0) ((float2 *)(row + p.n_cols))[g] = make_float2(scale, scale * (float)sum);
}
