/* vector_avx2.h: eight floats at a time: exponentials, the sum, the mask of a rest.
 *
 * Pure inline functions; any thread; needs AVX2 and FMA. Each lane of the exponential depends on
 * that lane alone. Included by the AVX2 op files only. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_VECTOR_AVX2_H
#define TANDEM_KERNELS_CPU_X86_VECTOR_AVX2_H

#include <immintrin.h>

#define LOG2_E 0x1.715476p0F

// Relative error below 2e-7 where the result is a normal float; 0 below -88, infinity above 88.4;
// NaN stays. With n = round(x / ln 2) and r = x - n ln 2, |r| < 0.35: e^x = 2^n e^r, and the Taylor
// polynomial of degree 7 is off by 1e-8 at most. ln 2 comes in two parts so that n ln 2 is exact.
static inline __m256 exp_avx2(__m256 x) {
    const __m256 one = _mm256_set1_ps(1);
    // The second operand is what these two return for a NaN.
    x = _mm256_min_ps(_mm256_set1_ps(89), _mm256_max_ps(_mm256_set1_ps(-88), x));
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(LOG2_E)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1F), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20F), r);
    __m256 p = _mm256_set1_ps(1.0F / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5F));
    p = _mm256_fmadd_ps(p, r, one);
    p = _mm256_fmadd_ps(p, r, one);
    // 2^n by its exponent bits: -127 gives 0 and 128 infinity.
    __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}

// 2^r = 1 + EXP2_1 r + ... + EXP2_5 r^5 for 0 <= r < 1, fitted with a relative error of 8.3e-8.
#define EXP2_1 0x1.62e4bap-1F
#define EXP2_2 0x1.ebdb56p-3F
#define EXP2_3 0x1.c91ce6p-5F
#define EXP2_4 0x1.277854p-7F
#define EXP2_5 0x1.e974fcp-10F

// 2^x. Relative error below 2e-7 where the result is a normal float; 0 below -126, infinity from
// 128 on; NaN stays.
static inline __m256 exp2_avx2(__m256 x) {
    // The second operand is what these two return for a NaN.
    x = _mm256_min_ps(_mm256_set1_ps(128), _mm256_max_ps(_mm256_set1_ps(-127), x));
    const __m256 n = _mm256_floor_ps(x), r = _mm256_sub_ps(x, n);
    __m256 p = _mm256_set1_ps(EXP2_5);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP2_4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP2_3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP2_2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP2_1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1));
    // 2^n by its exponent bits: -127 gives 0 and 128 infinity.
    __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}

// The first n of eight lanes (n in 0..8), as a mask for loads, stores and blends.
static inline __m256i first_lanes_avx2(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// The sum of eight lanes, always in the same order.
static inline float sum_avx2(__m256 v) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

#endif
