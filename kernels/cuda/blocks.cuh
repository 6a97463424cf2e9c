/* blocks.cuh: the weight types as kernels read them: 32 columns of a row as small integers for
 * __dp4a with their scale and offset, or one element as a float.
 *
 * Every quantised type is a struct weight_<type> of constants and static functions, so that a
 * kernel is a template over it; F32, F16 and BF16 have element and eight only. What the bytes mean
 * is defined by kernels/cpu/dequantize.c. Owns nothing; device code only. Reads no byte outside the
 * aligned 16-byte units that the row touches. Tested by tests/kernels/check_ops.c on every matmul
 * and embed.
 *
 * Where a row starts: weights are at least 16-byte aligned, but a row is n_cols/32 blocks of 18,
 * 17, 20, 22, 24 or 34 bytes or n_cols/256 blocks of 54, 66, 84, 110, 136, 144, 176 or 210. So
 * blocks of Q4_K and Q5_K are 16-byte aligned, those of IQ4_XS 8-byte, those of Q4_1, Q5_1 and Q2_K
 * 4-byte aligned, those of MXFP4 not at all, and all others only 2-byte aligned.
 */
#ifndef TANDEM_KERNELS_CUDA_BLOCKS_CUH
#define TANDEM_KERNELS_CUDA_BLOCKS_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/dtypes.h"

#include <stddef.h>

// 32 columns of a row: element i, in byte i % 4 of word i / 4, is scale * byte + offset. Bytes are
// signed. Without HAS_OFFSET offset is 0. With TWO_SCALES scale belongs to elements 0..15 and
// scale_high to elements 16..31; otherwise scale_high is not set. Where CENTRE is not 0, offset is
// -CENTRE * scale: GEMMs take CENTRE off the bytes instead, once per weight, which saves a
// multiply-add per weight and token. With TWO_OFFSETS elements 0..15 have offset * (minima & 15)
// and the others offset * (minima >> 4), where offset is a half.
struct weight_group {
    uint32_t words[8];
    float scale, scale_high, offset;
    uint32_t minima;
};

// A thread unpacks one item at once: ITEM_GROUPS groups that share bytes, at column 32 *
// first_group(item) and ITEM_STEP groups further on. A row is n_cols / (32 * ITEM_GROUPS) items.

// ---- loads -------------------------------------------------------------------------------------

DEVICE_FN uint32_t two_bytes_at(const uint8_t *p) { // 2-byte aligned
    return *(const uint16_t *)p;
}

DEVICE_FN float half_of(uint32_t bits) { return __half2float(__half{(uint16_t)bits}); }

DEVICE_FN float half_at(const uint8_t *p) { return half_of(two_bytes_at(p)); } // 2-byte aligned

DEVICE_FN float2 two_halves(uint32_t word) {
    return make_float2(__half2float(__half{(uint16_t)word}),
                       __half2float(__half{(uint16_t)(word >> 16)}));
}

template <int N> DEVICE_FN void load_words(uint32_t *out, const uint8_t *p) { // 4-byte aligned
#pragma unroll
    for (int i = 0; i < N; i++) out[i] = __ldg((const uint32_t *)p + i);
}

template <int N> DEVICE_FN void load_words_16(uint32_t *out, const uint8_t *p) { // 16-byte
    static_assert(N % 4 == 0, "16 bytes are four words");
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        uint4 four = __ldg((const uint4 *)p + i / 4);
        out[i] = four.x, out[i + 1] = four.y, out[i + 2] = four.z, out[i + 3] = four.w;
    }
}

// A choice of values: of elements of an array, clang would choose the address, and keep the array
// in local memory.
template <class T> DEVICE_FN T either(bool first, T a, T b) { return first ? a : b; }

// Takes N words from byte misplaced (even, at most 14) on of N + 4 words.
template <int N>
DEVICE_FN void place_words(uint32_t *out, const uint32_t *units, uint32_t misplaced) {
    uint32_t by_two[N + 2], by_one[N + 1];
#pragma unroll
    for (int i = 0; i < N + 2; i++)
        by_two[i] = either((misplaced & 8) != 0, units[i + 2], units[i]);
#pragma unroll
    for (int i = 0; i < N + 1; i++)
        by_one[i] = either((misplaced & 4) != 0, by_two[i + 1], by_two[i]);
    const uint32_t bytes = misplaced & 2 ? 0x5432 : 0x3210;
#pragma unroll
    for (int i = 0; i < N; i++) out[i] = __byte_perm(by_one[i], by_one[i + 1], bytes);
}

// Loads N words from a 2-byte aligned address: loads the aligned words that hold them and shifts
// these into place. If p is no multiple of 4, the first aligned word starts 2 bytes early and half
// of the last one is used.
template <int N> DEVICE_FN void load_words_2(uint32_t *out, const uint8_t *p) {
    uint32_t misplaced = (uint32_t)(uintptr_t)p & 2;
    const uint32_t *aligned = (const uint32_t *)(p - misplaced);
    uint32_t word = __ldg(aligned);
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t next = i + 1 < N ? __ldg(aligned + i + 1) : two_bytes_at(p + 4 * N - 2);
        out[i] = (uint32_t)(((uint64_t)next << 32 | word) >> 8 * misplaced);
        word = next;
    }
}

