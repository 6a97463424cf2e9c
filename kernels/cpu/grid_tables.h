/* grid_tables.h: the codebooks of the IQ types as bytes, and how blocks store the places and the
 * signs of entries.
 *
 * Constants and pure inline functions; any thread. Blocks may lie at any address. The formulas of
 * weights are in dequantize.c. Used by dequantize.c and the matmuls of every level. Tested by
 * tests/kernels/test_blocks.c.
 */
#ifndef TANDEM_KERNELS_CPU_GRID_TABLES_H
#define TANDEM_KERNELS_CPU_GRID_TABLES_H

#include <stdint.h>
#include <string.h>

// A byte is the value of a column, the first column lowest: magnitudes, and in iq1 the values 0, 1
// and 2 of IQ1_S and IQ1_M.
struct grid_tables {
    uint64_t iq2_xxs[256], iq2_xs[512], iq2_s[1024], iq1[2048];
    uint32_t iq3_xxs[256], iq3_s[512];
};
extern const struct grid_tables GRIDS;

// The same codebooks as codes (see grids.def) of four columns in a byte: [0] is that of the first
// half of an entry's columns, [1] that of the second. Entries of eight have the codes of the first
// two columns at bits 2 and 4, of the third at bit 0, of the fourth at bit 6. Entries of iq1 are in
// the order of their second bytes, so that eight adjacent ones have two different such bytes at
// most: first, and from number last_from on (8: from none on) last. Words have the two bytes of an
// entry as bytes 0 and 2; the first word is 0 and no entry.
struct grid_codes {
    _Alignas(64) uint8_t iq2_xxs[2][256];
    uint8_t iq2_xs[2][512], iq3_xxs[2][256], iq3_s[2][512], iq2_s[2][1024], iq1_first[2048];
    struct {
        uint8_t first[256], last[256], last_from[256];
    } iq1_second;
    uint32_t iq2_s_words[1 + 1024], iq1_words[1 + 2048];
};
extern const struct grid_codes GRID_CODES;

// X(NAME, name): the types of weights.def with codebooks.
#define GRID_TYPES(X)   \
    X(IQ3_XXS, iq3_xxs) \
    X(IQ3_S, iq3_s)     \
    X(IQ2_XXS, iq2_xxs) \
    X(IQ2_XS, iq2_xs)   \
    X(IQ2_S, iq2_s)     \
    X(IQ1_S, iq1_s)     \
    X(IQ1_M, iq1_m)

static inline uint16_t grid_word16(const uint8_t *at) {
    uint16_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static inline uint32_t grid_word32(const uint8_t *at) {
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

// Bytes of 7 bits each with the bit on top that makes the number of set bits even.
static inline uint32_t grid_even_parity(uint32_t bytes) {
    uint32_t odd = bytes ^ bytes >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return bytes | (odd & 0x01010101) << 7;
}

// Bit i of what name_signs gives: column i of group 0..7 of a block is negative.

// Seven bits for each eight columns, beside four that are not read.
static inline uint32_t grid_signs_of_word(uint32_t word) {
    return grid_even_parity((word & 0x7f) | (word << 1 & 0x7f00) | (word << 2 & 0x7f0000) |
                            (word << 3 & 0x7f000000));
}

static inline uint32_t iq3_xxs_signs(const uint8_t *block, int group) {
    return grid_signs_of_word(grid_word32(block + 66 + 4 * group));
}

static inline uint32_t iq2_xxs_signs(const uint8_t *block, int group) {
    return grid_signs_of_word(grid_word32(block + 6 + 8 * group));
}

static inline uint32_t iq3_s_signs(const uint8_t *block, int group) {
    return grid_word32(block + 74 + 4 * group);
}

static inline uint32_t iq2_s_signs(const uint8_t *block, int group) {
    return grid_word32(block + 34 + 4 * group);
}

static inline uint32_t iq2_xs_signs(const uint8_t *block, int group) {
    uint64_t words;
    memcpy(&words, block + 2 + 8 * group, sizeof words);
    words = words >> 9 & 0x007f007f007f007f;
    words = (words | words >> 8) & 0x0000ffff0000ffff;
    return grid_even_parity((uint32_t)(words | words >> 16));
}

// Each name_entry gives the place of an entry in the codebook; i counts a group's entries, of eight
// columns or (IQ3) of four.

static inline uint32_t iq3_xxs_entry(const uint8_t *block, int group, int i) {
    return block[2 + 8 * group + i];
}

static inline uint32_t iq3_s_entry(const uint8_t *block, int group, int i) {
    return block[2 + 8 * group + i] | (uint32_t)(block[66 + group] >> i & 1) << 8;
}

static inline uint32_t iq2_xxs_entry(const uint8_t *block, int group, int i) {
    return block[2 + 8 * group + i];
}

static inline uint32_t iq2_xs_entry(const uint8_t *block, int group, int i) {
    return grid_word16(block + 2 + 8 * group + 2 * i) & 511;
}

static inline uint32_t iq2_s_entry(const uint8_t *block, int group, int i) {
    return block[2 + 4 * group + i] | (uint32_t)(block[66 + group] >> 2 * i & 3) << 8;
}

static inline uint32_t iq1_s_entry(const uint8_t *block, int group, int i) {
    uint32_t high = grid_word16(block + 34 + 2 * group);
    return block[2 + 4 * group + i] | (high >> 3 * i & 7) << 8;
}

// The nibble that completes an entry of IQ1_M: three bits of its place, and one that is set if an
// eighth is taken off the values instead of added.
static inline uint32_t iq1_m_nibble(const uint8_t *block, int group, int i) {
    return block[32 + 2 * group + i / 2] >> 4 * (i & 1) & 15;
}

static inline uint32_t iq1_m_entry(const uint8_t *block, int group, int i) {
    return block[4 * group + i] | (iq1_m_nibble(block, group, i) & 7) << 8;
}

// The half of a block of IQ1_M lies in the top nibbles of four words.
static inline uint16_t iq1_m_half(const uint8_t *block) {
    uint16_t words[4];
    memcpy(words, block + 48, sizeof words);
    return (uint16_t)(words[0] >> 12 | (words[1] >> 8 & 0xf0) | (words[2] >> 4 & 0xf00) |
                      (words[3] & 0xf000));
}

// The scale of half a group, odd and up to 15.
static inline int iq1_m_scale(const uint8_t *block, int group, int half) {
    return 2 * (grid_word16(block + 48 + group / 2 * 2) >> (6 * (group & 1) + 3 * half) & 7) + 1;
}

#endif
