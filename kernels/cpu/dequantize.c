/* dequantize.c: the block formats of weights, and half precision, in plain C.
 *
 * This file defines what the bytes of a weight mean; every faster kernel is measured against it.
 * Owns nothing; pure functions; any thread. Rows may lie at any address and are little-endian.
 * Must not know an instruction set. Tested by tests/kernels/test_blocks.c.
 *
 * Names in the formulas: d is the scale and m or dmin the offset of a block; n is the integer that
 * an element stores.
 */
#include "kernels/cpu/cpu.h"

#include "base/err.h"
#include "kernels/cpu/grid_tables.h"

#include <math.h>
#include <string.h>

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float half_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t magnitude = half & 0x7fff;
    if (magnitude >= 0x7c00) return float_of_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    // Moving the bits in place leaves an exponent that is 112 too small; a multiplication by 2^112
    // corrects it and is exact for subnormal halves too.
    return float_of_bits(sign | magnitude << 13) * 0x1p112F;
}

uint16_t float_to_half(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff)); // NaN
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); // 65520 rounds to infinity
    if (magnitude < 0x38800000) { // below 2^-14: a whole number of 2^-24, the last bit of 0.5
        float shifted = fabsf(value) + 0.5F;
        memcpy(&bits, &shifted, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    uint32_t odd = magnitude >> 13 & 1; // a tie goes to the even neighbour
    return (uint16_t)(sign | (magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

static float read_half(const uint8_t *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return half_to_float(half);
}

static void f32_row(const uint8_t *row, float *out, int64_t n) {
    memcpy(out, row, (size_t)n * sizeof *out);
}

static void f16_row(const uint8_t *row, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = read_half(row + 2 * i);
}

static void bf16_row(const uint8_t *row, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, row + 2 * i, sizeof bits);
        out[i] = float_of_bits((uint32_t)bits << 16);
    }
}

// Half d; signed byte n[32]. Value: d n.
static void q8_0_block(const uint8_t *restrict block, float *restrict out) {
    float d = read_half(block);
    for (int i = 0; i < 32; i++) out[i] = d * (float)(int8_t)block[2 + i];
}

// Half d; 16 bytes: the low nibbles are elements 0..15, the high ones 16..31. Value: d (n - 8).
static void q4_0_block(const uint8_t *block, float *out) {
    float d = read_half(block);
    uint8_t n[16];
    memcpy(n, block + 2, sizeof n);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)((n[i] & 15) - 8);
        out[i + 16] = d * (float)((n[i] >> 4) - 8);
    }
}

// Half d; half m; nibbles as in Q4_0. Value: d n + m.
static void q4_1_block(const uint8_t *block, float *out) {
    float d = read_half(block), m = read_half(block + 2);
    uint8_t n[16];
    memcpy(n, block + 4, sizeof n);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)(n[i] & 15) + m;
        out[i + 16] = d * (float)(n[i] >> 4) + m;
    }
}

// The five-bit integers of Q5_0 and Q5_1: bit 4 of element i is bit i of a 32-bit word before the
// nibbles.
static void five_bits(const uint8_t *high, int n[32]) {
    uint32_t word;
    memcpy(&word, high, sizeof word);
    for (int i = 0; i < 16; i++) {
        n[i] = (high[4 + i] & 15) | (int)(word >> i & 1) << 4;
        n[i + 16] = high[4 + i] >> 4 | (int)(word >> (i + 16) & 1) << 4;
    }
}

// Half d; word of high bits; nibbles. Value: d (n - 16).
static void q5_0_block(const uint8_t *block, float *out) {
    int n[32];
    five_bits(block + 2, n);
    float d = read_half(block);
    for (int i = 0; i < 32; i++) out[i] = d * (float)(n[i] - 16);
}