// The same by loads of 16 bytes, a third as many. These read the aligned units of 16 bytes that
// hold the words, so at most 14 bytes around them.
template <int N> DEVICE_FN void load_words_wide(uint32_t *out, const uint8_t *p) {
    constexpr int UNITS = N / 4 + 1;
    static_assert(N % 4 == 0, "16 bytes are four words");
    const uint32_t misplaced = (uint32_t)(uintptr_t)p & 14;
    const uint8_t *aligned = p - misplaced, *last = aligned + (misplaced ? 4 * N : 4 * N - 16);
    uint32_t units[4 * UNITS];
    load_words_16<4 * UNITS - 4>(units, aligned);
    load_words_16<4>(units + 4 * UNITS - 4, last);
    place_words<N>(out, units, misplaced);
}

// N words from an address, a multiple of ALIGN, as the aligned units of 16 bytes that hold them, to
// place later. So up to 15 bytes on either side are read too, of memory whose parts are multiples
// of 16 bytes.
template <int N, int ALIGN = 1> struct wide_words {
    static constexpr int UNITS = (4 * N + 16 - ALIGN + 15) / 16;
    uint4 units[UNITS];
    uint32_t misplaced;
};
template <int N, int ALIGN> DEVICE_FN void fetch_wide(wide_words<N, ALIGN> &out, const uint8_t *p) {
    out.misplaced = (uint32_t)(uintptr_t)p & 15;
    const uint4 *aligned = (const uint4 *)(p - out.misplaced);
    const int last = (int)(out.misplaced + 4 * N - 1) / 16;
#pragma unroll
    for (int i = 0; i < wide_words<N, ALIGN>::UNITS; i++)
        out.units[i] = __ldg(aligned + (16 * i < 4 * N ? i : min(i, last)));
}
template <int N, int ALIGN>
DEVICE_FN void place_wide(uint32_t *out, const wide_words<N, ALIGN> &wide) {
    constexpr int M = 4 * wide_words<N, ALIGN>::UNITS;
    uint32_t words[M], by_two[N + 2], by_one[N + 1];
#pragma unroll
    for (int i = 0; i < M; i += 4) {
        const uint4 unit = wide.units[i / 4];
        words[i] = unit.x, words[i + 1] = unit.y, words[i + 2] = unit.z, words[i + 3] = unit.w;
    }
#pragma unroll
    for (int i = 0; i < N + 2; i++)
        by_two[i] = either((wide.misplaced & 8) != 0, words[i + 2 < M ? i + 2 : M - 1], words[i]);
#pragma unroll
    for (int i = 0; i < N + 1; i++)
        by_one[i] = either((wide.misplaced & 4) != 0, by_two[i + 1], by_two[i]);
    const uint32_t bytes = 0x3210 + (wide.misplaced & 3) * 0x1111;
#pragma unroll
    for (int i = 0; i < N; i++) out[i] = __byte_perm(by_one[i], by_one[i + 1], bytes);
}

// The same from any address.
template <int N> DEVICE_FN void load_words_1(uint32_t *out, const uint8_t *p) {
    uint32_t misplaced = (uint32_t)(uintptr_t)p & 3;
    const uint32_t *aligned = (const uint32_t *)(p - misplaced);
    uint32_t word = __ldg(aligned);
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t next = i + 1 < N || misplaced ? __ldg(aligned + i + 1) : 0;
        out[i] = (uint32_t)(((uint64_t)next << 32 | word) >> 8 * misplaced);
        word = next;
    }
}

// ---- bytes -------------------------------------------------------------------------------------

// Converts four bytes n (0..127) to n - CENTRE, signed.
template <int CENTRE> DEVICE_FN uint32_t centre_bytes(uint32_t bytes) {
    return ((bytes | 0x80808080u) - CENTRE * 0x01010101u) ^ 0x80808080u;
}

// Spreads 16 bytes of nibbles: the low ones are elements 0..15, the high ones 16..31.
DEVICE_FN void spread_nibbles(uint32_t *words, const uint32_t *nibbles) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        words[i] = nibbles[i] & 0x0f0f0f0fu;
        words[i + 4] = nibbles[i] >> 4 & 0x0f0f0f0fu;
    }
}

// Makes bit i of high bit 4 of element i. The product moves bit j of four bits to bit 8 j + 4.
DEVICE_FN void add_fifth_bits(uint32_t *words, uint32_t high) {
#pragma unroll
    for (int i = 0; i < 8; i++) words[i] |= (high >> 4 * i & 15) * 0x02040810u & 0x10101010u;
}

DEVICE_FN int nibble_of_32(const uint8_t *nibbles, int i) { // element i (0..31) of 16 bytes
    return nibbles[i & 15] >> (i >> 4) * 4 & 15;
}

