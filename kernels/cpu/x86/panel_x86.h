/* panel_x86.h: weights of ROWS rows, transposed so that each 32-bit lane of a vector belongs to one
 * row.
 *
 * A panel block holds 32 columns of ROWS rows: vector c has columns 4c..4c+3 of row r as the four
 * bytes of lane r. A dot product with 4 activation bytes, broadcast to all lanes, then needs no sum
 * across lanes, and the same form serves one token and many. Pure inline functions; reads nothing
 * beyond the given blocks; any thread. WIDE comes from the including file (wide_x86.h), as does
 * SIGNED_BYTES (signed bytes stay signed, else they get an offset of 128).
 * Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_PANEL_X86_H
#define TANDEM_KERNELS_CPU_X86_PANEL_X86_H

#include "kernels/cpu/x86/quantize_x86.h"
#include "kernels/cpu/x86/wide_x86.h"

#include <immintrin.h>
#include <stdint.h>

// 32 columns of ROWS rows, and what makes weights of their bytes (enum act_extra): the scale and
// the offset, or the scales of both halves; for types with parts also pairs of 16-bit integers, the
// factors and, if there are, the offsets of both halves. With offsets of activations (grid_vbmi.h)
// parts are what the sums of halves begin with, and parts[0] of signed bytes that are split is what
// their sum begins with.
struct panel {
    veci bytes[8];
    vecf scale[2];
    veci parts[2];
#if SIGNED_BYTES
    veci signs[8]; // see split_signs
#endif
};

// ROWS rows at equal distances: row r at group[r / 4] + r % 4 * stride. A register for every fourth
// row and one for three strides address them all; from a single base, compilers keep ROWS offsets
// on the stack and load them again for every block.
struct rows {
    const uint8_t *group[ROWS / 4];
    int64_t stride;
};

INLINE struct rows rows_at(const uint8_t *base, int64_t stride) {
    struct rows rows = {.stride = stride};
    UNROLL for (int i = 0; i < ROWS / 4; i++) {
        rows.group[i] = base + 4 * i * stride;
        __asm__("" : "+r"(rows.group[i])); // hides that the groups have a common base
    }
    return rows;
}

INLINE __m128i load16(struct rows rows, int r, int64_t offset) {
    return _mm_loadu_si128((const __m128i *)(rows.group[r / 4] + r % 4 * rows.stride + offset));
}

// Loads 16 bytes at offset of every row as four vectors of 4 bytes a row, by a transposition of 4 x
// 4 words in each 128-bit part. Vectors that the caller does not use cost nothing.
INLINE void gather16(struct rows rows, int64_t offset, veci out[4]) {
    veci v[4];
    UNROLL for (int k = 0; k < 4; k++) {
#if WIDE
        v[k] = _mm512_castsi128_si512(load16(rows, k, offset));
        v[k] = _mm512_inserti32x4(v[k], load16(rows, 4 + k, offset), 1);
        v[k] = _mm512_inserti32x4(v[k], load16(rows, 8 + k, offset), 2);
        v[k] = _mm512_inserti32x4(v[k], load16(rows, 12 + k, offset), 3);
#else
        v[k] = _mm256_castsi128_si256(load16(rows, k, offset));
        v[k] = _mm256_inserti128_si256(v[k], load16(rows, 4 + k, offset), 1);
#endif
    }
    veci a = V(unpacklo_epi32)(v[0], v[1]), b = V(unpackhi_epi32)(v[0], v[1]);
    veci c = V(unpacklo_epi32)(v[2], v[3]), d = V(unpackhi_epi32)(v[2], v[3]);
    out[0] = V(unpacklo_epi64)(a, c);
    out[1] = V(unpackhi_epi64)(a, c);
    out[2] = V(unpacklo_epi64)(b, d);
    out[3] = V(unpackhi_epi64)(b, d);
}

INLINE void gather32(struct rows rows, int64_t offset, veci out[8]) {
    gather16(rows, offset, out);
    gather16(rows, offset + 16, out + 4);
}

INLINE veci and_bytes(veci v, char mask) { return V_SI(and)(v, V(set1_epi8)(mask)); }

// The lower half of each lane as a float.
INLINE vecf half_low(veci v) {
#if WIDE
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
#else
    const __m256i low = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1,
                                         0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1);
    __m256i packed = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(v, low), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
#endif
}

INLINE vecf half_high(veci v) { return half_low(V(srli_epi32)(v, 16)); }

INLINE vecf minus(vecf v) { return V(sub_ps)(V(setzero_ps)(), v); }

#if SIGNED_BYTES
// Splits the signed bytes of a panel into magnitudes and signs, which are all ones where a byte is
// negative. The exclusive or of such a sign and x is -x - 1, so a sum of products with magnitudes
// lacks the magnitudes of the negative bytes: parts[0] has their sums.
INLINE void split_signs(struct panel *p) {
    veci lack = V_SI(setzero)();
    UNROLL for (int c = 0; c < 8; c++) {
        p->signs[c] = V(cmpgt_epi8)(V_SI(setzero)(), p->bytes[c]);
        p->bytes[c] = V(abs_epi8)(p->bytes[c]);
        lack = V(add_epi16)(lack, V(maddubs_epi16)(p->bytes[c], p->signs[c]));
    }
    p->parts[0] = V(madd_epi16)(lack, V(set1_epi16)(-1));
}
#endif

// Low nibbles are columns 0..15, high ones 16..31.
INLINE void put_nibbles(const veci q[4], struct panel *out) {
    UNROLL for (int c = 0; c < 4; c++) {
        out->bytes[c] = and_bytes(q[c], 15);
        out->bytes[4 + c] = and_bytes(V(srli_epi32)(q[c], 4), 15);
    }
}

// Adds 16 to column j where bit j of the row's word is set. Byte c/2 of the word, copied to all
// four bytes, has the bits of vectors c and c+1 in its lower and upper half; a byte's own bit is
// then worth 16 or more, and the minimum makes it 16.
INLINE void put_fifth_bits(veci bits, struct panel *out) {
    const veci own = V(set1_epi32)((int32_t)0x80402010), sixteen = V(set1_epi8)(16);
    UNROLL for (int c = 0; c < 8; c += 2) {
        __m128i words = _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c);
        words = _mm_add_epi32(words, _mm_set1_epi32(0x01010101 * (c / 2)));
        veci spread = V(shuffle_epi8)(bits, V_REPEAT(words));
        veci even = V_SI(and)(V(slli_epi32)(spread, 4), own), odd = V_SI(and)(spread, own);
        out->bytes[c] = V_SI(or)(out->bytes[c], V(min_epu8)(even, sixteen));
        out->bytes[c + 1] = V_SI(or)(out->bytes[c + 1], V(min_epu8)(odd, sixteen));
    }
}

// The first 4 bytes of every row's block.
INLINE veci gather4(struct rows rows, int64_t offset) {
    veci head[4];
    gather16(rows, offset, head);
    return head[0];
}

// A block of a codebook's type, found: the places of its entries, 64 or 32, and 32 bits for each
// panel, its signs or those of eighths. A place of two bytes' bits costs a load then, where five
// scalar operations were.
struct found_block {
    _Alignas(32) uint16_t places[64];
    _Alignas(32) uint32_t bits[8];
};

// Vectors that several panels of a part are made of, and what was found of a block, whose bits are
// high's lanes of rows.
struct shared {
    veci low[16], high[8];
    struct found_block found[ROWS];
};

// One block of a type (32 or 256 columns) at offset becomes 1 or 8 panels, in parts of some. Each
// part_name sets the bytes of panel p (a constant) of the part that begins with panel i; panels
// come in order, and shared keeps what a later one needs. scales_name sets the scales of all, which
// head_name makes of the first 4 bytes of each row's block where these hold them, and EXTRA_NAME
// says which sums of the activations its products need. Types without parts have an unpack_name,
// which sets scales and bytes of all panels, or a book (grid_x86.h).
//
// PANELS_NAME: which function makes the panels of a type, for its struct format. Panels stay in
// registers for up to so many tokens, with 512 and with 256 bits: more leave too few registers for
// what the panels of a part share, and signed bytes of 256 bits take more of them.
#define PART_OF(panels, tokens_512, tokens_256, name)                             \
    .part_panels = (panels), .direct_tokens = WIDE ? (tokens_512) : (tokens_256), \
    .part = part_##name
#define BLOCKS_OF(name) .part_panels = 1, .unpack = unpack_##name
#define UNUSED          __attribute__((unused))
#define PART(name)                                                                        \
    INLINE void part_##name(struct rows rows, int64_t offset, UNUSED int i, UNUSED int p, \
                            UNUSED struct shared *shared, struct panel *out)

#define EXTRA_Q4_0 ACT_SCALED_SUM
INLINE void head_q4_0(veci head, struct panel *out) {
    out->scale[0] = half_low(head);
    out->scale[1] = V(mul_ps)(out->scale[0], V(set1_ps)(-8));
}

INLINE void scales_q4_0(struct rows rows, int64_t offset, struct panel *out) {
    head_q4_0(gather4(rows, offset), out);
}

#define PANELS_Q4_0 PART_OF(1, 8, 4, q4_0)
PART(q4_0) {
    veci q[4];
    gather16(rows, offset + 2, q);
    put_nibbles(q, out);
}

#define EXTRA_Q4_1 ACT_SCALED_SUM
INLINE void head_q4_1(veci head, struct panel *out) {
    out->scale[0] = half_low(head);
    out->scale[1] = half_high(head);
}

INLINE void scales_q4_1(struct rows rows, int64_t offset, struct panel *out) {
    head_q4_1(gather4(rows, offset), out);
}

#define PANELS_Q4_1 PART_OF(1, 8, 4, q4_1)
PART(q4_1) {
    veci q[4];
    gather16(rows, offset + 4, q);
    put_nibbles(q, out);
}

#define EXTRA_Q5_0 ACT_SCALED_SUM
INLINE void head_q5_0(veci head, struct panel *out) {
    out->scale[0] = half_low(head);
    out->scale[1] = V(mul_ps)(out->scale[0], V(set1_ps)(-16));
}

INLINE void scales_q5_0(struct rows rows, int64_t offset, struct panel *out) {
    head_q5_0(gather4(rows, offset), out);
}

#define PANELS_Q5_0 PART_OF(1, 8, 4, q5_0)
PART(q5_0) {
    veci head[4], q[4];
    gather16(rows, offset, head);
    gather16(rows, offset + 6, q);
    put_nibbles(q, out);
    put_fifth_bits(V_SI(or)(V(srli_epi32)(head[0], 16), V(slli_epi32)(head[1], 16)), out);
}

#define EXTRA_Q5_1 ACT_SCALED_SUM
INLINE void scales_q5_1(struct rows rows, int64_t offset, struct panel *out) {
    head_q4_1(gather4(rows, offset), out);
}

#define PANELS_Q5_1 PART_OF(1, 8, 4, q5_1)
PART(q5_1) {
    veci head[4], q[4];
    gather16(rows, offset, head);
    gather16(rows, offset + 8, q);
    put_nibbles(q, out);
    put_fifth_bits(head[1], out);
}

#define EXTRA_Q8_0 ACT_SUM
INLINE void head_q8_0(veci head, struct panel *out) {
    out->scale[0] = half_low(head);
    out->scale[1] = V(setzero_ps)();
}

INLINE void scales_q8_0(struct rows rows, int64_t offset, struct panel *out) {
    head_q8_0(gather4(rows, offset), out);
}

#define PANELS_Q8_0 PART_OF(1, 8, 4, q8_0)
PART(q8_0) {
    gather32(rows, offset + 2, out->bytes);
#if !SIGNED_BYTES
    UNROLL for (int c = 0; c < 8; c++) {
        out->bytes[c] = V_SI(xor)(out->bytes[c], V(set1_epi8)((char)-128));
    }
#endif
}

// Byte i of each lane as a float.
INLINE vecf byte_to_float(veci v, int i) {
    __m128i order = _mm_setr_epi32(-256, -252, -248, -244); // the lowest byte of each lane, zeros
    order = _mm_add_epi32(order, _mm_set1_epi32(i));
    return V(cvtepi32_ps)(V(shuffle_epi8)(v, V_REPEAT(order)));
}

// Scales and offsets of the 8 groups of a Q4_K or Q5_K block from its first 16 bytes. Six bits
// each; groups 4..7 keep their upper two bits above the six of groups 0..3.
INLINE void scales_q4_k(struct rows rows, int64_t offset, struct panel out[8]) {
    veci head[4];
    gather16(rows, offset, head);
    vecf d = half_low(head[0]), low = minus(half_high(head[0]));
    veci s[2] = {and_bytes(head[1], 63),
                 V_SI(or)(and_bytes(head[3], 15), and_bytes(V(srli_epi32)(head[1], 2), 48))};
    veci m[2] = {and_bytes(head[2], 63), V_SI(or)(and_bytes(V(srli_epi32)(head[3], 4), 15),
                                                  and_bytes(V(srli_epi32)(head[2], 2), 48))};
    UNROLL for (int i = 0; i < 8; i++) {
        out[i].scale[0] = V(mul_ps)(d, byte_to_float(s[i / 4], i % 4));
        out[i].scale[1] = V(mul_ps)(low, byte_to_float(m[i / 4], i % 4));
    }
}

// Low nibbles, or high ones.
INLINE veci nibbles_of(veci q, int high) { return and_bytes(high ? V(srli_epi32)(q, 4) : q, 15); }

#define EXTRA_Q4_K  ACT_SCALED_SUM
#define PANELS_Q4_K PART_OF(2, 8, 4, q4_k)
PART(q4_k) {
    veci *q = shared->low;
    if (p == 0) gather32(rows, offset + 16 + 16 * i, q);
    UNROLL for (int c = 0; c < 8; c++) out->bytes[c] = nibbles_of(q[c], p);
}

#define EXTRA_Q5_K ACT_SCALED_SUM
INLINE void scales_q5_k(struct rows rows, int64_t offset, struct panel out[8]) {
    scales_q4_k(rows, offset, out);
}

#define PANELS_Q5_K PART_OF(2, 4, 0, q5_k)
PART(q5_k) {
    veci *q = shared->low, *fifth = shared->high;
    if (i == 0 && p == 0) gather32(rows, offset + 16, fifth);
    if (p == 0) gather32(rows, offset + 48 + 16 * i, q);
    UNROLL for (int c = 0; c < 8; c++) {
        veci bit = and_bytes(V(slli_epi32)(fifth[c], (shift_count)(4 - p)), 16);
        out->bytes[c] = V_SI(or)(nibbles_of(q[c], p), bit);
        if (p == 1) fifth[c] = V(srli_epi32)(fifth[c], 2);
    }
}

// Signed byte i of each lane as a float.
INLINE vecf signed_byte_to_float(veci v, int i) {
    return V(cvtepi32_ps)(V(srai_epi32)(V(slli_epi32)(v, (shift_count)(24 - 8 * i)), 24));
}

#define EXTRA_Q6_K ACT_HALF_SUMS
INLINE void scales_q6_k(struct rows rows, int64_t offset, struct panel out[8]) {
    veci scales[4], tail[4];
    gather16(rows, offset + 192, scales);
    gather16(rows, offset + 194, tail);
    vecf d = half_high(tail[3]);
    UNROLL for (int i = 0; i < 16; i++) {
        out[i / 2].scale[i % 2] = V(mul_ps)(d, signed_byte_to_float(scales[i / 4], i % 4));
    }
}

#define PANELS_Q6_K PART_OF(4, 4, 0, q6_k)
// Parts of 128 columns: 64 bytes of nibbles, 32 bytes of upper bit pairs.
PART(q6_k) {
    veci *q = shared->low + p % 2 * 8, *pairs = shared->high;
    if (p == 0) gather32(rows, offset + 128 + 8 * i, pairs);
    if (p < 2) gather32(rows, offset + 16 * i + 32 * p, q);
    UNROLL for (int c = 0; c < 8; c++) {
        veci bits = pairs[c];
        if (p < 2) bits = V(slli_epi32)(bits, (shift_count)(4 - 2 * p));
        if (p == 3) bits = V(srli_epi32)(bits, 2);
        out->bytes[c] = V_SI(or)(nibbles_of(q[c], p / 2), and_bytes(bits, 48));
    }
}

// The 16 values of IQ4_NL's and IQ4_XS's nibbles, in each byte that has a nibble.
INLINE veci uneven_values(veci nibbles) {
    __m128i values =
        _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
#if !SIGNED_BYTES
    values = _mm_xor_si128(values, _mm_set1_epi8(-128));
#endif
    return V(shuffle_epi8)(V_REPEAT(values), nibbles);
}

INLINE void put_uneven(const veci q[4], struct panel *out) {
    put_nibbles(q, out);
    UNROLL for (int c = 0; c < 8; c++) out->bytes[c] = uneven_values(out->bytes[c]);
}

#define EXTRA_IQ4_NL ACT_SUM
INLINE void scales_iq4_nl(struct rows rows, int64_t offset, struct panel *out) {
    scales_q8_0(rows, offset, out);
}

#define PANELS_IQ4_NL PART_OF(1, 8, 0, iq4_nl)
PART(iq4_nl) {
    veci q[4];
    gather16(rows, offset + 2, q);
    put_uneven(q, out);
}

// The 16 values of MXFP4's nibbles, plus 12, in each byte that has a nibble.
INLINE veci floats_of_4(veci nibbles) {
    const __m128i values = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    return V(shuffle_epi8)(V_REPEAT(values), nibbles);
}

// 2^(e - 128) of the first byte e of each lane: its bits as a float's exponent; the two least are
// subnormal.
#define EXTRA_MXFP4 ACT_SCALED_SUM
INLINE void head_mxfp4(veci head, struct panel *out) {
    const veci one = V(set1_epi32)(1), e = V_SI(and)(head, V(set1_epi32)(255));
    veci normal = V(slli_epi32)(V(sub_epi32)(e, one), 23);
    veci small = V(slli_epi32)(V(add_epi32)(V(min_epi32)(e, one), one), 21);
    out->scale[0] = (vecf)V(max_epi32)(normal, small);
    out->scale[1] = V(mul_ps)(out->scale[0], V(set1_ps)(-12));
}

INLINE void scales_mxfp4(struct rows rows, int64_t offset, struct panel *out) {
    head_mxfp4(gather4(rows, offset), out);
}

#define PANELS_MXFP4 PART_OF(1, 8, 4, mxfp4)
PART(mxfp4) {
    veci q[4];
    gather16(rows, offset + 1, q);
    put_nibbles(q, out);
    UNROLL for (int c = 0; c < 8; c++) out->bytes[c] = floats_of_4(out->bytes[c]);
}

#define EXTRA_IQ4_XS ACT_SUM
INLINE void scales_iq4_xs(struct rows rows, int64_t offset, struct panel out[8]) {
    veci head[4];
    gather16(rows, offset, head);
    vecf d = half_low(head[0]);
    UNROLL for (int i = 0; i < 8; i++) {
        veci low = V_SI(and)(V(srli_epi32)(head[1], (shift_count)(4 * i)), V(set1_epi32)(15));
        veci high = V_SI(and)(V(srli_epi32)(head[0], (shift_count)(12 + 2 * i)), V(set1_epi32)(48));
        veci scale = V(sub_epi32)(V_SI(or)(low, high), V(set1_epi32)(32));
        out[i].scale[0] = V(mul_ps)(d, V(cvtepi32_ps)(scale));
        out[i].scale[1] = V(setzero_ps)();
    }
}

#define PANELS_IQ4_XS PART_OF(1, 8, 0, iq4_xs)
PART(iq4_xs) {
    veci q[4];
    gather16(rows, offset + 8 + 16 * i, q);
    put_uneven(q, out);
}

// Bytes 2i and 2i + 1 of each lane as 16-bit integers in the order of the lane.
INLINE veci byte_pair(veci v, int i) {
    __m128i order = _mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1);
    order = _mm_add_epi8(order, _mm_set1_epi16((int16_t)(2 * i)));
    return V(shuffle_epi8)(v, V_REPEAT(order));
}

// The 12 bytes of scales lie between others: 14 bytes before the end of the block.
#define EXTRA_Q3_K ACT_HALF_FACTORS
INLINE void scales_q3_k(struct rows rows, int64_t offset, struct panel out[8]) {
    veci tail[4], packed[3];
    gather16(rows, offset + 94, tail);
    UNROLL for (int i = 0; i < 3; i++) {
        packed[i] = V_SI(or)(V(srli_epi32)(tail[i], 16), V(slli_epi32)(tail[i + 1], 16));
    }
    vecf d = half_high(tail[3]);
    UNROLL for (int i = 0; i < 8; i++) {
        veci low = V(srli_epi32)(packed[i / 2 % 2], (shift_count)(i / 4 * 4));
        veci high = V(slli_epi32)(V(srli_epi32)(packed[2], (shift_count)(i / 2 * 2)), 4);
        veci scales = byte_pair(V_SI(or)(and_bytes(low, 15), and_bytes(high, 48)), i % 2);
        out[i].parts[0] = V(sub_epi16)(scales, V(set1_epi16)(32));
        out[i].scale[0] = d;
    }
}

#define PANELS_Q3_K PART_OF(4, 4, 0, q3_k)
PART(q3_k) {
    veci *pairs = shared->low, *third = shared->high;
    if (i == 0 && p == 0) gather32(rows, offset, third);
    if (p == 0) gather32(rows, offset + 32 + 8 * i, pairs);
    UNROLL for (int c = 0; c < 8; c++) {
        veci bit = V(slli_epi32)(and_bytes(third[c], 1), 2);
        out->bytes[c] = V_SI(or)(and_bytes(pairs[c], 3), bit);
        pairs[c] = V(srli_epi32)(pairs[c], 2);
        third[c] = V(srli_epi32)(third[c], 1);
    }
}

#if WIDE
// Takes the factors f of types with parts into the bytes n, so that one sum of products serves both
// halves: f n of Q2_K is up to 45 and of IQ1_M up to 135, f (n - 4) + 127 of Q3_K 3 to 255. Results
// are bytes, so a product of two bytes at once, modulo 2^16, has both.
INLINE void fold_parts(struct panel *p, enum act_extra extra) {
    const veci factors = p->parts[0], low = V(set1_epi32)(0xffff);
    const veci each[2] = {V_SI(or)(V_SI(and)(factors, low), V(slli_epi32)(factors, 16)),
                          V_SI(or)(V(srli_epi32)(factors, 16), V_SI(andnot)(low, factors))};
    UNROLL for (int half = 0; half < 2; half++) {
        const veci four = V(slli_epi16)(each[half], 2); // 257 (127 - 4 f) for both bytes
        const veci offset =
            V(sub_epi16)(V(set1_epi16)(127 * 257), V(add_epi16)(four, V(slli_epi16)(four, 8)));
        UNROLL for (int c = 4 * half; c < 4 * half + 4; c++) {
            p->bytes[c] = V(mullo_epi16)(p->bytes[c], each[half]);
            if (extra == ACT_HALF_FACTORS) p->bytes[c] = V(add_epi16)(p->bytes[c], offset);
        }
    }
}
#endif

// Scales of the panels of a block of Q2_K or TQ2_0 are made of these, one row per lane.
struct heads_of_pairs {
    veci words[4];
    vecf d, low;
};

INLINE struct heads_of_pairs heads_q2_k(struct rows rows, int64_t offset) {
    struct heads_of_pairs h;
    veci tail[4];
    gather16(rows, offset, h.words);
    gather16(rows, offset + 68, tail);
    h.d = half_low(tail[3]);
    h.low = minus(half_high(tail[3]));
    return h;
}

// Sets the scales of panel i. A byte of the words has the factor and the offset of 16 columns.
INLINE void scale_q2_k(struct heads_of_pairs h, int i, struct panel *out) {
    veci both = byte_pair(h.words[i / 2], i % 2);
    out->parts[0] = V_SI(and)(both, V(set1_epi16)(15));
    out->parts[1] = V(srli_epi16)(both, 4);
    out->scale[0] = h.d;
    out->scale[1] = h.low;
}

#define EXTRA_Q2_K ACT_HALF_PARTS
INLINE void scales_q2_k(struct rows rows, int64_t offset, struct panel out[8]) {
    struct heads_of_pairs h = heads_q2_k(rows, offset);
    UNROLL for (int i = 0; i < 8; i++) scale_q2_k(h, i, out + i);
}

// Panels of pairs of bits, 32 bytes for each four from offset on.
INLINE void put_pairs(struct rows rows, int64_t offset, int i, int p, veci pairs[8],
                      struct panel *out) {
    if (p == 0) gather32(rows, offset + 8 * i, pairs);
    UNROLL for (int c = 0; c < 8; c++) {
        out->bytes[c] = and_bytes(pairs[c], 3);
        pairs[c] = V(srli_epi32)(pairs[c], 2);
    }
}

#define PANELS_Q2_K PART_OF(4, 6, 4, q2_k)
PART(q2_k) { put_pairs(rows, offset + 16, i, p, shared->low, out); }

INLINE struct heads_of_pairs heads_tq2_0(struct rows rows, int64_t offset) {
    struct heads_of_pairs h;
    gather16(rows, offset + 50, h.words);
    h.d = half_high(h.words[3]);
    h.low = minus(h.d);
    return h;
}

INLINE void scale_tq2_0(struct heads_of_pairs h, int i, struct panel *out) {
    (void)i;
    out->scale[0] = h.d;
    out->scale[1] = h.low;
}

#define EXTRA_TQ2_0 ACT_SCALED_SUM
INLINE void scales_tq2_0(struct rows rows, int64_t offset, struct panel out[8]) {
    struct heads_of_pairs h = heads_tq2_0(rows, offset);
    UNROLL for (int i = 0; i < 8; i++) scale_tq2_0(h, i, out + i);
}

#define PANELS_TQ2_0 PART_OF(4, 8, 4, tq2_0)
PART(tq2_0) { put_pairs(rows, offset, i, p, shared->low, out); }

// Three times the bytes of v. Clang would make a product of the additions, which takes eight
// instructions for bytes, so the first sum is hidden from it.
INLINE veci triple_bytes(veci v) {
    veci twice = V(add_epi8)(v, v);
    __asm__("" : "+v"(twice));
    return V(add_epi8)(v, twice);
}

// The first digit in base 3 after the point of bytes that count 256ths; v becomes the rest.
INLINE veci next_digit(veci *v) {
    const veci one = V(set1_epi8)(1);
    veci first = V(min_epu8)(V(subs_epu8)(*v, V(set1_epi8)(85)), one);
    veci second = V(min_epu8)(V(subs_epu8)(*v, V(set1_epi8)((char)170)), one);
    *v = triple_bytes(*v);
    return V(add_epi8)(first, second);
}

#define EXTRA_TQ1_0 ACT_SCALED_SUM
INLINE void scales_tq1_0(struct rows rows, int64_t offset, struct panel out[8]) {
    scales_tq2_0(rows, offset - 12, out); // the last two bytes of a block of 54 instead of 66
}

#define PANELS_TQ1_0 BLOCKS_OF(tq1_0)
INLINE void unpack_tq1_0(struct rows rows, int64_t offset, struct panel out[8]) {
    veci many[8], fewer[4], tail[4];
    scales_tq1_0(rows, offset, out);
    gather32(rows, offset, many);
    gather16(rows, offset + 32, fewer);
    gather16(rows, offset + 38, tail);
    veci last = V_SI(or)(V(srli_epi32)(tail[2], 16), V(slli_epi32)(tail[3], 16));
    for (int place = 0; place < 5; place++) {
        veci *half = &out[5 + place / 2].bytes[place % 2 * 4];
        UNROLL for (int c = 0; c < 8; c++) out[place].bytes[c] = next_digit(&many[c]);
        UNROLL for (int c = 0; c < 4; c++) half[c] = next_digit(&fewer[c]);
    }
    UNROLL for (int place = 0; place < 4; place++) out[7].bytes[4 + place] = next_digit(&last);
}

#endif
