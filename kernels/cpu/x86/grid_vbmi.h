/* grid_vbmi.h: the IQ types with AVX-512 VBMI and GFNI, whose codebooks fit in registers.
 *
 * An entry of a codebook is the codes of its columns, two bytes: see grid_codes_x86.h. The columns
 * stay apart: in a plane the bytes of a 32-bit lane are the same columns of adjacent entries, and
 * activations are quantised in that order instead; one token's are turned into planes once per
 * tile. A plane's bytes come from a table of 64: the index has the codes of two columns and their
 * signs.
 *
 * The integers that scale groups lie in a row as its groups do: they are packed with the sums of
 * dots, so that both become lanes of rows at once. Permutations are what takes the time; on an
 * Emerald Rapids they have one port and a gather of 16 entries takes 9 cycles, in which little else
 * is done. Tried and lost there: planes of two pairs of rows made in turns (the same); codes
 * gathered as pairs of bytes with their planes by entries (IQ1_S 10.1 ns, by halves 9.5).
 *
 * The bytes are those of grid_x86.h, for panels of IQ2_XS and IQ2_S without their offset. Pure
 * functions; reads nothing beyond the given blocks and the tables; any thread. Included by
 * tile_x86.h only, if BOOKS is set. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_GRID_VBMI_H
#define TANDEM_KERNELS_CPU_X86_GRID_VBMI_H

#include "kernels/cpu/x86/grid_codes_x86.h"

enum { PLANES = 8 }; // of two rows

INLINE uint64_t load_8(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

// Order of planes, each of which has four bytes for a lane: plane j of a row has column j of four
// adjacent entries, of four columns (BY_FOURS; four planes have a row) or of eight (BY_EIGHTS); or
// the first planes have columns j and 4 + j of the first two entries of a group, the last ones
// those of the other two (BY_HALVES).
enum planes_order { BY_FOURS, BY_EIGHTS, BY_HALVES };

// Bytes that count: eight of them, odd more in each second eight, pair more in each second sixteen.
INLINE __m512i counting_bytes(uint64_t eight, uint64_t odd, uint64_t pair) {
    const uint64_t ones = 0x0101010101010101;
    const int64_t a = (int64_t)eight, b = (int64_t)(eight + odd * ones),
                  step = (int64_t)(pair * ones);
    return _mm512_setr_epi64(a, b, a + step, b + step, a + 2 * step, b + 2 * step, a + 3 * step,
                             b + 3 * step);
}

// ---- Columns of codes and signs -----------------------------------------------------------------

// Bytes of 8 bits each from the given bits of each 64-bit lane on.
INLINE __m512i bits_from(__m512i v, int64_t places) {
    return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(places), v);
}

// A matrix of gf2p8affineqb: bit i of each byte becomes the parity of its bits in mask i.
INLINE __m512i move_bits(__m512i v, const int *masks, int n) {
    uint64_t matrix = 0;
    UNROLL for (int i = 0; i < n; i++) matrix |= (uint64_t)masks[i] << (56 - 8 * i);
    return _mm512_gf2p8affine_epi64_epi8(v, _mm512_set1_epi64((int64_t)matrix), 0);
}

// Tables of 64 bytes, by an index of six bits. Written as operations on vectors of bytes, they are
// constants in memory: of intrinsics compilers make them again and again in loops.
typedef uint8_t bytes_of_64 __attribute__((vector_size(64)));

INLINE bytes_of_64 bits_of_index(int at, int mask) {
    return (bytes_of_64)counting_bytes(0x0706050403020100, 8, 16) >> at & (uint8_t)mask;
}

// A plane that is still to be looked up: where it is used, since all planes of four rows at once
// would not fit the registers.
struct plane {
    bytes_of_64 table;
    __m512i index;
};

INLINE __m512i look_64(struct plane p) {
    return _mm512_permutexvar_epi8(p.index, (__m512i)p.table);
}

// Magnitudes of codes: first + step * code, and more where the code is last.
struct magnitudes {
    uint8_t first, step, last, more;
};
static const struct magnitudes OF_IQ2 = {8, 17, 2, 1};
static const struct magnitudes OF_IQ3_XXS = {4, 8, 7, 2};
static const struct magnitudes OF_IQ3_S = {1, 2, 0, 0};

// centre minus or plus the magnitude of the code that the index has at a bit, by the sign that it
// has at another.
INLINE bytes_of_64 signed_bytes(struct magnitudes m, int centre, int code_at, int mask,
                                int sign_at) {
    const bytes_of_64 code = bits_of_index(code_at, mask), minus = bits_of_index(sign_at, 1);
    const bytes_of_64 last = (bytes_of_64)(code == m.last) & m.more;
    return (uint8_t)centre + (1 - 2 * minus) * (m.first + m.step * code + last);
}

// Bits of codes where mask has them, else those of signs.
INLINE __m512i join_codes(__m512i codes, __m512i signs, int mask) {
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8((char)mask), codes, signs, 0xca);
}

// Four planes of columns with codes of two bits; the lowest four bits of signs are theirs. An index
// has the codes of two columns and their signs.
INLINE void four_planes(__m512i codes, __m512i signs, int centre, struct plane out[4]) {
    const int to_ends[] = {1, 2, 0, 0, 64, 128};
    const __m512i first = join_codes(codes, signs, 0x3c);
    const __m512i last = join_codes(move_bits(codes, to_ends, 6), signs, 0x33);
    out[0] = (struct plane){signed_bytes(OF_IQ2, centre, 2, 3, 0), first};
    out[1] = (struct plane){signed_bytes(OF_IQ2, centre, 4, 3, 1), first};
    out[2] = (struct plane){signed_bytes(OF_IQ2, centre, 0, 3, 2), last};
    out[3] = (struct plane){signed_bytes(OF_IQ2, centre, 4, 3, 3), last};
}

// The planes of halves of groups. An entry's signs are a byte.
INLINE void planes_of_halves(struct codes c, __m512i signs, int centre, struct plane out[PLANES]) {
    UNROLL for (int h = 0; h < 2; h++) {
        const __m512i own = bits_from(signs, h ? 0x3c3438301c141810 : 0x2c2428200c040800);
        four_planes(c.half[h], own, centre, out + 4 * h);
    }
}

// The planes of entries of four columns, with codes of three bits. Two entries, the first of which
// has an even number, have the same byte of signs.
INLINE void planes_of_4(struct codes c, __m512i signs, bool seven, struct magnitudes m, int centre,
                        struct plane out[4]) {
    const int of_even[] = {2, 8, 0, 1, 4, 0}, of_odd[] = {32, seven ? 0x7f : 0x80, 0, 16, 64, 0};
    const __m512i odd = move_bits(signs, of_odd, 6);
    signs = _mm512_mask_mov_epi8(move_bits(signs, of_even, 6), 0xaaaaaaaaaaaaaaaa, odd);
    out[0] = (struct plane){signed_bytes(m, centre, 0, 7, 3), join_codes(c.half[0], signs, 7)};
    out[1] = (struct plane){signed_bytes(m, centre, 3, 7, 0), join_codes(c.half[0], signs, 56)};
    out[2] = (struct plane){signed_bytes(m, centre, 0, 7, 4), join_codes(c.half[1], signs, 7)};
    out[3] = (struct plane){signed_bytes(m, centre, 3, 7, 1), join_codes(c.half[1], signs, 56)};
}

// ---- Planes of a type's blocks ------------------------------------------------------------------

// Each planes_name gives those of two rows' blocks.

INLINE __m512i load_two(const uint8_t *a, const uint8_t *b) { return load_blocks(a, b - a); }

INLINE void planes_iq2_xxs(const uint8_t *a, const uint8_t *b, struct plane out[PLANES]) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __m512i first = _mm512_loadu_si512(a + 2), second = _mm512_loadu_si512(b + 2);
    __m512i places = _mm512_permutex2var_epi32(first, even, second);
    __m512i signs = bits_from(_mm512_permutex2var_epi32(first, odd, second), 0x352e2720150e0700);
    const struct places p = places_of(places, _mm512_setzero_si512());
    struct codes c;
    UNROLL for (int h = 0; h < 2; h++) c.half[h] = look_256(GRID_CODES.iq2_xxs[h], p);
    const int upper[] = {16, 32, 64, 0x7f, 0, 0};
    four_planes(c.half[0], signs, 128, out);
    four_planes(c.half[1], move_bits(signs, upper, 6), 128, out + 4);
}

INLINE void halves_iq2_xs(const uint8_t *a, const uint8_t *b, int centre,
                          struct plane out[PLANES]) {
    const __m512i even = counting_bytes(0x0e0c0a0806040200, 16, 32);
    const __m512i odd = _mm512_add_epi8(even, _mm512_set1_epi8(1));
    const __m512i first = _mm512_loadu_si512(a + 2), second = _mm512_loadu_si512(b + 2);
    __m512i places = _mm512_permutex2var_epi8(first, even, second);
    __m512i upper = _mm512_permutex2var_epi8(first, odd, second);
    const struct places p = places_of(places, upper);
    const int eight[] = {2, 4, 8, 16, 32, 64, 128, 0xfe};
    struct codes c;
    UNROLL for (int h = 0; h < 2; h++) c.half[h] = look_512(GRID_CODES.iq2_xs[h], p);
    planes_of_halves(halve_codes(c), move_bits(upper, eight, 8), centre, out);
}

INLINE void halves_iq2_s(const uint8_t *a, const uint8_t *b, int centre, struct plane out[PLANES]) {
    const __m128i words = _mm_set_epi64x((int64_t)load_8(b + 66), (int64_t)load_8(a + 66));
    __m512i upper = bits_from(_mm512_cvtepu16_epi64(words), 0x0e0c0a0806040200);
    struct codes c = halves_of_iq2_s(load_two(a + 2, b + 2), upper);
    planes_of_halves(c, load_two(a + 34, b + 34), centre, out);
}

// The bytes of one token's weights are unsigned, those of panels signed: see order_acts.
#define SIGNED_PLANES(name)                                                                   \
    INLINE void planes_##name(const uint8_t *a, const uint8_t *b, struct plane out[PLANES]) { \
        halves_##name(a, b, 64, out);                                                         \
    }                                                                                         \
    INLINE void signed_##name(const uint8_t *a, const uint8_t *b, struct plane out[PLANES]) { \
        halves_##name(a, b, 0, out);                                                          \
    }
SIGNED_PLANES(iq2_xs)
SIGNED_PLANES(iq2_s)
#undef SIGNED_PLANES

// 16 bytes of each row, four of them (those of two groups) in each 64-bit lane.
INLINE __m512i load_upper(const uint8_t *a, const uint8_t *b) {
    return _mm512_cvtepu32_epi64(_mm256_loadu2_m128i((const void *)b, (const void *)a));
}

INLINE void planes_iq1_s(const uint8_t *a, const uint8_t *b, struct plane out[PLANES]) {
    __m512i upper = bits_from(load_upper(a + 34, b + 34), 0x1916131009060300);
    struct codes c = halves_of_iq1(load_two(a + 2, b + 2), upper);
    UNROLL for (int h = 0; h < 2; h++) {
        const __m512i codes = c.half[h], last = _mm512_srli_epi32(codes, 2);
        out[4 * h] = (struct plane){bits_of_index(2, 3), codes};
        out[4 * h + 1] = (struct plane){bits_of_index(4, 3), codes};
        out[4 * h + 2] = (struct plane){bits_of_index(0, 3), codes};
        out[4 * h + 3] = (struct plane){bits_of_index(4, 3), last};
    }
}

// Four times the code at a bit, plus 1 where bit 0 is clear.
INLINE bytes_of_64 four_codes(int at) { return 4 * bits_of_index(at, 3) + 1 - bits_of_index(0, 1); }

INLINE void planes_iq1_m(const uint8_t *a, const uint8_t *b, struct plane out[PLANES]) {
    const int to_middle[] = {0, 0, 1, 2, 64, 128};
    const __m512i nibbles = load_upper(a + 32, b + 32);
    __m512i upper = bits_from(nibbles, 0x1c1814100c080400);
    struct codes c = halves_of_iq1(load_two(a, b), upper);
    UNROLL for (int h = 0; h < 2; h++) {
        const __m512i minus = bits_from(nibbles, h ? 0x1f1b1f1b0f0b0f0b : 0x1713171307030703);
        const __m512i first = join_codes(c.half[h], minus, 0x3c);
        const __m512i last = join_codes(move_bits(c.half[h], to_middle, 6), minus, 0x3c);
        out[4 * h] = (struct plane){four_codes(2), first};
        out[4 * h + 1] = (struct plane){four_codes(4), first};
        out[4 * h + 2] = (struct plane){four_codes(2), last};
        out[4 * h + 3] = (struct plane){four_codes(4), last};
    }
}

INLINE void four_planes_iq3_xxs(const uint8_t *at, struct plane out[4]) {
    __m512i words = _mm512_cvtepu32_epi64(_mm256_loadu_si256((const void *)(at + 66)));
    __m512i places = _mm512_loadu_si512(at + 2);
    const struct places p = places_of(places, _mm512_setzero_si512());
    struct codes c;
    UNROLL for (int h = 0; h < 2; h++) c.half[h] = look_256(GRID_CODES.iq3_xxs[h], p);
    planes_of_4(c, bits_from(words, 0x15150e0e07070000), true, OF_IQ3_XXS, 128, out);
}

INLINE void planes_iq3_xxs(const uint8_t *a, const uint8_t *b, struct plane out[PLANES]) {
    four_planes_iq3_xxs(a, out);
    four_planes_iq3_xxs(b, out + 4);
}

INLINE void four_planes_iq3_s(const uint8_t *at, struct plane out[4]) {
    __m512i signs = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(at + 74)));
    signs = _mm512_permutexvar_epi8(counting_bytes(0x0303020201010000, 4, 8), signs);
    __m512i places = _mm512_loadu_si512(at + 2);
    struct places p = places_of(places, _mm512_setzero_si512());
    p.bits[2] = load_8(at + 66);
    struct codes c;
    UNROLL for (int h = 0; h < 2; h++) c.half[h] = look_512(GRID_CODES.iq3_s[h], p);
    planes_of_4(c, signs, false, OF_IQ3_S, 15, out);
}

INLINE void planes_iq3_s(const uint8_t *a, const uint8_t *b, struct plane out[PLANES]) {
    four_planes_iq3_s(a, out);
    four_planes_iq3_s(b, out + 4);
}

// ---- Integers of a type's groups ----------------------------------------------------------------

// BOOK_NAME: how many tokens look codes up together at most (QUAD_TOKENS), how planes lie, and how
// a block's scale d becomes that of a group with nibble n, which is d factor odd[n]; the group's
// offset is that times the first offset, or the second from n = 8 on.
static const float ODD_16[16] = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
static const float ODD_8[16] = {1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15};
#define BOOK_IQ2_XXS .direct_tokens = 4, .planes_order = BY_EIGHTS, .factor = 0.125F, .odd = ODD_16
#define BOOK_IQ2_XS  .direct_tokens = 3, .planes_order = BY_HALVES, .factor = 0.125F, .odd = ODD_16
#define BOOK_IQ2_S   .direct_tokens = 3, .planes_order = BY_HALVES, .factor = 0.125F, .odd = ODD_16
#define BOOK_IQ3_XXS .direct_tokens = 4, .planes_order = BY_FOURS, .factor = 0.25F, .odd = ODD_16
#define BOOK_IQ3_S \
    .direct_tokens = 4, .planes_order = BY_FOURS, .factor = 1, .odd = ODD_16, .offsets = {-15, -15}
#define BOOK_IQ1_S                                                            \
    .direct_tokens = 4, .planes_order = BY_HALVES, .factor = 1, .odd = ODD_8, \
    .offsets = {-0.875F, -1.125F}
#define BOOK_IQ1_M \
    .direct_tokens = 4, .planes_order = BY_HALVES, .factor = 0.25F, .offsets = {-4.5F, -4.5F}

// Each nibbles_name gives, in the lowest four bits of the lanes of two rows' sums, the integers of
// groups that make their scales, or those of both halves of groups. Other bits are any.

INLINE void nibbles_iq2_xxs(const uint8_t *a, const uint8_t *b, __m512i out[2]) {
    const __m512i odd =
        _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    const __m512i first = _mm512_loadu_si512(a + 2), second = _mm512_loadu_si512(b + 2);
    out[0] = _mm512_srli_epi32(_mm512_permutex2var_epi32(first, odd, second), 28);
}

// Two words, each in all lanes of a half.
INLINE __m512i two_words(uint64_t a, uint64_t b) {
    return _mm512_mask_set1_epi64(_mm512_set1_epi64((int64_t)a), 0xf0, (int64_t)b);
}

// A byte for each group.
INLINE void nibbles_of_bytes(const uint8_t *a, const uint8_t *b, __m512i out[2]) {
    const __m512i places =
        _mm512_setr_epi64(0x0800000000, 0x1800000010, 0x2800000020, 0x3800000030, 0x0800000000,
                          0x1800000010, 0x2800000020, 0x3800000030);
    out[0] = _mm512_multishift_epi64_epi8(places, two_words(load_8(a), load_8(b)));
    out[1] = _mm512_srli_epi32(out[0], 4);
}

INLINE void nibbles_iq2_xs(const uint8_t *a, const uint8_t *b, __m512i out[2]) {
    nibbles_of_bytes(a + 66, b + 66, out);
}

INLINE void nibbles_iq2_s(const uint8_t *a, const uint8_t *b, __m512i out[2]) {
    nibbles_of_bytes(a + 74, b + 74, out);
}

INLINE void nibbles_iq3_xxs(const uint8_t *a, const uint8_t *b, __m512i out[2]) {
    const __m512i words = load_two(a + 66, b + 66);
    const __m512i turned =
        _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), words);
    out[0] = _mm512_srli_epi32(turned, 28);
}

INLINE void nibbles_iq3_s(const uint8_t *a, const uint8_t *b, __m512i out[2]) {
    const __m512i shifts =
        _mm512_setr_epi32(0, 4, 0, 4, 8, 12, 8, 12, 16, 20, 16, 20, 24, 28, 24, 28);
    const __m512i first = _mm512_set1_epi32((int32_t)grid_word32(a + 106));
    const __m512i both = _mm512_mask_set1_epi32(first, 0xcccc, (int32_t)grid_word32(b + 106));
    out[0] = _mm512_srlv_epi32(both, shifts);
}

// Three bits of a factor, and one where an eighth is taken off.
INLINE void nibbles_iq1_s(const uint8_t *a, const uint8_t *b, __m512i out[2]) {
    __m256i words = _mm256_loadu2_m128i((const void *)(b + 34), (const void *)(a + 34));
    out[0] = _mm512_srli_epi32(_mm512_cvtepu16_epi32(words), 12);
}

// Pairs of 16 bits instead: the factors of both halves.
INLINE void nibbles_iq1_m(const uint8_t *a, const uint8_t *b, __m512i out[2]) {
    const __m512i places = _mm512_setr_epi64(
        0x000800050002003f, 0x001800150012000f, 0x002800250022001f, 0x003800350032002f,
        0x000800050002003f, 0x001800150012000f, 0x002800250022001f, 0x003800350032002f);
    __m512i v = _mm512_multishift_epi64_epi8(places, two_words(load_8(a + 48), load_8(b + 48)));
    const __m512i bits = _mm512_set1_epi16(14), one = _mm512_set1_epi16(1);
    out[0] = _mm512_ternarylogic_epi32(v, bits, one, 0xea); // v & bits | one
}

// The scale of a block as bits of a float of half precision.
INLINE uint16_t half_iq1_m(const uint8_t *at) {
    return (uint16_t)_pext_u64(load_8(at + 48), 0xf000f000f000f000);
}

// ---- Sums and panels of planes ------------------------------------------------------------------

// Sets what the sums of two rows' blocks begin with, by the heads of eight groups of activations:
// what makes up for the offset of bytes, half of it in each of the two lanes of a group BY_FOURS;
// for ACT_HALF_PARTS the pairs of sums, as one vector.
INLINE void start_sums(__m512i heads, enum act_extra extra, enum planes_order order,
                       __m512i out[2]) {
    const __m512i of_8 = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15);
    const __m512i of_4 = _mm512_setr_epi32(1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11, 13, 13, 15, 15);
    const __m512i zero = _mm512_setzero_si512();
    const bool half = order == BY_FOURS;
    const __m512i sums = _mm512_permutexvar_epi32(half ? of_4 : of_8, heads);
    out[0] = out[1] = zero;
    if (extra == ACT_HALF_PARTS) out[0] = sums;
    if (extra == ACT_SUM) out[0] = half ? _mm512_srai_epi32(sums, 1) : sums;
    if (extra != ACT_WIDE_HALVES) return;
    out[0] = _mm512_madd_epi16(sums, _mm512_set1_epi32(0xffc0));
    out[1] = _mm512_madd_epi16(sums, _mm512_set1_epi32((int32_t)0xffc00000));
}

// Puts the bytes of activations in the order that a lane of planes has: those that meet a plane
// beside each other, plane by plane. With scales of halves they get an offset of 128, so that the
// bytes of panels are signed and what makes up for offsets is a sum of weights, made once for all
// tokens.
INLINE void order_acts(int8_t *bytes, int64_t n_blocks, enum act_extra extra,
                       enum planes_order order) {
    const __m256i eights = _mm256_setr_epi32(0x18100800, 0x19110901, 0x1a120a02, 0x1b130b03,
                                             0x1c140c04, 0x1d150d05, 0x1e160e06, 0x1f170f07);
    const __m256i fours = _mm256_setr_epi32(0x0c080400, 0x0d090501, 0x0e0a0602, 0x0f0b0703,
                                            0x1c181410, 0x1d191511, 0x1e1a1612, 0x1f1b1713);
    const __m256i halves = _mm256_setr_epi32(0x0c040800, 0x0d050901, 0x0e060a02, 0x0f070b03,
                                             0x1c141810, 0x1d151911, 0x1e161a12, 0x1f171b13);
    const __m256i to = order == BY_EIGHTS ? eights : order == BY_FOURS ? fours : halves;
    const __m256i offset = _mm256_set1_epi8(extra == ACT_WIDE_HALVES ? -128 : 0);
    for (int64_t i = 0; i < n_blocks; i++, bytes += ACT_COLS) {
        __m256i *at = (void *)bytes;
        const __m256i v = _mm256_xor_si256(_mm256_loadu_si256(at), offset);
        _mm256_storeu_si256(at, _mm256_permutexvar_epi8(to, v));
    }
}

// Turns the 256 activations of a block, as order_acts leaves them, into signed planes.
INLINE void turn_acts(const int8_t *x, enum act_extra extra, enum planes_order order, int8_t *out) {
    const __m512i fours = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i pairs = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    const __m512i halves = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    __m512i parts[4], turned[4];
    UNROLL for (int i = 0; i < 4; i++) {
        __m512i v = _mm512_loadu_si512(x + 64 * i);
        if (extra == ACT_WIDE_HALVES) v = _mm512_xor_si512(v, _mm512_set1_epi8(-128));
        parts[i] = _mm512_permutexvar_epi32(order == BY_FOURS ? fours : pairs, v);
    }
    turn_parts(parts, turned);
    UNROLL for (int i = 0; i < 4; i++) {
        if (order != BY_FOURS) turned[i] = _mm512_permutexvar_epi64(halves, turned[i]);
        _mm512_storeu_si512(out + 64 * i, turned[i]);
    }
}

// Adds the dots of the planes of two pairs of rows with those of n tokens, a constant, to the sums
// of each: first of the pair, then of its first and last planes. A plane is looked up beside its
// dots, and those of both pairs take turns, so that they do not wait for each other. BY_EIGHTS,
// four tokens take the first planes before the last ones (0.9 of the time); the other orders lose
// by that.
INLINE void dot_planes(const struct plane planes[2][PLANES], const int8_t *const *x, int n,
                       enum planes_order order, __m512i (*sums)[2][2]) {
    const bool in_turn = n < 4 || order != BY_EIGHTS;
    UNROLL for (int k = 0; k < PLANES; k++) {
        const int p = in_turn ? k % 2 * 4 + k / 2 : k, h = p / 4;
        const __m512i first = look_64(planes[0][p]), second = look_64(planes[1][p]);
        UNROLL for (int t = 0; t < n; t++) {
            const uint8_t *at = (const uint8_t *)x[t] + (order == BY_FOURS ? p % 4 * 64 : p * 32);
            const __m512i acts = order == BY_FOURS ? load_vector(at) : load_32(at);
            sums[t][0][h] = _mm512_dpbusd_epi32(sums[t][0][h], first, acts);
            sums[t][1][h] = _mm512_dpbusd_epi32(sums[t][1][h], second, acts);
        }
    }
}

// Sums of two pairs of rows become two vectors, of four groups each: a lane for every row.
INLINE void turn_sums(const __m512i sums[2], enum planes_order order, __m512i out[2]) {
    const __m512i of_8 =
        _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
    const __m512i of_4 = _mm512_setr_epi32(0, 2, 16, 18, 1, 3, 17, 19, 4, 6, 20, 22, 5, 7, 21, 23);
    const __m512i first = order == BY_FOURS ? of_4 : of_8;
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(order == BY_FOURS ? 8 : 4));
    out[0] = _mm512_permutex2var_epi32(sums[0], first, sums[1]);
    out[1] = _mm512_permutex2var_epi32(sums[0], second, sums[1]);
}

typedef void planes_fn(const uint8_t *a, const uint8_t *b, struct plane out[PLANES]);
typedef void nibbles_fn(const uint8_t *a, const uint8_t *b, __m512i out[2]);

// Panels of a block by the planes of the rows: the vectors of a panel are planes, with the lanes of
// its 32 columns of all rows.
INLINE void unpack_planes(struct rows rows, int64_t offset, planes_fn *planes,
                          enum planes_order order, struct panel out[8]) {
    const bool fours = order == BY_FOURS;
    const int n = fours ? 4 : PLANES; // planes of a row
    __m512i of_rows[PLANES][ROWS / 2];
    for (int r = 0; r < ROWS; r += 2) {
        const uint8_t *at = rows.group[r / 4] + r % 4 * rows.stride + offset;
        struct plane v[PLANES];
        planes(at, at + rows.stride, v);
        UNROLL for (int j = 0; j < PLANES; j++) {
            (&of_rows[0][0])[fours ? j % 4 * ROWS + r + j / 4 : j * ROWS / 2 + r / 2] =
                look_64(v[j]);
        }
    }
    UNROLL for (int j = 0; j < n; j++) {
        const uint8_t *first = (const uint8_t *)(&of_rows[0][0] + j * PLANES * ROWS / 2 / n);
        const struct rows lanes = rows_at(first, PLANES / n * 32);
        UNROLL for (int lane = 0; lane < 64 / n; lane += 4) {
            __m512i v[4];
            gather16(lanes, 4 * lane, v);
            UNROLL for (int k = 0; k < 4; k++) {
                if (fours)
                    out[(lane + k) / 2].bytes[(lane + k) % 2 * 4 + j] = v[k];
                else
                    out[lane + k].bytes[j] = v[k];
            }
        }
    }
}

// Sets the sums of halves begin with, as parts: -128 times the sums of signed weights.
INLINE void put_starts(struct panel *p) {
    const __m512i offset = _mm512_set1_epi8(-128), zero = _mm512_setzero_si512();
    UNROLL for (int half = 0; half < 2; half++) {
        __m512i sum = zero;
        UNROLL for (int c = 4 * half; c < 4 * half + 4; c++) {
            sum = _mm512_dpbusd_epi32(sum, offset, p->bytes[c]);
        }
        p->parts[half] = _mm512_sub_epi32(zero, sum);
    }
}

#define UNPACK_PLANES(NAME, name, kind, order)                                                \
    INLINE void unpack_planes_##name(struct rows rows, int64_t offset, struct panel out[8]) { \
        scales_##name(rows, offset, out);                                                     \
        unpack_planes(rows, offset, kind##_##name, order, out);                               \
        if (EXTRA_##NAME != ACT_WIDE_HALVES) return;                                          \
        for (int i = 0; i < 8; i++) put_starts(out + i);                                      \
    }                                                                                         \
    static void quantize_##name(const float *x, int64_t n_blocks, enum act_extra extra,       \
                                int8_t *bytes, struct act_head *heads) {                      \
        act_quantize_blocks(x, n_blocks, extra, bytes, heads);                                \
        order_acts(bytes, n_blocks, extra, order);                                            \
    }
UNPACK_PLANES(IQ3_XXS, iq3_xxs, planes, BY_FOURS)
UNPACK_PLANES(IQ3_S, iq3_s, planes, BY_FOURS)
UNPACK_PLANES(IQ2_XXS, iq2_xxs, planes, BY_EIGHTS)
UNPACK_PLANES(IQ2_XS, iq2_xs, signed, BY_HALVES)
UNPACK_PLANES(IQ2_S, iq2_s, signed, BY_HALVES)
UNPACK_PLANES(IQ1_S, iq1_s, planes, BY_HALVES)
UNPACK_PLANES(IQ1_M, iq1_m, planes, BY_HALVES)
#undef UNPACK_PLANES

#endif