// The bytes, four to a word, that the 16 values of a nibble stand for in IQ4_NL and IQ4_XS.
struct uneven_values {
    static constexpr uint32_t FIRST = 0xbfad9881, SECOND = 0xf6eaddcf, THIRD = 0x26190d01,
                              FOURTH = 0x71594535;
};

// The same for MXFP4.
struct floats_of_4 {
    static constexpr uint32_t FIRST = 0x03020100, SECOND = 0x0c080604, THIRD = 0xfdfeff00,
                              FOURTH = 0xf4f8fafc;
};

// The values of four nibbles, the lowest first. A selector of __byte_perm has three bits for a byte
// of two words; the fourth bit of a nibble chooses between two results.
template <class Values> DEVICE_FN uint32_t four_values(uint32_t nibbles) {
    uint32_t low = __byte_perm(Values::FIRST, Values::SECOND, nibbles & 0x7777u);
    uint32_t high = __byte_perm(Values::THIRD, Values::FOURTH, nibbles & 0x7777u);
    return __byte_perm(low, high, 0x3210u | (nibbles & 0x8888u) >> 1);
}

// Spreads 16 bytes of nibbles, as spread_nibbles, and puts their values in their places.
template <class Values> DEVICE_FN void spread_values(uint32_t *words, const uint32_t *nibbles) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t first = four_values<Values>(nibbles[i] & 0xffff);
        uint32_t last = four_values<Values>(nibbles[i] >> 16);
        words[i] = __byte_perm(first, last, 0x6420);
        words[i + 4] = __byte_perm(first, last, 0x7531);
    }
}

template <class Values> DEVICE_FN float value_of(int nibble) {
    return (float)(int8_t)four_values<Values>((uint32_t)nibble);
}

// ---- plain types -------------------------------------------------------------------------------

// IS_HALF: every element is a half, so that rounding to halves loses nothing.

struct weight_f32 {
    static constexpr int BLOCK = 1, BYTES = 4;
    static constexpr bool IS_HALF = false;
    DEVICE_FN float element(const uint8_t *row, int column) {
        return __ldg((const float *)row + column);
    }
    // Eight elements; row + 4 * column is 16-byte aligned.
    DEVICE_FN void eight(float *out, const uint8_t *row, int column) {
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            float4 four = __ldg((const float4 *)((const float *)row + column + i));
            out[i] = four.x, out[i + 1] = four.y, out[i + 2] = four.z, out[i + 3] = four.w;
        }
    }
};

struct weight_f16 {
    static constexpr int BLOCK = 1, BYTES = 2;
    static constexpr bool IS_HALF = true;
    DEVICE_FN float element(const uint8_t *row, int column) {
        return half_at(row + 2 * (int64_t)column);
    }
    DEVICE_FN void eight(float *out, const uint8_t *row, int column) {
        uint32_t words[4];
        load_words_16<4>(words, row + 2 * (int64_t)column);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 two = two_halves(words[i]);
            out[2 * i] = two.x, out[2 * i + 1] = two.y;
        }
    }
};

struct weight_bf16 {
    static constexpr int BLOCK = 1, BYTES = 2;
    static constexpr bool IS_HALF = false;
    DEVICE_FN float element(const uint8_t *row, int column) {
        return __uint_as_float(two_bytes_at(row + 2 * (int64_t)column) << 16);
    }
    DEVICE_FN void eight(float *out, const uint8_t *row, int column) {
        uint32_t words[4];
        load_words_16<4>(words, row + 2 * (int64_t)column);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[2 * i] = __uint_as_float(words[i] << 16);
            out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
        }
    }
};

// ---- blocks of 32 ------------------------------------------------------------------------------

// The members that all types with one group per block share. Such a type has WORDS words from byte
// WORDS_AT of a block on, of which unpack makes the group; load_scale is what else belongs to it.
template <int BLOCK_BYTES> struct weight_of_32 {
    static constexpr int BLOCK = 32, BYTES = BLOCK_BYTES;
    static constexpr bool TWO_SCALES = false, TWO_OFFSETS = false;
    static constexpr int CENTRE = 0, ITEM_GROUPS = 1, ITEM_STEP = 1;
    DEVICE_FN int first_group(int item) { return item; }
    DEVICE_FN const uint8_t *block(const uint8_t *row, int i) {
        return row + (int64_t)i * BLOCK_BYTES;
    }
};

// Loads the group of a 2-byte aligned block.
template <class W> DEVICE_FN void load_of_32(weight_group *out, const uint8_t *b) {
    uint32_t packed[W::WORDS];
    load_words_2<W::WORDS>(packed, b + W::WORDS_AT);
    W::unpack(out, packed, W::load_scale(b));
}

struct q8_0_block {
    uint8_t d[2], n[32];
};

