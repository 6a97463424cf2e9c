/* grid_x86.h: the IQ types, whose groups of 4 or 8 columns are entries of codebooks.
 *
 * The places of a block's entries and its signs are found for all rows of a tile first (find_NAME),
 * by operations on vectors; then the entries are looked up, a panel at a time, those of different
 * rows side by side in a vector (struct book), so that nothing is transposed but the halves of
 * entries of eight columns. Signs are bits of their own, for which a column is centre minus instead
 * of plus its magnitude: the bytes are n of enum act_extra, or n with an offset of 128 for ACT_SUM.
 *
 * Tried and lost (Emerald Rapids, against this): entries of a row looked up in the order of its
 * columns, one token multiplied by rows and more by panels transposed from there (256 bits, 0.7 to
 * 1.05 of the speed); gathers (512 bits, 0.5 to 1.25; CPUs before it are slower at them); entries
 * stored one by one and loaded as vectors.
 *
 * Pure inline functions; reads nothing beyond the given blocks and the tables; any thread. Included
 * by tile_x86.h only. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_GRID_X86_H
#define TANDEM_KERNELS_CPU_X86_GRID_X86_H

#include "kernels/cpu/grid_tables.h"
#include "kernels/cpu/x86/panel_x86.h"

#if SIGNED_BYTES
enum { XXS_CENTRE = 64 };
#define EXTRA_XXS ACT_WIDE_SUM
#else
enum { XXS_CENTRE = 128 };
#define EXTRA_XXS ACT_SUM
#endif

// ---- Places and signs ---------------------------------------------------------------------------

INLINE __m256i load_256(const uint8_t *at) { return _mm256_loadu_si256((const void *)at); }

// The upper bits of places: where they begin in a block, how many entries share a word of 16 bits,
// and how many bits each has, every step bits.
struct upper_bits {
    int at, sharing, step, count;
};

// Factors that take the upper bits of 16 entries to the tops of their words.
INLINE __m256i factors_to_top(struct upper_bits upper) {
    int16_t f[16];
    UNROLL for (int n = 0; n < 16; n++) {
        f[n] = (int16_t)(1 << (16 - upper.count - upper.step * (n % upper.sharing)));
    }
    return _mm256_setr_epi16(f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7], f[8], f[9], f[10],
                             f[11], f[12], f[13], f[14], f[15]);
}

// The words of upper bits of 16 entries, a copy for each entry.
INLINE __m256i words_of_upper(const uint8_t *at, int sharing) {
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
        __m256i places = _mm256_cvtepu8_epi16(low);
        if (upper.count > 0) {
            const __m256i words =
                words_of_upper(at + upper.at + 32 / upper.sharing * i, upper.sharing);
            __m256i high = _mm256_mullo_epi16(words, factors_to_top(upper));
            high = _mm256_srli_epi16(high, 8 - upper.count);
            high =
                _mm256_and_si256(high, _mm256_set1_epi16((int16_t)(((1 << upper.count) - 1) << 8)));
            places = _mm256_or_si256(places, high);
        }
        _mm256_store_si256((void *)(out->places + 16 * i), places);
    }
}

// Adds the bit to seven bits in every byte that makes the number of set ones even.
INLINE __m256i even_bytes(__m256i v) {
    const __m128i odd =
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0);
    const __m256i table = _mm256_broadcastsi128_si256(odd), nibble = _mm256_set1_epi8(15);
    const __m256i upper = _mm256_and_si256(_mm256_srli_epi32(v, 4), nibble);
    const __m256i low = _mm256_shuffle_epi8(table, _mm256_and_si256(v, nibble));
    const __m256i high = _mm256_shuffle_epi8(table, upper);
    return _mm256_or_si256(v, _mm256_xor_si256(low, high));
}

// The signs of eight panels by words of four times seven bits.
INLINE __m256i signs_of_words(__m256i words) {
    __m256i v = _mm256_and_si256(words, _mm256_set1_epi32(0x7f));
    UNROLL for (int i = 1; i < 4; i++) {
        const __m256i seven = _mm256_set1_epi32(0x7f << 8 * i);
        v = _mm256_or_si256(v, _mm256_and_si256(_mm256_slli_epi32(words, i), seven));
    }
    return even_bytes(v);
}

INLINE void put_bits(struct found_block *out, __m256i bits) {
    _mm256_store_si256((void *)out->bits, bits);
}

INLINE void find_iq3_xxs(const uint8_t *at, struct found_block *out) {
    find_places(at, 2, 64, (struct upper_bits){0}, out);
    put_bits(out, signs_of_words(load_256(at + 66)));
}

INLINE void find_iq3_s(const uint8_t *at, struct found_block *out) {
    find_places(at, 2, 64, (struct upper_bits){66, 16, 1, 1}, out);
    put_bits(out, load_256(at + 74));
}

INLINE void find_iq2_xxs(const uint8_t *at, struct found_block *out) {
    const __m256 first = _mm256_loadu_ps((const void *)(at + 2));
    const __m256 second = _mm256_loadu_ps((const void *)(at + 34));
    __m256i low = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0x88));
    __m256i words = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0xdd));
    uint8_t bytes[32];
    _mm256_storeu_si256((void *)bytes, _mm256_permute4x64_epi64(low, 0xd8));
    find_places(bytes, 0, 32, (struct upper_bits){0}, out);
    put_bits(out, signs_of_words(_mm256_permute4x64_epi64(words, 0xd8)));
}

INLINE void find_iq2_xs(const uint8_t *at, struct found_block *out) {
    __m256i sevens[2];
    UNROLL for (int i = 0; i < 2; i++) {
        const __m256i words = load_256(at + 2 + 32 * i);
        const __m256i places = _mm256_and_si256(words, _mm256_set1_epi16(511));
        _mm256_store_si256((void *)(out->places + 16 * i), places);
        sevens[i] = _mm256_srli_epi16(words, 9);
    }
    const __m256i bytes = _mm256_packus_epi16(sevens[0], sevens[1]);
    put_bits(out, even_bytes(_mm256_permute4x64_epi64(bytes, 0xd8)));
}

INLINE void find_iq2_s(const uint8_t *at, struct found_block *out) {
    find_places(at, 2, 32, (struct upper_bits){66, 8, 2, 2}, out);
    put_bits(out, load_256(at + 34));
}

INLINE void find_iq1_s(const uint8_t *at, struct found_block *out) {
    find_places(at, 2, 32, (struct upper_bits){34, 4, 3, 3}, out);
}

INLINE void find_iq1_m(const uint8_t *at, struct found_block *out) {
    find_places(at, 0, 32, (struct upper_bits){32, 4, 4, 3}, out);
    put_bits(out, _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(at + 32))));
}

// ---- Entries ------------------------------------------------------------------------------------

// An entry of each of eight rows, of four columns. Loads without a shuffle, and blends. The barrier
// keeps a place's load beside its entry's: gcc would load all places first and then have no
// registers for them (512 bits: 0.6 to 0.8 of the speed).
INLINE __m256i eight_fours(const uint32_t *table, const struct found_block *found, int place) {
    __m256i v[8];
    UNROLL for (int r = 0; r < 8; r++) {
        v[r] = _mm256_set1_epi32((int)table[found[r].places[place]]);
        __asm__ volatile("" : "+v"(v[r]));
    }
    UNROLL for (int r = 0; r < 8; r += 2) v[r] = _mm256_blend_epi32(v[r], v[r + 1], 0xaa);
    UNROLL for (int r = 0; r < 8; r += 4) v[r] = _mm256_blend_epi32(v[r], v[r + 2], 0xcc);
    return _mm256_blend_epi32(v[0], v[4], 0xf0);
}

// The same of eight columns: the first four and the last four.
INLINE void eight_eights(const uint64_t *table, const struct found_block *found, int place,
                         __m256i out[2]) {
    __m256i v[8];
    UNROLL for (int r = 0; r < 8; r++) {
        v[r] = _mm256_set1_epi64x((long long)table[found[r].places[place]]);
        __asm__ volatile("" : "+v"(v[r]));
    }
    UNROLL for (int r = 0; r < 8; r += 2) v[r] = _mm256_blend_epi32(v[r], v[r + 1], 0xcc);
    const __m256 a = _mm256_castsi256_ps(_mm256_blend_epi32(v[0], v[4], 0xf0));
    const __m256 b = _mm256_castsi256_ps(_mm256_blend_epi32(v[2], v[6], 0xf0));
    out[0] = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
    out[1] = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd));
}

#if WIDE
INLINE veci join_rows(__m256i first, __m256i second) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}
#endif

// How a type stores its columns.
struct book {
    void (*find)(const uint8_t *at, struct found_block *out);
    const uint32_t *fours; // the table of entries of four columns, or NULL
    const uint64_t *eights;
    int centre;       // of columns with signs, else 0
    bool signed_acts; // one token takes the signs into its activations, see dot_book
    bool eighths;     // bytes are four times the entries, plus 1 where an eighth is added
};

// Four times the entries v of vector c, plus 1 where the top bit of an entry's nibble of words is
// not set: there an eighth is added.
INLINE veci add_eighths(veci v, veci words, int c) {
    const veci top = V(set1_epi32)(8 << c / 2 * 4), one = V(set1_epi8)(1);
    v = V(slli_epi32)(v, 2);
#if WIDE
    return _mm512_mask_or_epi32(v, _mm512_testn_epi32_mask(words, top), v, one);
#else
    const veci plus = _mm256_cmpeq_epi32(_mm256_and_si256(words, top), _mm256_setzero_si256());
    return _mm256_or_si256(v, _mm256_and_si256(plus, one));
#endif
}

// Looks up vector c of panel i into out[c % 2]. An entry of eight columns gives two vectors: both
// are looked up with the first one.
INLINE void look_up(struct book book, const struct shared *shared, int i, int c, veci out[2]) {
    __m256i v[2][2];
    UNROLL for (int h = 0; h < ROWS / 8; h++) {
        const struct found_block *found = shared->found + 8 * h;
        if (book.fours) v[h][c % 2] = eight_fours(book.fours, found, 8 * i + c);
        if (book.eights && c % 2 == 0) eight_eights(book.eights, found, 4 * i + c / 2, v[h]);
    }
    UNROLL for (int k = 0; k < 2; k++) {
        if (book.eights ? c % 2 != 0 : k != c % 2) continue;
#if WIDE
        out[k] = join_rows(v[0][k], v[1][k]);
#else
        out[k] = v[0][k];
#endif
    }
    if (book.eighths) out[c % 2] = add_eighths(out[c % 2], shared->high[i], c);
}

// All bits of a byte that is negative, or a bit for each byte.
#if WIDE
typedef __mmask64 sign_bits;
#else
typedef veci sign_bits;
#endif

// Signs of columns 4 c to 4 c + 3 of a panel, whose bits are a lane of words for each row.
INLINE sign_bits signs_of(veci words, int c) {
    const veci own = V(set1_epi32)(c % 2 ? (int32_t)0x80402010 : 0x08040201);
    const __m128i first = _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c);
    const veci bytes = V_REPEAT(_mm_add_epi8(first, _mm_set1_epi8((char)(c / 2))));
    words = V(shuffle_epi8)(words, bytes);
#if WIDE
    return _mm512_test_epi8_mask(words, own);
#else
    return _mm256_cmpeq_epi8(_mm256_and_si256(words, own), own);
#endif
}

// centre - v where a byte is negative, else centre + v.
INLINE veci put_signs(veci v, sign_bits minus, int centre) {
    const veci middle = V(set1_epi8)((char)centre);
#if WIDE
    return _mm512_mask_sub_epi8(_mm512_add_epi8(middle, v), minus, middle, v);
#else
    return _mm256_add_epi8(_mm256_xor_si256(v, minus), _mm256_sub_epi8(middle, minus));
#endif
}

// Up to so many tokens meet panels in registers.
#define BOOK_PANELS    .direct_tokens = WIDE ? 8 : 4
#define PANELS_IQ3_XXS BOOK_PANELS
#define PANELS_IQ3_S   BOOK_PANELS
#define PANELS_IQ2_XXS BOOK_PANELS
#define PANELS_IQ2_XS  BOOK_PANELS
#define PANELS_IQ2_S   BOOK_PANELS
#define PANELS_IQ1_S   BOOK_PANELS
#define PANELS_IQ1_M   BOOK_PANELS

#define BOOK_OF(name, ...) .book = {.find = find_##name, __VA_ARGS__}
#define SIGNED_ACTS(n)     .centre = (n), .signed_acts = true
#define ROW_IQ3_XXS        BOOK_OF(iq3_xxs, .fours = GRIDS.iq3_xxs, SIGNED_ACTS(XXS_CENTRE))
#define ROW_IQ3_S          BOOK_OF(iq3_s, .fours = GRIDS.iq3_s, .centre = 15)
#define ROW_IQ2_XXS        BOOK_OF(iq2_xxs, .eights = GRIDS.iq2_xxs, SIGNED_ACTS(XXS_CENTRE))
#define ROW_IQ2_XS         BOOK_OF(iq2_xs, .eights = GRIDS.iq2_xs, SIGNED_ACTS(64))
#define ROW_IQ2_S          BOOK_OF(iq2_s, .eights = GRIDS.iq2_s, SIGNED_ACTS(64))
#define ROW_IQ1_S          BOOK_OF(iq1_s, .eights = GRIDS.iq1)
#define ROW_IQ1_M          BOOK_OF(iq1_m, .eights = GRIDS.iq1, .eighths = true)

// Finds a block of every row.
INLINE void find_rows(struct book book, struct rows rows, int64_t offset, struct shared *shared) {
    for (int r = 0; r < ROWS; r++) {
        book.find(rows.group[r / 4] + r % 4 * rows.stride + offset, shared->found + r);
    }
    const uint8_t *bits = (const uint8_t *)shared->found->bits;
    gather32(rows_at(bits, sizeof *shared->found), 0, shared->high);
}

// The bytes of panel i.
INLINE void look_up_panel(struct book book, const struct shared *shared, int i, struct panel *out) {
    veci v[2];
    UNROLL for (int c = 0; c < 8; c++) {
        look_up(book, shared, i, c, v);
        out->bytes[c] = v[c % 2];
        if (book.centre == 0) continue;
        out->bytes[c] = put_signs(v[c % 2], signs_of(shared->high[i], c), book.centre);
    }
}

// ---- Scales -------------------------------------------------------------------------------------

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

#endif
