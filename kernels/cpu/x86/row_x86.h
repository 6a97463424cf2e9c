/* row_x86.h: weights of a row in the order of its columns, and the exact dot products of four rows.
 *
 * Where one token is multiplied, each weight meets one activation, and turning weights into panels
 * (panel_x86.h) costs more than the products. Here vectors hold columns of one row, the activations
 * are loaded as they lie, and the sums are turned instead: of four rows at once, so that every
 * 128-bit part of a vector ends with 16 columns of them, one row per lane. Integers are exact, so
 * the sums are those of the panels. Pure inline functions; reads nothing beyond the given blocks;
 * any thread. WIDE, VNNI, DOT4 and SIGNED_BYTES come from the including file. Tested by
 * tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_ROW_X86_H
#define TANDEM_KERNELS_CPU_X86_ROW_X86_H

#include "kernels/cpu/x86/panel_x86.h"
#include "kernels/dtypes.h"

#include <string.h>

enum {
    QUADS = ROWS / 4,               // groups of four rows in a tile; 128-bit parts of a vector
    VECTOR_BLOCKS = ROWS / 8,       // blocks of 32 columns in a vector
    QUAD_BLOCKS = 2 * VECTOR_BLOCKS // blocks of two vectors, whose sums fill one
};

// 32 bytes of one block, and in a wide vector those of the next, step bytes further on.
INLINE veci load_blocks(const uint8_t *at, int64_t step) {
    __m256i first = _mm256_loadu_si256((const __m256i *)at);
#if WIDE
    __m256i second = _mm256_loadu_si256((const __m256i *)(at + step));
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
#else
    (void)step;
    return first;
#endif
}

// 32 bytes shifted right by some bits, and in a wide vector the same bytes by more.
INLINE veci shift_block(const uint8_t *at, int bits, int more) {
    __m256i v = _mm256_loadu_si256((const __m256i *)at);
#if WIDE
    const int64_t a = bits, b = bits + more;
    return _mm512_srlv_epi64(_mm512_broadcast_i64x4(v), _mm512_setr_epi64(a, a, a, a, b, b, b, b));
#else
    (void)more;
    return _mm256_srli_epi64(v, bits);
#endif
}

// The columns of 16 bytes of nibbles, low ones first; of two blocks in a wide vector.
INLINE veci load_nibbles(const uint8_t *at, int64_t step) {
    __m128i first = _mm_loadu_si128((const __m128i *)at);
#if WIDE
    __m128i second = _mm_loadu_si128((const __m128i *)(at + step));
    __m512i both = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(first), 0xff00, second);
    return and_bytes(_mm512_srlv_epi64(both, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4)), 15);
#else
    (void)step;
    __m256i both = _mm256_broadcastsi128_si256(first);
    return and_bytes(_mm256_srlv_epi64(both, _mm256_setr_epi64x(0, 0, 4, 4)), 15);
#endif
}

// All bits of byte j where bit j of every 32-bit lane is set.
INLINE __m256i set_bytes(__m256i bits) {
    const __m256i own = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    const __m256i byte =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    __m256i v = _mm256_shuffle_epi8(bits, byte);
    return _mm256_cmpeq_epi8(_mm256_and_si256(v, own), own);
}

// Adds 16 to column j where bit j of the four bytes at is set; of two blocks in a wide vector.
INLINE veci add_fifth_bits(veci v, const uint8_t *at, int64_t step) {
    uint32_t first, second;
    memcpy(&first, at, sizeof first);
#if WIDE
    memcpy(&second, at + step, sizeof second);
    __mmask64 set = first | (uint64_t)second << 32;
    return _mm512_or_si512(v, _mm512_maskz_set1_epi8(set, 16));
#else
    (void)step, (void)second;
    return _mm256_or_si256(v, and_bytes(set_bytes(_mm256_set1_epi32((int32_t)first)), 16));
#endif
}

// Each columns_name gives vector i of the blocks from at on: VECTOR_BLOCKS times 32 columns as the
// bytes that unpack_name makes of them. i is a constant; types in blocks of 256 count through one.
INLINE veci columns_q4_0(const uint8_t *at, int i) {
    return load_nibbles(at + VECTOR_BLOCKS * i * BLOCK_BYTES_Q4_0 + 2, BLOCK_BYTES_Q4_0);
}

INLINE veci columns_q4_1(const uint8_t *at, int i) {
    return load_nibbles(at + VECTOR_BLOCKS * i * BLOCK_BYTES_Q4_1 + 4, BLOCK_BYTES_Q4_1);
}

INLINE veci columns_q5_0(const uint8_t *at, int i) {
    at += VECTOR_BLOCKS * i * BLOCK_BYTES_Q5_0;
    return add_fifth_bits(load_nibbles(at + 6, BLOCK_BYTES_Q5_0), at + 2, BLOCK_BYTES_Q5_0);
}

INLINE veci columns_q5_1(const uint8_t *at, int i) {
    at += VECTOR_BLOCKS * i * BLOCK_BYTES_Q5_1;
    return add_fifth_bits(load_nibbles(at + 8, BLOCK_BYTES_Q5_1), at + 4, BLOCK_BYTES_Q5_1);
}

INLINE veci columns_q8_0(const uint8_t *at, int i) {
    veci v = load_blocks(at + VECTOR_BLOCKS * i * BLOCK_BYTES_Q8_0 + 2, BLOCK_BYTES_Q8_0);
#if !SIGNED_BYTES
    v = V_SI(xor)(v, V(set1_epi8)((char)-128));
#endif
    return v;
}

INLINE veci columns_q4_k(const uint8_t *at, int i) {
    int group = i * VECTOR_BLOCKS;
    return and_bytes(shift_block(at + 16 + 32 * (group / 2), group % 2 * 4, 4), 15);
}

INLINE veci columns_q5_k(const uint8_t *at, int i) {
    int group = i * VECTOR_BLOCKS;
    veci low = and_bytes(shift_block(at + 48 + 32 * (group / 2), group % 2 * 4, 4), 15);
    veci fifth = and_bytes(shift_block(at + 16, group, 1), 1);
    return V_SI(or)(low, V(slli_epi32)(fifth, 4));
}

INLINE veci columns_q6_k(const uint8_t *at, int i) {
    int group = i * VECTOR_BLOCKS, half = group / 4, quarter = group % 4;
    veci low = load_blocks(at + 64 * half + 32 * (quarter % 2), 32);
    if (quarter >= 2) low = V(srli_epi32)(low, 4);
    veci upper = and_bytes(shift_block(at + 128 + 32 * half, 2 * quarter, 2), 3);
    return V_SI(or)(and_bytes(low, 15), V(slli_epi32)(upper, 4));
}

INLINE veci columns_iq4_nl(const uint8_t *at, int i) {
    at += VECTOR_BLOCKS * i * BLOCK_BYTES_IQ4_NL;
    return uneven_values(load_nibbles(at + 2, BLOCK_BYTES_IQ4_NL));
}

INLINE veci columns_mxfp4(const uint8_t *at, int i) {
    at += VECTOR_BLOCKS * i * BLOCK_BYTES_MXFP4;
    return floats_of_4(load_nibbles(at + 1, BLOCK_BYTES_MXFP4));
}

INLINE veci columns_iq4_xs(const uint8_t *at, int i) {
    return uneven_values(load_nibbles(at + 8 + 16 * VECTOR_BLOCKS * i, 16));
}

INLINE veci columns_q3_k(const uint8_t *at, int i) {
    int group = i * VECTOR_BLOCKS;
    veci pairs = and_bytes(shift_block(at + 32 + group / 4 * 32, group % 4 * 2, 2), 3);
    veci third = and_bytes(shift_block(at, group, 1), 1);
    return V_SI(or)(pairs, V(slli_epi32)(third, 2));
}

INLINE veci columns_q2_k(const uint8_t *at, int i) {
    int group = i * VECTOR_BLOCKS;
    return and_bytes(shift_block(at + 16 + group / 4 * 32, group % 4 * 2, 2), 3);
}

// The lower 16 bits of each lane of a, then those of b.
INLINE veci pair_lanes(veci a, veci b) {
    b = V(slli_epi32)(b, 16);
#if WIDE
    return _mm512_mask_mov_epi16(b, 0x55555555, a);
#else
    return _mm256_blend_epi16(b, a, 0x55);
#endif
}

// The products of a vector's columns with x, added up by fours.
INLINE veci dot_fours(veci w, veci x, enum act_extra extra) {
#if VNNI
    (void)extra;
    return DOT4(V_SI(setzero)(), w, x);
#else
    veci pairs = extra == ACT_SUM ? V(maddubs_epi16)(V(abs_epi8)(w), V(sign_epi8)(x, w))
                                  : V(maddubs_epi16)(w, x);
    return V(madd_epi16)(pairs, V(set1_epi16)(1));
#endif
}

// Sums of adjacent lanes: in each 128-bit part two of a, then two of b. Lanes that fit 16 bits need
// one operation less.
INLINE veci add_pairs(veci a, veci b, bool fits) {
    if (fits) return V(madd_epi16)(V(packs_epi32)(a, b), V(set1_epi16)(1));
    vecf even = V(shuffle_ps)((vecf)a, (vecf)b, 0x88), odd = V(shuffle_ps)((vecf)a, (vecf)b, 0xdd);
    return V(add_epi32)((veci)even, (veci)odd);
}

// The even and the odd 128-bit parts of a and b.
INLINE void split_parts(veci a, veci b, veci out[2]) {
#if WIDE
    out[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    out[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
#else
    out[0] = _mm256_permute2x128_si256(a, b, 0x20);
    out[1] = _mm256_permute2x128_si256(a, b, 0x31);
#endif
}

// QUADS vectors with a part for each of QUADS blocks become one vector for each block.
INLINE void turn_parts(const veci in[QUADS], veci out[QUADS]) {
#if WIDE
    veci a[2], b[2];
    for (int i = 0; i < 2; i++) {
        a[i] = _mm512_shuffle_i32x4(in[2 * i], in[2 * i + 1], 0x44);
        b[i] = _mm512_shuffle_i32x4(in[2 * i], in[2 * i + 1], 0xee);
    }
    split_parts(a[0], a[1], out);
    split_parts(b[0], b[1], out + 2);
#else
    split_parts(in[0], in[1], out);
#endif
}

// Four rows at equal distances.
struct quad {
    const uint8_t *at;
    int64_t stride;
};

// Vector i of the four rows' columns times that of x: a 128-bit part for every 16 columns, a lane
// for every row. Four products are at most 4*127*63 where a weight has up to 6 bits, and eight of
// 5-bit weights 8*127*31.
INLINE veci dot_quad(struct quad rows, const int8_t *x, int i, enum act_extra extra,
                     veci (*columns)(const uint8_t *at, int i)) {
    const bool fours_fit = extra != ACT_SUM && extra != ACT_WIDE_HALVES;
    const bool eights_fit = extra == ACT_SCALED_SUM || extra == ACT_HALF_PARTS;
    veci acts = V_SI(loadu)((const void *)(x + i * (int)sizeof(veci))), v[4];
    UNROLL for (int r = 0; r < 4; r++) {
        v[r] = dot_fours(columns(rows.at + r * rows.stride, i), acts, extra);
    }
    return add_pairs(add_pairs(v[0], v[1], fours_fit), add_pairs(v[2], v[3], fours_fit),
                     eights_fit);
}

#endif
