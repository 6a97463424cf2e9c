/* quantize_k.c: the formats of 256 elements: Q3_K, Q4_K, Q5_K, Q6_K. See quantize_k.h and, for
 * the layouts, dequantize.c. */
#include "kernels/cpu/quantize_k.h"
#include "kernels/cpu/quantize_fit.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256, GROUP = 32, GROUPS = 8, SMALL_GROUP = 16, SMALL_GROUPS = 16 };

// ---- Scales and offsets per 32: Q4_K, Q5_K ------------------------------------------------------

// The groups of a block, each d scale q - dmin offset.
struct lines {
    float d, dmin;
    int32_t scales[GROUPS], offsets[GROUPS]; // 0 to 63
};

// Replaces values[GROUPS], which are 0 or more, by numbers of six bits, in units of the factor that
// it writes and returns.
static float share_factor(const float *values, const float *weights, int32_t *numbers,
                          uint8_t *out) {
    float below[GROUPS]; // fit_scale has the larger range below 0
    for (int g = 0; g < GROUPS; g++) below[g] = -values[g];
    const float factor = fit_half(out, fit_scale(below, weights, GROUPS, -63, 0));
    for (int g = 0; g < GROUPS; g++)
        numbers[g] = fit_number(values[g] * fit_inverse(factor), 0, 63);
    return factor;
}

// Fits each group by itself; then the scales and offsets share their two factors.
static struct lines fit_lines(const float *x, const float *importance, int32_t high, uint8_t *out) {
    struct lines lines;
    float scales[GROUPS], offsets[GROUPS], totals[GROUPS] = {0}, weights[GROUP];
    for (int g = 0; g < GROUPS; g++) {
        const float *group = x + g * GROUP;
        fit_weights(group, importance ? importance + g * GROUP : NULL, GROUP, weights);
        const struct fit_line fit = fit_scale_offset(group, weights, GROUP, high, 0);
        scales[g] = fit.scale;
        offsets[g] = -fit.offset;
        for (int i = 0; i < GROUP; i++) totals[g] += weights[i];
    }
    lines.d = share_factor(scales, totals, lines.scales, out);
    lines.dmin = share_factor(offsets, totals, lines.offsets, out + 2);
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

static void number_lines(const float *x, const struct lines *l, int32_t high, uint8_t q[BLOCK]) {
    for (int i = 0; i < BLOCK; i++) {
        const int g = i / GROUP;
        const float inverse = fit_inverse(l->d * (float)l->scales[g]);
        const float above = x[i] + l->dmin * (float)l->offsets[g];
        q[i] = (uint8_t)fit_number(inverse * above, 0, high);
    }
}

// Groups 2 i and 2 i + 1 share 32 bytes.
static void pack_group_nibbles(const uint8_t q[BLOCK], uint8_t *out) {
    for (int i = 0; i < BLOCK / 2; i++) {
        const int pair = i / GROUP * 2 * GROUP + i % GROUP;
        out[i] = (uint8_t)((q[pair] & 15) | (q[pair + GROUP] & 15) << 4);
    }
}

void quantize_q4_k(const float *x, const float *importance, uint8_t *out) {
    uint8_t q[BLOCK];
    const struct lines lines = fit_lines(x, importance, 15, out);
    pack_lines(&lines, out + 4);
    number_lines(x, &lines, 15, q);
    pack_group_nibbles(q, out + 16);
}

void quantize_q5_k(const float *x, const float *importance, uint8_t *out) {
    uint8_t q[BLOCK];
    const struct lines lines = fit_lines(x, importance, 31, out);
    pack_lines(&lines, out + 4);
    number_lines(x, &lines, 31, q);
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
