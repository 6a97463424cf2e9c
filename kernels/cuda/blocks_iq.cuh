/* blocks_iq.cuh: the IQ types of codebooks as kernels read them: structs weight_<type> as those of
 * blocks.cuh.
 *
 * Groups of 8 or 4 columns are entries of codebooks (kernels/grids.def), which lie in the device's
 * memory as bytes and come through its caches; signs are bits of their own. An item is one group.
 * The meaning of a block's bytes is defined by kernels/cpu/dequantize.c. Blocks of 50, 66, 74, 82,
 * 98 and 110 bytes are 2-byte aligned, those of IQ1_M 8-byte. Owns nothing; device code only;
 * included by blocks.cuh only. Tested by tests/kernels/check_ops.c on every matmul and embed.
 */
#ifndef TANDEM_KERNELS_CUDA_BLOCKS_IQ_CUH
#define TANDEM_KERNELS_CUDA_BLOCKS_IQ_CUH

#include "kernels/grids.h"

// A word is four columns; entries of eight are two words.
static __device__ const unsigned long long GRID_OF_IQ2_XXS[256] = {
#define IQ2_XXS GRID_IQ2
#include "kernels/grids.def"
};
static __device__ const unsigned long long GRID_OF_IQ2_XS[512] = {
#define IQ2_XS GRID_IQ2
#include "kernels/grids.def"
};
static __device__ const unsigned long long GRID_OF_IQ2_S[1024] = {
#define IQ2_S GRID_IQ2
#include "kernels/grids.def"
};
static __device__ const unsigned long long GRID_OF_IQ1[2048] = {
#define IQ1_S GRID_IQ1
#include "kernels/grids.def"
};
static __device__ const uint32_t GRID_OF_IQ3_XXS[256] = {
#define IQ3_XXS GRID_IQ3_XXS
#include "kernels/grids.def"
};
static __device__ const uint32_t GRID_OF_IQ3_S[512] = {
#define IQ3_S GRID_IQ3_S
#include "kernels/grids.def"
};

DEVICE_FN uint32_t four_bytes_at(const uint8_t *p) { // 2-byte aligned
    return two_bytes_at(p) | two_bytes_at(p + 2) << 16;
}

// Makes bytes of 1 to 127 negative where the bit of their column is set, the lowest bit first.
DEVICE_FN uint32_t negate_bytes(uint32_t bytes, uint32_t bits) {
    uint32_t minus = (bits & 15) * 0x00204081u & 0x01010101u;
    return (bytes ^ minus * 255) + minus;
}

// The signs of 32 columns in four fields of 7 bits. The eighth bit makes the set ones even.
DEVICE_FN uint32_t even_parity(uint32_t bytes) {
    uint32_t odd = bytes ^ bytes >> 4;
    odd ^= odd >> 2, odd ^= odd >> 1;
    return bytes | (odd & 0x01010101u) << 7;
}
DEVICE_FN uint32_t signs_of_word(uint32_t word) {
    return even_parity((word & 0x7f) | (word << 1 & 0x7f00) | (word << 2 & 0x7f0000) |
                       (word << 3 & 0x7f000000));
}

// The members that types of magnitudes and signs share. T has, for group g of block b, columns(b,
// g, i), columns 4 i to 4 i + 3 as a word of magnitudes; signs(b, g), a bit for each column; and
// scale(b, g, half).
template <class T, int BLOCK_BYTES, bool HALVES>
struct weight_of_grid : weight_of_256<BLOCK_BYTES, 1> {
    static constexpr bool TWO_SCALES = HALVES;
    DEVICE_FN void load(weight_group *out, const uint8_t *row, int item) {
        const uint8_t *b = T::block_of(row, item);
        const int g = item & 7;
        const uint32_t signs = T::signs(b, g);
#pragma unroll
        for (int i = 0; i < 8; i++)
            out->words[i] = negate_bytes(T::columns(b, g, i), signs >> 4 * i);
        out->scale = T::scale(b, g, 0), out->offset = 0;
        if (HALVES) out->scale_high = T::scale(b, g, 1);
    }
    DEVICE_FN float element(const uint8_t *row, int column) {
        const uint8_t *b = T::block_at(row, column);
        const int g = column % 256 / 32, i = column % 32;
        uint32_t word = negate_bytes(T::columns(b, g, i / 4), T::signs(b, g) >> i / 4 * 4);
        return T::scale(b, g, i / 16) * (float)(int8_t)(word >> i % 4 * 8);
    }
};

