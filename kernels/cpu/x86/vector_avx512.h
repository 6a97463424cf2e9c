/* vector_avx512.h: the exponential of sixteen floats.
 *
 * A pure inline function; any thread; needs AVX-512 F. Each lane depends on that lane alone.
 * Included by the AVX-512 op files only. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_VECTOR_AVX512_H
#define TANDEM_KERNELS_CPU_X86_VECTOR_AVX512_H

#include <immintrin.h>

// As exp_avx2, with the same error.
static inline __m512 exp_avx512(__m512 x) {
    const __m512 one = _mm512_set1_ps(1);
    x = _mm512_min_ps(_mm512_set1_ps(89), _mm512_max_ps(_mm512_set1_ps(-88), x));
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p0F)), 8);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1F), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20F), r);
    __m512 p = _mm512_set1_ps(1.0F / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5F));
    p = _mm512_fmadd_ps(p, r, one);
    p = _mm512_fmadd_ps(p, r, one);
    __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_mul_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23)));
}

#endif
