/* grid_x86.h: the IQ types, whose groups of 4 or 8 columns are entries of codebooks.
 *
 * Entries are looked up for a row at a time, in the order of its columns; panels are made of such
 * rows, transposed (row_x86.h has the forms). With 256 bits the places of a block's entries are
 * found first (find_NAME), and what reads columns is given the found block instead. Signs are bits
 * of their own, for which a column is centre minus instead of plus its magnitude: the bytes are n
 * of enum act_extra, or n with an offset of 128 where signed bytes need one. Pure inline functions;
 * reads nothing beyond the given blocks and the tables; any thread. Included by tile_x86.h only.
 * Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_GRID_X86_H
#define TANDEM_KERNELS_CPU_X86_GRID_X86_H

#include "kernels/cpu/grid_tables.h"
#include "kernels/cpu/x86/row_x86.h"

#if SIGNED_BYTES
enum { XXS_CENTRE = 64 };
#define EXTRA_XXS ACT_WIDE_SUM
#else
enum { XXS_CENTRE = 128 };
#define EXTRA_XXS ACT_SUM
#endif

// Vectors of columns are those of row_x86.h: i is the vector of a block. Each entries_name gives
// the entries, each signs_name of grid_tables.h the signs.
#if WIDE
INLINE uint64_t load_8(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

// Two words with another between them.
INLINE uint64_t load_4_twice(const uint8_t *at) {
    return grid_word32(at) | (uint64_t)grid_word32(at + 8) << 32;
}

// Eight places: a byte each, and bits of a word from shifts on above it.
INLINE veci places_of_8(uint64_t low, veci high, int mask) {
    veci bits = _mm512_and_si512(high, _mm512_set1_epi64(mask));
    veci bytes = _mm512_cvtepu8_epi64(_mm_cvtsi64_si128((int64_t)low));
    return _mm512_or_si512(bytes, _mm512_slli_epi64(bits, 8));
}

INLINE veci shifted(uint32_t word, veci shifts) {
    return _mm512_srlv_epi64(_mm512_set1_epi64(word), shifts);
}

INLINE veci entries_iq3_xxs(const uint8_t *at, int i) {
    veci places = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(at + 2 + 16 * i)));
    return _mm512_i32gather_epi32(places, GRIDS.iq3_xxs, 4);
}

INLINE veci entries_iq3_s(const uint8_t *at, int i) {
    veci places = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(at + 2 + 16 * i)));
    const veci ninth = _mm512_set1_epi32(256);
    places = _mm512_mask_or_epi32(places, grid_word16(at + 66 + 2 * i), places, ninth);
    return _mm512_i32gather_epi32(places, GRIDS.iq3_s, 4);
}

INLINE veci entries_iq2_xxs(const uint8_t *at, int i) {
    veci places = places_of_8(load_4_twice(at + 2 + 16 * i), _mm512_setzero_si512(), 0);
    return _mm512_i64gather_epi64(places, GRIDS.iq2_xxs, 8);
}

INLINE veci entries_iq2_xs(const uint8_t *at, int i) {
    veci words = _mm512_cvtepu16_epi64(_mm_loadu_si128((const void *)(at + 2 + 16 * i)));
    veci places = _mm512_and_si512(words, _mm512_set1_epi64(511));
    return _mm512_i64gather_epi64(places, GRIDS.iq2_xs, 8);
}

INLINE veci entries_iq2_s(const uint8_t *at, int i) {
    veci high = shifted(grid_word16(at + 66 + 2 * i), _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14));
    veci places = places_of_8(load_8(at + 2 + 8 * i), high, 3);
    return _mm512_i64gather_epi64(places, GRIDS.iq2_s, 8);
}

INLINE veci entries_iq1_s(const uint8_t *at, int i) {
    veci high =
        shifted(grid_word32(at + 34 + 4 * i), _mm512_setr_epi64(0, 3, 6, 9, 16, 19, 22, 25));
    veci places = places_of_8(load_8(at + 2 + 8 * i), high, 7);
    return _mm512_i64gather_epi64(places, GRIDS.iq1, 8);
}

// Four times the entries, plus 1 where an eighth is added.
INLINE veci entries_iq1_m(const uint8_t *at, int i) {
    veci nibbles =
        shifted(grid_word32(at + 32 + 4 * i), _mm512_setr_epi64(0, 4, 8, 12, 16, 20, 24, 28));
    veci places = places_of_8(load_8(at + 8 * i), nibbles, 7);
    veci entries = _mm512_slli_epi32(_mm512_i64gather_epi64(places, GRIDS.iq1, 8), 2);
    __mmask8 plus = _mm512_testn_epi64_mask(nibbles, _mm512_set1_epi64(8));
    return _mm512_mask_add_epi64(entries, plus, entries, _mm512_set1_epi8(1));
}

struct found_block;
#else
// A block of 256 columns, found: the places of its entries in the codebook, 64 or 32, and 32 bits
// for each vector of columns, their signs or those of eighths. It is written well before it is read
// (a step of four rows, or the scales of a tile): a place of two bytes' bits then costs a load
// where five scalar operations were, and loads that follow the stores at once wait for them (on an
// Emerald Rapids 5.7 cycles for 32 columns of IQ3_S, 8.0 at once, 9.9 by scalar operations).
// Entries stored one by one and loaded as vectors take longer than inserts: 6 and 5 cycles for 8.
struct found_block {
    _Alignas(32) uint16_t places[64];
    _Alignas(32) uint32_t bits[8];
};

INLINE const struct found_block *found_at(const uint8_t *at) { return (const void *)at; }

// Entries of eight columns, with one load for each.
INLINE veci entries_of_8(const uint64_t *table, const uint8_t *found, int i) {
    const uint16_t *places = found_at(found)->places + 4 * i;
    long long v[4];
    UNROLL for (int n = 0; n < 4; n++) v[n] = (long long)table[places[n]];
    return _mm256_setr_epi64x(v[0], v[1], v[2], v[3]);
}

// Entries of four columns.
INLINE veci entries_of_4(const uint32_t *table, const uint8_t *found, int i) {
    const uint16_t *places = found_at(found)->places + 8 * i;
    int v[8];
    UNROLL for (int n = 0; n < 8; n++) v[n] = (int)table[places[n]];
    return _mm256_setr_epi32(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
}

INLINE veci entries_iq3_xxs(const uint8_t *found, int i) {
    return entries_of_4(GRIDS.iq3_xxs, found, i);
}

INLINE veci entries_iq3_s(const uint8_t *found, int i) {
    return entries_of_4(GRIDS.iq3_s, found, i);
}

INLINE veci entries_iq2_xxs(const uint8_t *found, int i) {
    return entries_of_8(GRIDS.iq2_xxs, found, i);
}

INLINE veci entries_iq2_xs(const uint8_t *found, int i) {
    return entries_of_8(GRIDS.iq2_xs, found, i);
}

INLINE veci entries_iq2_s(const uint8_t *found, int i) {
    return entries_of_8(GRIDS.iq2_s, found, i);
}

INLINE veci entries_iq1_s(const uint8_t *found, int i) { return entries_of_8(GRIDS.iq1, found, i); }

// Four times the entries, plus 1 where an eighth is added.
INLINE veci entries_iq1_m(const uint8_t *found, int i) {
    const veci tops = _mm256_setr_epi64x(8, 8 << 4, 8 << 8, 8 << 12);
    veci plus = _mm256_and_si256(_mm256_set1_epi32((int32_t)found_at(found)->bits[i]), tops);
    plus = and_bytes(_mm256_cmpeq_epi64(plus, _mm256_setzero_si256()), 1);
    veci entries = entries_of_8(GRIDS.iq1, found, i);
    return _mm256_or_si256(_mm256_slli_epi32(entries, 2), plus);
}
#endif

// The signs of the columns of vector i of a block: bits of a mask, or all bits of bytes.
#if WIDE
typedef __mmask64 sign_bits;

#define MINUS(name)                                                                   \
    INLINE sign_bits minus_##name(const uint8_t *at, int i) {                         \
        return name##_signs(at, 2 * i) | (uint64_t)name##_signs(at, 2 * i + 1) << 32; \
    }

// centre - v where a column is negative, else centre + v.
INLINE veci put_signs(veci v, sign_bits minus, int centre) {
    const veci middle = _mm512_set1_epi8((char)centre);
    return _mm512_mask_sub_epi8(_mm512_add_epi8(middle, v), minus, middle, v);
}
#else
typedef veci sign_bits;

#define MINUS(name)                                                             \
    INLINE sign_bits minus_##name(const uint8_t *found, int i) {                \
        return set_bytes(_mm256_set1_epi32((int32_t)found_at(found)->bits[i])); \
    }

INLINE veci put_signs(veci v, sign_bits minus, int centre) {
    v = _mm256_sub_epi8(_mm256_xor_si256(v, minus), minus);
    return centre == 0 ? v : _mm256_add_epi8(v, _mm256_set1_epi8((char)centre));
}

// The upper bits of places: where they begin in a block, how many entries share a word of 16 bits,
// and how many bits each has, every step bits.
struct upper_bits {
    int at, sharing, step, count;
};

// Factors that take the upper bits of 16 entries to the tops of their words.
INLINE veci factors_to_top(struct upper_bits upper) {
    int16_t f[16];
    UNROLL for (int n = 0; n < 16; n++) {
        f[n] = (int16_t)(1 << (16 - upper.count - upper.step * (n % upper.sharing)));
    }
    return _mm256_setr_epi16(f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7], f[8], f[9], f[10],
                             f[11], f[12], f[13], f[14], f[15]);
}

// The words of upper bits of 16 entries, a copy for each entry.
INLINE veci words_of_upper(const uint8_t *at, int sharing) {
    int64_t pairs[4], words;
    memcpy(&words, at, 8);
    UNROLL for (int n = 0; n < 4; n++) {
        pairs[n] = (0x0100 + 0x0202 * (4 * n / sharing)) * 0x0001000100010001;
    }
    return _mm256_shuffle_epi8(_mm256_set1_epi64x(words),
                               _mm256_setr_epi64x(pairs[0], pairs[1], pairs[2], pairs[3]));
}

// The places of n entries, whose lower bytes lie side by side.
INLINE void find_places(const uint8_t *at, int low_at, int n, struct upper_bits upper,
                        struct found_block *out) {
    UNROLL for (int i = 0; i < n / 16; i++) {
        const __m128i low = _mm_loadu_si128((const void *)(at + low_at + 16 * i));
        veci places = _mm256_cvtepu8_epi16(low);
        if (upper.count > 0) {
            const veci words =
                words_of_upper(at + upper.at + 32 / upper.sharing * i, upper.sharing);
            veci high = _mm256_mullo_epi16(words, factors_to_top(upper));
            high = _mm256_srli_epi16(high, 8 - upper.count);
            high =
                _mm256_and_si256(high, _mm256_set1_epi16((int16_t)((1 << upper.count) - 1) << 8));
            places = _mm256_or_si256(places, high);
        }
        _mm256_store_si256((void *)(out->places + 16 * i), places);
    }
}

// Adds the bit to seven bits in every byte that makes the number of set ones even.
INLINE veci even_bytes(veci v) {
    const __m128i odd =
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0);
    const veci table = _mm256_broadcastsi128_si256(odd);
    veci low = _mm256_shuffle_epi8(table, and_bytes(v, 15));
    veci high = _mm256_shuffle_epi8(table, and_bytes(_mm256_srli_epi32(v, 4), 15));
    return _mm256_or_si256(v, _mm256_xor_si256(low, high));
}

// The signs of all vectors by words of four times seven bits.
INLINE veci signs_of_words(veci words) {
    veci v = _mm256_and_si256(words, _mm256_set1_epi32(0x7f));
    UNROLL for (int i = 1; i < 4; i++) {
        veci seven = _mm256_set1_epi32(0x7f << 8 * i);
        v = _mm256_or_si256(v, _mm256_and_si256(_mm256_slli_epi32(words, i), seven));
    }
    return even_bytes(v);
}

INLINE void find_iq3_xxs(const uint8_t *at, struct found_block *out) {
    find_places(at, 2, 64, (struct upper_bits){0}, out);
    _mm256_store_si256((void *)out->bits, signs_of_words(load_32(at + 66)));
}

INLINE void find_iq3_s(const uint8_t *at, struct found_block *out) {
    find_places(at, 2, 64, (struct upper_bits){66, 16, 1, 1}, out);
    _mm256_store_si256((void *)out->bits, load_32(at + 74));
}

INLINE void find_iq2_xxs(const uint8_t *at, struct found_block *out) {
    const __m256 first = _mm256_loadu_ps((const void *)(at + 2));
    const __m256 second = _mm256_loadu_ps((const void *)(at + 34));
    veci low = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0x88));
    veci words = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0xdd));
    uint8_t bytes[32];
    _mm256_storeu_si256((void *)bytes, _mm256_permute4x64_epi64(low, 0xd8));
    find_places(bytes, 0, 32, (struct upper_bits){0}, out);
    words = _mm256_permute4x64_epi64(words, 0xd8);
    _mm256_store_si256((void *)out->bits, signs_of_words(words));
}

INLINE void find_iq2_xs(const uint8_t *at, struct found_block *out) {
    veci sevens[2];
    UNROLL for (int i = 0; i < 2; i++) {
        const veci words = load_32(at + 2 + 32 * i);
        const veci places = _mm256_and_si256(words, _mm256_set1_epi16(511));
        _mm256_store_si256((void *)(out->places + 16 * i), places);
        sevens[i] = _mm256_srli_epi16(words, 9);
    }
    veci bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(sevens[0], sevens[1]), 0xd8);
    _mm256_store_si256((void *)out->bits, even_bytes(bytes));
}

INLINE void find_iq2_s(const uint8_t *at, struct found_block *out) {
    find_places(at, 2, 32, (struct upper_bits){66, 8, 2, 2}, out);
    _mm256_store_si256((void *)out->bits, load_32(at + 34));
}

INLINE void find_iq1_s(const uint8_t *at, struct found_block *out) {
    find_places(at, 2, 32, (struct upper_bits){34, 4, 3, 3}, out);
}

INLINE void find_iq1_m(const uint8_t *at, struct found_block *out) {
    find_places(at, 0, 32, (struct upper_bits){32, 4, 4, 3}, out);
    const veci nibbles = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(at + 32)));
    _mm256_store_si256((void *)out->bits, nibbles);
}
#endif

MINUS(iq3_xxs)
MINUS(iq3_s)
MINUS(iq2_xxs)
MINUS(iq2_xs)
MINUS(iq2_s)
#undef MINUS

// Products of signed bytes need magnitudes of weights and signs in activations, so with AVX2 one
// token takes the signs into its activations, and the columns stay as they were looked up, without
// a centre.
#if SIGNED_BYTES
INLINE veci dot_magnitudes(veci v, sign_bits minus, veci x) {
    x = _mm256_sub_epi8(_mm256_xor_si256(x, minus), minus);
    return _mm256_madd_epi16(_mm256_maddubs_epi16(v, x), _mm256_set1_epi16(1));
}

INLINE veci products_iq3_xxs(const uint8_t *at, int i, veci x) {
    return dot_magnitudes(entries_iq3_xxs(at, i), minus_iq3_xxs(at, i), x);
}

INLINE veci products_iq2_xxs(const uint8_t *at, int i, veci x) {
    return dot_magnitudes(entries_iq2_xxs(at, i), minus_iq2_xxs(at, i), x);
}

INLINE veci products_iq2_xs(const uint8_t *at, int i, veci x) {
    return dot_magnitudes(entries_iq2_xs(at, i), minus_iq2_xs(at, i), x);
}

INLINE veci products_iq2_s(const uint8_t *at, int i, veci x) {
    return dot_magnitudes(entries_iq2_s(at, i), minus_iq2_s(at, i), x);
}
#define PRODUCTS_OF(name) products_##name
#else
#define PRODUCTS_OF(name) NULL
#endif

#if WIDE
#define FIND_OF(name) NULL
#else
#define FIND_OF(name) find_##name
#endif

#define ROW_IQ3_XXS                                                                         \
    .columns = columns_iq3_xxs, .find = FIND_OF(iq3_xxs), .products = PRODUCTS_OF(iq3_xxs), \
    .no_near = true
INLINE veci columns_iq3_xxs(const uint8_t *at, int i) {
    return put_signs(entries_iq3_xxs(at, i), minus_iq3_xxs(at, i), XXS_CENTRE);
}

#define ROW_IQ3_S .columns = columns_iq3_s, .find = FIND_OF(iq3_s), .no_near = true
INLINE veci columns_iq3_s(const uint8_t *at, int i) {
    return put_signs(entries_iq3_s(at, i), minus_iq3_s(at, i), 15);
}

#define ROW_IQ2_XXS                                                                         \
    .columns = columns_iq2_xxs, .find = FIND_OF(iq2_xxs), .products = PRODUCTS_OF(iq2_xxs), \
    .no_near = true
INLINE veci columns_iq2_xxs(const uint8_t *at, int i) {
    return put_signs(entries_iq2_xxs(at, i), minus_iq2_xxs(at, i), XXS_CENTRE);
}

#define ROW_IQ2_XS                                                                       \
    .columns = columns_iq2_xs, .find = FIND_OF(iq2_xs), .products = PRODUCTS_OF(iq2_xs), \
    .no_near = true
INLINE veci columns_iq2_xs(const uint8_t *at, int i) {
    return put_signs(entries_iq2_xs(at, i), minus_iq2_xs(at, i), 64);
}

#define ROW_IQ2_S                                                                     \
    .columns = columns_iq2_s, .find = FIND_OF(iq2_s), .products = PRODUCTS_OF(iq2_s), \
    .no_near = true
INLINE veci columns_iq2_s(const uint8_t *at, int i) {
    return put_signs(entries_iq2_s(at, i), minus_iq2_s(at, i), 64);
}

#define ROW_IQ1_S .columns = columns_iq1_s, .find = FIND_OF(iq1_s), .no_near = true
INLINE veci columns_iq1_s(const uint8_t *at, int i) { return entries_iq1_s(at, i); }

#define ROW_IQ1_M .columns = columns_iq1_m, .find = FIND_OF(iq1_m), .no_near = true
INLINE veci columns_iq1_m(const uint8_t *at, int i) { return entries_iq1_m(at, i); }

INLINE void put_scale(struct panel *out, vecf scale, vecf offset) {
    out->scale[0] = scale;
    out->scale[1] = offset;
}

// The nibble, or as many bits as the mask has, of each lane from one on, as a float.
INLINE vecf bits_to_float(veci v, int bit, int mask) {
    return V(cvtepi32_ps)(V_SI(and)(V(srli_epi32)(v, (shift_count)bit), V(set1_epi32)(mask)));
}

// d (n + 1/2) factor
INLINE vecf scale_of_half(vecf d, vecf n, float factor) {
    return V(mul_ps)(d, V(fmadd_ps)(n, V(set1_ps)(factor), V(set1_ps)(factor / 2)));
}

INLINE vecf half_of_block(struct rows rows, int64_t offset) {
    veci head[4];
    gather16(rows, offset, head);
    return half_low(head[0]);
}

#define EXTRA_IQ3_XXS EXTRA_XXS
INLINE void scales_iq3_xxs(struct rows rows, int64_t offset, struct panel out[8]) {
    veci words[8];
    gather32(rows, offset + 66, words);
    vecf d = half_of_block(rows, offset);
    UNROLL for (int i = 0; i < 8; i++) {
        vecf scale = scale_of_half(d, bits_to_float(words[i], 28, 15), 0.5F);
        put_scale(out + i, scale, V(setzero_ps)());
    }
}

#define EXTRA_IQ2_XXS EXTRA_XXS
INLINE void scales_iq2_xxs(struct rows rows, int64_t offset, struct panel out[8]) {
    veci words[16];
    gather32(rows, offset + 2, words);
    gather32(rows, offset + 34, words + 8);
    vecf d = half_of_block(rows, offset);
    UNROLL for (int i = 0; i < 8; i++) {
        vecf scale = scale_of_half(d, bits_to_float(words[2 * i + 1], 28, 15), 0.25F);
        put_scale(out + i, scale, V(setzero_ps)());
    }
}

#define EXTRA_IQ3_S ACT_SCALED_SUM
INLINE void scales_iq3_s(struct rows rows, int64_t offset, struct panel out[8]) {
    veci tail[4];
    gather16(rows, offset + 94, tail);
    vecf d = half_of_block(rows, offset);
    UNROLL for (int i = 0; i < 8; i++) {
        vecf scale = scale_of_half(d, bits_to_float(tail[3], 4 * i, 15), 2);
        put_scale(out + i, scale, V(mul_ps)(scale, V(set1_ps)(-15)));
    }
}

// The nibbles of 8 bytes at place are the scales of half groups.
INLINE void scales_of_nibbles(struct rows rows, int64_t offset, int64_t place,
                              struct panel out[8]) {
    veci tail[4];
    gather16(rows, offset + place - 8, tail);
    vecf d = half_of_block(rows, offset);
    UNROLL for (int i = 0; i < 16; i++) {
        vecf n = bits_to_float(tail[2 + i / 8], 4 * (i % 8), 15);
        out[i / 2].scale[i % 2] = scale_of_half(d, n, 0.25F);
    }
}

#define EXTRA_IQ2_XS ACT_WIDE_HALVES
INLINE void scales_iq2_xs(struct rows rows, int64_t offset, struct panel out[8]) {
    scales_of_nibbles(rows, offset, 66, out);
}

#define EXTRA_IQ2_S ACT_WIDE_HALVES
INLINE void scales_iq2_s(struct rows rows, int64_t offset, struct panel out[8]) {
    scales_of_nibbles(rows, offset, 74, out);
}

// Bytes are n + 1; an eighth is taken off where the top bit is set, else added.
#define EXTRA_IQ1_S ACT_SCALED_SUM
INLINE void scales_iq1_s(struct rows rows, int64_t offset, struct panel out[8]) {
    veci words[4];
    gather16(rows, offset + 34, words);
    vecf d = half_of_block(rows, offset);
    UNROLL for (int i = 0; i < 8; i++) {
        vecf scale = scale_of_half(d, bits_to_float(words[i / 2], i % 2 * 16 + 12, 7), 2);
        vecf minus = bits_to_float(words[i / 2], i % 2 * 16 + 15, 1);
        vecf eighths = V(fmadd_ps)(minus, V(set1_ps)(-0.25F), V(set1_ps)(-0.875F));
        put_scale(out + i, scale, V(mul_ps)(scale, eighths));
    }
}

#define EXTRA_IQ1_M ACT_HALF_PARTS
INLINE void scales_iq1_m(struct rows rows, int64_t offset, struct panel out[8]) {
    const veci odd = V(set1_epi32)(0x10001);
    veci tail[4];
    gather16(rows, offset + 40, tail);
    veci low = V_SI(or)(V_SI(and)(V(srli_epi32)(tail[2], 12), V(set1_epi32)(15)),
                        V_SI(and)(V(srli_epi32)(tail[2], 24), V(set1_epi32)(0xf0)));
    veci high = V_SI(or)(V_SI(and)(V(srli_epi32)(tail[3], 4), V(set1_epi32)(0xf00)),
                         V_SI(and)(V(srli_epi32)(tail[3], 16), V(set1_epi32)(0xf000)));
    vecf d = half_low(V_SI(or)(low, high));
    UNROLL for (int i = 0; i < 8; i++) {
        veci both = V(srli_epi32)(tail[2 + i / 4], (shift_count)(i / 2 % 2 * 16 + i % 2 * 6));
        veci first = V_SI(and)(V(slli_epi32)(both, 1), V(set1_epi32)(14));
        veci second = V_SI(and)(V(slli_epi32)(both, 14), V(set1_epi32)(14 << 16));
        out[i].parts[0] = out[i].parts[1] = V_SI(or)(V_SI(or)(first, second), odd);
        put_scale(out + i, V(mul_ps)(d, V(set1_ps)(0.25F)), V(mul_ps)(d, V(set1_ps)(-1.125F)));
    }
}

// Panels of a block by the rows' columns.
INLINE void unpack_columns(struct rows rows, int64_t offset, veci (*columns)(const uint8_t *, int),
                           struct panel out[8]) {
    uint8_t turned[ROWS][sizeof(veci)];
    UNROLL for (int i = 0; i < 8 / VECTOR_BLOCKS; i++) {
        for (int r = 0; r < ROWS; r++) {
            const uint8_t *at = rows.group[r / 4] + r % 4 * rows.stride + offset;
            V_SI(storeu)((void *)turned[r], columns(at, i));
        }
        UNROLL for (int b = 0; b < VECTOR_BLOCKS; b++) {
            gather32(rows_at(turned[0], sizeof(veci)), 32 * b, out[VECTOR_BLOCKS * i + b].bytes);
        }
    }
}

// With 256 bits up to n tokens look entries up together (one_token_x86.h); more are as fast or
// faster by unpacked columns (Emerald Rapids: IQ2_XXS 0.93 and 0.88 of the speed together with one
// and two more, IQ2_XS 0.96 and 0.87, IQ2_S 0.99 and 0.82, others 0.91 to 1.0).
#define BOOK_OF(name, n) BLOCKS_OF(name), .direct_tokens = WIDE ? 0 : (n)
#define PANELS_IQ3_XXS   BOOK_OF(iq3_xxs, 3)
#define PANELS_IQ3_S     BOOK_OF(iq3_s, 3)
#define PANELS_IQ2_XXS   BOOK_OF(iq2_xxs, 2)
#define PANELS_IQ2_XS    BOOK_OF(iq2_xs, 2)
#define PANELS_IQ2_S     BOOK_OF(iq2_s, 2)
#define PANELS_IQ1_S     BOOK_OF(iq1_s, 3)
#define PANELS_IQ1_M     BOOK_OF(iq1_m, 3)
#if WIDE
#define UNPACK(name)                                                                   \
    INLINE void unpack_##name(struct rows rows, int64_t offset, struct panel out[8]) { \
        scales_##name(rows, offset, out);                                              \
        unpack_columns(rows, offset, columns_##name, out);                             \
    }
#else
#define UNPACK(name)                                                                            \
    INLINE void unpack_##name(struct rows rows, int64_t offset, struct panel out[8]) {          \
        struct found_block found[ROWS];                                                         \
        for (int r = 0; r < ROWS; r++) {                                                        \
            find_##name(rows.group[r / 4] + r % 4 * rows.stride + offset, found + r);           \
        }                                                                                       \
        scales_##name(rows, offset, out);                                                       \
        unpack_columns(rows_at((const uint8_t *)found, sizeof *found), 0, columns_##name, out); \
    }
#endif
UNPACK(iq3_xxs)
UNPACK(iq3_s)
UNPACK(iq2_xxs)
UNPACK(iq2_xs)
UNPACK(iq2_s)
UNPACK(iq1_s)
UNPACK(iq1_m)
#undef UNPACK

#endif