struct weight_q8_0 : weight_of_32<sizeof(q8_0_block)> {
    static constexpr bool HAS_OFFSET = false;
    static constexpr int WORDS = 8, WORDS_AT = offsetof(q8_0_block, n);
    DEVICE_FN uint32_t load_scale(const uint8_t *b) { return two_bytes_at(b); }
    DEVICE_FN void unpack(weight_group *out, const uint32_t *packed, uint32_t d) {
#pragma unroll
        for (int i = 0; i < 8; i++) out->words[i] = packed[i];
        out->scale = half_of(d), out->offset = 0;
    }
    DEVICE_FN void load(weight_group *out, const uint8_t *row, int item) {
        load_of_32<weight_q8_0>(out, block(row, item));
    }
    DEVICE_FN float element(const uint8_t *row, int column) {
        const q8_0_block *b = (const q8_0_block *)block(row, column / 32);
        return half_at(b->d) * (float)(int8_t)b->n[column % 32];
    }
};

struct q4_0_block {
    uint8_t d[2], nibbles[16];
};

struct weight_q4_0 : weight_of_32<sizeof(q4_0_block)> {
    static constexpr bool HAS_OFFSET = true;
    static constexpr int CENTRE = 8;
    static constexpr int WORDS = 4, WORDS_AT = offsetof(q4_0_block, nibbles);
    DEVICE_FN uint32_t load_scale(const uint8_t *b) { return two_bytes_at(b); }
    DEVICE_FN void unpack(weight_group *out, const uint32_t *nibbles, uint32_t d) {
        spread_nibbles(out->words, nibbles);
        out->scale = half_of(d), out->offset = -8 * out->scale;
    }
    DEVICE_FN void load(weight_group *out, const uint8_t *row, int item) {
        load_of_32<weight_q4_0>(out, block(row, item));
    }
    DEVICE_FN float element(const uint8_t *row, int column) {
        const q4_0_block *b = (const q4_0_block *)block(row, column / 32);
        return half_at(b->d) * (float)(nibble_of_32(b->nibbles, column % 32) - 8);
    }
};

struct q4_1_block {
    uint8_t d[2], m[2], nibbles[16];
};

struct weight_q4_1 : weight_of_32<sizeof(q4_1_block)> {
    static constexpr bool HAS_OFFSET = true;
    static constexpr int WORDS = 5, WORDS_AT = 0;
    DEVICE_FN uint32_t load_scale(const uint8_t *) { return 0; }
    DEVICE_FN void unpack(weight_group *out, const uint32_t *b, uint32_t) {
        spread_nibbles(out->words, b + 1);
        float2 dm = two_halves(b[0]);
        out->scale = dm.x, out->offset = dm.y;
    }
    DEVICE_FN void load(weight_group *out, const uint8_t *row, int item) {
        uint32_t b[WORDS];
        load_words<WORDS>(b, block(row, item));
        unpack(out, b, 0);
    }
    DEVICE_FN float element(const uint8_t *row, int column) {
        const q4_1_block *b = (const q4_1_block *)block(row, column / 32);
        return half_at(b->d) * (float)nibble_of_32(b->nibbles, column % 32) + half_at(b->m);
    }
};

struct weight_iq4_nl : weight_of_32<sizeof(q4_0_block)> {
    static constexpr bool HAS_OFFSET = false;
    static constexpr int WORDS = 4, WORDS_AT = offsetof(q4_0_block, nibbles);
    DEVICE_FN uint32_t load_scale(const uint8_t *b) { return two_bytes_at(b); }
    DEVICE_FN void unpack(weight_group *out, const uint32_t *nibbles, uint32_t d) {
        spread_values<uneven_values>(out->words, nibbles);
        out->scale = half_of(d), out->offset = 0;
    }
    DEVICE_FN void load(weight_group *out, const uint8_t *row, int item) {
        load_of_32<weight_iq4_nl>(out, block(row, item));
    }
    DEVICE_FN float element(const uint8_t *row, int column) {
        const q4_0_block *b = (const q4_0_block *)block(row, column / 32);
        return half_at(b->d) * value_of<uneven_values>(nibble_of_32(b->nibbles, column % 32));
    }
};

struct mxfp4_block {
    uint8_t e, nibbles[16];
};

struct weight_mxfp4 : weight_of_32<sizeof(mxfp4_block)> {
    static constexpr bool HAS_OFFSET = false;
    // 2^(e - 128): e as a float's exponent; the two least are subnormal.
    DEVICE_FN float scale(int e) {
        return __uint_as_float(e < 2 ? 0x200000u << e : (uint32_t)(e - 1) << 23);
    }
    static constexpr int WORDS = 4, WORDS_AT = offsetof(mxfp4_block, nibbles);
    DEVICE_FN uint32_t load_scale(const uint8_t *b) { return *b; }
    DEVICE_FN void unpack(weight_group *out, const uint32_t *nibbles, uint32_t e) {
        spread_values<floats_of_4>(out->words, nibbles);
        out->scale = scale((int)e), out->offset = 0;
    }
    DEVICE_FN void load(weight_group *out, const uint8_t *row, int item) {
        const uint8_t *b = block(row, item);
        uint32_t nibbles[WORDS];
        load_words_1<WORDS>(nibbles, b + WORDS_AT);
        unpack(out, nibbles, load_scale(b));
    }
    DEVICE_FN float element(const uint8_t *row, int column) {
        const mxfp4_block *b = (const mxfp4_block *)block(row, column / 32);
        return scale(b->e) * value_of<floats_of_4>(nibble_of_32(b->nibbles, column % 32));
    }
};