// Half d; half m; word of high bits; nibbles. Value: d n + m.
static void q5_1_block(const uint8_t *block, float *out) {
    int n[32];
    five_bits(block + 4, n);
    float d = read_half(block), m = read_half(block + 2);
    for (int i = 0; i < 32; i++) out[i] = d * (float)n[i] + m;
}

// The scale and the minimum, six bits each, of group i (0..7) of a Q4_K or Q5_K block. The first
// four groups use bytes of their own, whose top bits complete the nibbles of the last four.
static void group_scale(const uint8_t scales[12], int i, int *scale, int *minimum) {
    if (i < 4) {
        *scale = scales[i] & 63;
        *minimum = scales[i + 4] & 63;
    } else {
        *scale = (scales[i + 4] & 15) | scales[i - 4] >> 6 << 4;
        *minimum = scales[i + 4] >> 4 | scales[i] >> 6 << 4;
    }
}

// Half d; half dmin; 12 bytes of group scales; 128 bytes of nibbles. Eight groups of 32; groups 2j
// and 2j+1 are the low and the high nibbles of bytes 32j..32j+31. Value: d scale n - dmin minimum.
static void q4_k_block(const uint8_t *block, float *out) {
    float d = read_half(block), dmin = read_half(block + 2);
    for (int group = 0; group < 8; group++) {
        int scale, minimum;
        group_scale(block + 4, group, &scale, &minimum);
        const uint8_t *low = block + 16 + group / 2 * 32;
        float factor = d * (float)scale, offset = dmin * (float)minimum;
        for (int i = 0; i < 32; i++)
            out[32 * group + i] = factor * (float)(low[i] >> (group & 1) * 4 & 15) - offset;
    }
}

// Like Q4_K, with 32 bytes of fifth bits before the nibbles: bit g of byte i belongs to element i
// of group g.
static void q5_k_block(const uint8_t *restrict block, float *restrict out) {
    float d = read_half(block), dmin = read_half(block + 2);
    const uint8_t *high = block + 16;
    for (int group = 0; group < 8; group++) {
        int scale, minimum;
        group_scale(block + 4, group, &scale, &minimum);
        const uint8_t *low = block + 48 + group / 2 * 32;
        float factor = d * (float)scale, offset = dmin * (float)minimum;
        for (int i = 0; i < 32; i++) {
            int n = (low[i] >> (group & 1) * 4 & 15) | (high[i] >> group & 1) << 4;
            out[32 * group + i] = factor * (float)n - offset;
        }
    }
}

// 128 bytes of low nibbles; 64 bytes of high bit pairs; 16 signed scales; half d. Each half of the
// block has four groups of 32: the low and the high nibbles of its 64 bytes, with the four bit
// pairs of its 32 bytes. A scale covers 16 elements. Value: d scale (n - 32).
static void q6_k_block(const uint8_t *block, float *out) {
    float d = read_half(block + 208);
    for (int group = 0; group < 8; group++) {
        int part = group / 4, j = group % 4;
        const uint8_t *low = block + 64 * part + 32 * (j & 1), *high = block + 128 + 32 * part;
        for (int i = 0; i < 32; i++) {
            int n = (low[i] >> j / 2 * 4 & 15) | (high[i] >> 2 * j & 3) << 4;
            float scale = d * (float)(int8_t)block[192 + 2 * group + i / 16];
            out[32 * group + i] = scale * (float)(n - 32);
        }
    }
}

// The 16 values that the nibbles of IQ4_NL and IQ4_XS stand for.
static const int8_t UNEVEN[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

// Half d; nibbles as in Q4_0. Value: d UNEVEN[n].
static void iq4_nl_block(const uint8_t *block, float *out) {
    float d = read_half(block);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)UNEVEN[block[2 + i] & 15];
        out[i + 16] = d * (float)UNEVEN[block[2 + i] >> 4];
    }
}

