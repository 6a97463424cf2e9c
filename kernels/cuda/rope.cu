/* rope.cu: rope_table computes the cosines and sines of a batch's positions, and rope rotates the
 * heads of q and k by them.
 *
 * Positions reach a million radians, where a float is a sixteenth of a radian coarse; so the angle
 * is computed in double, in turns, and only its fraction of a turn is converted to a float. Tested
 * by tests/kernels/check_ops.c.
 */
#include "kernels/cuda/exp2.cuh"
#include "kernels/cuda/rope.cuh"

// log2(x) for a normal x > 0: the exponent plus the logarithm of the mantissa m in [1, 2), from the
// series of atanh at s = (m - sqrt 2) / (m + sqrt 2), |s| < 0.172; the first term left out is below
// 1e-18.
DEVICE_FN double log2_of(float x) {
    uint32_t bits = __float_as_uint(x);
    const double root = 1.4142135623730950488;
    double m = (double)__uint_as_float((bits & 0x7fffff) | 0x3f800000), s = (m - root) / (m + root);
    double sum = 0;
    for (int k = 21; k > 0; k -= 2) sum = sum * s * s + 1.0 / k;
    return (double)((int)(bits >> 23) - 127) + 0.5 + sum * s * 2.8853900817779268147;
}

// Radians per position of pair i.
DEVICE_FN double frequency(const struct rope_table_args &a, int i) {
    double f = exp2_of(-2.0 * i / a.n_rot * log2_of(a.base));
    if (a.freq_factors) f /= (double)a.freq_factors[i];
    double width = (double)a.corr_high - (double)a.corr_low;
    double ramp = ((double)i - (double)a.corr_low) / (width > 0.001 ? width : 0.001);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    double mix = (double)a.ext_factor * (1 - ramp);
    return (double)a.scale * f * (1 - mix) + f * mix;
}

DEVICE_FN float magnitude_at(const struct rope_table_args &a, int position) {
    if (!a.period) return a.magnitude;
    double log = 0.6931471805599453 * log2_of((float)(1 + position / a.period));
    return a.magnitude * (float)(1 + (double)a.temperature * log);
}

// {cos, sin} of an angle in turns. The nearest quarter turn is subtracted exactly; the error of the
// series is below 3e-8 up to an eighth of a turn.
DEVICE_FN float2 cos_sin(double turns) {
    turns -= rint(turns);
    double quarters = rint(4 * turns);
    float x = (float)((turns - quarters / 4) * 6.2831853071795864769), y = x * x;
    float c = 1 + y * (-0.5F + y * (1.0F / 24 + y * (-1.0F / 720 + y * (1.0F / 40320))));
    float s = x + x * y * (-1.0F / 6 + y * (1.0F / 120 + y * (-1.0F / 5040 + y / 362880)));
    int quadrant = (int)quarters & 3;
    if (quadrant & 1) {
        float other = c;
        c = -s, s = other;
    }
    return quadrant & 2 ? make_float2(-c, -s) : make_float2(c, s);
}

// Grid (n_tokens, chunks of ROPE_TABLE_THREADS pairs); a thread computes one pair with about 150
// operations in double and writes 8 bytes.
KERNEL void __launch_bounds__(ROPE_TABLE_THREADS) rope_table(const struct rope_table_args a) {
    int n_pairs = a.n_rot / 2, i = (int)blockIdx.y * ROPE_TABLE_THREADS + (int)threadIdx.x;
    if (i >= n_pairs) return;
    double turns_per_position = frequency(a, i) / 6.2831853071795864769;
    float2 pair = cos_sin((double)a.positions[blockIdx.x] * turns_per_position);
    float *out = a.out + ((int64_t)blockIdx.x * n_pairs + i) * 2;
    float magnitude = magnitude_at(a, a.positions[blockIdx.x]);
    out[0] = magnitude * pair.x, out[1] = magnitude * pair.y;
}

// Grid (n_tokens, n_heads + n_kv_heads): a block rotates one head. Reads and writes 8 bytes per
// pair and reads 8 of the table.
KERNEL void __launch_bounds__(ROPE_THREADS) rope(const struct rope_args a) {
    rotate_head(a, blockIdx.x, (int)blockIdx.y);
}