struct q5_0_block {
    uint8_t d[2], high[4], nibbles[16];
};

struct weight_q5_0 : weight_of_32<sizeof(q5_0_block)> {
    static constexpr bool HAS_OFFSET = true;
    static constexpr int CENTRE = 16;
    static constexpr int WORDS = 5, WORDS_AT = offsetof(q5_0_block, high);
    DEVICE_FN uint32_t load_scale(const uint8_t *b) { return two_bytes_at(b); }
    // bits: the word of high bits and the nibbles.
    DEVICE_FN void unpack(weight_group *out, const uint32_t *bits, uint32_t d) {
        spread_nibbles(out->words, bits + 1);
        add_fifth_bits(out->words, bits[0]);
        out->scale = half_of(d), out->offset = -16 * out->scale;
    }
    DEVICE_FN void load(weight_group *out, const uint8_t *row, int item) {
        load_of_32<weight_q5_0>(out, block(row, item));
    }
    DEVICE_FN float element(const uint8_t *row, int column) {
        const q5_0_block *b = (const q5_0_block *)block(row, column / 32);
        int i = column % 32, fifth = b->high[i / 8] >> i % 8 & 1;
        return half_at(b->d) * (float)((nibble_of_32(b->nibbles, i) | fifth << 4) - 16);
    }
};

struct q5_1_block {
    uint8_t d[2], m[2], high[4], nibbles[16];
};

struct weight_q5_1 : weight_of_32<sizeof(q5_1_block)> {
    static constexpr bool HAS_OFFSET = true;
    static constexpr int WORDS = 6, WORDS_AT = 0;
    DEVICE_FN uint32_t load_scale(const uint8_t *) { return 0; }
    DEVICE_FN void unpack(weight_group *out, const uint32_t *b, uint32_t) {
        spread_nibbles(out->words, b + 2);
        add_fifth_bits(out->words, b[1]);
        float2 dm = two_halves(b[0]);
        out->scale = dm.x, out->offset = dm.y;
    }
    DEVICE_FN void load(weight_group *out, const uint8_t *row, int item) {
        uint32_t b[WORDS];
        load_words<WORDS>(b, block(row, item));
        unpack(out, b, 0);
    }
    DEVICE_FN float element(const uint8_t *row, int column) {
        const q5_1_block *b = (const q5_1_block *)block(row, column / 32);
        int i = column % 32, fifth = b->high[i / 8] >> i % 8 & 1;
        return half_at(b->d) * (float)(nibble_of_32(b->nibbles, i) | fifth << 4) + half_at(b->m);
    }
};

// ---- blocks of 256 -----------------------------------------------------------------------------

// The members that types of 256 columns share, unless they say otherwise; an item is GROUPS groups.
template <int BLOCK_BYTES, int GROUPS> struct weight_of_256 {
    static constexpr int BLOCK = 256, BYTES = BLOCK_BYTES;
    static constexpr bool HAS_OFFSET = false, TWO_SCALES = false, TWO_OFFSETS = false;
    static constexpr int CENTRE = 0, ITEM_GROUPS = GROUPS, ITEM_STEP = 1;
    DEVICE_FN int first_group(int item) { return GROUPS * item; }
    // The block that has an item, or a column.
    DEVICE_FN const uint8_t *block_of(const uint8_t *row, int item) {
        return row + (int64_t)(GROUPS * item >> 3) * BLOCK_BYTES;
    }
    DEVICE_FN const uint8_t *block_at(const uint8_t *row, int column) {
        return row + (int64_t)(column / 256) * BLOCK_BYTES;
    }
};

// The header of Q4_K and Q5_K blocks: 16 bytes {half d, half dmin, 12 bytes of group scales}.
// Groups 2j and 2j+1 share 32 bytes of nibbles, so an item is such a pair.
struct k_header {
    uint8_t d[2], dmin[2], scales[12];
};

// Writes the six-bit scales and minima of groups 2j and 2j+1 to out[0] and out[1]; header is the 16
// bytes.
DEVICE_FN void load_k_scales(weight_group *out, uint4 header, int j) {
    uint32_t low = j < 2 ? header.y : header.w & 0x0f0f0f0fu;
    uint32_t minima = j < 2 ? header.z : header.w >> 4 & 0x0f0f0f0fu;
    // Groups 0..3 have bytes of their own and use six bits of each; the top two bits complete
    // groups 4..7.
    uint32_t scales = j < 2 ? low & 0x3f3f3f3fu : low | (header.y >> 2 & 0x30303030u);
    minima = j < 2 ? minima & 0x3f3f3f3fu : minima | (header.z >> 2 & 0x30303030u);
    scales >>= 16 * (j & 1), minima >>= 16 * (j & 1);
    float2 d = two_halves(header.x);
    out[0].scale = d.x * (float)(scales & 0xff), out[1].scale = d.x * (float)(scales >> 8 & 0xff);
    out[0].offset = -d.y * (float)(minima & 0xff);
    out[1].offset = -d.y * (float)(minima >> 8 & 0xff);
}

