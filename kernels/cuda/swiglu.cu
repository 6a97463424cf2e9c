/* swiglu.cu: gated linear units.
 *
 * swiglu: grid (rows * chunks of SWIGLU_ELEMENTS columns); a thread strides over the columns by
 * SWIGLU_THREADS. Reads 8 bytes and writes 4 per element, and reads 4 per row; out may be gate or
 * up, and any number of rows and columns is allowed. swiglu_quantize, which quantises what it
 * writes and takes row gates that are sigmoids alone: grid (rows, chunks of SWIGLU_QUANTIZE_COLS
 * columns), four columns a thread, of which eight have a group. Tested by
 * tests/kernels/check_ops.c.
 */
#include "kernels/cuda/params.h"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/softplus.cuh"

// Both sides share their last step: with a branch swiglu_quantize takes 34 registers on 8.6,
// not 32.
DEVICE_FN float xielu(const struct xielu_numbers &n, float x) {
    const float p = x > 0 ? x * x : __expf(fminf(x, n.top)) - 1 - x;
    return fmaf(x > 0 ? n.positive : n.negative, p, n.linear * x);
}

// Every form but the last three is gate * sigmoid(x) * up: (1 + tanh(x)) / 2 = sigmoid(2 x).
DEVICE_FN float gated(const struct swiglu_args &a, float gate, float up) {
    float x = gate;
    if (a.form == GLU_PRODUCT) return gate * up;
    if (a.form == GLU_SQUARE) return fmaxf(gate, 0) * fmaxf(gate, 0) * up;
    if (a.form == GLU_XIELU) return xielu(a.xielu, gate) * up;
    if (a.form == GLU_GELU) x = gate * fmaf(gate * gate, 0.044715f * 1.5957691f, 1.5957691f);
    if (a.form == GLU_CLAMPED) {
        gate = fminf(gate, a.limit);
        up = fmaxf(fminf(up, a.limit), -a.limit) + 1;
        x = 1.702f * gate;
    }
    if (a.form == GLU_SIGMOID) gate = 1;
    return gate / (1 + __expf(-x)) * up;
}

DEVICE_FN float share_of_row(const struct swiglu_args &a, unsigned row) {
    if (!a.row_gate) return 1;
    const float x = a.row_gate[row];
    return a.row_form == ROW_SOFTPLUS ? softplus(x) : 1 / (1 + __expf(-x));
}

KERNEL void __launch_bounds__(SWIGLU_THREADS) swiglu(const struct swiglu_args a) {
    const unsigned n_chunks = ((unsigned)a.n_cols - 1) / SWIGLU_ELEMENTS + 1;
    const unsigned row = blockIdx.x / n_chunks;
    const int first = (int)((blockIdx.x - row * n_chunks) * SWIGLU_ELEMENTS + threadIdx.x);
    const int64_t at = (int64_t)row * a.stride + first;
    const float *up = a.up + (int64_t)row * a.up_stride + first; // not read if a.up is NULL
    const float share = share_of_row(a, row);
#pragma unroll
    for (int i = 0; i < SWIGLU_ELEMENTS; i += SWIGLU_THREADS) {
        if (first + i >= a.n_cols) continue;
        a.out[at + i] = share * gated(a, a.gate[at + i], a.up ? up[i] : 1);
    }
}

KERNEL void __launch_bounds__(SWIGLU_THREADS)
    swiglu_quantize(const struct swiglu_quantize_params p) {
    const struct swiglu_args &a = p.a;
    const int64_t row = blockIdx.x;
    const int c = (int)blockIdx.y * SWIGLU_QUANTIZE_COLS + 4 * (int)threadIdx.x;
    const bool inside = c < a.n_cols;
    float4 v = make_float4(0, 0, 0, 0);
    if (inside) {
        const float share = a.row_gate ? 1 / (1 + __expf(-a.row_gate[row])) : 1;
        const float4 gate = *(const float4 *)(a.gate + row * a.stride + c);
        const float4 up =
            a.up ? *(const float4 *)(a.up + row * a.up_stride + c) : make_float4(1, 1, 1, 1);
        v = make_float4(share * gated(a, gate.x, up.x), share * gated(a, gate.y, up.y),
                        share * gated(a, gate.z, up.z), share * gated(a, gate.w, up.w));
        *(float4 *)(a.out + row * a.stride + c) = v;
    }
    quantize_fours(in_row((char *)p.acts + row * p.acts_stride, a.n_cols, c / 32), v, inside);
}
