/* blocks.metal: the weight types as kernels read them: eight columns of a row as floats.
 *
 * Every type is a struct weight_<type>: BLOCK columns lie in BYTES bytes, tile is the type that its
 * values have in the tiles of the GEMMs, and columns(row, i) is columns 8 i to 8 i + 7. What the
 * bytes mean is defined by kernels/cpu/dequantize.c. A kernel is a template over these structs.
 * Rows of types with blocks are 16-byte aligned only where all blocks are, so words are read by two
 * bytes where blocks of 18, 22, 34, 50, 54, 66, 74, 82, 98, 110 or 210 bytes make that necessary,
 * and by one in MXFP4. Owns nothing. Tested by tests/kernels/test_metal_kernels.c and check_ops.c.
 */
#ifndef TANDEM_KERNELS_METAL_BLOCKS_METAL
#define TANDEM_KERNELS_METAL_BLOCKS_METAL

#include "kernels/metal/device.metal"

struct eight {
    float4 low, high; // columns 0..3 and 4..7
};

// ---- Loads and bytes ---------------------------------------------------------------------------

static uint two_bytes_at(device const uchar *p) { return *(device const ushort *)p; } // 2-byte aligned

static uint four_bytes_at(device const uchar *p) { // 2-byte aligned
    return two_bytes_at(p) | two_bytes_at(p + 2) << 16;
}

static float half_at(device const uchar *p) { return float(*(device const half *)p); }

// Four bytes of a word, the lowest first, as numbers.
static float4 unsigned_bytes(uint word) { return float4(as_type<uchar4>(word)); }
static float4 signed_bytes(uint word) { return float4(as_type<char4>(word)); }

// scale * n + offset for the unsigned bytes n of two words.
static eight scaled_bytes(uint2 words, float scale, float offset) {
    return {unsigned_bytes(words.x) * scale + offset, unsigned_bytes(words.y) * scale + offset};
}

// The eight nibbles, low or high, of 8 bytes that are 2-byte aligned.
static uint2 nibbles_at(device const uchar *p, int shift) {
    return uint2(four_bytes_at(p) >> shift, four_bytes_at(p + 4) >> shift) & 0x0f0f0f0fu;
}

// The same of 8-byte aligned ones.
static uint2 aligned_nibbles_at(device const uchar *p, int shift) {
    return (*(device const uint2 *)p >> uint(shift)) & 0x0f0f0f0fu;
}

// Two bits at shift of each of 8 bytes that are 2-byte aligned.
static uint2 pairs_at(device const uchar *p, int shift) {
    return uint2(four_bytes_at(p) >> shift, four_bytes_at(p + 4) >> shift) & 0x03030303u;
}

// Bit number bit of each of 8 bytes that are 2-byte aligned, as bit 0.
static uint2 bits_at(device const uchar *p, int bit) {
    return uint2(four_bytes_at(p) >> bit, four_bytes_at(p + 4) >> bit) & 0x01010101u;
}

// Spreads four bits over the bytes of a word: bit j becomes bit 0 of byte j.
static uint spread_bits(uint bits) { return ((bits & 15) * 0x00204081u) & 0x01010101u; }

// ---- Plain types -------------------------------------------------------------------------------

struct weight_f32 {
    enum { BLOCK = 1, BYTES = 4 };
    typedef float tile;
    static float element(device const uchar *row, int c) { return ((device const float *)row)[c]; }
    static eight columns(device const uchar *row, int i) { // the row is 16-byte aligned
        device const float4 *x = (device const float4 *)row + 2 * i;
        return {x[0], x[1]};
    }
};

struct weight_f16 {
    enum { BLOCK = 1, BYTES = 2 };
    typedef float tile;
    static float element(device const uchar *row, int c) {
        return float(((device const half *)row)[c]);
    }
    static eight columns(device const uchar *row, int i) { // the row is 16-byte aligned
        device const half4 *x = (device const half4 *)row + 2 * i;
        return {float4(x[0]), float4(x[1])};
    }
};

struct weight_bf16 {
    enum { BLOCK = 1, BYTES = 2 };
    typedef float tile; // exponents of a half are too few
    static float element(device const uchar *row, int c) {
        return as_type<float>(uint(((device const ushort *)row)[c]) << 16);
    }
    static eight columns(device const uchar *row, int i) { // the row is 16-byte aligned
        const uint4 x = *((device const uint4 *)row + i);
        const uint4 even = x << 16u, odd = x & 0xffff0000u;
        return {as_type<float4>(uint4(even.x, odd.x, even.y, odd.y)),
                as_type<float4>(uint4(even.z, odd.z, even.w, odd.w))};
    }
};

// ---- Blocks of 32 ------------------------------------------------------------------------------

// Nibbles of 16 bytes: the low ones are elements 0..15. Part j of four has the eight elements 8 j.
static uint2 nibbles_of_32(device const uchar *nibbles, int j) {
    return nibbles_at(nibbles + 8 * (j & 1), 4 * (j >> 1));
}