// The scale and the minimum of group g, for single elements.
DEVICE_FN float2 k_scale(const k_header *h, int g) {
    int scale = h->scales[g & 3] & 63, minimum = h->scales[(g & 3) + 4] & 63;
    if (g >= 4) {
        scale = (h->scales[g + 4] & 15) | h->scales[g - 4] >> 6 << 4;
        minimum = h->scales[g + 4] >> 4 | h->scales[g] >> 6 << 4;
    }
    return make_float2(half_at(h->d) * (float)scale, half_at(h->dmin) * (float)minimum);
}

struct q4_k_block {
    k_header header;
    uint8_t nibbles[128];
};

struct weight_q4_k : weight_of_256<sizeof(q4_k_block), 2> {
    static constexpr bool HAS_OFFSET = true;
    DEVICE_FN void load(weight_group *out, const uint8_t *row, int item) {
        const uint8_t *b = block_of(row, item);
        uint32_t nibbles[8];
        load_words_16<8>(nibbles, b + offsetof(q4_k_block, nibbles) + 32 * (item & 3));
        load_k_scales(out, __ldg((const uint4 *)b), item & 3);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            out[0].words[i] = nibbles[i] & 0x0f0f0f0fu;
            out[1].words[i] = nibbles[i] >> 4 & 0x0f0f0f0fu;
        }
    }
    DEVICE_FN float element(const uint8_t *row, int column) {
        const q4_k_block *b = (const q4_k_block *)block_at(row, column);
        int g = column % 256 / 32, i = column % 32;
        float2 scale = k_scale(&b->header, g);
        return scale.x * (float)(b->nibbles[g / 2 * 32 + i] >> (g & 1) * 4 & 15) - scale.y;
    }
};

struct q5_k_block {
    k_header header;
    uint8_t high[32], nibbles[128]; // bit g of high[i] belongs to element i of group g
};

struct weight_q5_k : weight_of_256<sizeof(q5_k_block), 2> {
    static constexpr bool HAS_OFFSET = true;
    DEVICE_FN void load(weight_group *out, const uint8_t *row, int item) {
        const uint8_t *b = block_of(row, item);
        uint32_t nibbles[8], high[8];
        load_words_16<8>(nibbles, b + offsetof(q5_k_block, nibbles) + 32 * (item & 3));
        load_words_16<8>(high, b + offsetof(q5_k_block, high));
        load_k_scales(out, __ldg((const uint4 *)b), item & 3);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t two = high[i] >> 2 * (item & 3);
            out[0].words[i] = (nibbles[i] & 0x0f0f0f0fu) | (two << 4 & 0x10101010u);
            out[1].words[i] = (nibbles[i] >> 4 & 0x0f0f0f0fu) | (two << 3 & 0x10101010u);
        }
    }
    DEVICE_FN float element(const uint8_t *row, int column) {
        const q5_k_block *b = (const q5_k_block *)block_at(row, column);
        int g = column % 256 / 32, i = column % 32;
        int n = (b->nibbles[g / 2 * 32 + i] >> (g & 1) * 4 & 15) | (b->high[i] >> g & 1) << 4;
        float2 scale = k_scale(&b->header, g);
        return scale.x * (float)n - scale.y;
    }
};

// Each half of a block has four groups: the low and the high nibbles of its 64 bytes with the four
// bit pairs of its 32. A scale covers 16 elements.
struct q6_k_block {
    uint8_t nibbles[128], pairs[64];
    int8_t scales[16];
    uint8_t d[2];
};

// Groups j and j + 2 of a half share 32 bytes of nibbles, so an item is such a pair.
struct weight_q6_k : weight_of_256<sizeof(q6_k_block), 2> {
    static constexpr bool TWO_SCALES = true;
    static constexpr int ITEM_STEP = 2;
    DEVICE_FN int first_group(int item) { return (item >> 1) * 4 + (item & 1); }
    DEVICE_FN void load(weight_group *out, const uint8_t *row, int item) {
        const uint8_t *b = block_of(row, item);
        int half = item >> 1 & 1, j = item & 1;
        uint32_t nibbles[8], pairs[8];
        load_words_wide<8>(nibbles, b + offsetof(q6_k_block, nibbles) + 64 * half + 32 * j);
        load_words_wide<8>(pairs, b + offsetof(q6_k_block, pairs) + 32 * half);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t two = pairs[i] >> 2 * j;
            uint32_t low = (nibbles[i] & 0x0f0f0f0fu) | (two << 4 & 0x30303030u);
            uint32_t high = (nibbles[i] >> 4 & 0x0f0f0f0fu) | (two & 0x30303030u);
            out[0].words[i] = centre_bytes<32>(low), out[1].words[i] = centre_bytes<32>(high);
        }
        const uint8_t *scales = b + offsetof(q6_k_block, scales) + 8 * half + 2 * j;
        float d = half_at(b + offsetof(q6_k_block, d));
#pragma unroll
        for (int g = 0; g < 2; g++) {
            uint32_t two = two_bytes_at(scales + 4 * g);
            out[g].scale = d * (float)(int8_t)two,
            out[g].scale_high = d * (float)(int8_t)(two >> 8);
            out[g].offset = 0;
        }
    }
    DEVICE_FN float element(const uint8_t *row, int column) {
        const q6_k_block *b = (const q6_k_block *)block_at(row, column);
        int g = column % 256 / 32, i = column % 32, half = g / 4, j = g % 4;
        int nibble = b->nibbles[64 * half + 32 * (j & 1) + i] >> j / 2 * 4 & 15;
        int n = nibble | (b->pairs[32 * half + i] >> 2 * j & 3) << 4;
        return half_at(b->d) * (float)b->scales[2 * g + i / 16] * (float)(n - 32);
    }
};

