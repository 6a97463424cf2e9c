/* quantize.c: the formats of 32 elements and those of single floats. See quantize.h. */
#include "kernels/cpu/quantize.h"

#include "base/err.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/quantize_fit.h"
#include "kernels/cpu/quantize_grid.h"
#include "kernels/cpu/quantize_iq4.h"
#include "kernels/cpu/quantize_k.h"

#include <float.h>
#include <math.h>
#include <string.h>

// ---- Blocks of 32 -------------------------------------------------------------------------------

enum { BLOCK = 32, HALF_BLOCK = 16 };

// Elements i and i + 16 share a byte.
static void pack_nibbles(const int32_t q[BLOCK], uint8_t *out) {
    for (int i = 0; i < HALF_BLOCK; i++)
        out[i] = (uint8_t)((q[i] & 15) | (q[i + HALF_BLOCK] & 15) << 4);
}

// Bit i is the fifth bit of element i.
static void pack_fifth_bits(const int32_t q[BLOCK], uint8_t *out) {
    uint32_t bits = 0;
    for (int i = 0; i < BLOCK; i++) bits |= (uint32_t)(q[i] >> 4 & 1) << i;
    memcpy(out, &bits, sizeof bits);
}

static void q8_0_block(const float *x, const float *importance, uint8_t *out) {
    float most = 0;
    (void)importance;
    for (int i = 0; i < BLOCK; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    const float d = most / 127;
    (void)fit_half(out, d);
    for (int i = 0; i < BLOCK; i++)
        out[2 + i] = (uint8_t)(int8_t)fit_number(x[i] * fit_inverse(d), -127, 127);
}

// Numbers 0 to 2^bits - 1, of which the middle one stands for 0.
static void symmetric_block(const float *x, const float *importance, int32_t middle, uint8_t *d_out,
                            int32_t q[BLOCK]) {
    float weights[BLOCK];
    fit_weights(x, importance, BLOCK, weights);
    const float d = fit_half(d_out, fit_scale(x, weights, BLOCK, -middle, middle - 1));
    const float inverse = fit_inverse(d);
    for (int i = 0; i < BLOCK; i++) q[i] = fit_number(inverse * x[i], -middle, middle - 1) + middle;
}

// Numbers 0 to high above an offset.
static void offset_block(const float *x, const float *importance, int32_t high, uint8_t *out,
                         int32_t q[BLOCK]) {
    float weights[BLOCK];
    fit_weights(x, importance, BLOCK, weights);
    const struct fit_line line = fit_scale_offset(x, weights, BLOCK, high, INFINITY);
    const float inverse = fit_inverse(fit_half(out, line.scale));
    const float offset = fit_half(out + 2, line.offset);
    for (int i = 0; i < BLOCK; i++) q[i] = fit_number(inverse * (x[i] - offset), 0, high);
}

static void q4_0_block(const float *x, const float *importance, uint8_t *out) {
    int32_t q[BLOCK];
    symmetric_block(x, importance, 8, out, q);
    pack_nibbles(q, out + 2);
}

static void q4_1_block(const float *x, const float *importance, uint8_t *out) {
    int32_t q[BLOCK];
    offset_block(x, importance, 15, out, q);
    pack_nibbles(q, out + 4);
}

static void q5_0_block(const float *x, const float *importance, uint8_t *out) {
    int32_t q[BLOCK];
    symmetric_block(x, importance, 16, out, q);
    pack_fifth_bits(q, out + 2);
    pack_nibbles(q, out + 6);
}

static void q5_1_block(const float *x, const float *importance, uint8_t *out) {
    int32_t q[BLOCK];
    offset_block(x, importance, 31, out, q);
    pack_fifth_bits(q, out + 4);
    pack_nibbles(q, out + 8);
}

// ---- MXFP4 --------------------------------------------------------------------------------------

// The magnitudes of a number of four bits, doubled, and where the next one begins.
static const float FP4[8] = {0, 1, 2, 3, 4, 6, 8, 12};
static const float FP4_TIES[7] = {0.5F, 1.5F, 2.5F, 3.5F, 5, 7, 10};

static int32_t fp4_nearest(float x) {
    int32_t q = 0;
    while (q < 7 && fabsf(x) > FP4_TIES[q]) q++;
    return x < 0 ? q | 8 : q;
}

// The squared error of the block with the scale 2^(exponent - 128).
static float fp4_block(const float *x, const float *weights, int exponent, int32_t q[BLOCK]) {
    const float d = ldexpf(1, exponent - 128), inverse = ldexpf(1, 128 - exponent);
    float error = 0;
    for (int i = 0; i < BLOCK; i++) {
        q[i] = fp4_nearest(x[i] * inverse);
        const float value = (q[i] & 8 ? -d : d) * FP4[q[i] & 7];
        error += weights[i] * (value - x[i]) * (value - x[i]);
    }
    return error;
}

// The largest number is 12: the scales around it are tried, from the one that cuts nothing off.
static void mxfp4_block(const float *x, const float *importance, uint8_t *out) {
    float weights[BLOCK], most = 0, least = INFINITY;
    int32_t q[BLOCK], best[BLOCK] = {0};
    fit_weights(x, importance, BLOCK, weights);
    for (int i = 0; i < BLOCK; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    out[0] = 0;
    const int top = most > 0x1p-100F ? ilogbf(most) + 128 - 2 : 0;
    for (int exponent = top; exponent > 0 && exponent > top - 3; exponent--) {
        const float error = fp4_block(x, weights, exponent, q);
        if (error >= least) continue;
        least = error;
        out[0] = (uint8_t)exponent;
        memcpy(best, q, sizeof best);
    }
    pack_nibbles(best, out + 1);
}

// ---- Three numbers ------------------------------------------------------------------------------

enum { TERNARY = 256 };

// -1, 0 and 1 plus 1, of the largest magnitude, which all numbers of a ternary model have.
// Importance has no choice.
static float ternary_numbers(const float *x, uint8_t q[TERNARY]) {
    float most = 0;
    for (int i = 0; i < TERNARY; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    for (int i = 0; i < TERNARY; i++)
        q[i] = (uint8_t)(fit_number(x[i] * fit_inverse(most), -1, 1) + 1);
    return most;
}

// Four quarters of 128 share 32 bytes.
static void tq2_0_block(const float *x, const float *importance, uint8_t *out) {
    uint8_t q[TERNARY];
    (void)importance;
    (void)fit_half(out + 64, ternary_numbers(x, q));
    for (int i = 0; i < TERNARY / 4; i++) {
        const uint8_t *quarters = q + i / 32 * 128 + i % 32;
        out[i] = (uint8_t)(quarters[0] | quarters[32] << 2 | quarters[64] << 4 | quarters[96] << 6);
    }
}

// The byte whose first five digits in base 3, after the point, are those of numbers that lie stride
// apart; there may be four.
static uint8_t digits_byte(const uint8_t *q, int stride, int count) {
    int number = 0;
    for (int i = 0; i < 5; i++) number = 3 * number + (i < count ? q[i * stride] : 0);
    return (uint8_t)((number * 256 + 242) / 243);
}

static void tq1_0_block(const float *x, const float *importance, uint8_t *out) {
    uint8_t q[TERNARY];
    (void)importance;
    (void)fit_half(out + 52, ternary_numbers(x, q));
    for (int i = 0; i < 32; i++) out[i] = digits_byte(q + i, 32, 5);
    for (int i = 0; i < 16; i++) out[32 + i] = digits_byte(q + 160 + i, 16, 5);
    for (int i = 0; i < 4; i++) out[48 + i] = digits_byte(q + 240 + i, 4, 4);
}

// ---- Rows of blocks -----------------------------------------------------------------------------

typedef void (*block_fn)(const float *x, const float *importance, uint8_t *out);

static block_fn find_block(enum dtype type) {
    switch (type) {
    case DTYPE_Q8_0: return q8_0_block;
    case DTYPE_Q4_0: return q4_0_block;
    case DTYPE_Q4_1: return q4_1_block;
    case DTYPE_Q5_0: return q5_0_block;
    case DTYPE_Q5_1: return q5_1_block;
    case DTYPE_MXFP4: return mxfp4_block;
    case DTYPE_TQ2_0: return tq2_0_block;
    case DTYPE_TQ1_0: return tq1_0_block;
    case DTYPE_IQ4_NL: return quantize_iq4_nl;
    case DTYPE_IQ4_XS: return quantize_iq4_xs;
    case DTYPE_Q2_K: return quantize_q2_k;
    case DTYPE_Q3_K: return quantize_q3_k;
    case DTYPE_Q4_K: return quantize_q4_k;
    case DTYPE_Q5_K: return quantize_q5_k;
    case DTYPE_Q6_K: return quantize_q6_k;
    default: return NULL;
    }
}

// ---- Rows of floats -----------------------------------------------------------------------------

typedef void (*floats_fn)(const float *x, uint8_t *out, int64_t n);

static void f32_row(const float *x, uint8_t *out, int64_t n) {
    memcpy(out, x, (size_t)n * sizeof *x);
}

static void f16_row(const float *x, uint8_t *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const uint16_t half = float_to_half(x[i]);
        memcpy(out + 2 * i, &half, sizeof half);
    }
}

// The upper half of the float; a tie goes to the even neighbour.
static void bf16_row(const float *x, uint8_t *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        const uint16_t upper = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        memcpy(out + 2 * i, &upper, sizeof upper);
    }
}

static floats_fn find_floats(enum dtype type) {
    switch (type) {
    case DTYPE_F32: return f32_row;
    case DTYPE_F16: return f16_row;
    case DTYPE_BF16: return bf16_row;
    default: return NULL;
    }
}

// ---- All types ----------------------------------------------------------------------------------

bool quantize_knows(enum dtype type) {
    return find_block(type) || find_floats(type) || quantize_grid_knows(type);
}

float quantize_most(enum dtype type) {
    if (type == DTYPE_F32) return FLT_MAX;
    return type == DTYPE_BF16 ? 0x1.fep127F : 65504;
}

void quantize_row(enum dtype type, const float *x, const float *importance, uint8_t *out,
                  int64_t n) {
    const struct dtype_info *info = dtype_find((uint32_t)type);
    const block_fn block = find_block(type);
    const floats_fn floats = find_floats(type);
    if (floats) {
        floats(x, out, n);
        return;
    }
    ASSERT(n % info->block_elements == 0);
    if (quantize_grid_knows(type)) {
        quantize_grid_row(type, x, importance, out, n);
        return;
    }
    ASSERT(block);
    for (int64_t i = 0; i < n; i += info->block_elements, out += info->block_bytes)
        block(x + i, importance ? importance + i : NULL, out);
}
