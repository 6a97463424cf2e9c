/* blocks_iq.metal: the IQ types of codebooks as kernels read them: structs weight_<type> as those
 * of blocks.metal.
 *
 * Groups of 8 or 4 columns are entries of codebooks (kernels/grids.def), whose codes are expanded
 * where they are read: a table of all bytes is four times as large, and the text too. Signs are
 * bits of their own. The meaning of a block's bytes is defined by kernels/cpu/dequantize.c. Owns
 * nothing. Tested by tests/kernels/test_metal_kernels.c and check_ops.c.
 */
#ifndef TANDEM_KERNELS_METAL_BLOCKS_IQ_METAL
#define TANDEM_KERNELS_METAL_BLOCKS_IQ_METAL

#include "kernels/metal/blocks.metal"

constant ushort GRID_OF_IQ2_XXS[256] = {
#define IQ2_XXS(...) __VA_ARGS__,
#include "kernels/grids.def"
};
constant ushort GRID_OF_IQ2_XS[512] = {
#define IQ2_XS(...) __VA_ARGS__,
#include "kernels/grids.def"
};
constant ushort GRID_OF_IQ2_S[1024] = {
#define IQ2_S(...) __VA_ARGS__,
#include "kernels/grids.def"
};
constant ushort GRID_OF_IQ1[2048] = {
#define IQ1_S(...) __VA_ARGS__,
#include "kernels/grids.def"
};
constant ushort GRID_OF_IQ3_XXS[256] = {
#define IQ3_XXS(...) __VA_ARGS__,
#include "kernels/grids.def"
};
constant ushort GRID_OF_IQ3_S[512] = {
#define IQ3_S(...) __VA_ARGS__,
#include "kernels/grids.def"
};

// Codes of two bits, in the low byte, and of three bits, in the low 12 bits, as bytes of a word.
static uint codes_of_2(uint codes) {
    codes = ((codes & 255) | codes << 12) & 0x000f000fu;
    return (codes | codes << 6) & 0x03030303u;
}
static uint codes_of_3(uint codes) {
    codes = ((codes & 4095) | codes << 10) & 0x003f003fu;
    return (codes | codes << 5) & 0x07070707u;
}

// Magnitudes of four columns: 8, 25 and 43 for codes 0, 1 and 2 of the IQ2 types; 4 + 8 n for code
// n of IQ3_XXS, but 62 for 7; 1 + 2 n of IQ3_S.
static float4 magnitudes_2(uint codes) {
    const uint n = codes_of_2(codes);
    return unsigned_bytes(n * 17 + 0x08080808u + (n >> 1 & 0x01010101u));
}
static float4 magnitudes_3_xxs(uint codes) {
    const uint n = codes_of_3(codes), sevens = n & n >> 1 & n >> 2 & 0x01010101u;
    return unsigned_bytes(n * 8 + 0x04040404u + sevens * 2);
}
static float4 magnitudes_3_s(uint codes) {
    return unsigned_bytes(codes_of_3(codes) * 2 + 0x01010101u);
}

// Makes values negative where the bit of their column is set, the lowest bit first.
static float4 negate_four(float4 v, uint bits) {
    const uint4 signs = uint4(bits << 31, bits << 30, bits << 29, bits << 28) & 0x80000000u;
    return as_type<float4>(as_type<uint4>(v) ^ signs);
}

static eight signed_eight(float4 low, float4 high, uint signs, float scale) {
    return {negate_four(low * scale, signs), negate_four(high * scale, signs >> 4)};
}

// Seven signs; the eighth makes the set ones even.
static uint even_signs(uint bits) {
    bits &= 127;
    return bits | (popcount(bits) & 1) << 7;
}

// Half d; 64 places; for each group a word of signs and, in its top nibble, the scale.
struct weight_iq3_xxs {
    enum { BLOCK = 256, BYTES = 98 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 5) * BYTES;
        device const uchar *places = b + 2 + 2 * (i & 31);
        const uint word = four_bytes_at(b + 66 + 4 * (i >> 2 & 7));
        return signed_eight(magnitudes_3_xxs(GRID_OF_IQ3_XXS[places[0]]),
                            magnitudes_3_xxs(GRID_OF_IQ3_XXS[places[1]]),
                            even_signs(word >> 7 * (i & 3)),
                            half_at(b) * (float(word >> 28) * 0.5f + 0.25f));
    }
};

// Half d; 64 places; 8 bytes of their ninth bits; 32 of signs; 4 of scales.
struct weight_iq3_s {
    enum { BLOCK = 256, BYTES = 110 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 5) * BYTES;
        device const uchar *places = b + 2 + 2 * (i & 31);
        const int g = i >> 2 & 7, j = i & 3;
        const uint high = uint(b[66 + g]) >> 2 * j;
        const int scale = b[106 + (g >> 1)] >> (g & 1) * 4 & 15;
        return signed_eight(magnitudes_3_s(GRID_OF_IQ3_S[places[0] | (high & 1) << 8]),
                            magnitudes_3_s(GRID_OF_IQ3_S[places[1] | (high & 2) << 7]),
                            b[74 + (i & 31)], half_at(b) * float(2 * scale + 1));
    }
};

// Eight columns of an entry of the IQ2 types.
static eight columns_of_2(uint entry, uint signs, float scale) {
    return signed_eight(magnitudes_2(entry), magnitudes_2(entry >> 8), signs, scale);
}

