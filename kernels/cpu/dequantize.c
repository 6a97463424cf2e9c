/* dequantize.c: the block formats of weights, and half precision, in plain C.
 *
 * This file defines what the bytes of a weight mean; every faster kernel is measured against it.
 * Owns nothing; pure functions; any thread. Rows may lie at any address and are little-endian.
 * Must not know an instruction set. Tested by tests/kernels/test_blocks.c.
 *
 * Names in the formulas: d is the scale and m or dmin the offset of a block; n is the integer that
 * an element stores.
 *
 * Integers are taken out as bytes, in loops without branches, and then become floats in functions
 * out of line (put_32, put_16): so gcc and clang vectorise both steps, and much alike.
 */
#include "kernels/cpu/cpu.h"

#include "base/err.h"
#include "base/inline.h"
#include "kernels/cpu/grid_tables.h"

#include <math.h>
#include <string.h>

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// The bits of a float whose magnitude a half has in these bits, if it is no normal number.
OUT_OF_LINE uint32_t rare_half(uint32_t magnitude) {
    if (magnitude >= 0x7c00) return 0x7f800000 | (magnitude & 0x3ff) << 13;
    // It is what it adds to 2^-14: arithmetic with subnormal floats would be slow.
    return bits_of_float(float_of_bits(0x38800000 | magnitude << 13) - 0x1p-14F);
}

float half_to_float(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
    if (magnitude < 0x400 || magnitude >= 0x7c00) return float_of_bits(sign | rare_half(magnitude));
    return float_of_bits(sign | ((magnitude << 13) + 0x38000000)); // an exponent larger by 112
}