struct iq4_xs_block {
    uint8_t d[2], upper[2], lower[4], nibbles[128];
};

struct weight_iq4_xs : weight_of_256<sizeof(iq4_xs_block), 1> {
    // header: the first 8 bytes of the block.
    DEVICE_FN float scale(const uint32_t *header, int g) {
        uint32_t n = (header[1] >> 4 * g & 15) | (header[0] >> (16 + 2 * g) & 3) << 4;
        return two_halves(header[0]).x * (float)((int)n - 32);
    }
    DEVICE_FN void load(weight_group *out, const uint8_t *row, int item) {
        const uint8_t *b = block_of(row, item);
        uint32_t header[2], nibbles[4];
        load_words<2>(header, b);
        load_words<4>(nibbles, b + offsetof(iq4_xs_block, nibbles) + 16 * (item & 7));
        spread_values<uneven_values>(out->words, nibbles);
        out->scale = scale(header, item & 7), out->offset = 0;
    }
    DEVICE_FN float element(const uint8_t *row, int column) {
        const iq4_xs_block *b = (const iq4_xs_block *)block_at(row, column);
        int g = column % 256 / 32;
        uint32_t header[2];
        load_words<2>(header, b->d);
        int nibble = nibble_of_32(b->nibbles + 16 * g, column % 32);
        return scale(header, g) * value_of<uneven_values>(nibble);
    }
};

// Each half of a block has four groups: the four bit pairs of its 32 bytes. Bit g of high[i]
// belongs to element i of group g. A scale covers 16 elements.
struct q3_k_block {
    uint8_t high[32], pairs[64], scales[12], d[2];
};

// Groups 2j and 2j+1 share their bytes, so an item is such a pair.
struct weight_q3_k : weight_of_256<sizeof(q3_k_block), 2> {
    static constexpr bool TWO_SCALES = true;
    // Scale i (0..15): a nibble of the first 8 bytes and a bit pair of the last 4.
    DEVICE_FN float scale(const q3_k_block *b, int i) {
        int low = b->scales[i & 7] >> (i >> 3) * 4 & 15;
        int n = low | (b->scales[8 + (i & 3)] >> (i >> 2) * 2 & 3) << 4;
        return half_at(b->d) * (float)(n - 32);
    }
    DEVICE_FN void load(weight_group *out, const uint8_t *row, int item) {
        const q3_k_block *b = (const q3_k_block *)(block_of(row, item));
        int pair = item & 3;
        uint32_t high[8], pairs[8];
        load_words_wide<8>(high, b->high);
        load_words_wide<8>(pairs, b->pairs + 32 * (pair >> 1));
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t two = pairs[i] >> 4 * (pair & 1), third = high[i] >> 2 * pair;
            out[0].words[i] = centre_bytes<4>((two & 0x03030303u) | (third << 2 & 0x04040404u));
            out[1].words[i] =
                centre_bytes<4>((two >> 2 & 0x03030303u) | (third << 1 & 0x04040404u));
        }
#pragma unroll
        for (int g = 0; g < 2; g++) {
            out[g].scale = scale(b, 4 * pair + 2 * g);
            out[g].scale_high = scale(b, 4 * pair + 2 * g + 1);
            out[g].offset = 0;
        }
    }
    DEVICE_FN float element(const uint8_t *row, int column) {
        const q3_k_block *b = (const q3_k_block *)block_at(row, column);
        int g = column % 256 / 32, i = column % 32;
        int n = (b->pairs[32 * (g / 4) + i] >> 2 * (g & 3) & 3) | (b->high[i] >> g & 1) << 2;
        return scale(b, 2 * g + i / 16) * (float)(n - 4);
    }
};

// Each half of a block has four groups: the four bit pairs of its 32 bytes. A scale covers 16
// elements; its upper nibble is their minimum.
struct q2_k_block {
    uint8_t scales[16], pairs[64], d[2], dmin[2];
};

