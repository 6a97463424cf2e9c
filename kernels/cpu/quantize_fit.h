/* quantize_fit.h: searches the scale, and the offset, by which whole numbers stand for floats with
 * the least weighted squared error.
 *
 * Pure functions that own nothing; any thread. n is a multiple of 8, at most FIT_MOST. Used by the
 * quantize_*.c files. Tested by tests/kernels/test_quantize.c.
 */
#ifndef TANDEM_KERNELS_CPU_QUANTIZE_FIT_H
#define TANDEM_KERNELS_CPU_QUANTIZE_FIT_H

#include <stdint.h>
#include <string.h>

enum { FIT_MOST = 32 };

// The nearest whole number, ties to even, of a float below 2^22. Adding 1.5 * 2^23 leaves no bits
// behind the point.
static inline int32_t fit_nearest(float x) {
    const float shifted = x + 12582912.0F;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    return (bits & 0x7fffff) - 0x400000;
}

static inline int32_t fit_clamp(int32_t q, int32_t low, int32_t high) {
    return q < low ? low : q > high ? high : q;
}

// The nearest whole number from low to high.
static inline int32_t fit_number(float x, int32_t low, int32_t high) {
    if (!(x > (float)low)) return low;
    return x < (float)high ? fit_nearest(x) : high;
}

static inline float fit_inverse(float d) { return d != 0 ? 1 / d : 0; }

// Writes value in half precision and returns what was written.
float fit_half(uint8_t *out, float value);

// The element of the largest magnitude; 0 if that is too small for a scale.
float fit_largest(const float *x, int n);

// Fills out[n] with the weights of squared errors. importance may be NULL.
void fit_weights(const float *x, const float *importance, int n, float *out);

// The scale d for x ~ d q with q from low, which is below 0, to high. 0 if x is 0 or too small.
float fit_scale(const float *x, const float *weights, int n, int32_t low, int32_t high);

// The scale d, 0 or more, and the offset m, at most highest, for x ~ d q + m with q from 0 to high.
struct fit_line {
    float scale, offset;
};
struct fit_line fit_scale_offset(const float *x, const float *weights, int n, int32_t high,
                                 float highest);

#endif