uint16_t float_to_half(float value) {
    const uint32_t bits = bits_of_float(value);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff)); // NaN
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); // 65520 rounds to infinity
    if (magnitude < 0x38800000) { // below 2^-14: a whole number of 2^-24, the last bit of 0.5
        return (uint16_t)(sign | (bits_of_float(fabsf(value) + 0.5F) - 0x3f000000));
    }
    uint32_t odd = magnitude >> 13 & 1; // a tie goes to the even neighbour
    return (uint16_t)(sign | (magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

static float read_half(const uint8_t *p) { return half_to_float(grid_word16(p)); }

static void f32_row(const uint8_t *row, float *out, int64_t n) {
    memcpy(out, row, (size_t)n * sizeof *out);
}

static void f16_row(const uint8_t *row, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = read_half(row + 2 * i);
}

static float read_bf16(const uint8_t *p) { return float_of_bits((uint32_t)grid_word16(p) << 16); }

// Sixteen at a time, so that compilers unroll them alike.
static void bf16_row(const uint8_t *restrict row, float *restrict out, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) out[i + j] = read_bf16(row + 2 * (i + j));
    for (; i < n; i++) out[i] = read_bf16(row + 2 * i);
}

// Writes scale n for 32 elements.
OUT_OF_LINE void put_32(float scale, const int8_t *restrict n, float *restrict out) {
    for (int i = 0; i < 32; i++) out[i] = scale * (float)n[i];
}

// Writes scale n + offset for 32 elements.
OUT_OF_LINE void put_32_plus(float scale, float offset, const uint8_t *restrict n,
                             float *restrict out) {
    for (int i = 0; i < 32; i++) out[i] = scale * (float)n[i] + offset;
}

// The same for 16 elements.
OUT_OF_LINE void put_16(float scale, const int8_t *restrict n, float *restrict out) {
    for (int i = 0; i < 16; i++) out[i] = scale * (float)n[i];
}

OUT_OF_LINE void put_16_plus(float scale, float offset, const uint8_t *restrict n,
                             float *restrict out) {
    for (int i = 0; i < 16; i++) out[i] = scale * (float)n[i] + offset;
}

// The nibbles of count bytes.
static inline void nibbles_of(const uint8_t *restrict bytes, int count, uint8_t *restrict low,
                              uint8_t *restrict high) {
    for (int i = 0; i < count; i++) {
        low[i] = bytes[i] & 15;
        high[i] = bytes[i] >> 4;
    }
}

// The bit pairs of 32 bytes, of all bytes the lowest ones first.
static inline void pairs_of_32(const uint8_t *restrict bytes, uint8_t n[restrict 128]) {
    for (int i = 0; i < 32; i++) {
        n[i] = bytes[i] & 3;
        n[32 + i] = bytes[i] >> 2 & 3;
        n[64 + i] = bytes[i] >> 4 & 3;
        n[96 + i] = bytes[i] >> 6;
    }
}

// Sixteen bytes, eight in a word. Sums of words here carry nothing from a byte into the next.
typedef uint64_t words __attribute__((vector_size(16)));

#define ONES UINT64_C(0x0101010101010101) // in each of eight bytes

// Byte 8 i + j is 255 where bit j of bits[i] is set, else 0.
static inline words spread_bits(const uint8_t bits[2]) {
    const words own = (words){bits[0] * ONES, bits[1] * ONES} & 0x8040201008040201;
    const words tops = (own + 127 * ONES) & 128 * ONES;
    return (tops << 1) - (tops >> 7);
}

// Half d; signed byte n[32]. Value: d n.
static void q8_0_block(const uint8_t *block, float *out) {
    float d = read_half(block);
    put_32(d, (const int8_t *)block + 2, out);
}

// Half d; 16 bytes: the low nibbles are elements 0..15, the high ones 16..31. Value: d (n - 8).
static void q4_0_block(const uint8_t *block, float *out) {
    float d = read_half(block);
    uint8_t nibbles[32];
    int8_t n[32];
    nibbles_of(block + 2, 16, nibbles, nibbles + 16);
    for (int i = 0; i < 32; i++) n[i] = (int8_t)(nibbles[i] - 8);
    put_32(d, n, out);
}

// Half d; half m; nibbles as in Q4_0. Value: d n + m.
static void q4_1_block(const uint8_t *block, float *out) {
    float d = read_half(block), m = read_half(block + 2);
    uint8_t n[32];
    nibbles_of(block + 4, 16, n, n + 16);
    put_32_plus(d, m, n, out);
}

// The five-bit integers of Q5_0 and Q5_1, of which nibbles are the lower four bits: where bit i of
// a 32-bit word before the nibbles is set, element i gets the bits of set, else those of clear.
static inline void five_bits(const uint8_t *high, uint8_t set, uint8_t clear, words n[2]) {
    words nibbles;
    memcpy(&nibbles, high + 4, sizeof nibbles);
    for (int i = 0; i < 2; i++) {
        const words mask = spread_bits(high + 2 * i);
        n[i] = (nibbles >> 4 * i & 15 * ONES) | (mask & set * ONES) | (~mask & clear * ONES);
    }
}

// Half d; word of high bits; nibbles. Value: d (n - 16), where -16 is 0xf0 as a signed byte.
static void q5_0_block(const uint8_t *block, float *out) {
    words n[2];
    five_bits(block + 2, 0, 0xf0, n);
    put_32(read_half(block), (const int8_t *)n, out);
}

// Half d; half m; word of high bits; nibbles. Value: d n + m.
static void q5_1_block(const uint8_t *block, float *out) {
    words n[2];
    five_bits(block + 4, 16, 0, n);
    put_32_plus(read_half(block), read_half(block + 2), (const uint8_t *)n, out);
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
    for (int j = 0; j < 4; j++) {
        uint8_t n[2][32];
        nibbles_of(block + 16 + 32 * j, 32, n[0], n[1]);
        for (int i = 0; i < 2; i++, out += 32) {
            int scale, minimum;
            group_scale(block + 4, 2 * j + i, &scale, &minimum);
            put_32_plus(d * (float)scale, -(dmin * (float)minimum), n[i], out);
        }
    }
}

// Like Q4_K, with 32 bytes of fifth bits before the nibbles: bit g of byte i belongs to element i
// of group g.
static void q5_k_block(const uint8_t *block, float *out) {
    float d = read_half(block), dmin = read_half(block + 2);
    const uint8_t *high = block + 16;
    for (int j = 0; j < 4; j++) {
        uint8_t n[2][32];
        nibbles_of(block + 48 + 32 * j, 32, n[0], n[1]);
        for (int i = 0; i < 2; i++, out += 32) {
            const int group = 2 * j + i;
            int scale, minimum;
            group_scale(block + 4, group, &scale, &minimum);
            for (int k = 0; k < 32; k++) n[i][k] |= high[k] & 1 << group ? 16 : 0;
            put_32_plus(d * (float)scale, -(dmin * (float)minimum), n[i], out);
        }
    }
}

// 128 bytes of low nibbles; 64 bytes of high bit pairs; 16 signed scales; half d. Each half of the
// block has four groups of 32: the low and the high nibbles of its 64 bytes, with the four bit
// pairs of its 32 bytes. A scale covers 16 elements. Value: d scale (n - 32).
static void q6_k_block(const uint8_t *block, float *out) {
    float d = read_half(block + 208);
    for (int half = 0; half < 2; half++) {
        uint8_t high[128], low[128];
        int8_t n[128];
        pairs_of_32(block + 128 + 32 * half, high);
        nibbles_of(block + 64 * half, 64, low, low + 64);
        for (int i = 0; i < 128; i++) n[i] = (int8_t)((low[i] | high[i] << 4) - 32);
        for (int i = 0; i < 8; i++, out += 16)
            put_16(d * (float)(int8_t)block[192 + 8 * half + i], n + 16 * i, out);
    }
}

const float UNEVEN[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// Writes scale values[n] for 32 elements, whose n are nibbles as in Q4_0. These are taken out of
// words: from vectors of them single ones are slow to get.
static void put_values(float scale, const float values[16], const uint8_t *nibbles,
                       float *restrict out) {
    for (int i = 0; i < 16; i += 4) {
        const uint32_t word = grid_word32(nibbles + i);
        for (int j = 0; j < 4; j++) {
            out[i + j] = scale * values[word >> 8 * j & 15];
            out[i + j + 16] = scale * values[word >> (8 * j + 4) & 15];
        }
    }
}

// Half d; nibbles as in Q4_0. Value: d UNEVEN[n].
static void iq4_nl_block(const uint8_t *block, float *out) {
    put_values(read_half(block), UNEVEN, block + 2, out);
}

// The 16 values of a float of four bits (sign, two exponent bits, one of fraction), doubled.
static const float FLOATS_OF_4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Byte e; nibbles as in Q4_0. Value: 2^(e - 128) FLOATS_OF_4[n]. Source: OCP Microscaling Formats
// 1.0, whose NaN (e = 255) is a number here.
static void mxfp4_block(const uint8_t *block, float *out) {
    // The lowest two powers are subnormal.
    float d = float_of_bits(block[0] < 2 ? 0x200000U << block[0] : (block[0] - 1U) << 23);
    put_values(d, FLOATS_OF_4, block + 1, out);
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
        put_values(scale, UNEVEN, block + 8 + 16 * group, out + (ptrdiff_t)32 * group);
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
    for (int half = 0; half < 2; half++) {
        uint8_t pairs[128];
        int8_t n[128];
        pairs_of_32(block + 32 + 32 * half, pairs);
        for (int j = 0; j < 4; j++) {
            const uint8_t bit = (uint8_t)(1 << (4 * half + j));
            for (int i = 0; i < 32; i++) {
                const uint8_t set = block[i] & bit;
                n[32 * j + i] = (int8_t)(pairs[32 * j + i] - (set ? 0 : 4));
            }
        }
        for (int i = 0; i < 8; i++, out += 16)
            put_16(d * (float)(third_scale(block + 96, 8 * half + i) - 32), n + 16 * i, out);
    }
}

// 16 bytes of scales; 64 bytes of bit pairs; half d; half dmin. Each half of the block has four
// groups of 32: the four bit pairs of its 32 bytes. A scale covers 16 elements; its upper nibble is
// their minimum. Value: d (scale & 15) n - dmin (scale >> 4).
static void q2_k_block(const uint8_t *block, float *out) {
    float d = read_half(block + 80), dmin = read_half(block + 82);
    for (int half = 0; half < 2; half++) {
        uint8_t n[128];
        pairs_of_32(block + 16 + 32 * half, n);
        for (int i = 0; i < 8; i++, out += 16) {
            const int scale = block[8 * half + i];
            put_16_plus(d * (float)(scale & 15), -(dmin * (float)(scale >> 4)), n + 16 * i, out);
        }
    }
}

// Value: d (n - 1) of two bits, in the order of Q2_K.
static void tq2_0_block(const uint8_t *block, float *out) {
    float d = read_half(block + 64);
    for (int half = 0; half < 2; half++) {
        uint8_t pairs[128];
        int8_t n[128];
        pairs_of_32(block + 32 * half, pairs);
        for (int i = 0; i < 128; i++) n[i] = (int8_t)(pairs[i] - 1);
        for (int i = 0; i < 4; i++, out += 32) put_32(d, n + 32 * i, out);
    }
}

// Value: d (n - 1), where n is digit number place of a byte in base 3, the first after the point;
// numbers are n - 1 of count bytes.
static inline void digits_of(const uint8_t *restrict bytes, int count, int place,
                             int8_t *restrict numbers) {
    static const uint8_t powers[] = {1, 3, 9, 27, 81};
    for (int i = 0; i < count; i++)
        numbers[i] = (int8_t)(((uint8_t)(bytes[i] * powers[place]) * 3 >> 8) - 1);
}

// 32 bytes of five digits, 16 bytes of five and 4 bytes of four: the first digits of all come
// first.
static void tq1_0_block(const uint8_t *block, float *out) {
    float d = read_half(block + 52);
    int8_t n[256];
    for (int i = 0; i < 5; i++) digits_of(block, 32, i, n + 32 * i);
    for (int i = 0; i < 5; i++) digits_of(block + 32, 16, i, n + 160 + 16 * i);
    for (int i = 0; i < 4; i++) digits_of(block + 48, 4, i, n + 240 + 4 * i);
    for (int i = 0; i < 256; i += 32) put_32(d, n + i, out + i);
}

// The types below store places in a codebook of GRIDS, whose entries are the magnitudes of 4 or 8
// columns, none of which is 0; grid_tables.h says where places and signs lie.

// Puts the signs of a group, a bit each, on its magnitudes, which become signed bytes.
static inline void add_signs(words n[2], uint32_t signs) {
    uint8_t bits[4];
    memcpy(bits, &signs, sizeof bits);
    for (int i = 0; i < 2; i++) {
        const words minus = spread_bits(bits + 2 * i);
        n[i] = (n[i] ^ minus) + (minus & ONES);
    }
}

// Half d; 64 places; eight words, each the signs of a group and the scale s in its top nibble.
// Value: d (s + 1/2) / 2 entry.
static void iq3_xxs_block(const uint8_t *block, float *out) {
    float d = read_half(block);
    for (int group = 0; group < 8; group++) {
        const uint32_t s = block[66 + 4 * group + 3] >> 4;
        const float scale = d * ((float)s + 0.5F) * 0.5F;
        words n[2];
        for (int i = 0; i < 4; i++) {
            const uint64_t high = GRIDS.iq3_xxs[iq3_xxs_entry(block, group, 2 * i + 1)];
            n[i / 2][i % 2] = GRIDS.iq3_xxs[iq3_xxs_entry(block, group, 2 * i)] | high << 32;
        }
        add_signs(n, iq3_xxs_signs(block, group));
        put_32(scale, (const int8_t *)n, out + (ptrdiff_t)32 * group);
    }
}

// Half d; 64 places; 8 bytes of their ninth bits; 32 bytes of signs; 4 bytes of scales s, low
// nibbles first. Value: d (2 s + 1) entry.
static void iq3_s_block(const uint8_t *block, float *out) {
    float d = read_half(block);
    for (int group = 0; group < 8; group++) {
        const float scale = d * (float)(2 * (block[106 + group / 2] >> group % 2 * 4 & 15) + 1);
        words n[2];
        for (int i = 0; i < 4; i++) {
            const uint64_t high = GRIDS.iq3_s[iq3_s_entry(block, group, 2 * i + 1)];
            n[i / 2][i % 2] = GRIDS.iq3_s[iq3_s_entry(block, group, 2 * i)] | high << 32;
        }
        add_signs(n, iq3_s_signs(block, group));
        put_32(scale, (const int8_t *)n, out + (ptrdiff_t)32 * group);
    }
}

// Half d; for each group four places and a word as in IQ3_XXS. Value: d (s + 1/2) / 4 entry.
static void iq2_xxs_block(const uint8_t *block, float *out) {
    float d = read_half(block);
    for (int group = 0; group < 8; group++) {
        const uint32_t s = block[2 + 8 * group + 7] >> 4;
        const float scale = d * ((float)s + 0.5F) * 0.25F;
        words n[2];
        for (int i = 0; i < 4; i++) n[i / 2][i % 2] = GRIDS.iq2_xxs[iq2_xxs_entry(block, group, i)];
        add_signs(n, iq2_xxs_signs(block, group));
        put_32(scale, (const int8_t *)n, out + (ptrdiff_t)32 * group);
    }
}

// Writes a group whose halves have the nibbles of a byte as scales s: d (s + 1/2) / 4 n.
static void put_halves(float d, uint8_t scales, const words n[2], float *out) {
    for (int i = 0; i < 2; i++) {
        const float scale = d * ((float)(scales >> 4 * i & 15) + 0.5F) * 0.25F;
        put_16(scale, (const int8_t *)(n + i), out + 16 * i);
    }
}

// Half d; 32 words of 16 bits, each a place of 9 bits and 7 signs; 8 bytes of scales.
static void iq2_xs_block(const uint8_t *block, float *out) {
    float d = read_half(block);
    for (int group = 0; group < 8; group++) {
        words n[2];
        for (int i = 0; i < 4; i++) n[i / 2][i % 2] = GRIDS.iq2_xs[iq2_xs_entry(block, group, i)];
        add_signs(n, iq2_xs_signs(block, group));
        put_halves(d, block[66 + group], n, out + (ptrdiff_t)32 * group);
    }
}

// Half d; 32 places; 32 bytes of signs; 8 bytes of two more bits of each place; 8 bytes of scales.
static void iq2_s_block(const uint8_t *block, float *out) {
    float d = read_half(block);
    for (int group = 0; group < 8; group++) {
        words n[2];
        for (int i = 0; i < 4; i++) n[i / 2][i % 2] = GRIDS.iq2_s[iq2_s_entry(block, group, i)];
        add_signs(n, iq2_s_signs(block, group));
        put_halves(d, block[74 + group], n, out + (ptrdiff_t)32 * group);
    }
}

// 8 (entry - 1) +- 1 of two entries of IQ1_S or IQ1_M, signed bytes, which borrow from a top bit.
static inline words eighths(const uint32_t places[2], const bool minus[2]) {
    const words entries = {GRIDS.iq1[places[0]], GRIDS.iq1[places[1]]};
    const words less = {(minus[0] ? 9 : 7) * ONES, (minus[1] ? 9 : 7) * ONES};
    return ((entries * 8 | 128 * ONES) - less) ^ 128 * ONES;
}

// Half d; 32 places; for each group a word of 16 bits: three more bits of each place, the scale s
// in three bits, and the sign of the eighth. Value: d (2 s + 1) (entry - 1 +- 1/8).
static void iq1_s_block(const uint8_t *block, float *out) {
    float d = read_half(block);
    for (int half = 0; half < 16; half++) {
        const int group = half / 2, i = half % 2 * 2;
        const uint16_t word = grid_word16(block + 34 + 2 * group);
        const bool minus = word >> 15;
        const float scale = d * (float)(2 * (word >> 12 & 7) + 1);
        const words n =
            eighths((uint32_t[]){iq1_s_entry(block, group, i), iq1_s_entry(block, group, i + 1)},
                    (bool[]){minus, minus});
        put_16(scale / 8, (const int8_t *)&n, out + (ptrdiff_t)16 * half);
    }
}

// 32 places; 16 bytes of nibbles, for each place three more bits and the sign of the eighth; four
// words of 16 bits with the scales s of half groups in three bits each and d in their top nibbles.
// Value: d (2 s + 1) (entry - 1 +- 1/8).
static void iq1_m_block(const uint8_t *block, float *out) {
    float d = half_to_float(iq1_m_half(block));
    for (int half = 0; half < 16; half++) {
        const int group = half / 2, i = half % 2 * 2;
        const float scale = d * (float)iq1_m_scale(block, group, half % 2);
        const words n = eighths(
            (uint32_t[]){iq1_m_entry(block, group, i), iq1_m_entry(block, group, i + 1)},
            (bool[]){iq1_m_nibble(block, group, i) & 8, iq1_m_nibble(block, group, i + 1) & 8});
        put_16(scale / 8, (const int8_t *)&n, out + (ptrdiff_t)16 * half);
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