// The same with fifth bits: bit i of the word of 2-byte aligned bytes belongs to element i.
static uint2 five_bits_of_32(device const uchar *high, device const uchar *nibbles, int j) {
    const uint fifth = four_bytes_at(high) >> (8 * j);
    return nibbles_of_32(nibbles, j) | uint2(spread_bits(fifth) << 4, spread_bits(fifth >> 4) << 4);
}

struct weight_q8_0 {
    enum { BLOCK = 32, BYTES = 34 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 2) * BYTES;
        device const uchar *n = b + 2 + 8 * (i & 3);
        const float d = half_at(b);
        return {signed_bytes(four_bytes_at(n)) * d, signed_bytes(four_bytes_at(n + 4)) * d};
    }
};

struct weight_q4_0 {
    enum { BLOCK = 32, BYTES = 18 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 2) * BYTES;
        const float d = half_at(b);
        return scaled_bytes(nibbles_of_32(b + 2, i & 3), d, -8 * d);
    }
};

struct weight_q4_1 {
    enum { BLOCK = 32, BYTES = 20 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 2) * BYTES;
        return scaled_bytes(nibbles_of_32(b + 4, i & 3), half_at(b), half_at(b + 2));
    }
};

struct weight_q5_0 {
    enum { BLOCK = 32, BYTES = 22 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 2) * BYTES;
        const float d = half_at(b);
        return scaled_bytes(five_bits_of_32(b + 2, b + 6, i & 3), d, -16 * d);
    }
};

struct weight_q5_1 {
    enum { BLOCK = 32, BYTES = 24 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 2) * BYTES;
        return scaled_bytes(five_bits_of_32(b + 4, b + 8, i & 3), half_at(b), half_at(b + 2));
    }
};

// The values of nibbles in IQ4_NL and IQ4_XS, and in MXFP4 (doubled).
constant float UNEVEN[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                             1,    13,   25,  38,  53,  69,  89,  113};
constant float FLOATS_OF_4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// The values of the nibbles in a word of bytes.
static float4 four_values(constant float *values, uint word) {
    return float4(values[word & 15], values[word >> 8 & 15], values[word >> 16 & 15],
                  values[word >> 24 & 15]);
}

static eight eight_values(constant float *values, uint2 words, float scale) {
    return {four_values(values, words.x) * scale, four_values(values, words.y) * scale};
}

struct weight_iq4_nl {
    enum { BLOCK = 32, BYTES = 18 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 2) * BYTES;
        return eight_values(UNEVEN, nibbles_of_32(b + 2, i & 3), half_at(b));
    }
};

struct weight_mxfp4 {
    enum { BLOCK = 32, BYTES = 17 };
    typedef half tile;
    // 2^(e - 128): e as a float's exponent; the two least are subnormal.
    static float scale(uint e) {
        return as_type<float>(e < 2 ? 0x200000u << e : (e - 1) << 23);
    }
    static uint word_at(device const uchar *p) {
        return uint(p[0]) | uint(p[1]) << 8 | uint(p[2]) << 16 | uint(p[3]) << 24;
    }
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 2) * BYTES;
        device const uchar *n = b + 1 + 8 * (i & 1);
        const int shift = 2 * (i & 2);
        const uint2 words = uint2(word_at(n) >> shift, word_at(n + 4) >> shift);
        return eight_values(FLOATS_OF_4, words, scale(b[0]));
    }
};

// ---- Blocks of 256 -----------------------------------------------------------------------------

// Below, i & 31 is the part of a block, g = (i >> 2) & 7 its group of 32 and j = i & 3 the part of
// the group, whose halves may have scales of their own.

// The scale and the minimum of group g of Q4_K and Q5_K, six bits each: {half d, half dmin, 12
// bytes}. The first four groups use bytes of their own, whose top bits complete the last four.
static float2 k_scale(device const uchar *b, int g) {
    device const uchar *scales = b + 4;
    uint scale = scales[g & 3] & 63, minimum = scales[(g & 3) + 4] & 63;
    if (g >= 4) {
        scale = (scales[g + 4] & 15) | (scales[g - 4] >> 6) << 4;
        minimum = (scales[g + 4] >> 4) | (scales[g] >> 6) << 4;
    }
    return float2(half_at(b) * float(scale), -half_at(b + 2) * float(minimum));
}

struct weight_q4_k {
    enum { BLOCK = 256, BYTES = 144 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 5) * BYTES;
        const int g = i >> 2 & 7, j = i & 3;
        const float2 scale = k_scale(b, g);
        const uint2 n = aligned_nibbles_at(b + 16 + 32 * (g >> 1) + 8 * j, 4 * (g & 1));
        return scaled_bytes(n, scale.x, scale.y);
    }
};

struct weight_q5_k {
    enum { BLOCK = 256, BYTES = 176 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 5) * BYTES;
        const int g = i >> 2 & 7, j = i & 3;
        const float2 scale = k_scale(b, g);
        const uint2 n = aligned_nibbles_at(b + 48 + 32 * (g >> 1) + 8 * j, 4 * (g & 1));
        const uint2 fifth = (*(device const uint2 *)(b + 16 + 8 * j) >> uint(g)) & 0x01010101u;
        return scaled_bytes(n | fifth << 4u, scale.x, scale.y);
    }
};