// Groups 2j and 2j+1 share their bytes, so an item is such a pair. A byte is scale * n, up to 45,
// so that both halves have the factor d.
struct weight_q2_k : weight_of_256<sizeof(q2_k_block), 2> {
    static constexpr bool TWO_OFFSETS = true;
    DEVICE_FN void load(weight_group *out, const uint8_t *row, int item) {
        const q2_k_block *b = (const q2_k_block *)block_of(row, item);
        int pair = item & 3;
        uint32_t pairs[8], scales, d;
        load_words<8>(pairs, b->pairs + 32 * (pair >> 1));
        load_words<1>(&scales, b->scales + 4 * pair);
        load_words<1>(&d, b->d);
#pragma unroll
        for (int g = 0; g < 2; g++, scales >>= 16) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                uint32_t n = pairs[i] >> (4 * (pair & 1) + 2 * g) & 0x03030303u;
                out[g].words[i] = n * (scales >> i / 4 * 8 & 15);
            }
            out[g].scale = two_halves(d).x, out[g].offset = -two_halves(d).y;
            out[g].minima = (scales >> 4 & 15) | (scales >> 8 & 0xf0);
        }
    }
    DEVICE_FN float element(const uint8_t *row, int column) {
        const q2_k_block *b = (const q2_k_block *)block_at(row, column);
        int g = column % 256 / 32, i = column % 32, scale = b->scales[2 * g + i / 16];
        int n = b->pairs[32 * (g / 4) + i] >> 2 * (g & 3) & 3;
        return half_at(b->d) * (float)((scale & 15) * n) - half_at(b->dmin) * (float)(scale >> 4);
    }
};

// Two bits n for n - 1, in the order of Q2_K.
struct tq2_0_block {
    uint8_t pairs[64], d[2];
};

struct weight_tq2_0 : weight_of_256<sizeof(tq2_0_block), 2> {
    DEVICE_FN void load(weight_group *out, const uint8_t *row, int item) {
        const tq2_0_block *b = (const tq2_0_block *)block_of(row, item);
        int pair = item & 3;
        uint32_t pairs[8];
        load_words_2<8>(pairs, b->pairs + 32 * (pair >> 1));
#pragma unroll
        for (int g = 0; g < 2; g++) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                out[g].words[i] =
                    centre_bytes<1>(pairs[i] >> (4 * (pair & 1) + 2 * g) & 0x03030303u);
            out[g].scale = half_at(b->d), out[g].offset = 0;
        }
    }
    DEVICE_FN float element(const uint8_t *row, int column) {
        const tq2_0_block *b = (const tq2_0_block *)block_at(row, column);
        int g = column % 256 / 32;
        int n = b->pairs[32 * (g / 4) + column % 32] >> 2 * (g & 3) & 3;
        return half_at(b->d) * (float)(n - 1);
    }
};

// Digits n of bytes in base 3 for n - 1: 32 bytes of five, 16 of five and 4 of four; the first
// digits of all come first.
struct tq1_0_block {
    uint8_t many[32], fewer[16], last[4], d[2];
};

struct weight_tq1_0 : weight_of_256<sizeof(tq1_0_block), 1> {
    DEVICE_FN uint32_t power_of(int place) { // of 3
        return (uint32_t)(0x511b090301ULL >> 8 * place) & 255;
    }
    // The digits of four bytes at a place. Two bytes at once are multiplied in halves of a word.
    DEVICE_FN uint32_t digits(uint32_t bytes, int place) {
        const uint32_t halves = 0x00ff00ffu, power = power_of(place);
        uint32_t even = ((bytes & halves) * power & halves) * 3;
        uint32_t odd = ((bytes >> 8 & halves) * power & halves) * 3;
        return (even >> 8 & 0x00030003u) | (odd & 0x03000300u);
    }
    DEVICE_FN void load(weight_group *out, const uint8_t *row, int item) {
        const tq1_0_block *b = (const tq1_0_block *)block_of(row, item);
        int group = item & 7, place = group < 5 ? group : 2 * (group - 5);
        uint32_t bytes[8];
        if (group < 5) {
            load_words_2<8>(bytes, b->many);
        } else {
            load_words_2<4>(bytes, b->fewer);
            load_words_2<1>(bytes + 4, b->last);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint32_t four = i < 4 ? bytes[i] : either(group < 5, bytes[i], bytes[i % 4]);
            uint32_t made = digits(four, place + (group > 4 && i > 3));
            if (group == 7 && i > 3) made = digits(bytes[4], i - 4);
            out->words[i] = centre_bytes<1>(made);
        }
        out->scale = half_at(b->d), out->offset = 0;
    }
    DEVICE_FN float element(const uint8_t *row, int column) {
        const tq1_0_block *b = (const tq1_0_block *)block_at(row, column);
        int i = column % 256;
        uint32_t byte = i < 160 ? b->many[i % 32] : i < 240 ? b->fewer[i % 16] : b->last[i % 4];
        int place = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
        return half_at(b->d) * (float)((int)digits(byte, place) - 1);
    }
};

#include "kernels/cuda/blocks_iq.cuh"

#define WEIGHT(NAME, name, ...)                                    \
    static_assert(weight_##name::BLOCK == BLOCK_ELEMENTS_##NAME && \
                      weight_##name::BYTES == BLOCK_BYTES_##NAME,  \
                  "the blocks are those of the format");
#include "kernels/weights.def"
#undef WEIGHT

#endif
