/* quantize_fit.c: see quantize_fit.h. The numbers that a trial scale gives fix the best scale, and
 * offset, by least squares; many trials around the obvious scale find good numbers. */
#include "kernels/cpu/quantize_fit.h"

#include "base/err.h"
#include "kernels/cpu/cpu.h"

#include <math.h>

float fit_half(uint8_t *out, float value) {
    const uint16_t half = float_to_half(value);
    memcpy(out, &half, sizeof half);
    return half_to_float(half);
}

// Gives an element's error more weight where the element is large: large weights meet large
// activations more often than chance. Measured importance replaces the guess.
void fit_weights(const float *x, const float *importance, int n, float *out) {
    float squares = 0;
    for (int i = 0; i < n; i++) squares += x[i] * x[i];
    const float mean = squares / (float)n, usual = sqrtf(mean);
    for (int i = 0; i < n; i++)
        out[i] = importance ? importance[i] * sqrtf(2 * mean + x[i] * x[i]) : usual + fabsf(x[i]);
}

enum { LANES = 8 }; // sums are kept in so many parts, in a fixed order

static float total(const float parts[LANES]) {
    return ((parts[0] + parts[4]) + (parts[2] + parts[6])) +
           ((parts[1] + parts[5]) + (parts[3] + parts[7]));
}

// ---- A scale ------------------------------------------------------------------------------------

static const float FIT_LEAST = 1e-15F; // magnitudes below become 0

enum { SCALE_TRIALS = 9 }; // to either side
static const float SCALE_STEP = 0.1F;

// The sums by which the scale of given numbers is found.
struct products {
    float xq, qq; // of w x q and of w q q
};

struct range {
    int32_t low, high;
};

static struct products sum_products(const float *x, const float *weights, int n, float inverse,
                                    struct range range) {
    float xq[LANES] = {0}, qq[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const int32_t nearest = fit_nearest(inverse * x[i + k]);
            const float q = (float)fit_clamp(nearest, range.low, range.high);
            xq[k] += weights[i + k] * x[i + k] * q;
            qq[k] += weights[i + k] * q * q;
        }
    return (struct products){total(xq), total(qq)};
}

float fit_largest(const float *x, int n) {
    float most = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(most)) most = x[i];
    return fabsf(most) < FIT_LEAST ? 0 : most;
}

// By least squares the error falls by xq^2 / qq.
float fit_scale(const float *x, const float *weights, int n, int32_t low, int32_t high) {
    ASSERT(n % LANES == 0 && n <= FIT_MOST);
    const float most = fit_largest(x, n);
    const struct range range = {low, high};
    float best = 0, scale = 0;
    if (most == 0) return 0;
    for (int trial = -SCALE_TRIALS; trial <= SCALE_TRIALS; trial++) {
        const float inverse = ((float)low + SCALE_STEP * (float)trial) / most;
        const struct products sums = sum_products(x, weights, n, inverse, range);
        if (sums.qq > 0 && sums.xq * sums.xq > best * sums.qq) {
            best = sums.xq * sums.xq / sums.qq;
            scale = sums.xq / sums.qq;
        }
    }
    return scale != 0 ? scale : most / (float)low;
}

// ---- A scale and an offset ----------------------------------------------------------------------

enum { LINE_TRIALS = 24 };
static const float LINE_FIRST = -1.2F, LINE_STEP = 0.1F;

// A block, and what of it does not depend on a trial.
struct line_block {
    const float *x, *weights;
    int n;
    float high, highest; // the largest number, the largest offset
    float low;           // the smallest element
    float w, wx;         // sums of w and w x
};

static struct line_block describe(const float *x, const float *weights, int n) {
    struct line_block b = {.x = x, .weights = weights, .n = n, .low = x[0]};
    for (int i = 0; i < n; i++) {
        b.w += weights[i];
        b.wx += weights[i] * x[i];
        if (x[i] < b.low) b.low = x[i];
    }
    return b;
}

// The numbers that a trial gives; returns the sums of w q, w q q and w x q.
static void count_line(const struct line_block *b, float inverse, float q[FIT_MOST],
                       float sums[3]) {
    float wq[LANES] = {0}, qq[LANES] = {0}, xq[LANES] = {0};
    for (int i = 0; i < b->n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const int32_t nearest = fit_nearest(inverse * (b->x[i + k] - b->low));
            const float number = (float)fit_clamp(nearest, 0, (int32_t)b->high);
            const float weighted = b->weights[i + k] * number;
            q[i + k] = number;
            wq[k] += weighted;
            qq[k] += weighted * number;
            xq[k] += weighted * b->x[i + k];
        }
    sums[0] = total(wq);
    sums[1] = total(qq);
    sums[2] = total(xq);
}

static float line_error(const struct line_block *b, const float *q, struct fit_line line) {
    float parts[LANES] = {0};
    for (int i = 0; i < b->n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const float error = line.scale * q[i + k] + line.offset - b->x[i + k];
            parts[k] += b->weights[i + k] * error * error;
        }
    return total(parts);
}

// The best line for given numbers; one that falls, or of equal numbers, is left to the caller.
static struct fit_line solve(const struct line_block *b, const float sums[3]) {
    const float determinant = b->w * sums[1] - sums[0] * sums[0];
    if (determinant <= 0) return (struct fit_line){0, b->low};
    const struct fit_line line = {(b->w * sums[2] - b->wx * sums[0]) / determinant,
                                  (sums[1] * b->wx - sums[0] * sums[2]) / determinant};
    if (line.offset <= b->highest) return line;
    return (struct fit_line){(sums[2] - b->highest * sums[0]) / sums[1], b->highest};
}

struct fit_line fit_scale_offset(const float *x, const float *weights, int n, int32_t high,
                                 float highest) {
    ASSERT(n % LANES == 0 && n <= FIT_MOST);
    struct line_block b = describe(x, weights, n);
    float q[FIT_MOST], sums[3], least = INFINITY, most = x[0];
    for (int i = 0; i < n; i++)
        if (x[i] > most) most = x[i];
    b.high = (float)high;
    b.highest = highest;
    if (b.low > highest) b.low = highest;
    struct fit_line best = {0, b.low};
    if (most - b.low < FIT_LEAST) return best;
    for (int trial = 0; trial < LINE_TRIALS; trial++) {
        const float steps = (float)high + LINE_FIRST + LINE_STEP * (float)trial;
        count_line(&b, steps / (most - b.low), q, sums);
        const struct fit_line line = solve(&b, sums);
        const float error = line_error(&b, q, line);
        if (line.scale <= 0 || error >= least) continue;
        least = error;
        best = line;
    }
    return least < INFINITY ? best : (struct fit_line){(most - b.low) / (float)high, b.low};
}