struct iq3_xxs_block {
    uint8_t d[2], places[64], words[32];
};
struct weight_iq3_xxs : weight_of_grid<weight_iq3_xxs, sizeof(iq3_xxs_block), false> {
    DEVICE_FN uint32_t word(const uint8_t *b, int g) {
        return four_bytes_at(b + offsetof(iq3_xxs_block, words) + 4 * g);
    }
    DEVICE_FN uint32_t columns(const uint8_t *b, int g, int i) {
        return __ldg(GRID_OF_IQ3_XXS + b[offsetof(iq3_xxs_block, places) + 8 * g + i]);
    }
    DEVICE_FN uint32_t signs(const uint8_t *b, int g) { return signs_of_word(word(b, g)); }
    DEVICE_FN float scale(const uint8_t *b, int g, int) {
        return half_at(b) * ((float)(word(b, g) >> 28) * 0.5F + 0.25F);
    }
};

struct iq3_s_block {
    uint8_t d[2], places[64], high[8], signs[32], scales[4];
};
struct weight_iq3_s : weight_of_grid<weight_iq3_s, sizeof(iq3_s_block), false> {
    DEVICE_FN uint32_t columns(const uint8_t *b, int g, int i) {
        uint32_t high = b[offsetof(iq3_s_block, high) + g] >> i & 1;
        return __ldg(GRID_OF_IQ3_S + (b[offsetof(iq3_s_block, places) + 8 * g + i] | high << 8));
    }
    DEVICE_FN uint32_t signs(const uint8_t *b, int g) {
        return four_bytes_at(b + offsetof(iq3_s_block, signs) + 4 * g);
    }
    DEVICE_FN float scale(const uint8_t *b, int g, int) {
        int n = b[offsetof(iq3_s_block, scales) + g / 2] >> (g & 1) * 4 & 15;
        return half_at(b) * (float)(2 * n + 1);
    }
};

// Columns 4 i to 4 i + 3 of a group by entries of eight.
DEVICE_FN uint32_t half_entry(const unsigned long long *grid, uint32_t place, int i) {
    return __ldg((const uint32_t *)(grid + place) + (i & 1));
}

struct iq2_xxs_block {
    uint8_t d[2], groups[64]; // of each group four places and a word
};
struct weight_iq2_xxs : weight_of_grid<weight_iq2_xxs, sizeof(iq2_xxs_block), false> {
    DEVICE_FN uint32_t word(const uint8_t *b, int g) {
        return four_bytes_at(b + offsetof(iq2_xxs_block, groups) + 8 * g + 4);
    }
    DEVICE_FN uint32_t columns(const uint8_t *b, int g, int i) {
        uint32_t place = b[offsetof(iq2_xxs_block, groups) + 8 * g + i / 2];
        return half_entry(GRID_OF_IQ2_XXS, place, i);
    }
    DEVICE_FN uint32_t signs(const uint8_t *b, int g) { return signs_of_word(word(b, g)); }
    DEVICE_FN float scale(const uint8_t *b, int g, int) {
        return half_at(b) * ((float)(word(b, g) >> 28) * 0.25F + 0.125F);
    }
};

// The scale of half a group in a byte of two.
DEVICE_FN float scale_of_nibble(const uint8_t *b, uint8_t scales, int half) {
    return half_at(b) * ((float)(scales >> half * 4 & 15) * 0.25F + 0.125F);
}

struct iq2_xs_block {
    uint8_t d[2], words[64], scales[8]; // a word: nine bits of a place, seven signs
};
struct weight_iq2_xs : weight_of_grid<weight_iq2_xs, sizeof(iq2_xs_block), true> {
    DEVICE_FN uint32_t word(const uint8_t *b, int g, int i) {
        return two_bytes_at(b + offsetof(iq2_xs_block, words) + 8 * g + 2 * i);
    }
    DEVICE_FN uint32_t columns(const uint8_t *b, int g, int i) {
        return half_entry(GRID_OF_IQ2_XS, word(b, g, i / 2) & 511, i);
    }
    DEVICE_FN uint32_t signs(const uint8_t *b, int g) {
        return even_parity(word(b, g, 0) >> 9 | word(b, g, 1) >> 9 << 8 | word(b, g, 2) >> 9 << 16 |
                           word(b, g, 3) >> 9 << 24);
    }
    DEVICE_FN float scale(const uint8_t *b, int g, int half) {
        return scale_of_nibble(b, b[offsetof(iq2_xs_block, scales) + g], half);
    }
};

