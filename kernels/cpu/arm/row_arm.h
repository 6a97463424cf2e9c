/* row_arm.h: weights of a row as signed bytes in the order of its columns, and the scales of four
 * rows.
 *
 * Pure inline functions; reads nothing beyond the given block; any thread. The bytes and scales are
 * those that panel_x86.h makes, but for Q8_0, whose bytes stay signed. Included by matmul_arm.inc
 * only. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_ARM_ROW_ARM_H
#define TANDEM_KERNELS_CPU_ARM_ROW_ARM_H

#include "kernels/cpu/act.h"

#include "base/inline.h"

#include <arm_neon.h>
#include <string.h>

INLINE uint8x16x2_t load32(const uint8_t *at) {
    return (uint8x16x2_t){{vld1q_u8(at), vld1q_u8(at + 16)}};
}

// The bits of each byte from one on, as many as the mask has.
INLINE uint8x16_t bits_from(uint8x16_t v, int bit, uint8_t mask) {
    return vandq_u8(vshlq_u8(v, vdupq_n_s8((int8_t)-bit)), vdupq_n_u8(mask));
}

INLINE int8x16x2_t as_signed(uint8x16_t low, uint8x16_t high) {
    return (int8x16x2_t){{vreinterpretq_s8_u8(low), vreinterpretq_s8_u8(high)}};
}

// Low nibbles are columns 0..15, high ones 16..31.
INLINE uint8x16x2_t load_nibbles(const uint8_t *at) {
    uint8x16_t q = vld1q_u8(at);
    return (uint8x16x2_t){{vandq_u8(q, vdupq_n_u8(15)), vshrq_n_u8(q, 4)}};
}

// 16 in each column j for which bit j of the two bytes is set.
INLINE uint8x16_t fifth_bits(const uint8_t *at) {
    const uint8x8_t own = vcreate_u8(0x8040201008040201);
    uint8x16_t bytes = vcombine_u8(vdup_n_u8(at[0]), vdup_n_u8(at[1]));
    return vandq_u8(vtstq_u8(bytes, vcombine_u8(own, own)), vdupq_n_u8(16));
}

// Each columns_name gives the 32 columns of a group of a block; only blocks of 256 columns have
// more groups than one.
INLINE int8x16x2_t columns_q4_0(const uint8_t *block, int group) {
    (void)group;
    uint8x16x2_t q = load_nibbles(block + 2);
    return as_signed(q.val[0], q.val[1]);
}

INLINE int8x16x2_t columns_q4_1(const uint8_t *block, int group) {
    (void)group;
    uint8x16x2_t q = load_nibbles(block + 4);
    return as_signed(q.val[0], q.val[1]);
}

INLINE int8x16x2_t columns_q5_0(const uint8_t *block, int group) {
    (void)group;
    uint8x16x2_t q = load_nibbles(block + 6);
    return as_signed(vorrq_u8(q.val[0], fifth_bits(block + 2)),
                     vorrq_u8(q.val[1], fifth_bits(block + 4)));
}

INLINE int8x16x2_t columns_q5_1(const uint8_t *block, int group) {
    (void)group;
    uint8x16x2_t q = load_nibbles(block + 8);
    return as_signed(vorrq_u8(q.val[0], fifth_bits(block + 4)),
                     vorrq_u8(q.val[1], fifth_bits(block + 6)));
}

INLINE int8x16x2_t columns_q8_0(const uint8_t *block, int group) {
    (void)group;
    uint8x16x2_t q = load32(block + 2);
    return as_signed(q.val[0], q.val[1]);
}

INLINE int8x16x2_t columns_q4_k(const uint8_t *block, int group) {
    uint8x16x2_t q = load32(block + 16 + group / 2 * 32);
    const int bit = group % 2 * 4;
    return as_signed(bits_from(q.val[0], bit, 15), bits_from(q.val[1], bit, 15));
}

INLINE int8x16x2_t columns_q5_k(const uint8_t *block, int group) {
    uint8x16x2_t q = load32(block + 48 + group / 2 * 32), fifth = load32(block + 16);
    uint8x16_t v[2];
    for (int i = 0; i < 2; i++) {
        uint8x16_t upper = vshlq_n_u8(bits_from(fifth.val[i], group, 1), 4);
        v[i] = vorrq_u8(bits_from(q.val[i], group % 2 * 4, 15), upper);
    }
    return as_signed(v[0], v[1]);
}

INLINE int8x16x2_t columns_q6_k(const uint8_t *block, int group) {
    const int half = group / 4, quarter = group % 4;
    uint8x16x2_t q = load32(block + 64 * half + quarter % 2 * 32);
    uint8x16x2_t pairs = load32(block + 128 + 32 * half);
    uint8x16_t v[2];
    for (int i = 0; i < 2; i++) {
        uint8x16_t upper = vshlq_n_u8(bits_from(pairs.val[i], 2 * quarter, 3), 4);
        v[i] = vorrq_u8(bits_from(q.val[i], quarter / 2 * 4, 15), upper);
    }
    return as_signed(v[0], v[1]);
}

// The values that a table has for nibbles.
INLINE int8x16x2_t look_up(const int8_t values[16], uint8x16x2_t nibbles) {
    const int8x16_t table = vld1q_s8(values);
    return (int8x16x2_t){{vqtbl1q_s8(table, nibbles.val[0]), vqtbl1q_s8(table, nibbles.val[1])}};
}

INLINE int8x16x2_t uneven_values(uint8x16x2_t nibbles) {
    static const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
    return look_up(values, nibbles);
}

INLINE int8x16x2_t columns_iq4_nl(const uint8_t *block, int group) {
    (void)group;
    return uneven_values(load_nibbles(block + 2));
}

INLINE int8x16x2_t columns_iq4_xs(const uint8_t *block, int group) {
    return uneven_values(load_nibbles(block + 8 + 16 * group));
}

// The values plus 12, as those of panel_x86.h.
INLINE int8x16x2_t columns_mxfp4(const uint8_t *block, int group) {
    static const int8_t values[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    (void)group;
    return look_up(values, load_nibbles(block + 1));
}

INLINE int8x16x2_t columns_q3_k(const uint8_t *block, int group) {
    uint8x16x2_t pairs = load32(block + 32 + group / 4 * 32), third = load32(block);
    uint8x16_t v[2];
    for (int i = 0; i < 2; i++) {
        uint8x16_t upper = vshlq_n_u8(bits_from(third.val[i], group, 1), 2);
        v[i] = vorrq_u8(bits_from(pairs.val[i], group % 4 * 2, 3), upper);
    }
    return as_signed(v[0], v[1]);
}

INLINE int8x16x2_t columns_q2_k(const uint8_t *block, int group) {
    uint8x16x2_t pairs = load32(block + 16 + group / 4 * 32);
    const int bit = group % 4 * 2;
    return as_signed(bits_from(pairs.val[0], bit, 3), bits_from(pairs.val[1], bit, 3));
}

INLINE int8x16x2_t columns_tq2_0(const uint8_t *block, int group) {
    uint8x16x2_t pairs = load32(block + group / 4 * 32);
    const int bit = group % 4 * 2;
    return as_signed(bits_from(pairs.val[0], bit, 3), bits_from(pairs.val[1], bit, 3));
}

// A digit in base 3 of bytes that count 256ths, which the power of 3 makes the first after the
// point.
INLINE uint8x16_t digits(uint8x16_t v, uint8x16_t power) {
    v = vmulq_u8(v, power);
    uint8x16_t sum = vaddq_u8(vcgtq_u8(v, vdupq_n_u8(85)), vcgtq_u8(v, vdupq_n_u8(170)));
    return vsubq_u8(vdupq_n_u8(0), sum); // each comparison gives 255, which is -1
}

INLINE int8x16x2_t columns_tq1_0(const uint8_t *block, int group) {
    static const uint8_t powers[] = {1, 3, 9, 27, 81};
    static const uint8_t own[] = {1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27};
    if (group < 5) {
        uint8x16x2_t v = load32(block);
        const uint8x16_t power = vdupq_n_u8(powers[group]);
        return as_signed(digits(v.val[0], power), digits(v.val[1], power));
    }
    const uint8x16_t v = vld1q_u8(block + 32);
    const uint8x16_t low = digits(v, vdupq_n_u8(powers[2 * (group - 5)]));
    if (group < 7) return as_signed(low, digits(v, vdupq_n_u8(powers[2 * (group - 5) + 1])));
    uint32_t last;
    memcpy(&last, block + 48, sizeof last);
    return as_signed(low, digits(vreinterpretq_u8_u32(vdupq_n_u32(last)), vld1q_u8(own)));
}

// The scales of one block of a row. A block of 32 columns has the scale and the offset as the first
// two; others have the scales of 8 groups and then their offsets, or the scales of 16 half groups,
// or for types with parts 8 words of signed bytes, two factors and two offsets of a group, and then
// the scale and the offset.
struct scales {
    float32x4_t v[4];
};

INLINE float half_at(const uint8_t *at) {
    float16_t half;
    memcpy(&half, at, sizeof half);
    return half;
}

INLINE struct scales scale_and_offset(float scale, float offset) {
    struct scales s = {{vdupq_n_f32(0)}};
    s.v[0] = vsetq_lane_f32(offset, vsetq_lane_f32(scale, s.v[0], 0), 1);
    return s;
}

// Which sums of the activations the products of a type need.
#define EXTRA_Q4_0 ACT_SCALED_SUM
INLINE struct scales scales_q4_0(const uint8_t *block) {
    return scale_and_offset(half_at(block), half_at(block) * -8);
}

#define EXTRA_Q4_1 ACT_SCALED_SUM
INLINE struct scales scales_q4_1(const uint8_t *block) {
    return scale_and_offset(half_at(block), half_at(block + 2));
}

#define EXTRA_Q5_0 ACT_SCALED_SUM
INLINE struct scales scales_q5_0(const uint8_t *block) {
    return scale_and_offset(half_at(block), half_at(block) * -16);
}

#define EXTRA_Q5_1 ACT_SCALED_SUM
INLINE struct scales scales_q5_1(const uint8_t *block) { return scales_q4_1(block); }

#define EXTRA_Q8_0 ACT_SUM
INLINE struct scales scales_q8_0(const uint8_t *block) {
    return scale_and_offset(half_at(block), 0);
}

// Four numbers of each half of eight bytes, times factor.
INLINE void scale_bytes(uint8x8_t bytes, float factor, float32x4_t out[2]) {
    uint16x8_t words = vmovl_u8(bytes);
    out[0] = vmulq_n_f32(vcvtq_f32_u32(vmovl_u16(vget_low_u16(words))), factor);
    out[1] = vmulq_n_f32(vcvtq_f32_u32(vmovl_u16(vget_high_u16(words))), factor);
}

// Six bits each; groups 4..7 keep their upper two bits above the six of groups 0..3.
#define EXTRA_Q4_K ACT_SCALED_SUM
INLINE struct scales scales_q4_k(const uint8_t *block) {
    uint32_t head[3];
    memcpy(head, block + 4, sizeof head);
    const uint32_t s[2] = {head[0] & 0x3f3f3f3f,
                           (head[2] & 0x0f0f0f0f) | (head[0] >> 2 & 0x30303030)};
    const uint32_t m[2] = {head[1] & 0x3f3f3f3f,
                           (head[2] >> 4 & 0x0f0f0f0f) | (head[1] >> 2 & 0x30303030)};
    struct scales out;
    scale_bytes(vcreate_u8(s[0] | (uint64_t)s[1] << 32), half_at(block), out.v);
    scale_bytes(vcreate_u8(m[0] | (uint64_t)m[1] << 32), 0 - half_at(block + 2), out.v + 2);
    return out;
}

#define EXTRA_Q5_K ACT_SCALED_SUM
INLINE struct scales scales_q5_k(const uint8_t *block) { return scales_q4_k(block); }

#define EXTRA_Q6_K ACT_HALF_SUMS
INLINE struct scales scales_q6_k(const uint8_t *block) {
    int8x16_t bytes = vld1q_s8((const int8_t *)block + 192);
    int16x8_t words[2] = {vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes))};
    const float d = half_at(block + 208);
    struct scales out;
    for (int i = 0; i < 2; i++) {
        out.v[2 * i] = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(words[i]))), d);
        out.v[2 * i + 1] = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_high_s16(words[i]))), d);
    }
    return out;
}

#define EXTRA_IQ4_NL ACT_SUM
INLINE struct scales scales_iq4_nl(const uint8_t *block) { return scales_q8_0(block); }

// The byte as the exponent of a float, less 128; the two least are subnormal.
#define EXTRA_MXFP4 ACT_SCALED_SUM
INLINE struct scales scales_mxfp4(const uint8_t *block) {
    const uint32_t e = *block, bits = e < 2 ? 0x200000u << e : (e - 1) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return scale_and_offset(scale, scale * -12);
}

#define EXTRA_IQ4_XS ACT_SUM
INLINE struct scales scales_iq4_xs(const uint8_t *block) {
    struct scales out = {{vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)}};
    const float d = half_at(block);
    float scales[8];
    uint16_t upper;
    memcpy(&upper, block + 2, sizeof upper);
    for (int i = 0; i < 8; i++) {
        const int low = block[4 + i / 2] >> i % 2 * 4 & 15;
        scales[i] = d * (float)((low | (upper >> 2 * i & 3) << 4) - 32);
    }
    for (int i = 0; i < 2; i++) out.v[i] = vld1q_f32(scales + 4 * i);
    return out;
}

// The factors and offsets of 8 groups, four bytes each.
INLINE struct scales scales_of_parts(const int8_t parts[32], float scale, float offset) {
    struct scales out = scale_and_offset(scale, offset);
    out.v[2] = out.v[0];
    out.v[0] = vreinterpretq_f32_s8(vld1q_s8(parts));
    out.v[1] = vreinterpretq_f32_s8(vld1q_s8(parts + 16));
    out.v[3] = vdupq_n_f32(0);
    return out;
}

#define EXTRA_Q3_K ACT_HALF_FACTORS
INLINE struct scales scales_q3_k(const uint8_t *block) {
    const uint8_t *packed = block + 96;
    const float d = half_at(block + 108);
    int8_t parts[32] = {0};
    for (int i = 0; i < 16; i++) {
        const int low = packed[i % 8] >> i / 8 * 4 & 15;
        const int scale = (low | (packed[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 32;
        parts[i / 2 * 4 + i % 2] = (int8_t)scale;
    }
    return scales_of_parts(parts, d, 0);
}

#define EXTRA_Q2_K ACT_HALF_PARTS
INLINE struct scales scales_q2_k(const uint8_t *block) {
    int8_t parts[32];
    for (int i = 0; i < 16; i++) {
        parts[i / 2 * 4 + i % 2] = (int8_t)(block[i] & 15);
        parts[i / 2 * 4 + i % 2 + 2] = (int8_t)(block[i] >> 4);
    }
    return scales_of_parts(parts, half_at(block + 80), 0 - half_at(block + 82));
}

#define EXTRA_TQ2_0 ACT_SCALED_SUM
INLINE struct scales scales_tq2_0(const uint8_t *block) {
    const float32x4_t d = vdupq_n_f32(half_at(block + 64)), low = vnegq_f32(d);
    return (struct scales){{d, d, low, low}};
}

#define EXTRA_TQ1_0 ACT_SCALED_SUM
INLINE struct scales scales_tq1_0(const uint8_t *block) { return scales_tq2_0(block - 12); }

// Four vectors become four whose lane r comes from vector r.
INLINE void turn4(const int32x4_t in[4], int32x4_t out[4]) {
    int64x2_t a = vreinterpretq_s64_s32(vtrn1q_s32(in[0], in[1]));
    int64x2_t b = vreinterpretq_s64_s32(vtrn2q_s32(in[0], in[1]));
    int64x2_t c = vreinterpretq_s64_s32(vtrn1q_s32(in[2], in[3]));
    int64x2_t d = vreinterpretq_s64_s32(vtrn2q_s32(in[2], in[3]));
    out[0] = vreinterpretq_s32_s64(vtrn1q_s64(a, c));
    out[1] = vreinterpretq_s32_s64(vtrn1q_s64(b, d));
    out[2] = vreinterpretq_s32_s64(vtrn2q_s64(a, c));
    out[3] = vreinterpretq_s32_s64(vtrn2q_s64(b, d));
}

#endif