// The scale of half a group in a byte of two.
static float scale_of_nibble(device const uchar *b, uint scales, int half_group) {
    return half_at(b) * (float(scales >> half_group * 4 & 15) * 0.25f + 0.125f);
}

// Half d; for each group four places, and a word as in IQ3_XXS.
struct weight_iq2_xxs {
    enum { BLOCK = 256, BYTES = 66 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 5) * BYTES;
        device const uchar *group = b + 2 + 8 * (i >> 2 & 7);
        const uint word = four_bytes_at(group + 4);
        return columns_of_2(GRID_OF_IQ2_XXS[group[i & 3]], even_signs(word >> 7 * (i & 3)),
                            half_at(b) * (float(word >> 28) * 0.25f + 0.125f));
    }
};

// Half d; 32 words, each a place of 9 bits and 7 signs; 8 bytes of scales.
struct weight_iq2_xs {
    enum { BLOCK = 256, BYTES = 74 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 5) * BYTES;
        const uint word = two_bytes_at(b + 2 + 2 * (i & 31));
        return columns_of_2(GRID_OF_IQ2_XS[word & 511], even_signs(word >> 9),
                            scale_of_nibble(b, b[66 + (i >> 2 & 7)], i >> 1 & 1));
    }
};

// Half d; 32 places; 32 bytes of signs; 8 of two more bits of each place; 8 of scales.
struct weight_iq2_s {
    enum { BLOCK = 256, BYTES = 82 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 5) * BYTES;
        const int g = i >> 2 & 7, j = i & 3;
        const uint high = uint(b[66 + g]) >> 2 * j & 3;
        return columns_of_2(GRID_OF_IQ2_S[b[2 + (i & 31)] | high << 8], b[34 + (i & 31)],
                            scale_of_nibble(b, b[74 + g], j >> 1));
    }
};

// Entry - 1 and an eighth more or less, times scale.
static eight columns_of_1(uint place, bool minus, float scale) {
    const uint entry = GRID_OF_IQ1[place];
    const float offset = scale * (minus ? -1.125f : -0.875f);
    return scaled_bytes(uint2(codes_of_2(entry), codes_of_2(entry >> 8)), scale, offset);
}

// Half d; 32 places; for each group a word: three more bits of each place, the scale, and the sign
// of the eighth.
struct weight_iq1_s {
    enum { BLOCK = 256, BYTES = 50 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 5) * BYTES;
        const uint word = two_bytes_at(b + 34 + 2 * (i >> 2 & 7));
        const uint high = word >> 3 * (i & 3) & 7;
        return columns_of_1(b[2 + (i & 31)] | high << 8, (word >> 15) != 0,
                            half_at(b) * float(2 * (word >> 12 & 7) + 1));
    }
};

// 32 places; 16 bytes of nibbles: three more bits of each place and the sign of the eighth; four
// words with the scales of half groups and d in their top nibbles.
struct weight_iq1_m {
    enum { BLOCK = 256, BYTES = 56 };
    typedef half tile;
    static eight columns(device const uchar *row, int i) {
        device const uchar *b = row + long(i >> 5) * BYTES;
        device const ushort *words = (device const ushort *)(b + 48);
        const int g = i >> 2 & 7, j = i & 3;
        const uint nibble = uint(b[32 + 2 * g + (j >> 1)]) >> (j & 1) * 4 & 15;
        const uint scale = uint(words[g >> 1]) >> (6 * (g & 1) + 3 * (j >> 1)) & 7;
        const ushort d = (words[0] >> 12) | (words[1] >> 8 & 0xf0) | (words[2] >> 4 & 0xf00) |
                         (words[3] & 0xf000);
        return columns_of_1(b[i & 31] | (nibble & 7) << 8, (nibble & 8) != 0,
                            float(as_type<half>(d)) * float(2 * scale + 1));
    }
};

// Columns 8 i to 8 i + 7 of a row of n_cols, with zeros past its end. Rows of plain types may have
// any length; where it is no multiple of eight they are not aligned.
template <class W, int BLOCK> struct eight_reader {
    static eight read(device const uchar *row, int i, int) { return W::columns(row, i); }
};
template <class W> struct eight_reader<W, 1> {
    static float element(device const uchar *row, int c, int n_cols) {
        return c < n_cols ? W::element(row, c) : 0.0f;
    }
    static eight read(device const uchar *row, int i, int n_cols) {
        if ((n_cols & 7) == 0) return W::columns(row, i);
        const int c = 8 * i;
        return {float4(element(row, c, n_cols), element(row, c + 1, n_cols),
                       element(row, c + 2, n_cols), element(row, c + 3, n_cols)),
                float4(element(row, c + 4, n_cols), element(row, c + 5, n_cols),
                       element(row, c + 6, n_cols), element(row, c + 7, n_cols))};
    }
};
template <class W> static eight read_eight(device const uchar *row, int i, int n_cols) {
    return eight_reader<W, int(W::BLOCK)>::read(row, i, n_cols);
}

template <class W> static long row_bytes(int n_cols) {
    return long(n_cols / int(W::BLOCK)) * int(W::BYTES);
}

#define WEIGHT(NAME, name, ...)                                                       \
    static_assert(int(weight_##name::BLOCK) == int(BLOCK_ELEMENTS_##NAME) &&          \
                      int(weight_##name::BYTES) == int(BLOCK_BYTES_##NAME),           \
                  "the blocks are those of the format");
#include "kernels/weights.def"
#undef WEIGHT

#endif
