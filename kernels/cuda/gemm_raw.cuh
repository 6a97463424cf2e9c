/* gemm_raw.cuh: how GEMMs load a quantised weight: half of a row's 64 columns per thread, first as
 * words as they lie in memory, which are unpacked later.
 *
 * gemm_raw<W> has the words; fetch, which only loads; and unpack, which makes 32 columns of them.
 * With AT_ONCE fetch unpacks too, and nothing is kept until the lines are stored.
 * With BY_GROUP a thread has one of the two groups of 32; else 16 columns of each, which share
 * their bytes in blocks of 256. Steps follow one after the other from 0 on, so what the four steps
 * of such a block have in common is loaded with the first and kept. Two neighbouring threads read a
 * row, in units of 16 bytes. Types of codebooks and a few rare ones become a group at once. Owns
 * nothing; device code only. Tested by tests/kernels/check_ops.c on every matmul of more than
 * MATVEC_TOKENS tokens.
 */
#ifndef TANDEM_KERNELS_CUDA_GEMM_RAW_CUH
#define TANDEM_KERNELS_CUDA_GEMM_RAW_CUH

#include "kernels/cuda/blocks.cuh"

// A thread loads its half (0 or 1) of the 64 columns of a step.
struct gemm_item {
    int step, half, n_cols;
};

// 32 columns as two chunks of 16, and the scales that belong to them: {scale, offset} or {scale of
// 0..15, scale of 16..31} of one group, or without BY_GROUP and with TWO_SCALES the scale of each
// chunk.
struct gemm_half {
    uint4 chunks[2];
    float2 scale;
};

// The group of a thread, or the last one of the row where the number of groups is odd: it meets
// activations of zeros.
DEVICE_FN int gemm_group(gemm_item item) {
    return min(2 * item.step + item.half, item.n_cols / 32 - 1);
}

// The minima of a group with TWO_OFFSETS lie in the lowest bits of its offset, which are 0 in a
// half that became a float.
DEVICE_FN float with_minima(float offset, uint32_t minima) {
    return __uint_as_float(__float_as_uint(offset) | minima);
}

template <class W> DEVICE_FN void gemm_pack(gemm_half &out, const weight_group &g) {
    uint32_t words[8];
#pragma unroll
    for (int k = 0; k < 8; k++)
        words[k] = W::CENTRE ? centre_bytes<W::CENTRE>(g.words[k]) : g.words[k];
    out.chunks[0] = make_uint4(words[0], words[1], words[2], words[3]);
    out.chunks[1] = make_uint4(words[4], words[5], words[6], words[7]);
    float second = W::TWO_SCALES ? g.scale_high : g.offset;
    if (W::TWO_OFFSETS) second = with_minima(second, g.minima);
    out.scale = make_float2(g.scale, second);
}

// ---- Any type ----------------------------------------------------------------------------------

template <class W> struct gemm_raw {
    static constexpr bool BY_GROUP = true, AT_ONCE = true;
    using words = weight_group;
    DEVICE_FN void fetch(words &raw, const uint8_t *row, gemm_item item) {
        weight_group groups[W::ITEM_GROUPS];
        W::load(groups, row, W::ITEM_GROUPS == 2 ? item.step : gemm_group(item));
        raw = groups[0];
        if (W::ITEM_GROUPS == 1) return;
        const weight_group &last = groups[W::ITEM_GROUPS - 1];
#pragma unroll
        for (int i = 0; i < 8; i++) raw.words[i] = either(item.half, last.words[i], raw.words[i]);
        raw.scale = either(item.half, last.scale, raw.scale);
        raw.scale_high = either(item.half, last.scale_high, raw.scale_high);
        raw.offset = either(item.half, last.offset, raw.offset);
        raw.minima = either(item.half, last.minima, raw.minima);
    }
    DEVICE_FN void unpack(gemm_half &out, const words &raw, gemm_item) { gemm_pack<W>(out, raw); }
};

// ---- Blocks of 32 ------------------------------------------------------------------------------

template <class W> struct gemm_raw_of_32 {
    static constexpr bool BY_GROUP = true, AT_ONCE = false;
    static constexpr int ALIGN = (W::BYTES | W::WORDS_AT) % 4 == 0 ? 4 : 1;
    struct words {
        wide_words<W::WORDS, ALIGN> packed;
        uint32_t scale;
    };
    DEVICE_FN void fetch(words &raw, const uint8_t *row, gemm_item item) {
        const uint8_t *b = W::block(row, gemm_group(item));
        fetch_wide(raw.packed, b + W::WORDS_AT);
        raw.scale = W::load_scale(b);
    }
    DEVICE_FN void unpack(gemm_half &out, const words &raw, gemm_item) {
        uint32_t packed[W::WORDS];
        place_wide(packed, raw.packed);
        weight_group g;
        W::unpack(&g, packed, raw.scale);
        gemm_pack<W>(out, g);
    }
};
template <> struct gemm_raw<weight_q8_0> : gemm_raw_of_32<weight_q8_0> {};
template <> struct gemm_raw<weight_q4_0> : gemm_raw_of_32<weight_q4_0> {};
template <> struct gemm_raw<weight_q4_1> : gemm_raw_of_32<weight_q4_1> {};
template <> struct gemm_raw<weight_q5_0> : gemm_raw_of_32<weight_q5_0> {};
template <> struct gemm_raw<weight_q5_1> : gemm_raw_of_32<weight_q5_1> {};
template <> struct gemm_raw<weight_iq4_nl> : gemm_raw_of_32<weight_iq4_nl> {};
template <> struct gemm_raw<weight_mxfp4> : gemm_raw_of_32<weight_mxfp4> {};

