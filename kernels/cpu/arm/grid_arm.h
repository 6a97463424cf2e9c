/* grid_arm.h: the IQ types, whose groups of 4 or 8 columns are entries of codebooks.
 *
 * The bytes and scales are those of x86/grid_x86.h, but for ACT_SUM, whose bytes stay signed. Pure
 * inline functions; reads nothing beyond the given block and the tables; any thread. Included by
 * matmul_arm.inc only. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_ARM_GRID_ARM_H
#define TANDEM_KERNELS_CPU_ARM_GRID_ARM_H

#include "kernels/cpu/arm/row_arm.h"
#include "kernels/cpu/grid_tables.h"

// The 32 columns of a group by entries of eight. Loads go to lanes: a vector that is loaded from
// where its entries were just stored one by one would wait for them.
INLINE uint8x16x2_t entries_of_8(const uint64_t *table, const uint8_t *block, int group,
                                 uint32_t (*entry)(const uint8_t *, int, int)) {
    uint8x16x2_t out;
    for (int i = 0; i < 2; i++) {
        uint64x2_t v = vld1q_dup_u64(table + entry(block, group, 2 * i));
        v = vld1q_lane_u64(table + entry(block, group, 2 * i + 1), v, 1);
        out.val[i] = vreinterpretq_u8_u64(v);
    }
    return out;
}

INLINE uint8x16x2_t entries_of_4(const uint32_t *table, const uint8_t *block, int group,
                                 uint32_t (*entry)(const uint8_t *, int, int)) {
    uint8x16x2_t out;
    for (int i = 0; i < 2; i++) {
        uint32x4_t v = vld1q_dup_u32(table + entry(block, group, 4 * i));
        v = vld1q_lane_u32(table + entry(block, group, 4 * i + 1), v, 1);
        v = vld1q_lane_u32(table + entry(block, group, 4 * i + 2), v, 2);
        v = vld1q_lane_u32(table + entry(block, group, 4 * i + 3), v, 3);
        out.val[i] = vreinterpretq_u8_u32(v);
    }
    return out;
}

// centre - v where the bit of a column is set, else centre + v.
INLINE int8x16x2_t put_signs(uint8x16x2_t v, uint32_t signs, int centre) {
    const uint8x16_t middle = vdupq_n_u8((uint8_t)centre),
                     word = vreinterpretq_u8_u32(vdupq_n_u32(signs));
    const uint8x16_t own = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    const uint8x16_t bytes = vcombine_u8(vdup_n_u8(0), vdup_n_u8(1));
    uint8x16_t out[2];
    for (int i = 0; i < 2; i++) {
        const uint8x16_t place = vaddq_u8(bytes, vdupq_n_u8((uint8_t)(2 * i)));
        const uint8x16_t minus = vtstq_u8(vqtbl1q_u8(word, place), own);
        out[i] = vbslq_u8(minus, vsubq_u8(middle, v.val[i]), vaddq_u8(middle, v.val[i]));
    }
    return as_signed(out[0], out[1]);
}

INLINE int8x16x2_t columns_iq3_xxs(const uint8_t *block, int group) {
    return put_signs(entries_of_4(GRIDS.iq3_xxs, block, group, iq3_xxs_entry),
                     iq3_xxs_signs(block, group), 0);
}

INLINE int8x16x2_t columns_iq3_s(const uint8_t *block, int group) {
    return put_signs(entries_of_4(GRIDS.iq3_s, block, group, iq3_s_entry),
                     iq3_s_signs(block, group), 15);
}

INLINE int8x16x2_t columns_iq2_xxs(const uint8_t *block, int group) {
    return put_signs(entries_of_8(GRIDS.iq2_xxs, block, group, iq2_xxs_entry),
                     iq2_xxs_signs(block, group), 0);
}

INLINE int8x16x2_t columns_iq2_xs(const uint8_t *block, int group) {
    return put_signs(entries_of_8(GRIDS.iq2_xs, block, group, iq2_xs_entry),
                     iq2_xs_signs(block, group), 64);
}

INLINE int8x16x2_t columns_iq2_s(const uint8_t *block, int group) {
    return put_signs(entries_of_8(GRIDS.iq2_s, block, group, iq2_s_entry),
                     iq2_s_signs(block, group), 64);
}

INLINE int8x16x2_t columns_iq1_s(const uint8_t *block, int group) {
    uint8x16x2_t v = entries_of_8(GRIDS.iq1, block, group, iq1_s_entry);
    return as_signed(v.val[0], v.val[1]);
}

// Bytes are 4 n, plus 1 where an eighth is added.
INLINE int8x16x2_t columns_iq1_m(const uint8_t *block, int group) {
    uint8x16x2_t v = entries_of_8(GRIDS.iq1, block, group, iq1_m_entry);
    uint64_t ones[4];
    for (int i = 0; i < 4; i++) {
        ones[i] = iq1_m_nibble(block, group, i) & 8 ? 0 : 0x0101010101010101;
    }
    uint8x16x2_t one = load32((const uint8_t *)ones);
    return as_signed(vorrq_u8(vshlq_n_u8(v.val[0], 2), one.val[0]),
                     vorrq_u8(vshlq_n_u8(v.val[1], 2), one.val[1]));
}

// The scales of 8 groups, and their offsets: factor times them.
INLINE struct scales scales_of_groups(const float scales[8], const float factors[8]) {
    struct scales out;
    for (int i = 0; i < 2; i++) {
        out.v[i] = vld1q_f32(scales + 4 * i);
        out.v[i + 2] = vmulq_f32(out.v[i], vld1q_f32(factors + 4 * i));
    }
    return out;
}

INLINE struct scales scales_of_one_factor(const float scales[8], float factor) {
    float factors[8];
    for (int i = 0; i < 8; i++) factors[i] = factor;
    return scales_of_groups(scales, factors);
}

#define EXTRA_IQ3_XXS ACT_SUM
INLINE struct scales scales_iq3_xxs(const uint8_t *block) {
    float scales[8];
    for (int i = 0; i < 8; i++) {
        scales[i] = half_at(block) * ((float)(block[69 + 4 * i] >> 4) * 0.5F + 0.25F);
    }
    return scales_of_one_factor(scales, 0);
}

#define EXTRA_IQ2_XXS ACT_SUM
INLINE struct scales scales_iq2_xxs(const uint8_t *block) {
    float scales[8];
    for (int i = 0; i < 8; i++) {
        scales[i] = half_at(block) * ((float)(block[9 + 8 * i] >> 4) * 0.25F + 0.125F);
    }
    return scales_of_one_factor(scales, 0);
}

#define EXTRA_IQ3_S ACT_SCALED_SUM
INLINE struct scales scales_iq3_s(const uint8_t *block) {
    float scales[8];
    for (int i = 0; i < 8; i++) {
        const int n = block[106 + i / 2] >> i % 2 * 4 & 15;
        scales[i] = half_at(block) * (float)(2 * n + 1);
    }
    return scales_of_one_factor(scales, -15);
}

// The nibbles of 8 bytes are the scales of half groups.
INLINE struct scales scales_of_nibbles(const uint8_t *block, const uint8_t *nibbles) {
    struct scales out;
    float scales[16];
    for (int i = 0; i < 16; i++) {
        const int n = nibbles[i / 2] >> i % 2 * 4 & 15;
        scales[i] = half_at(block) * ((float)n * 0.25F + 0.125F);
    }
    for (int i = 0; i < 4; i++) out.v[i] = vld1q_f32(scales + 4 * i);
    return out;
}

#define EXTRA_IQ2_XS ACT_WIDE_HALVES
INLINE struct scales scales_iq2_xs(const uint8_t *block) {
    return scales_of_nibbles(block, block + 66);
}

#define EXTRA_IQ2_S ACT_WIDE_HALVES
INLINE struct scales scales_iq2_s(const uint8_t *block) {
    return scales_of_nibbles(block, block + 74);
}

// Bytes are n + 1; an eighth is taken off where the top bit is set, else added.
#define EXTRA_IQ1_S ACT_SCALED_SUM
INLINE struct scales scales_iq1_s(const uint8_t *block) {
    float scales[8], factors[8];
    for (int i = 0; i < 8; i++) {
        const int word = grid_word16(block + 34 + 2 * i);
        scales[i] = half_at(block) * (float)(2 * (word >> 12 & 7) + 1);
        factors[i] = word >> 15 ? -1.125F : -0.875F;
    }
    return scales_of_groups(scales, factors);
}

#define EXTRA_IQ1_M ACT_HALF_PARTS
INLINE struct scales scales_iq1_m(const uint8_t *block) {
    const uint16_t bits = iq1_m_half(block);
    const float d = half_at((const uint8_t *)&bits);
    int8_t parts[32];
    for (int i = 0; i < 16; i++) {
        int8_t *group = parts + i / 2 * 4;
        group[i % 2] = group[i % 2 + 2] = (int8_t)iq1_m_scale(block, i / 2, i % 2);
    }
    return scales_of_parts(parts, d * 0.25F, d * -1.125F);
}

#endif
