/* quantize_k.c: the formats of 256 elements: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K. See quantize_k.h and,
 * for the layouts, dequantize.c. */
#include "kernels/cpu/quantize_k.h"
#include "kernels/cpu/quantize_fit.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256, GROUP = 32, SMALL_GROUP = 16, SMALL_GROUPS = 16 };

// ---- Scales and offsets: Q2_K, Q4_K, Q5_K -------------------------------------------------------

// The groups of a block of a format: elements are 0 to high, scales and offsets 0 to most.
struct groups {
    int count, size;
    int32_t high, most;
};

static const struct groups GROUPS_Q2 = {SMALL_GROUPS, SMALL_GROUP, 3, 15};
static const struct groups GROUPS_Q4 = {BLOCK / GROUP, GROUP, 15, 63};
static const struct groups GROUPS_Q5 = {BLOCK / GROUP, GROUP, 31, 63};

// The numbers of a block's groups, each d scale q - dmin offset.
struct lines {
    float d, dmin;
    int32_t scales[SMALL_GROUPS], offsets[SMALL_GROUPS];
};

// Replaces values of groups, which are 0 or more, by numbers 0 to most, in units of the factor that
// it writes and returns.
static float share_factor(const struct groups *groups, const float *values, const float *weights,
                          int32_t *numbers, uint8_t *out) {
    float below[SMALL_GROUPS]; // fit_scale has the larger range below 0
    for (int g = 0; g < groups->count; g++) below[g] = -values[g];
    const float factor = fit_half(out, fit_scale(below, weights, groups->count, -groups->most, 0));
    for (int g = 0; g < groups->count; g++)
        numbers[g] = fit_number(values[g] * fit_inverse(factor), 0, groups->most);
    return factor;
}

// Fits each group by itself; then the scales and offsets share their two factors.
static struct lines fit_lines(const struct groups *groups, const float *x, const float *importance,
                              uint8_t *out) {
    struct lines lines;
    const int n = groups->size;
    float scales[SMALL_GROUPS], offsets[SMALL_GROUPS], totals[SMALL_GROUPS] = {0}, weights[GROUP];
    for (int g = 0; g < groups->count; g++) {
        const float *group = x + g * n;
        fit_weights(group, importance ? importance + g * n : NULL, n, weights);
        const struct fit_line fit = fit_scale_offset(group, weights, n, groups->high, 0);
        scales[g] = fit.scale;
        offsets[g] = -fit.offset;
        for (int i = 0; i < n; i++) totals[g] += weights[i];
    }
    lines.d = share_factor(groups, scales, totals, lines.scales, out);
    lines.dmin = share_factor(groups, offsets, totals, lines.offsets, out + 2);
    return lines;
}

// Six bits each of eight scales and offsets in 12 bytes; the last four groups have their upper two
// bits above those of the first four.
static void pack_lines(const struct lines *l, uint8_t *out) {
    for (int g = 0; g < 4; g++) {
        const int32_t s = l->scales[g + 4], m = l->offsets[g + 4];
        out[g] = (uint8_t)(l->scales[g] | (s >> 4) << 6);
        out[g + 4] = (uint8_t)(l->offsets[g] | (m >> 4) << 6);
        out[g + 8] = (uint8_t)((s & 15) | (m & 15) << 4);
    }
}

static void number_lines(const struct groups *groups, const float *x, const struct lines *l,
                         uint8_t q[BLOCK]) {
    for (int i = 0; i < BLOCK; i++) {
        const int g = i / groups->size;
        const float inverse = fit_inverse(l->d * (float)l->scales[g]);
        const float above = x[i] + l->dmin * (float)l->offsets[g];
        q[i] = (uint8_t)fit_number(inverse * above, 0, groups->high);
    }
}

// Groups 2 i and 2 i + 1 share 32 bytes.
static void pack_group_nibbles(const uint8_t q[BLOCK], uint8_t *out) {
    for (int i = 0; i < BLOCK / 2; i++) {
        const int pair = i / GROUP * 2 * GROUP + i % GROUP;
        out[i] = (uint8_t)((q[pair] & 15) | (q[pair + GROUP] & 15) << 4);
    }
}

// Scales in the low four bits and offsets in the high ones; then four quarters of 128 share 32
// bytes.
void quantize_q2_k(const float *x, const float *importance, uint8_t *out) {
    uint8_t q[BLOCK];
    const struct lines lines = fit_lines(&GROUPS_Q2, x, importance, out + 80);
    number_lines(&GROUPS_Q2, x, &lines, q);
    for (int g = 0; g < SMALL_GROUPS; g++)
        out[g] = (uint8_t)(lines.scales[g] | lines.offsets[g] << 4);
    for (int i = 0; i < BLOCK / 4; i++) {
        const uint8_t *quarters = q + i / 32 * 128 + i % 32;
        out[16 + i] =
            (uint8_t)(quarters[0] | quarters[32] << 2 | quarters[64] << 4 | quarters[96] << 6);
    }
}