// ---- Blocks of 256 -----------------------------------------------------------------------------

DEVICE_FN bool gemm_begins_block(gemm_item item) { return item.step % 4 == 0; }

// The scale and offset of one of the two groups of a step.
DEVICE_FN float2 gemm_k_scale(uint4 header, gemm_item item) {
    weight_group groups[2];
    load_k_scales(groups, header, item.step % 4);
    return item.half ? make_float2(groups[1].scale, groups[1].offset)
                     : make_float2(groups[0].scale, groups[0].offset);
}

template <> struct gemm_raw<weight_q4_k> {
    static constexpr bool BY_GROUP = false, AT_ONCE = false;
    struct words {
        uint4 header; // of the block
        uint4 nibbles;
    };
    DEVICE_FN void fetch(words &raw, const uint8_t *row, gemm_item item) {
        const uint4 *b = (const uint4 *)weight_q4_k::block_of(row, item.step);
        if (gemm_begins_block(item)) raw.header = __ldg(b);
        raw.nibbles =
            __ldg(b + offsetof(q4_k_block, nibbles) / 16 + 2 * (item.step % 4) + item.half);
    }
    DEVICE_FN void unpack(gemm_half &out, const words &raw, gemm_item item) {
        const uint32_t mask = 0x0f0f0f0fu;
        const uint4 n = raw.nibbles;
        out.chunks[0] = make_uint4(n.x & mask, n.y & mask, n.z & mask, n.w & mask);
        out.chunks[1] =
            make_uint4(n.x >> 4 & mask, n.y >> 4 & mask, n.z >> 4 & mask, n.w >> 4 & mask);
        out.scale = gemm_k_scale(raw.header, item);
    }
};

template <> struct gemm_raw<weight_q5_k> {
    static constexpr bool BY_GROUP = false, AT_ONCE = false;
    struct words {
        uint4 header, high; // of the block
        uint4 nibbles;
    };
    DEVICE_FN void fetch(words &raw, const uint8_t *row, gemm_item item) {
        const uint4 *b = (const uint4 *)weight_q5_k::block_of(row, item.step);
        if (gemm_begins_block(item)) {
            raw.header = __ldg(b);
            raw.high = __ldg(b + offsetof(q5_k_block, high) / 16 + item.half);
        }
        raw.nibbles =
            __ldg(b + offsetof(q5_k_block, nibbles) / 16 + 2 * (item.step % 4) + item.half);
    }
    DEVICE_FN uint32_t low(uint32_t nibbles, uint32_t two) {
        return (nibbles & 0x0f0f0f0fu) | (two << 4 & 0x10101010u);
    }
    DEVICE_FN uint32_t high(uint32_t nibbles, uint32_t two) {
        return (nibbles >> 4 & 0x0f0f0f0fu) | (two << 3 & 0x10101010u);
    }
    DEVICE_FN void unpack(gemm_half &out, const words &raw, gemm_item item) {
        const int by = 2 * (item.step % 4);
        const uint4 n = raw.nibbles, h = make_uint4(raw.high.x >> by, raw.high.y >> by,
                                                    raw.high.z >> by, raw.high.w >> by);
        out.chunks[0] = make_uint4(low(n.x, h.x), low(n.y, h.y), low(n.z, h.z), low(n.w, h.w));
        out.chunks[1] = make_uint4(high(n.x, h.x), high(n.y, h.y), high(n.z, h.z), high(n.w, h.w));
        out.scale = gemm_k_scale(raw.header, item);
    }
};

