/* grid_vbmi.h: the IQ types with AVX-512 VBMI and GFNI, whose codebooks fit in registers.
 *
 * An entry of a codebook is the codes of its columns, two bytes: 64 places give 64 bytes of codes
 * by permutations of a table. The columns stay apart: a plane is column j of 64 entries, so the
 * four entries of a 32-bit lane are adjacent groups of columns, and activations are turned into
 * planes once per tile instead. A plane's bytes come from a table of 64: the index has the code of
 * a column and its sign, which is a bit of the byte of signs at a place of our choice.
 *
 * Entries of eight columns have eight planes, the entries of two rows each; entries of four have
 * four planes, of one row. The bytes are those of grid_x86.h. Pure inline functions; reads nothing
 * beyond the given blocks and the tables; any thread. Included by matmul_x86.inc only, if BOOKS is
 * set. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_GRID_VBMI_H
#define TANDEM_KERNELS_CPU_X86_GRID_VBMI_H

#ifndef WIDE
#define WIDE 1 // the level's settings, where this file is compiled alone
#define VNNI 1
#define DOT4 _mm512_dpbusd_epi32
#endif
#include "kernels/cpu/grid_tables.h"
#include "kernels/cpu/x86/grid_x86.h"

enum { PLANES = 8 }; // of two rows

// Bytes that count: eight of them, odd more in each second eight, pair more in each second sixteen.
INLINE __m512i counting_bytes(uint64_t eight, uint64_t odd, uint64_t pair) {
    const uint64_t ones = 0x0101010101010101;
    const int64_t a = (int64_t)eight, b = (int64_t)(eight + odd * ones),
                  step = (int64_t)(pair * ones);
    return _mm512_setr_epi64(a, b, a + step, b + step, a + 2 * step, b + 2 * step, a + 3 * step,
                             b + 3 * step);
}

// ---- Codes of entries ---------------------------------------------------------------------------

// Bytes of 64 entries: the codes of the first half of their columns, and of the second.
struct codes {
    __m512i half[2];
};

// Bytes of a table of 128, by the lower seven bits of each place.
INLINE __m512i look_128(const uint8_t *table, __m512i places) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(table), places,
                                    _mm512_load_si512(table + 64));
}

// The bits of places from bit 7 on are masks.
INLINE __m512i look_256(const uint8_t *table, __m512i places, __mmask64 bit7) {
    return _mm512_mask_blend_epi8(bit7, look_128(table, places), look_128(table + 128, places));
}

INLINE __m512i look_512(const uint8_t *table, __m512i places, const __mmask64 bits[2]) {
    return _mm512_mask_blend_epi8(bits[1], look_256(table, places, bits[0]),
                                  look_256(table + 256, places, bits[0]));
}

INLINE __m512i look_1024(const uint8_t *table, __m512i places, const __mmask64 bits[3]) {
    return _mm512_mask_blend_epi8(bits[2], look_512(table, places, bits),
                                  look_512(table + 512, places, bits));
}

INLINE __m512i look_2048(const uint8_t *table, __m512i places, const __mmask64 bits[4]) {
    return _mm512_mask_blend_epi8(bits[3], look_1024(table, places, bits),
                                  look_1024(table + 1024, places, bits));
}

// ---- Columns of codes and signs -----------------------------------------------------------------

// A matrix of gf2p8affineqb: bit i of each byte becomes the parity of its bits in mask i.
INLINE __m512i move_bits(__m512i v, int mask0, int mask1, int mask2, int mask3, int mask4) {
    uint64_t matrix = (uint64_t)mask0 << 56 | (uint64_t)mask1 << 48 | (uint64_t)mask2 << 40 |
                      (uint64_t)mask3 << 32 | (uint64_t)mask4 << 24;
    return _mm512_gf2p8affine_epi64_epi8(v, _mm512_set1_epi64((int64_t)matrix), 0);
}

// Bytes by an index of six bits: centre minus or plus the magnitude of the code that the index has
// at a bit, by the sign that it has at another.
INLINE __m512i signed_bytes(__m128i magnitudes, int centre, int code_at, int code_mask,
                            int sign_at) {
    const __m512i index = counting_bytes(0x0706050403020100, 8, 16);
    const __m512i middle = _mm512_set1_epi8((char)centre);
    __m512i code = and_bytes(_mm512_srli_epi32(index, (shift_count)code_at), (char)code_mask);
    __m512i v = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(magnitudes), code);
    __mmask64 minus = _mm512_test_epi8_mask(index, _mm512_set1_epi8((char)(1 << sign_at)));
    return _mm512_mask_sub_epi8(_mm512_add_epi8(middle, v), minus, middle, v);
}

// Those bytes for the code bits of mask, and the bits of signs elsewhere.
INLINE __m512i look_signed(__m512i codes, __m512i signs, int mask, __m512i table) {
    const __m512i own = _mm512_set1_epi8((char)mask);
    return _mm512_permutexvar_epi8(_mm512_ternarylogic_epi32(own, codes, signs, 0xca), table);
}

// Four planes of columns with codes of two bits.
INLINE void four_planes(__m512i codes, __m512i signs, int centre, __m512i out[4]) {
    const __m128i m = _mm_setr_epi8(8, 25, 43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    out[0] = look_signed(codes, signs, 3, signed_bytes(m, centre, 0, 3, 2));
    out[1] = look_signed(codes, signs, 12, signed_bytes(m, centre, 2, 3, 4));
    out[2] = look_signed(codes, signs, 48, signed_bytes(m, centre, 4, 3, 0));
    codes = _mm512_srli_epi32(codes, 2);
    out[3] = look_signed(codes, signs, 48, signed_bytes(m, centre, 4, 3, 1));
}

// The planes of entries of eight columns, whose signs are the bits of a byte from first on. Seven
// of them have an eighth that makes the number of minuses even.
INLINE void planes_of_8(struct codes c, __m512i signs, int first, bool seven, int centre,
                        __m512i out[PLANES]) {
    const int one = 1 << first, eighth = seven ? 0x7f << first : 0x80;
    four_planes(c.half[0], move_bits(signs, 4 * one, 8 * one, one, 0, 2 * one), centre, out);
    signs = move_bits(signs, 64 * one, eighth, 16 * one, 0, 32 * one);
    four_planes(c.half[1], signs, centre, out + 4);
}

// The planes of entries of four columns, with codes of three bits. Two entries, the first of which
// has an even number, have the same byte of signs.
INLINE void planes_of_4(struct codes c, __m512i signs, bool seven, __m128i magnitudes, int centre,
                        __m512i out[4]) {
    const __m512i odd = move_bits(signs, 32, seven ? 0x7f : 0x80, 0, 16, 64);
    signs = _mm512_mask_mov_epi8(move_bits(signs, 2, 8, 0, 1, 4), 0xaaaaaaaaaaaaaaaa, odd);
    out[0] = look_signed(c.half[0], signs, 7, signed_bytes(magnitudes, centre, 0, 7, 3));
    out[1] = look_signed(c.half[0], signs, 56, signed_bytes(magnitudes, centre, 3, 7, 0));
    out[2] = look_signed(c.half[1], signs, 7, signed_bytes(magnitudes, centre, 0, 7, 4));
    out[3] = look_signed(c.half[1], signs, 56, signed_bytes(magnitudes, centre, 3, 7, 1));
}

// ---- Planes of a type's blocks ------------------------------------------------------------------

// Each planes_name gives those of two rows' blocks.

INLINE __m512i load_two(const uint8_t *a, const uint8_t *b) { return load_blocks(a, b - a); }

// Bytes of 8 bits each from the given bits of each 64-bit lane on.
INLINE __m512i bits_from(__m512i v, int64_t places) {
    return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(places), v);
}

INLINE void planes_iq2_xxs(const uint8_t *a, const uint8_t *b, __m512i out[PLANES]) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __m512i first = _mm512_loadu_si512(a + 2), second = _mm512_loadu_si512(b + 2);
    __m512i places = _mm512_permutex2var_epi32(first, even, second);
    __m512i signs = bits_from(_mm512_permutex2var_epi32(first, odd, second), 0x352e2720150e0700);
    __mmask64 bit7 = _mm512_movepi8_mask(places);
    struct codes c;
    UNROLL for (int h = 0; h < 2; h++) c.half[h] = look_256(GRID_CODES.iq2_xxs[h], places, bit7);
    planes_of_8(c, signs, 0, true, 128, out);
}

INLINE void planes_iq2_xs(const uint8_t *a, const uint8_t *b, __m512i out[PLANES]) {
    const __m512i even = counting_bytes(0x0e0c0a0806040200, 16, 32);
    const __m512i odd = _mm512_add_epi8(even, _mm512_set1_epi8(1));
    const __m512i first = _mm512_loadu_si512(a + 2), second = _mm512_loadu_si512(b + 2);
    __m512i places = _mm512_permutex2var_epi8(first, even, second);
    __m512i upper = _mm512_permutex2var_epi8(first, odd, second);
    const __mmask64 bits[] = {_mm512_movepi8_mask(places),
                              _mm512_test_epi8_mask(upper, _mm512_set1_epi8(1))};
    struct codes c;
    UNROLL for (int h = 0; h < 2; h++) c.half[h] = look_512(GRID_CODES.iq2_xs[h], places, bits);
    planes_of_8(c, upper, 1, true, 64, out);
}

INLINE void planes_iq2_s(const uint8_t *a, const uint8_t *b, __m512i out[PLANES]) {
    const uint64_t even = 0x5555555555555555, first = load_8(a + 66), second = load_8(b + 66);
    __m512i places = load_two(a + 2, b + 2);
    const __mmask64 bits[] = {_mm512_movepi8_mask(places),
                              _pext_u64(first, even) | _pext_u64(second, even) << 32,
                              _pext_u64(first, ~even) | _pext_u64(second, ~even) << 32};
    struct codes c;
    UNROLL for (int h = 0; h < 2; h++) c.half[h] = look_1024(GRID_CODES.iq2_s[h], places, bits);
    planes_of_8(c, load_two(a + 34, b + 34), 0, false, 64, out);
}

INLINE struct codes codes_iq1(__m512i places, __m512i upper) {
    const __mmask64 bits[] = {_mm512_movepi8_mask(places),
                              _mm512_test_epi8_mask(upper, _mm512_set1_epi8(1)),
                              _mm512_test_epi8_mask(upper, _mm512_set1_epi8(2)),
                              _mm512_test_epi8_mask(upper, _mm512_set1_epi8(4))};
    struct codes c;
    UNROLL for (int h = 0; h < 2; h++) c.half[h] = look_2048(GRID_CODES.iq1[h], places, bits);
    return c;
}

INLINE void planes_iq1_s(const uint8_t *a, const uint8_t *b, __m512i out[PLANES]) {
    __m256i words = _mm256_loadu2_m128i((const void *)(b + 34), (const void *)(a + 34));
    __m512i upper = bits_from(_mm512_cvtepu32_epi64(words), 0x1916131009060300);
    struct codes c = codes_iq1(load_two(a + 2, b + 2), upper);
    UNROLL for (int j = 0; j < PLANES; j++) {
        out[j] = and_bytes(_mm512_srli_epi32(c.half[j / 4], (shift_count)(j % 4 * 2)), 3);
    }
}

INLINE void planes_iq1_m(const uint8_t *a, const uint8_t *b, __m512i out[PLANES]) {
    __m256i nibbles = _mm256_loadu2_m128i((const void *)(b + 32), (const void *)(a + 32));
    __m512i upper = _mm512_cvtepu8_epi16(nibbles);
    upper = _mm512_or_si512(upper, _mm512_slli_epi32(upper, 4));
    struct codes c = codes_iq1(load_two(a, b), upper);
    __mmask64 plus = _mm512_testn_epi8_mask(upper, _mm512_set1_epi8(8));
    const __m512i one = _mm512_maskz_set1_epi8(plus, 1);
    UNROLL for (int h = 0; h < 2; h++) {
        __m512i four_times = _mm512_slli_epi32(c.half[h], 2);
        out[4 * h] = _mm512_or_si512(and_bytes(four_times, 12), one);
        UNROLL for (int j = 1; j < 4; j++) {
            __m512i v = _mm512_srli_epi32(c.half[h], (shift_count)(2 * j - 2));
            out[4 * h + j] = _mm512_or_si512(and_bytes(v, 12), one);
        }
    }
}

INLINE void four_planes_iq3_xxs(const uint8_t *at, __m512i out[4]) {
    const __m128i magnitudes = _mm_setr_epi8(4, 12, 20, 28, 36, 44, 52, 62, 0, 0, 0, 0, 0, 0, 0, 0);
    __m512i words = _mm512_cvtepu32_epi64(_mm256_loadu_si256((const void *)(at + 66)));
    __m512i places = _mm512_loadu_si512(at + 2);
    __mmask64 bit7 = _mm512_movepi8_mask(places);
    struct codes c;
    UNROLL for (int h = 0; h < 2; h++) c.half[h] = look_256(GRID_CODES.iq3_xxs[h], places, bit7);
    planes_of_4(c, bits_from(words, 0x15150e0e07070000), true, magnitudes, 128, out);
}

INLINE void planes_iq3_xxs(const uint8_t *a, const uint8_t *b, __m512i out[PLANES]) {
    four_planes_iq3_xxs(a, out);
    four_planes_iq3_xxs(b, out + 4);
}

INLINE void four_planes_iq3_s(const uint8_t *at, __m512i out[4]) {
    const __m128i magnitudes = _mm_setr_epi8(1, 3, 5, 7, 9, 11, 13, 15, 0, 0, 0, 0, 0, 0, 0, 0);
    __m512i signs = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(at + 74)));
    signs = _mm512_permutexvar_epi8(counting_bytes(0x0303020201010000, 4, 8), signs);
    __m512i places = _mm512_loadu_si512(at + 2);
    const __mmask64 bits[] = {_mm512_movepi8_mask(places), load_8(at + 66)};
    struct codes c;
    UNROLL for (int h = 0; h < 2; h++) c.half[h] = look_512(GRID_CODES.iq3_s[h], places, bits);
    planes_of_4(c, signs, false, magnitudes, 15, out);
}

INLINE void planes_iq3_s(const uint8_t *a, const uint8_t *b, __m512i out[PLANES]) {
    four_planes_iq3_s(a, out);
    four_planes_iq3_s(b, out + 4);
}

// ---- Sums and panels of planes ------------------------------------------------------------------

// Turns the 256 activations of a block into planes.
INLINE void turn_acts(const int8_t *x, int entry, int8_t *out) {
    const __m512i order = entry == 8 ? counting_bytes(0x3830282018100800, 1, 2)
                                     : counting_bytes(0x1c1814100c080400, 32, 1);
    const __m512i halves = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    __m512i parts[4], turned[4];
    UNROLL for (int i = 0; i < 4; i++) {
        parts[i] = _mm512_permutexvar_epi8(order, _mm512_loadu_si512(x + 64 * i));
    }
    turn_parts(parts, turned);
    UNROLL for (int i = 0; i < 4; i++) {
        if (entry == 8) turned[i] = _mm512_permutexvar_epi64(halves, turned[i]);
        _mm512_storeu_si512(out + 64 * i, turned[i]);
    }
}

// Keeps the first two of the four entries of each lane: those of the first half of a group.
INLINE void keep_first_halves(const int8_t *in, int8_t *out) {
    const __m512i first = _mm512_set1_epi32(0xffff);
    UNROLL for (int i = 0; i < 256; i += 64) {
        _mm512_storeu_si512(out + i, _mm512_and_si512(first, _mm512_loadu_si512(in + i)));
    }
}

// The exact sums of the groups of a block of two rows: eight groups of the first, then the
// second's, for entries of 8; else as add_pairs leaves them. x are planes of activations.
INLINE __m512i sums_of_two(const __m512i planes[PLANES], const int8_t *x, int entry) {
    __m512i sums[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    UNROLL for (int j = 0; j < PLANES; j++) {
        if (entry == 8) {
            __m256i acts = _mm256_loadu_si256((const void *)(x + 32 * j));
            sums[j % 2] = _mm512_dpbusd_epi32(sums[j % 2], planes[j], _mm512_broadcast_i64x4(acts));
        } else {
            sums[j / 4] =
                _mm512_dpbusd_epi32(sums[j / 4], planes[j], _mm512_loadu_si512(x + 64 * (j % 4)));
        }
    }
    return entry == 8 ? _mm512_add_epi32(sums[0], sums[1]) : add_pairs(sums[0], sums[1], false);
}

// Sums of two pairs of rows become two vectors, of four groups each: a lane for every row.
INLINE void turn_sums(const __m512i sums[2], int entry, __m512i out[2]) {
    const __m512i of_8 =
        _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
    const __m512i of_4 = _mm512_setr_epi32(0, 2, 16, 18, 1, 3, 17, 19, 4, 6, 20, 22, 5, 7, 21, 23);
    const __m512i first = entry == 8 ? of_8 : of_4;
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(entry == 8 ? 4 : 8));
    out[0] = _mm512_permutex2var_epi32(sums[0], first, sums[1]);
    out[1] = _mm512_permutex2var_epi32(sums[0], second, sums[1]);
}

// Four planes become their columns side by side: vector i has, in each 128-bit part, entries 4i to
// 4i + 3 of the 16 that are there in the planes.
INLINE void join_planes(const __m512i planes[4], __m512i out[4]) {
    __m512i a = _mm512_unpacklo_epi8(planes[0], planes[1]);
    __m512i b = _mm512_unpackhi_epi8(planes[0], planes[1]);
    __m512i c = _mm512_unpacklo_epi8(planes[2], planes[3]);
    __m512i d = _mm512_unpackhi_epi8(planes[2], planes[3]);
    out[0] = _mm512_unpacklo_epi16(a, c);
    out[1] = _mm512_unpackhi_epi16(a, c);
    out[2] = _mm512_unpacklo_epi16(b, d);
    out[3] = _mm512_unpackhi_epi16(b, d);
}

typedef void planes_fn(const uint8_t *a, const uint8_t *b, __m512i out[PLANES]);

// Panels of a block by the planes of the rows. joined[2i + h] has vectors i of the rows' first four
// columns of entries (h = 0) and of the others, or with entries of 4 joined[i] has vectors i.
INLINE void unpack_planes(struct rows rows, int64_t offset, planes_fn *planes, int entry,
                          struct panel out[8]) {
    __m512i joined[PLANES * ROWS / 2];
    for (int r = 0; r < ROWS; r += 2) {
        const uint8_t *at = rows.group[r / 4] + r % 4 * rows.stride + offset;
        __m512i v[PLANES], columns[4];
        planes(at, at + rows.stride, v);
        UNROLL for (int h = 0; h < 2; h++) {
            join_planes(v + 4 * h, columns);
            UNROLL for (int i = 0; i < 4; i++) {
                joined[entry == 8 ? (2 * i + h) * ROWS / 2 + r / 2 : i * ROWS + r + h] = columns[i];
            }
        }
    }
    const int parts = entry == 8 ? 2 : 4; // of a row in each vector
    UNROLL for (int n = 0; n < 16; n++) {
        const int part = n % parts, i = n / parts;
        __m512i v[4];
        gather16(rows_at((const uint8_t *)(joined + i * ROWS * parts / 4), 16 * parts), 16 * part,
                 v);
        UNROLL for (int k = 0; k < 4; k++) {
            if (entry == 8)
                out[4 * part + i / 2].bytes[2 * k + i % 2] = v[k];
            else
                out[2 * part + i / 2].bytes[i % 2 * 4 + k] = v[k];
        }
    }
}

#define UNPACK_PLANES(NAME, name, columns)                                                    \
    INLINE void unpack_planes_##name(struct rows rows, int64_t offset, struct panel out[8]) { \
        scales_##name(rows, offset, out);                                                     \
        unpack_planes(rows, offset, planes_##name, columns, out);                             \
    }
GRID_TYPES(UNPACK_PLANES)
#undef UNPACK_PLANES

#endif
