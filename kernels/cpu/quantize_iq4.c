/* quantize_iq4.c: the types with 16 uneven values: IQ4_NL, IQ4_XS. See quantize_iq4.h and, for the
 * layouts, dequantize.c. */
#include "kernels/cpu/quantize_iq4.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/quantize_fit.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256, GROUP = 32, GROUPS = 8, HALF_GROUP = 16 };

// Halfway between neighbours of UNEVEN.
static const float MIDDLES[15] = {-115.5F, -93.5F, -74,   -57,   -42, -28.5F, -16, -4.5F,
                                  7,       19,     31.5F, 45.5F, 61,  79,     101};

// The number whose value is nearest, by halves of the list.
static int32_t nearest_value(float x) {
    int32_t q = x > MIDDLES[7] ? 8 : 0;
    q += x > MIDDLES[q + 3] ? 4 : 0;
    q += x > MIDDLES[q + 1] ? 2 : 0;
    return q + (x > MIDDLES[q]);
}

// A block, and the best scale for it so far.
struct values_fit {
    const float *x;
    float weights[GROUP];
    float scale, best; // by least squares the error falls by best = xv^2 / vv
};

static void try_scale(struct values_fit *fit, float inverse) {
    float xv = 0, vv = 0;
    for (int i = 0; i < GROUP; i++) {
        const float value = UNEVEN[nearest_value(inverse * fit->x[i])];
        xv += fit->weights[i] * fit->x[i] * value;
        vv += fit->weights[i] * value * value;
    }
    if (!(vv > 0 && xv * xv > fit->best * vv)) return;
    fit->best = xv * xv / vv;
    fit->scale = xv / vv;
}

enum { TRIALS = 12, MIRRORED_STEP = 2 }; // to either side, in units of the values

// The scale d for x[32] ~ d UNEVEN[q]. The largest element gets the first value, which is the
// largest too, or nearly so, or, with the other sign, the last one, or more than that.
static float fit_values(const float *x, const float *importance) {
    struct values_fit fit = {.x = x};
    const float most = fit_largest(x, GROUP);
    if (most == 0) return 0;
    fit_weights(x, importance, GROUP, fit.weights);
    for (int trial = -TRIALS; trial <= TRIALS; trial++)
        try_scale(&fit, (UNEVEN[0] + (float)trial) / most);
    for (int trial = 0; trial <= 2 * TRIALS; trial += MIRRORED_STEP)
        try_scale(&fit, (UNEVEN[15] + (float)trial) / most);
    return fit.scale != 0 ? fit.scale : most / UNEVEN[0];
}

// Elements i and i + 16 share a byte.
static void pack_values(const float *x, float d, uint8_t *out) {
    const float inverse = fit_inverse(d);
    for (int i = 0; i < HALF_GROUP; i++)
        out[i] = (uint8_t)(nearest_value(inverse * x[i]) |
                           nearest_value(inverse * x[i + HALF_GROUP]) << 4);
}

void quantize_iq4_nl(const float *x, const float *importance, uint8_t *out) {
    pack_values(x, fit_half(out, fit_values(x, importance)), out + 2);
}

// Fits each group of 32 by itself; then the scales share a factor, which gives the scale of the
// largest magnitude the number -32. Their lower nibbles and upper bit pairs, 32 too large, lie
// apart.
void quantize_iq4_xs(const float *x, const float *importance, uint8_t *out) {
    float scales[GROUPS], largest = 0;
    uint16_t upper = 0;
    for (int g = 0; g < GROUPS; g++) {
        scales[g] = fit_values(x + g * GROUP, importance ? importance + g * GROUP : NULL);
        if (fabsf(scales[g]) > fabsf(largest)) largest = scales[g];
    }
    const float d = fit_half(out, largest / -32), inverse = fit_inverse(d);
    memset(out + 4, 0, GROUPS / 2);
    for (int g = 0; g < GROUPS; g++) {
        const int32_t number = fit_number(scales[g] * inverse, -32, 31);
        upper |= (uint16_t)((number + 32) >> 4 << 2 * g);
        out[4 + g / 2] |= (uint8_t)(((number + 32) & 15) << 4 * (g % 2));
        pack_values(x + g * GROUP, d * (float)number, out + 8 + g * HALF_GROUP);
    }
    memcpy(out + 2, &upper, sizeof upper);
}