void quantize_q4_k(const float *x, const float *importance, uint8_t *out) {
    uint8_t q[BLOCK];
    const struct lines lines = fit_lines(&GROUPS_Q4, x, importance, out);
    pack_lines(&lines, out + 4);
    number_lines(&GROUPS_Q4, x, &lines, q);
    pack_group_nibbles(q, out + 16);
}

void quantize_q5_k(const float *x, const float *importance, uint8_t *out) {
    uint8_t q[BLOCK];
    const struct lines lines = fit_lines(&GROUPS_Q5, x, importance, out);
    pack_lines(&lines, out + 4);
    number_lines(&GROUPS_Q5, x, &lines, q);
    memset(out + 16, 0, GROUP);
    for (int i = 0; i < BLOCK; i++) out[16 + i % GROUP] |= (uint8_t)((q[i] >> 4) << i / GROUP);
    pack_group_nibbles(q, out + 16 + GROUP);
}

// ---- Scales per 16: Q3_K, Q6_K ------------------------------------------------------------------

// Fits each group of 16 by itself with numbers from -middle to middle - 1; then the scales share a
// factor, which gives the scale of the largest magnitude the number -most. Returns the factor.
static float fit_scales(const float *x, const float *importance, int32_t middle, int32_t most,
                        int32_t scales[SMALL_GROUPS], uint8_t *d_out) {
    float fits[SMALL_GROUPS], weights[SMALL_GROUP], largest = 0;
    for (int g = 0; g < SMALL_GROUPS; g++) {
        const float *group = x + g * SMALL_GROUP;
        fit_weights(group, importance ? importance + g * SMALL_GROUP : NULL, SMALL_GROUP, weights);
        fits[g] = fit_scale(group, weights, SMALL_GROUP, -middle, middle - 1);
        if (fabsf(fits[g]) > fabsf(largest)) largest = fits[g];
    }
    const float d = fit_half(d_out, -largest / (float)most), inverse = fit_inverse(d);
    for (int g = 0; g < SMALL_GROUPS; g++)
        scales[g] = fit_number(fits[g] * inverse, -most, most - 1);
    return d;
}

static void number_groups(const float *x, float d, const int32_t scales[SMALL_GROUPS],
                          int32_t middle, uint8_t q[BLOCK]) {
    for (int i = 0; i < BLOCK; i++) {
        const float inverse = fit_inverse(d * (float)scales[i / SMALL_GROUP]);
        q[i] = (uint8_t)(fit_number(inverse * x[i], -middle, middle - 1) + middle);
    }
}

// Four bits of two quarters of 128 share a byte, and the upper two bits of all four.
void quantize_q6_k(const float *x, const float *importance, uint8_t *out) {
    int32_t scales[SMALL_GROUPS];
    uint8_t q[BLOCK];
    const float d = fit_scales(x, importance, 32, 128, scales, out + 208);
    number_groups(x, d, scales, 32, q);
    for (int g = 0; g < SMALL_GROUPS; g++) out[192 + g] = (uint8_t)(int8_t)scales[g];
    for (int i = 0; i < BLOCK / 2; i++) {
        const uint8_t *pair = q + i / 64 * 128 + i % 64;
        out[i] = (uint8_t)((pair[0] & 15) | (pair[64] & 15) << 4);
    }
    for (int i = 0; i < BLOCK / 4; i++) {
        const uint8_t *quarters = q + i / 32 * 128 + i % 32;
        out[128 + i] = (uint8_t)(quarters[0] >> 4 | quarters[32] >> 4 << 2 |
                                 quarters[64] >> 4 << 4 | quarters[96] >> 4 << 6);
    }
}

// Scales in six bits, 32 too large: four bits of g and g + 8 share a byte, then the upper two bits
// of g, g + 4, g + 8 and g + 12.
static void pack_scales(const int32_t scales[SMALL_GROUPS], uint8_t *out) {
    memset(out, 0, 12);
    for (int g = 0; g < SMALL_GROUPS; g++) {
        const int32_t s = scales[g] + 32;
        out[g % 8] |= (uint8_t)((s & 15) << (g < 8 ? 0 : 4));
        out[8 + g % 4] |= (uint8_t)((s >> 4) << 2 * (g / 4));
    }
}

void quantize_q3_k(const float *x, const float *importance, uint8_t *out) {
    int32_t scales[SMALL_GROUPS];
    uint8_t q[BLOCK];
    const float d = fit_scales(x, importance, 4, 32, scales, out + 108);
    number_groups(x, d, scales, 4, q);
    pack_scales(scales, out + 96);
    memset(out, 0, 96);
    for (int i = 0; i < BLOCK; i++) {
        const int half = i / 128, quarter = i % 128 / 32, column = i % 32;
        out[column] |= (uint8_t)((q[i] >> 2) << (4 * half + quarter));
        out[32 + 32 * half + column] |= (uint8_t)((q[i] & 3) << 2 * quarter);
    }
}