// 128 bytes of nibbles, 64 of bit pairs, 16 scales, half d. Each half of a block has four groups:
// the low and the high nibbles of its 64 bytes with the four bit pairs of its 32.
struct weight_q6_k {
    enum { BLOCK = 256, BYTES = 210 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 5) * BYTES;
        const int g = i >> 2 & 7, j = i & 3, part = g >> 2, k = g & 3;
        const uint2 low = nibbles_at(b + 64 * part + 32 * (k & 1) + 8 * j, 4 * (k >> 1));
        const uint2 high = pairs_at(b + 128 + 32 * part + 8 * j, 2 * k);
        const float d = half_at(b + 208) * float(((device const char *)b)[192 + 2 * g + (j >> 1)]);
        return scaled_bytes(low | high << 4u, d, -32 * d);
    }
};

// 32 bytes of high bits, 64 of bit pairs, 12 of scales, half d.
struct weight_q3_k {
    enum { BLOCK = 256, BYTES = 110 };
    typedef half tile;
    // Scale n (0..15): a nibble of the first 8 bytes and a bit pair of the last 4.
    static float scale(device const uchar *b, int n) {
        device const uchar *scales = b + 96;
        const int low = scales[n & 7] >> (n >> 3) * 4 & 15;
        const int high = scales[8 + (n & 3)] >> (n >> 2) * 2 & 3;
        return half_at(b + 108) * float((low | high << 4) - 32);
    }
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 5) * BYTES;
        const int g = i >> 2 & 7, j = i & 3;
        const uint2 low = pairs_at(b + 32 + 32 * (g >> 2) + 8 * j, 2 * (g & 3));
        const uint2 high = bits_at(b + 8 * j, g);
        const float d = scale(b, 2 * g + (j >> 1));
        return scaled_bytes(low | high << 2u, d, -4 * d);
    }
};

// 16 bytes of scales, whose upper nibbles are minima, 64 of bit pairs, half d, half dmin.
struct weight_q2_k {
    enum { BLOCK = 256, BYTES = 84 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 5) * BYTES;
        const int g = i >> 2 & 7, j = i & 3, scale = b[2 * g + (j >> 1)];
        const uint2 n = pairs_at(b + 16 + 32 * (g >> 2) + 8 * j, 2 * (g & 3));
        return scaled_bytes(n, half_at(b + 80) * float(scale & 15),
                            -half_at(b + 82) * float(scale >> 4));
    }
};

// Two bits n for n - 1, in the order of Q2_K; half d.
struct weight_tq2_0 {
    enum { BLOCK = 256, BYTES = 66 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 5) * BYTES;
        const int g = i >> 2 & 7, j = i & 3;
        const float d = half_at(b + 64);
        return scaled_bytes(pairs_at(b + 32 * (g >> 2) + 8 * j, 2 * (g & 3)), d, -d);
    }
};

constant uint POWERS_OF_3[5] = {1, 3, 9, 27, 81};

// Digits n of bytes in base 3 for n - 1: 32 bytes of five, 16 of five and 4 of four, where the first
// digits of all come first; half d.
struct weight_tq1_0 {
    enum { BLOCK = 256, BYTES = 54 };
    typedef half tile;
    // The digits of four bytes at a place. Two bytes at once are multiplied in halves of a word.
    static uint digits(uint bytes, int place) {
        const uint halves = 0x00ff00ffu, power = POWERS_OF_3[place];
        const uint even = (((bytes & halves) * power) & halves) * 3;
        const uint odd = (((bytes >> 8 & halves) * power) & halves) * 3;
        return (even >> 8 & 0x00030003u) | (odd & 0x03000300u);
    }
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 5) * BYTES;
        const int part = i & 31;
        const float d = half_at(b + 52);
        uint2 n;
        if (part >= 30) {
            const uint bytes = four_bytes_at(b + 48);
            n = uint2(digits(bytes, 2 * (part - 30)), digits(bytes, 2 * (part - 30) + 1));
        } else {
            const bool many = part < 20;
            device const uchar *p = b + (many ? 8 * (part & 3) : 32 + 8 * (part & 1));
            const int place = many ? part >> 2 : (part - 20) >> 1;
            n = uint2(digits(four_bytes_at(p), place), digits(four_bytes_at(p + 4), place));
        }
        return scaled_bytes(n, d, -d);
    }
};

// Half d, a word of upper scale bits, 4 bytes of lower ones, groups of 16 bytes of nibbles.
struct weight_iq4_xs {
    enum { BLOCK = 256, BYTES = 136 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 5) * BYTES;
        const int g = i >> 2 & 7;
        const int low = b[4 + (g >> 1)] >> (g & 1) * 4 & 15;
        const int high = int(two_bytes_at(b + 2) >> 2 * g & 3);
        const float d = half_at(b) * float((low | high << 4) - 32);
        return eight_values(UNEVEN, nibbles_of_32(b + 8 + 16 * g, i & 3), d);
    }
};

#endif
