/* quantize_x86.h: makes blocks of signed bytes of activations (act.h) with AVX2.
 *
 * Pure inline functions over the caller's memory; any thread; needs AVX2. The result for a block
 * depends on its 32 floats alone. Included by the x86 matmul files and ops_avx2.c only. Tested by
 * tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_QUANTIZE_X86_H
#define TANDEM_KERNELS_CPU_X86_QUANTIZE_X86_H

#include "kernels/cpu/act.h"

#include <immintrin.h>
#include <stdint.h>

// Sums of the lower and of the upper 16 bytes of q.
static inline void act_half_sums(__m256i q, int32_t sums[2]) {
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    __m128i low = _mm256_castsi256_si128(quads), high = _mm256_extracti128_si256(quads, 1);
    __m128i both = _mm_hadd_epi32(low, high);
    both = _mm_hadd_epi32(both, both);
    sums[0] = _mm_cvtsi128_si32(both);
    sums[1] = _mm_extract_epi32(both, 1);
}

// The largest magnitude becomes 127, the rest is rounded to nearest even. A block with an infinity
// or a NaN gets it as its scale, so that its products are not finite either: magnitudes are
// compared as integers, in whose order a NaN is the largest. Blocks below 1e-30 become zeros.
static inline void act_quantize(const float *x, enum act_extra extra, int8_t bytes[ACT_COLS],
                                struct act_head *out) {
    const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
    __m256 v[4];
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + (ptrdiff_t)8 * i);
        top = _mm256_max_epi32(top, _mm256_and_si256(_mm256_castps_si256(v[i]), no_sign));
    }
    __m128i top4 = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    top4 = _mm_max_epi32(top4, _mm_shuffle_epi32(top4, 0x4e));
    top4 = _mm_max_epi32(top4, _mm_shuffle_epi32(top4, 0xb1));
    float largest = _mm_cvtss_f32(_mm_castsi128_ps(top4));
    float scale = largest < 1e-30F ? 0 : largest / 127;
    __m256 inverse = _mm256_set1_ps(largest >= 1e-30F ? 127 / largest : 0);
    __m256i n[4];
    for (int i = 0; i < 4; i++) n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    // Packing works within 128-bit halves; the permutation puts the groups of four in order again.
    __m256i q = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
    q = _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    q = _mm256_max_epi8(q, _mm256_set1_epi8(-127));
    _mm256_storeu_si256((__m256i *)bytes, q);
    int32_t sums[2];
    act_half_sums(q, sums);
    act_head_set(out, scale, sums, extra);
}

static inline void act_quantize_blocks(const float *x, int64_t n_blocks, enum act_extra extra,
                                       int8_t *bytes, struct act_head *heads) {
    for (int64_t i = 0; i < n_blocks; i++)
        act_quantize(x + i * ACT_COLS, extra, bytes + i * ACT_COLS, heads + i);
}

#endif
