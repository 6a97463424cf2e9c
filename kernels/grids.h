/* grids.h: makes bytes of the entries of the codebooks in grids.def.
 *
 * Macros over constants alone, so that compilers build the tables of every backend. Each byte of a
 * word is the value of a column, the first column lowest. Tested by tests/kernels/test_blocks.c.
 */
#ifndef TANDEM_KERNELS_GRIDS_H
#define TANDEM_KERNELS_GRIDS_H

// The values of the codes: magnitudes of the IQ2 types, of IQ3_XXS and of IQ3_S, and the values of
// IQ1_S and IQ1_M plus 1.
#define GRID_MAGNITUDE_2(code)   ((code) == 0 ? 8u : (code) == 1 ? 25u : 43u)
#define GRID_MAGNITUDE_XXS(code) ((code) == 7 ? 62u : 4u + 8u * (code))
#define GRID_MAGNITUDE_S(code)   (1u + 2u * (code))
#define GRID_TERNARY(code)       ((code) + 0u)

// Four columns whose codes have some bits each.
#define GRID_FOUR(value, bits, x)                                                         \
    (value((x) & ((1 << (bits)) - 1)) | value((x) >> (bits) & ((1 << (bits)) - 1)) << 8 | \
     value((x) >> 2 * (bits) & ((1 << (bits)) - 1)) << 16 |                               \
     value((x) >> 3 * (bits) & ((1 << (bits)) - 1)) << 24)
// Eight columns whose codes have two bits each.
#define GRID_EIGHT(value, x) \
    (GRID_FOUR(value, 2, x) | (unsigned long long)GRID_FOUR(value, 2, (x) >> 8) << 32)

// Eight entries of a codebook, as grids.def lists them.
#define GRID_ENTRIES(entry, a, b, c, d, e, f, g, h) \
    entry(a), entry(b), entry(c), entry(d), entry(e), entry(f), entry(g), entry(h),
#define GRID_ENTRY_IQ2(x)     GRID_EIGHT(GRID_MAGNITUDE_2, x)
#define GRID_ENTRY_IQ1(x)     GRID_EIGHT(GRID_TERNARY, x)
#define GRID_ENTRY_IQ3_XXS(x) GRID_FOUR(GRID_MAGNITUDE_XXS, 3, x)
#define GRID_ENTRY_IQ3_S(x)   GRID_FOUR(GRID_MAGNITUDE_S, 3, x)
#define GRID_IQ2(...)         GRID_ENTRIES(GRID_ENTRY_IQ2, __VA_ARGS__)
#define GRID_IQ1(...)         GRID_ENTRIES(GRID_ENTRY_IQ1, __VA_ARGS__)
#define GRID_IQ3_XXS(...)     GRID_ENTRIES(GRID_ENTRY_IQ3_XXS, __VA_ARGS__)
#define GRID_IQ3_S(...)       GRID_ENTRIES(GRID_ENTRY_IQ3_S, __VA_ARGS__)

// Bytes of the codes of the first half of an entry's columns, and of the second.
#define GRID_FOUR_CODES(x)  (((x)&15) << 2 | ((x) >> 4 & 3) | ((x)&0xc0))
#define GRID_FIRST_OF_8(x)  GRID_FOUR_CODES((x)&0xff)
#define GRID_SECOND_OF_8(x) GRID_FOUR_CODES((x) >> 8)
#define GRID_WORD_OF_8(x)   (GRID_FIRST_OF_8(x) | GRID_SECOND_OF_8(x) << 16)
#define GRID_FIRST_OF_4(x)  ((x)&0x3f)
#define GRID_SECOND_OF_4(x) ((x) >> 6)
#define GRID_FIRST_8(...)   GRID_ENTRIES(GRID_FIRST_OF_8, __VA_ARGS__)
#define GRID_SECOND_8(...)  GRID_ENTRIES(GRID_SECOND_OF_8, __VA_ARGS__)
#define GRID_WORDS_8(...)   GRID_ENTRIES(GRID_WORD_OF_8, __VA_ARGS__)
#define GRID_FIRST_4(...)   GRID_ENTRIES(GRID_FIRST_OF_4, __VA_ARGS__)
#define GRID_SECOND_4(...)  GRID_ENTRIES(GRID_SECOND_OF_4, __VA_ARGS__)

// The second bytes of eight entries in their order: the first one, the last one, and how many are
// the first one.
#define GRID_SECOND_OF_FIRST(a, b, c, d, e, f, g, h) GRID_SECOND_OF_8(a),
#define GRID_SECOND_OF_LAST(a, b, c, d, e, f, g, h)  GRID_SECOND_OF_8(h),
#define GRID_SAME_SECOND(a, b)                       ((a) >> 8 == (b) >> 8)
#define GRID_LIKE_FIRST(a, b, c, d, e, f, g, h)                                    \
    1 + GRID_SAME_SECOND(a, b) + GRID_SAME_SECOND(a, c) + GRID_SAME_SECOND(a, d) + \
        GRID_SAME_SECOND(a, e) + GRID_SAME_SECOND(a, f) + GRID_SAME_SECOND(a, g) + \
        GRID_SAME_SECOND(a, h),

#endif
