/* quantize.cuh: quantises activations that a kernel has in registers; see activations.cuh for the
 * layout.
 *
 * q = round to nearest even of x / scale, scale = largest |x| / 127. Maxima and sums of whole
 * numbers do not depend on their order, so that a group is the same bytes whoever writes it. Owns
 * nothing; device code only. Tested by tests/kernels/check_ops.c and
 * tests/kernels/test_cuda_fuse.c.
 */
#ifndef TANDEM_KERNELS_CUDA_QUANTIZE_CUH
#define TANDEM_KERNELS_CUDA_QUANTIZE_CUH

#include "kernels/cuda/device.cuh"

// The factors of a group whose largest magnitude is known. Below 1e-30 the quotient could overflow;
// such a group counts as zeros.
struct group_scale {
    float scale, inverse;
};
DEVICE_FN group_scale scale_of_group(float largest) {
    return {largest / 127, largest > 1e-30F ? 127 / largest : 0};
}

// Where the bytes of a group and its scale and sum go.
struct acts_place {
    char *bytes, *scale;
};
DEVICE_FN acts_place in_row(char *row, int n_cols, int g) {
    return {row + 32 * g, row + n_cols + 8 * g};
}

// Eight lanes quantise a group, each four columns: x of lane i is columns 4 i.. of the group.
// Called by a whole warp; only groups that are inside are written.
DEVICE_FN void quantize_fours(acts_place out, float4 x, bool inside) {
    int lane = (int)threadIdx.x % 8;
    float largest = fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
    for (int apart = 4; apart > 0; apart /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, apart));
    group_scale by = scale_of_group(largest);
    int q0 = __float2int_rn(x.x * by.inverse), q1 = __float2int_rn(x.y * by.inverse);
    int q2 = __float2int_rn(x.z * by.inverse), q3 = __float2int_rn(x.w * by.inverse);
    int sum = (q0 + q1) + (q2 + q3);
    for (int apart = 4; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    if (!inside) return;
    ((uint32_t *)out.bytes)[lane] = (uint32_t)(q0 & 0xff) | (uint32_t)(q1 & 0xff) << 8 |
                                    (uint32_t)(q2 & 0xff) << 16 | (uint32_t)q3 << 24;
    if (lane == 0) *(float2 *)out.scale = make_float2(by.scale, by.scale * (float)sum);
}

// A warp quantises a group, each lane one column, which is a multiple of 32 in lane 0.
DEVICE_FN void quantize_ones(char *row, int n_cols, int column, float x) {
    float largest = fabsf(x);
    for (int apart = 16; apart > 0; apart /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, apart));
    group_scale by = scale_of_group(largest);
    int q = __float2int_rn(x * by.inverse), sum = q;
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    row[column] = (char)q;
    if (column % 32 == 0)
        ((float2 *)(row + n_cols))[column / 32] = make_float2(by.scale, by.scale * (float)sum);
}

#endif
