/* swiglu.metal: gated linear units.
 *
 * Grid (n_rows, chunks of SWIGLU_COLS columns); a thread strides over the columns by
 * SWIGLU_THREADS. Reads 8 bytes and writes 4 per element, and reads 4 per row; out may be gate or
 * up, and any number of rows and columns is allowed. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/metal/device.metal"
#include "kernels/metal/softplus.metal"

static float xielu_unit(constant swiglu_args &a, float x) {
    if (x > 0) return fma(a.xielu.positive * x, x, a.xielu.linear * x);
    return fma(a.xielu.negative, exp(min(x, a.xielu.top)) - 1 - x, a.xielu.linear * x);
}

// Every form but the last three is gate * sigmoid(x) * up: (1 + tanh(x)) / 2 = sigmoid(2 x).
static float glu_unit(constant swiglu_args &a, float gate, float up) {
    float x = gate;
    if (a.form == GLU_PRODUCT) return gate * up;
    if (a.form == GLU_SQUARE) return gate > 0 ? gate * gate * up : 0.0f;
    if (a.form == GLU_XIELU) return xielu_unit(a, gate) * up;
    if (a.form == GLU_GELU) x = gate * fma(gate * gate, 0.044715f * 1.5957691f, 1.5957691f);
    if (a.form == GLU_CLAMPED) {
        gate = min(gate, a.limit);
        up = max(min(up, a.limit), -a.limit) + 1;
        x = 1.702f * gate;
    }
    if (a.form == GLU_SIGMOID) gate = 1;
    return gate / (1 + exp(-x)) * up;
}

static float share_of_row(constant swiglu_args &a, float x) {
    return a.row_form == ROW_SOFTPLUS ? softplus(x) : 1 / (1 + exp(-x));
}

kernel void swiglu(constant swiglu_args &a [[buffer(0)]],
                   device float *out [[buffer(1)]],
                   device const float *gate [[buffer(2)]],
                   device const float *up [[buffer(3)]],
                   device const float *row_gate [[buffer(4)]],
                   uint2 group [[threadgroup_position_in_grid]],
                   uint index [[thread_index_in_threadgroup]]) {
    const long at = long(group.x) * a.stride, up_at = long(group.x) * a.up_stride;
    const float share = a.row_gate != 0 ? share_of_row(a, row_gate[group.x]) : 1.0f;
    const int first = int(group.y) * SWIGLU_COLS, last = min(first + SWIGLU_COLS, a.n_cols);
    for (int c = first + int(index); c < last; c += SWIGLU_THREADS)
        out[at + c] = share * glu_unit(a, gate[at + c], a.up != 0 ? up[up_at + c] : 1.0f);
}
