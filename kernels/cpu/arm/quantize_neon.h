/* quantize_neon.h: makes blocks of signed bytes of activations (act.h) with NEON.
 *
 * Pure inline functions over the caller's memory; any thread. A block of finite floats gives the
 * bits that quantize_x86.h gives. Included by the ARM matmul files and ops_neon.c only. Tested by
 * tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_ARM_QUANTIZE_NEON_H
#define TANDEM_KERNELS_CPU_ARM_QUANTIZE_NEON_H

#include "kernels/cpu/act.h"

#include <arm_neon.h>

// The largest magnitude of a block. Magnitudes are compared as integers, in whose order a NaN is
// the largest.
static inline float act_largest(const float *x) {
    uint32x4_t top = vdupq_n_u32(0);
    for (int i = 0; i < ACT_COLS; i += 4) {
        top = vmaxq_u32(top, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i))));
    }
    return vgetq_lane_f32(vreinterpretq_f32_u32(vdupq_n_u32(vmaxvq_u32(top))), 0);
}

// The largest magnitude becomes 127, the rest is rounded to nearest even. A block with an infinity
// or a NaN gets it as its scale, so that its products are not finite either. Blocks below 1e-30
// become zeros.
static inline void act_quantize(const float *x, enum act_extra extra, int8_t bytes[ACT_COLS],
                                struct act_head *out) {
    const float largest = act_largest(x);
    const float scale = largest < 1e-30F ? 0 : largest / 127;
    const float inverse = largest >= 1e-30F ? 127 / largest : 0;
    int32_t sums[2];
    for (int half = 0; half < 2; half++) {
        int32x4_t n[4];
        for (int i = 0; i < 4; i++) {
            n[i] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 16 * half + 4 * i), inverse));
        }
        int16x8_t low = vcombine_s16(vqmovn_s32(n[0]), vqmovn_s32(n[1]));
        int16x8_t high = vcombine_s16(vqmovn_s32(n[2]), vqmovn_s32(n[3]));
        int8x16_t q = vcombine_s8(vqmovn_s16(low), vqmovn_s16(high));
        q = vmaxq_s8(q, vdupq_n_s8(-127));
        vst1q_s8(bytes + (ptrdiff_t)16 * half, q);
        sums[half] = vaddlvq_s8(q);
    }
    act_head_set(out, scale, sums, extra);
}

static inline void act_quantize_blocks(const float *x, int64_t n_blocks, enum act_extra extra,
                                       int8_t *bytes, struct act_head *heads) {
    for (int64_t i = 0; i < n_blocks; i++)
        act_quantize(x + i * ACT_COLS, extra, bytes + i * ACT_COLS, heads + i);
}

#endif
