/* grid_codes_x86.h: looks up the codes of codebooks' entries with AVX-512 VBMI: two bytes for each
 * of 64 places.
 *
 * TABLES_128, of the including file, says that a permutation of two registers takes as long as one
 * of one, and less than a gather of four entries (Zen 4: 1 cycle, and 6): then no codebook is
 * gathered. On an Emerald Rapids such permutations take two cycles, and a gather of 16 entries
 * takes 9: IQ2_S by permutations takes 13.3 ns for 256 columns, by gathers 10.6. Tried and lost on
 * a Zen 4: two vectors of places that share the loads of a table (0.85 to 1.03 of the speed).
 *
 * Pure functions of registers; reads the tables alone; any thread. Included by grid_vbmi.h only.
 * Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_GRID_CODES_X86_H
#define TANDEM_KERNELS_CPU_X86_GRID_CODES_X86_H

#ifndef WIDE
#define WIDE 1 // the level's settings, where this file is compiled alone
#define VNNI 1
#define DOT4 _mm512_dpbusd_epi32
#endif
#include "kernels/cpu/grid_tables.h"
#include "kernels/cpu/x86/grid_x86.h"
#include "kernels/cpu/x86/row_x86.h"

#ifndef TABLES_128
#define TABLES_128 0
#endif

// Bytes of 64 entries: the codes of the first half of their columns, and of the second; or as
// halve_codes has them.
struct codes {
    __m512i half[2];
};

// 64 places, with their bits from bit 6 on as masks. Those above bit 7 come from the lowest bits of
// high's bytes.
struct places {
    __m512i low;
    __mmask64 bits[5];
};

INLINE struct places places_of(__m512i low, __m512i high) {
    struct places p = {low,
                       {_mm512_movepi8_mask(_mm512_add_epi8(low, low)), _mm512_movepi8_mask(low)}};
    UNROLL for (int i = 0; i < 3; i++) {
        p.bits[2 + i] = _mm512_test_epi8_mask(high, _mm512_set1_epi8((char)(1 << i)));
    }
    return p;
}

INLINE __m512i look_128(const uint8_t *table, struct places p) {
    const __m512i first = _mm512_load_si512(table), second = _mm512_load_si512(table + 64);
#if TABLES_128
    return _mm512_permutex2var_epi8(first, p.low, second);
#else
    __m512i v = _mm512_permutexvar_epi8(p.low, first);
    return _mm512_mask_permutexvar_epi8(v, p.bits[0], p.low, second);
#endif
}

// Tables of two halves, between which a bit of places chooses.
#define LOOK(size, half, bit)                                                 \
    INLINE __m512i look_##size(const uint8_t *table, struct places p) {       \
        return _mm512_mask_blend_epi8(p.bits[(bit)-6], look_##half(table, p), \
                                      look_##half(table + (half), p));        \
    }
LOOK(256, 128, 7)
LOOK(512, 256, 8)
#if TABLES_128
LOOK(1024, 512, 9)
LOOK(2048, 1024, 10)
#endif
#undef LOOK

// Codes in the other order, halves of groups: see BY_HALVES. half[0] has the first two entries of
// each group, half[1] the last two.
INLINE struct codes halve_codes(struct codes c) {
    struct codes out = {
        {pair_lanes(c.half[0], c.half[1]),
         _mm512_mask_mov_epi16(c.half[1], 0x55555555, _mm512_srli_epi32(c.half[0], 16))}};
    return out;
}

// Each halves_of_name gives the codes of 64 entries in that order, by the lower bytes of their
// places and the bits above these.

#if TABLES_128
INLINE struct codes halves_of_iq2_s(__m512i low, __m512i high) {
    const struct places p = places_of(low, high);
    struct codes c;
    UNROLL for (int h = 0; h < 2; h++) c.half[h] = look_1024(GRID_CODES.iq2_s[h], p);
    return halve_codes(c);
}

// The second half's codes are looked up by eight entries, which have two different ones at most.
INLINE struct codes halves_of_iq1(__m512i low, __m512i high) {
    const __m512i seven = _mm512_set1_epi8(7), five_bits = _mm512_set1_epi8(31);
    const __m512i eights = _mm512_ternarylogic_epi32(five_bits, _mm512_srli_epi16(low, 3),
                                                     _mm512_slli_epi16(high, 5), 0xca);
    const struct places of_8 = places_of(eights, _mm512_setzero_si512());
    const __m512i from = look_256(GRID_CODES.iq1_second.last_from, of_8);
    const __mmask64 last = _mm512_cmpge_epu8_mask(_mm512_and_si512(low, seven), from);
    const __m512i second = look_256(GRID_CODES.iq1_second.first, of_8);
    struct codes c;
    c.half[0] = look_2048(GRID_CODES.iq1_first, places_of(low, high));
    c.half[1] = _mm512_mask_mov_epi8(second, last, look_256(GRID_CODES.iq1_second.last, of_8));
    return halve_codes(c);
}
#else
// Gathers codes. An entry is loaded from a byte before it to be shifted left by 8; that byte is 0.
INLINE struct codes gather_codes(const uint32_t *table, __m512i low, __m512i high) {
    const __m512i byte = _mm512_set1_epi16(0xff), word = _mm512_set1_epi32(0xffff);
    const __m512i even = _mm512_ternarylogic_epi32(byte, low, _mm512_slli_epi16(high, 8), 0xca);
    const __m512i odd = _mm512_ternarylogic_epi32(byte, _mm512_srli_epi16(low, 8), high, 0xca);
    const void *first = table + 1, *second = (const uint8_t *)first - 1;
    __m512i v[4];
    v[0] = _mm512_i32gather_epi32(_mm512_and_si512(even, word), first, 4);
    v[1] = _mm512_i32gather_epi32(_mm512_and_si512(odd, word), second, 4);
    v[2] = _mm512_i32gather_epi32(_mm512_srli_epi32(even, 16), first, 4);
    v[3] = _mm512_i32gather_epi32(_mm512_srli_epi32(odd, 16), second, 4);
    return (struct codes){{_mm512_or_si512(v[0], v[1]), _mm512_or_si512(v[2], v[3])}};
}

INLINE struct codes halves_of_iq2_s(__m512i low, __m512i high) {
    return gather_codes(GRID_CODES.iq2_s_words, low, and_bytes(high, 3));
}

INLINE struct codes halves_of_iq1(__m512i low, __m512i high) {
    return gather_codes(GRID_CODES.iq1_words, low, and_bytes(high, 7));
}
#endif

#endif
