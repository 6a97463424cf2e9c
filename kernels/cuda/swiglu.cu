/* swiglu.cu: gated linear units.
 *
 * Grid (rows * chunks of SWIGLU_ELEMENTS columns); a thread strides over the columns by
 * SWIGLU_THREADS. Reads 8 bytes and writes 4 per element, and reads 4 per row; out may be gate or
 * up, and any number of rows and columns is allowed. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

// Every form but the last two is gate * sigmoid(x) * up: (1 + tanh(x)) / 2 = sigmoid(2 x).
DEVICE_FN float gated(const struct swiglu_args &a, float gate, float up) {
    float x = gate;
    if (a.form == GLU_PRODUCT) return gate * up;
    if (a.form == GLU_SQUARE) return fmaxf(gate, 0) * fmaxf(gate, 0) * up;
    if (a.form == GLU_GELU) x = gate * fmaf(gate * gate, 0.044715f * 1.5957691f, 1.5957691f);
    if (a.form == GLU_CLAMPED) {
        gate = fminf(gate, a.limit);
        up = fmaxf(fminf(up, a.limit), -a.limit) + 1;
        x = 1.702f * gate;
    }
    if (a.form == GLU_SIGMOID) gate = 1;
    return gate / (1 + __expf(-x)) * up;
}

KERNEL void __launch_bounds__(SWIGLU_THREADS) swiglu(const struct swiglu_args a) {
    const unsigned n_chunks = ((unsigned)a.n_cols - 1) / SWIGLU_ELEMENTS + 1;
    const unsigned row = blockIdx.x / n_chunks;
    const int first = (int)((blockIdx.x - row * n_chunks) * SWIGLU_ELEMENTS + threadIdx.x);
    const int64_t at = (int64_t)row * a.stride + first;
    const float *up = a.up + (int64_t)row * a.up_stride + first; // not read if a.up is NULL
    const float share = a.row_gate ? 1 / (1 + __expf(-a.row_gate[row])) : 1;
#pragma unroll
    for (int i = 0; i < SWIGLU_ELEMENTS; i += SWIGLU_THREADS) {
        if (first + i >= a.n_cols) continue;
        a.out[at + i] = share * gated(a, a.gate[at + i], a.up ? up[i] : 1);
    }
}