// The 16 values of a float of four bits (sign, two exponent bits, one of fraction), doubled.
static const int8_t FLOATS_OF_4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Byte e; nibbles as in Q4_0. Value: 2^(e - 128) FLOATS_OF_4[n]. Source: OCP Microscaling Formats
// 1.0, whose NaN (e = 255) is a number here.
static void mxfp4_block(const uint8_t *block, float *out) {
    float d = ldexpf(1, block[0] - 128);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)FLOATS_OF_4[block[1 + i] & 15];
        out[i + 16] = d * (float)FLOATS_OF_4[block[1 + i] >> 4];
    }
}

// Half d; 16-bit word of upper scale bits; 4 bytes of lower ones; eight groups of 16 bytes of
// nibbles as in Q4_0. A group's scale has a nibble, low ones first, and a bit pair. Value: d (scale
// - 32) UNEVEN[n].
static void iq4_xs_block(const uint8_t *block, float *out) {
    float d = read_half(block);
    uint16_t upper;
    memcpy(&upper, block + 2, sizeof upper);
    for (int group = 0; group < 8; group++) {
        int low = block[4 + group / 2] >> (group & 1) * 4 & 15;
        float scale = d * (float)((low | (upper >> 2 * group & 3) << 4) - 32);
        const uint8_t *nibbles = block + 8 + 16 * group;
        for (int i = 0; i < 16; i++) {
            out[32 * group + i] = scale * (float)UNEVEN[nibbles[i] & 15];
            out[32 * group + i + 16] = scale * (float)UNEVEN[nibbles[i] >> 4];
        }
    }
}

// Scale i (0..15) of a Q3_K block: a nibble of the first 8 bytes, the low ones first, and a bit
// pair of the last 4.
static int third_scale(const uint8_t scales[12], int i) {
    int low = scales[i % 8] >> i / 8 * 4 & 15;
    return low | (scales[8 + i % 4] >> i / 4 * 2 & 3) << 4;
}

// 32 bytes of high bits; 64 bytes of bit pairs; 12 bytes of scales; half d. Each half of the block
// has four groups of 32: the four bit pairs of its 32 bytes. Bit g of high byte i belongs to
// element i of group g; a scale covers 16 elements. Value: d (scale - 32) (n - 4).
static void q3_k_block(const uint8_t *block, float *out) {
    float d = read_half(block + 108);
    for (int group = 0; group < 8; group++) {
        const uint8_t *pairs = block + 32 + group / 4 * 32;
        for (int i = 0; i < 32; i++) {
            int n = (pairs[i] >> group % 4 * 2 & 3) | (block[i] >> group & 1) << 2;
            float scale = d * (float)(third_scale(block + 96, 2 * group + i / 16) - 32);
            out[32 * group + i] = scale * (float)(n - 4);
        }
    }
}

// 16 bytes of scales; 64 bytes of bit pairs; half d; half dmin. Each half of the block has four
// groups of 32: the four bit pairs of its 32 bytes. A scale covers 16 elements; its upper nibble is
// their minimum. Value: d (scale & 15) n - dmin (scale >> 4).
static void q2_k_block(const uint8_t *block, float *out) {
    float d = read_half(block + 80), dmin = read_half(block + 82);
    for (int group = 0; group < 8; group++) {
        const uint8_t *pairs = block + 16 + group / 4 * 32;
        for (int i = 0; i < 32; i++) {
            int n = pairs[i] >> group % 4 * 2 & 3, scale = block[2 * group + i / 16];
            out[32 * group + i] = d * (float)(scale & 15) * (float)n - dmin * (float)(scale >> 4);
        }
    }
}

