/* vector_avx512.h: powers of two of sixteen floats.
 *
 * A pure inline function; any thread; needs AVX-512 F. Each lane depends on that lane alone.
 * Included by the AVX-512 op files only. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_VECTOR_AVX512_H
#define TANDEM_KERNELS_CPU_X86_VECTOR_AVX512_H

#include "kernels/cpu/x86/vector_avx2.h"

#include <immintrin.h>

// As exp2_avx2, with no limits: the same bits where the result is a normal float, so the difference
// is rounded to nearest, where reduce_ps would round it down. Of an infinity p is NaN, which scalef
// turns into 0 or infinity.
static inline __m512 exp2_avx512(__m512 x) {
    const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(x, n);
    __m512 p = _mm512_set1_ps(EXP2_5);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP2_4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP2_3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP2_2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP2_1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    return _mm512_scalef_ps(p, n);
}

#endif
