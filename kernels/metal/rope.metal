/* rope.metal: rope_table computes the cosines and sines of a batch's positions, and rope rotates
 * the heads of q and k by them.
 *
 * Positions reach a million radians, where a float is a sixteenth of a radian coarse, and there are
 * no doubles here; so the host computes the turns per position of each pair in double and hands
 * them over as two floats, and an angle is a product of integers, in units of 2^-64 turns, whose
 * whole turns overflow. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/metal/device.metal"

// A number of turns in units of 2^-64, modulo whole turns. The product with 2^62 and its conversion
// are exact, since the fraction has at most 24 bits.
static ulong rope_units(float turns) {
    return ulong(long((turns - rint(turns)) * 4611686018427387904.0f)) << 2;
}

// Turns per position of pair i of this dispatch. The division leaves an error below 2^-44 of them.
static ulong rope_frequency(constant rope_table_params &p, device const float *factors, int i) {
    float high = p.turns[2 * i], low = p.turns[2 * i + 1];
    if (p.a.freq_factors != 0) {
        const float factor = factors[p.first_pair + i], quotient = high / factor;
        low = (fma(-quotient, factor, high) + low) / factor;
        high = quotient;
    }
    return rope_units(high) + rope_units(low);
}

static float rope_magnitude(constant rope_table_args &a, int position) {
    if (a.period == 0) return a.magnitude;
    return a.magnitude * (1 + a.temperature * log(float(1 + position / a.period)));
}

// {cos, sin} of an angle. The nearest quarter turn is subtracted exactly; the error of the series
// is below 3e-8 up to an eighth of a turn.
static float2 rope_cos_sin(ulong angle) {
    const ulong quarters = (angle + (1ul << 61)) >> 62;
    const float x = float(long(angle - (quarters << 62))) * 3.40612158008655459e-19f, y = x * x;
    const float c = 1 + y * (-0.5f + y * (1.0f / 24 + y * (-1.0f / 720 + y * (1.0f / 40320))));
    const float s =
        x + x * y * (-1.0f / 6 + y * (1.0f / 120 + y * (-1.0f / 5040 + y * (1.0f / 362880))));
    const float2 pair = (quarters & 1) != 0 ? float2(-s, c) : float2(c, s);
    return (quarters & 2) != 0 ? float2(-pair.x, -pair.y) : pair;
}

// Grid (n_tokens): a thread computes one of the pairs first_pair..first_pair+n_pairs-1 with about
// 60 operations and writes 8 bytes.
kernel void rope_table(constant rope_table_params &p [[buffer(0)]],
                       device float *out [[buffer(1)]],
                       device const int *positions [[buffer(2)]],
                       device const float *freq_factors [[buffer(3)]],
                       uint token [[threadgroup_position_in_grid]],
                       uint index [[thread_index_in_threadgroup]]) {
    if (int(index) >= p.n_pairs) return;
    const int position = positions[token];
    const ulong frequency = rope_frequency(p, freq_factors, int(index));
    const float2 pair = rope_cos_sin(ulong(long(position)) * frequency);
    const float magnitude = rope_magnitude(p.a, position);
    const long at = (long(token) * (p.a.n_rot / 2) + p.first_pair + int(index)) * 2;
    out[at] = magnitude * pair.x;
    out[at + 1] = magnitude * pair.y;
}

// Grid (n_tokens, n_heads + n_kv_heads): a threadgroup rotates one head, whose pairs its threads
// stride over by ROPE_THREADS. Reads and writes 8 bytes per pair and reads 8 of the table.
kernel void rope(constant rope_args &a [[buffer(0)]],
                 device float *q [[buffer(1)]],
                 device float *k [[buffer(2)]],
                 device const float *table [[buffer(3)]],
                 uint2 group [[threadgroup_position_in_grid]],
                 uint index [[thread_index_in_threadgroup]]) {
    const long token = group.x;
    const int h = int(group.y), n_pairs = a.n_rot / 2, apart = a.neox ? n_pairs : 1;
    device float *head = h < a.n_heads ? q + (token * a.n_heads + h) * a.head_dim
                                       : k + (token * a.n_kv_heads + h - a.n_heads) * a.head_dim;
    device const float *of_token = table + token * a.n_rot;
    for (int i = int(index); i < n_pairs; i += ROPE_THREADS) {
        device float *pair = head + (a.neox ? i : 2 * i);
        const float cosine = of_token[2 * i], sine = of_token[2 * i + 1];
        const float x = pair[0], y = pair[apart];
        pair[0] = x * cosine - y * sine;
        pair[apart] = x * sine + y * cosine;
    }
}