// Value: d (n - 1) of two bits, in the order of Q2_K.
static void tq2_0_block(const uint8_t *block, float *out) {
    float d = read_half(block + 64);
    for (int i = 0; i < 256; i++) {
        int n = block[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3;
        out[i] = d * (float)(n - 1);
    }
}

// Value: d (n - 1), where n is digit number place of a byte in base 3, the first after the point.
static float ternary(float d, uint8_t byte, int place) {
    static const uint8_t powers[] = {1, 3, 9, 27, 81};
    const uint8_t rest = (uint8_t)(byte * powers[place]);
    return d * (float)((rest * 3 >> 8) - 1);
}

// 32 bytes of five digits, 16 bytes of five and 4 bytes of four: the first digits of all come
// first.
static void tq1_0_block(const uint8_t *block, float *out) {
    float d = read_half(block + 52);
    for (int i = 0; i < 160; i++) out[i] = ternary(d, block[i % 32], i / 32);
    for (int i = 0; i < 80; i++) out[160 + i] = ternary(d, block[32 + i % 16], i / 16);
    for (int i = 0; i < 16; i++) out[240 + i] = ternary(d, block[48 + i % 4], i / 4);
}

// Adds the signs to 32 magnitudes of a group: entries of 4 columns in words or of 8 in pairs of
// them.
static void signed_group(float scale, const uint32_t words[8], uint32_t signs, float *out) {
    for (int i = 0; i < 32; i++) {
        float magnitude = scale * (float)(words[i / 4] >> 8 * (i % 4) & 255);
        out[i] = signs >> i & 1 ? -magnitude : magnitude;
    }
}

// The types below store places in a codebook of GRIDS, whose entries are the magnitudes of 4 or 8
// columns; grid_tables.h says where places and signs lie.

// Half d; 64 places; eight words, each the signs of a group and the scale s in its top nibble.
// Value: d (s + 1/2) / 2 entry.
static void iq3_xxs_block(const uint8_t *block, float *out) {
    float d = read_half(block);
    for (int group = 0; group < 8; group++) {
        uint32_t words[8], scale = block[66 + 4 * group + 3] >> 4;
        for (int i = 0; i < 8; i++) words[i] = GRIDS.iq3_xxs[iq3_xxs_entry(block, group, i)];
        signed_group(d * ((float)scale + 0.5F) * 0.5F, words, iq3_xxs_signs(block, group),
                     out + (ptrdiff_t)32 * group);
    }
}

// Half d; 64 places; 8 bytes of their ninth bits; 32 bytes of signs; 4 bytes of scales s, low
// nibbles first. Value: d (2 s + 1) entry.
static void iq3_s_block(const uint8_t *block, float *out) {
    float d = read_half(block);
    for (int group = 0; group < 8; group++) {
        uint32_t words[8];
        int scale = block[106 + group / 2] >> group % 2 * 4 & 15;
        for (int i = 0; i < 8; i++) words[i] = GRIDS.iq3_s[iq3_s_entry(block, group, i)];
        signed_group(d * (float)(2 * scale + 1), words, iq3_s_signs(block, group),
                     out + (ptrdiff_t)32 * group);
    }
}

// Half d; for each group four places and a word as in IQ3_XXS. Value: d (s + 1/2) / 4 entry.
static void iq2_xxs_block(const uint8_t *block, float *out) {
    float d = read_half(block);
    for (int group = 0; group < 8; group++) {
        uint64_t entries[4];
        uint32_t words[8], scale = block[2 + 8 * group + 7] >> 4;
        for (int i = 0; i < 4; i++) entries[i] = GRIDS.iq2_xxs[iq2_xxs_entry(block, group, i)];
        memcpy(words, entries, sizeof words);
        signed_group(d * ((float)scale + 0.5F) * 0.25F, words, iq2_xxs_signs(block, group),
                     out + (ptrdiff_t)32 * group);
    }
}

// Gives the halves of a group their scales, the nibbles of a byte s: d (s + 1/2) / 4.
static void scale_halves(float d, uint8_t scales, float out[32]) {
    for (int i = 0; i < 32; i++) {
        out[i] *= d * ((float)(scales >> i / 16 * 4 & 15) + 0.5F) * 0.25F;
    }
}

// Half d; 32 words of 16 bits, each a place of 9 bits and 7 signs; 8 bytes of scales.
static void iq2_xs_block(const uint8_t *block, float *out) {
    float d = read_half(block);
    for (int group = 0; group < 8; group++, out += 32) {
        uint64_t entries[4];
        uint32_t words[8];
        for (int i = 0; i < 4; i++) entries[i] = GRIDS.iq2_xs[iq2_xs_entry(block, group, i)];
        memcpy(words, entries, sizeof words);
        signed_group(1, words, iq2_xs_signs(block, group), out);
        scale_halves(d, block[66 + group], out);
    }
}

// Half d; 32 places; 32 bytes of signs; 8 bytes of two more bits of each place; 8 bytes of scales.
static void iq2_s_block(const uint8_t *block, float *out) {
    float d = read_half(block);
    for (int group = 0; group < 8; group++, out += 32) {
        uint64_t entries[4];
        uint32_t words[8];
        for (int i = 0; i < 4; i++) entries[i] = GRIDS.iq2_s[iq2_s_entry(block, group, i)];
        memcpy(words, entries, sizeof words);
        signed_group(1, words, iq2_s_signs(block, group), out);
        scale_halves(d, block[74 + group], out);
    }
}

// Eight columns of IQ1_S or IQ1_M. Value: scale (entry - 1 +- 1/8).
static void ternary_eight(float scale, uint32_t place, bool minus, float *out) {
    for (int j = 0; j < 8; j++) {
        float value = (float)(GRIDS.iq1[place] >> 8 * j & 255) - 1;
        out[j] = scale * (value + (minus ? -0.125F : 0.125F));
    }
}

// Half d; 32 places; for each group a word of 16 bits: three more bits of each place, the scale s
// in three bits, and the sign of the eighth. Value: d (2 s + 1) (entry - 1 +- 1/8).
static void iq1_s_block(const uint8_t *block, float *out) {
    float d = read_half(block);
    for (int i = 0; i < 32; i++) {
        const int group = i / 4;
        const uint16_t word = grid_word16(block + 34 + 2 * group);
        const float scale = d * (float)(2 * (word >> 12 & 7) + 1);
        ternary_eight(scale, iq1_s_entry(block, group, i % 4), word >> 15, out + (ptrdiff_t)8 * i);
    }
}

// 32 places; 16 bytes of nibbles, for each place three more bits and the sign of the eighth; four
// words of 16 bits with the scales s of half groups in three bits each and d in their top nibbles.
// Value: d (2 s + 1) (entry - 1 +- 1/8).
static void iq1_m_block(const uint8_t *block, float *out) {
    float d = half_to_float(iq1_m_half(block));
    for (int i = 0; i < 32; i++) {
        const int group = i / 4;
        const float scale = d * (float)iq1_m_scale(block, group, i % 4 / 2);
        ternary_eight(scale, iq1_m_entry(block, group, i % 4),
                      iq1_m_nibble(block, group, i % 4) & 8, out + (ptrdiff_t)8 * i);
    }
}

// Defines name_row for each type from its block function.
#define ROW_FLOATS(NAME, name)
#define ROW_HALVES(NAME, name)
#define ROW_BYTES(NAME, name)                                                             \
    static void name##_row(const uint8_t *row, float *out, int64_t n) {                   \
        for (int64_t i = 0; i < n; i += BLOCK_ELEMENTS_##NAME, row += BLOCK_BYTES_##NAME) \
            name##_block(row, out + i);                                                   \
    }
#define WEIGHT(NAME, name, KIND, ...) ROW_##KIND(NAME, name)
#include "kernels/weights.def"
#undef WEIGHT

void dequantize_row(enum weight_type type, const void *row, float *out, int64_t n) {
    static void (*const ROWS[])(const uint8_t *, float *, int64_t) = {
#define WEIGHT(NAME, name, ...) name##_row,
#include "kernels/weights.def"
#undef WEIGHT
    };
    ASSERT(n % dtype_find((uint32_t)weight_dtype(type))->block_elements == 0);
    ROWS[type](row, out, n);
}