struct iq2_s_block {
    uint8_t d[2], places[32], signs[32], high[8], scales[8];
};
struct weight_iq2_s : weight_of_grid<weight_iq2_s, sizeof(iq2_s_block), true> {
    DEVICE_FN uint32_t columns(const uint8_t *b, int g, int i) {
        uint32_t high = b[offsetof(iq2_s_block, high) + g] >> i / 2 * 2 & 3;
        uint32_t low = b[offsetof(iq2_s_block, places) + 4 * g + i / 2];
        return half_entry(GRID_OF_IQ2_S, low | high << 8, i);
    }
    DEVICE_FN uint32_t signs(const uint8_t *b, int g) {
        return four_bytes_at(b + offsetof(iq2_s_block, signs) + 4 * g);
    }
    DEVICE_FN float scale(const uint8_t *b, int g, int half) {
        return scale_of_nibble(b, b[offsetof(iq2_s_block, scales) + g], half);
    }
};

// Bytes of IQ1_S and IQ1_M are 8 (n - 1) + 1, or - 1 where an eighth is taken off.
DEVICE_FN uint32_t eighths(uint32_t n, bool minus) {
    return minus ? centre_bytes<9>(n << 3) : centre_bytes<7>(n << 3);
}

// The members that both share; T as in weight_of_grid, without signs.
template <class T, int BLOCK_BYTES, bool HALVES>
struct weight_of_eighths : weight_of_256<BLOCK_BYTES, 1> {
    static constexpr bool TWO_SCALES = HALVES;
    DEVICE_FN void load(weight_group *out, const uint8_t *row, int item) {
        const uint8_t *b = T::block_of(row, item);
#pragma unroll
        for (int i = 0; i < 8; i++) out->words[i] = T::columns(b, item & 7, i);
        out->scale = T::scale(b, item & 7, 0), out->offset = 0;
        if (HALVES) out->scale_high = T::scale(b, item & 7, 1);
    }
    DEVICE_FN float element(const uint8_t *row, int column) {
        const uint8_t *b = T::block_at(row, column);
        const int g = column % 256 / 32, i = column % 32;
        return T::scale(b, g, i / 16) * (float)(int8_t)(T::columns(b, g, i / 4) >> i % 4 * 8);
    }
};

struct iq1_s_block {
    uint8_t d[2], places[32], words[16];
};
struct weight_iq1_s : weight_of_eighths<weight_iq1_s, sizeof(iq1_s_block), false> {
    DEVICE_FN uint32_t word(const uint8_t *b, int g) {
        return two_bytes_at(b + offsetof(iq1_s_block, words) + 2 * g);
    }
    DEVICE_FN uint32_t columns(const uint8_t *b, int g, int i) {
        uint32_t high = word(b, g) >> i / 2 * 3 & 7;
        uint32_t low = b[offsetof(iq1_s_block, places) + 4 * g + i / 2];
        return eighths(half_entry(GRID_OF_IQ1, low | high << 8, i), word(b, g) >> 15);
    }
    DEVICE_FN float scale(const uint8_t *b, int g, int) {
        return half_at(b) * 0.125F * (float)(2 * (word(b, g) >> 12 & 7) + 1);
    }
};

struct iq1_m_block {
    uint8_t places[32], nibbles[16], words[8];
};
struct weight_iq1_m : weight_of_eighths<weight_iq1_m, sizeof(iq1_m_block), true> {
    DEVICE_FN uint32_t word(const uint8_t *b, int i) {
        return two_bytes_at(b + offsetof(iq1_m_block, words) + 2 * i);
    }
    DEVICE_FN uint32_t columns(const uint8_t *b, int g, int i) {
        int nibble = b[offsetof(iq1_m_block, nibbles) + 2 * g + i / 4] >> (i / 2 & 1) * 4;
        uint32_t place = b[4 * g + i / 2] | (uint32_t)(nibble & 7) << 8;
        return eighths(half_entry(GRID_OF_IQ1, place, i), nibble & 8);
    }
    DEVICE_FN float scale(const uint8_t *b, int g, int half) {
        uint32_t bits = word(b, 0) >> 12 | (word(b, 1) >> 8 & 0xf0) | (word(b, 2) >> 4 & 0xf00) |
                        (word(b, 3) & 0xf000);
        uint32_t n = word(b, g / 2) >> (6 * (g & 1) + 3 * half) & 7;
        return two_halves(bits).x * 0.125F * (float)(2 * n + 1);
    }
};

#endif