template <> struct gemm_raw<weight_q6_k> {
    static constexpr bool BY_GROUP = false, AT_ONCE = false;
    struct words {
        uint32_t d; // of the block
        wide_words<4> nibbles, pairs;
        uint32_t scales[2]; // two each, of which the thread needs one
    };
    DEVICE_FN void fetch(words &raw, const uint8_t *row, gemm_item item) {
        const uint8_t *b = weight_q6_k::block_of(row, item.step);
        const int side = item.step >> 1 & 1, j = item.step & 1;
        if (gemm_begins_block(item)) raw.d = two_bytes_at(b + offsetof(q6_k_block, d));
        fetch_wide(raw.nibbles, b + 64 * side + 32 * j + 16 * item.half);
        fetch_wide(raw.pairs, b + offsetof(q6_k_block, pairs) + 32 * side + 16 * item.half);
        const uint8_t *scales = b + offsetof(q6_k_block, scales) + 8 * side + 2 * j;
        raw.scales[0] = two_bytes_at(scales), raw.scales[1] = two_bytes_at(scales + 4);
    }
    DEVICE_FN void unpack(gemm_half &out, const words &raw, gemm_item item) {
        uint32_t nibbles[4], pairs[4], low[4], high[4];
        place_wide(nibbles, raw.nibbles);
        place_wide(pairs, raw.pairs);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t two = pairs[i] >> 2 * (item.step & 1);
            low[i] = centre_bytes<32>((nibbles[i] & 0x0f0f0f0fu) | (two << 4 & 0x30303030u));
            high[i] = centre_bytes<32>((nibbles[i] >> 4 & 0x0f0f0f0fu) | (two & 0x30303030u));
        }
        out.chunks[0] = make_uint4(low[0], low[1], low[2], low[3]);
        out.chunks[1] = make_uint4(high[0], high[1], high[2], high[3]);
        const float d = half_of(raw.d);
        out.scale = make_float2(d * (float)(int8_t)(raw.scales[0] >> 8 * item.half),
                                d * (float)(int8_t)(raw.scales[1] >> 8 * item.half));
    }
};

template <> struct gemm_raw<weight_q3_k> {
    static constexpr bool BY_GROUP = false, AT_ONCE = false;
    struct words {
        uint32_t d, upper[2]; // of the block: upper bits of scales, two bytes for each group
        wide_words<4> high;   // of the block
        wide_words<4> pairs;
        uint32_t lower[2]; // bits of scales
    };
    DEVICE_FN void fetch(words &raw, const uint8_t *row, gemm_item item) {
        const uint8_t *b = weight_q3_k::block_of(row, item.step);
        const uint8_t *scales = b + offsetof(q3_k_block, scales);
        const int side = item.step >> 1 & 1, j = item.step & 1;
        if (gemm_begins_block(item)) {
            raw.d = two_bytes_at(b + offsetof(q3_k_block, d));
            raw.upper[0] = two_bytes_at(scales + 8), raw.upper[1] = two_bytes_at(scales + 10);
            fetch_wide(raw.high, b + offsetof(q3_k_block, high) + 16 * item.half);
        }
        fetch_wide(raw.pairs, b + offsetof(q3_k_block, pairs) + 32 * side + 16 * item.half);
        raw.lower[0] = two_bytes_at(scales + 4 * j),
        raw.lower[1] = two_bytes_at(scales + 4 * j + 2);
    }
    DEVICE_FN float scale(const words &raw, gemm_item item, int group) {
        const uint32_t pair = item.step & 3, lower = raw.lower[group] >> (8 * item.half),
                       upper = raw.upper[group] >> (8 * item.half);
        const uint32_t n = (lower >> (pair >> 1) * 4 & 15) | (upper >> pair * 2 & 3) << 4;
        return half_of(raw.d) * (float)((int)n - 32);
    }
    DEVICE_FN void unpack(gemm_half &out, const words &raw, gemm_item item) {
        const int pair = item.step & 3;
        uint32_t high[4], pairs[4], low[4], last[4];
        place_wide(high, raw.high);
        place_wide(pairs, raw.pairs);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t two = pairs[i] >> 4 * (pair & 1), third = high[i] >> 2 * pair;
            low[i] = centre_bytes<4>((two & 0x03030303u) | (third << 2 & 0x04040404u));
            last[i] = centre_bytes<4>((two >> 2 & 0x03030303u) | (third << 1 & 0x04040404u));
        }
        out.chunks[0] = make_uint4(low[0], low[1], low[2], low[3]);
        out.chunks[1] = make_uint4(last[0], last[1], last[2], last[3]);
        out.scale = make_float2(scale(raw, item, 0), scale(raw, item, 1));
    }
};

template <> struct gemm_raw<weight_iq4_xs> {
    static constexpr bool BY_GROUP = true, AT_ONCE = false;
    struct words {
        uint32_t header[2]; // of the block
        wide_words<4> nibbles;
    };
    DEVICE_FN void fetch(words &raw, const uint8_t *row, gemm_item item) {
        const int g = gemm_group(item);
        const uint8_t *b = weight_iq4_xs::block_of(row, g);
        if (gemm_begins_block(item)) load_words<2>(raw.header, b);
        fetch_wide(raw.nibbles, b + offsetof(iq4_xs_block, nibbles) + 16 * (g & 7));
    }
    DEVICE_FN void unpack(gemm_half &out, const words &raw, gemm_item item) {
        uint32_t nibbles[4];
        place_wide(nibbles, raw.nibbles);
        weight_group g;
        spread_values<uneven_values>(g.words, nibbles);
        g.scale = weight_iq4_xs::scale(raw.header, gemm_group(item) & 7), g.offset = 0;
        gemm_pack<weight_iq4_xs>(out, g);
    }
};

#endif
