/* vector_neon.h: four floats at a time: the exponential, the cap.
 *
 * Pure inline functions; any thread. Each lane depends on that lane alone. Included by the NEON op
 * files only. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_ARM_VECTOR_NEON_H
#define TANDEM_KERNELS_CPU_ARM_VECTOR_NEON_H

#include <arm_neon.h>

// Relative error below 2e-7 where the result is a normal float; 0 below -88, infinity above 88.4;
// NaN stays. With n = round(x / ln 2) and r = x - n ln 2, |r| < 0.35: e^x = 2^n e^r, and the Taylor
// polynomial of degree 7 is off by 1e-8 at most. ln 2 comes in two parts so that n ln 2 is exact.
static inline float32x4_t exp_neon(float32x4_t x) {
    static const float COEFFICIENTS[] = {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1, 1};
    x = vminq_f32(vdupq_n_f32(89), vmaxq_f32(vdupq_n_f32(-88), x));
    float32x4_t n = vrndnq_f32(vmulq_n_f32(x, 0x1.715476p0F));
    float32x4_t r = vfmsq_n_f32(x, n, 0x1.62e4p-1F);
    r = vfmsq_n_f32(r, n, 0x1.7f7d1cp-20F);
    float32x4_t p = vdupq_n_f32(1.0F / 5040);
    for (int i = 0; i < 7; i++) p = vfmaq_f32(vdupq_n_f32(COEFFICIENTS[i]), p, r);
    // 2^n by its exponent bits: -127 gives 0 and 128 infinity.
    int32x4_t exponent = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
    return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
}

// c tanh(x / c), where tanh(y) is 1 - 2 / (e^(2 y) + 1).
static inline float32x4_t cap_neon(float32x4_t x, float c) {
    const float32x4_t one = vdupq_n_f32(1);
    float32x4_t e = exp_neon(vmulq_n_f32(x, 2 / c));
    float32x4_t tanh = vsubq_f32(one, vdivq_f32(vdupq_n_f32(2), vaddq_f32(e, one)));
    return vmulq_n_f32(tanh, c);
}

#endif
