/* rows.metal: gather_rows and split_rows, which copy rows, and cap_logits.
 *
 * Every thread strides over the columns of a chunk, or the elements of one, and reads and writes
 * each element once; any number of rows and columns. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/metal/device.metal"

// Grid (n_rows, chunks of GATHER_COLS columns).
kernel void gather_rows(constant gather_rows_args &a [[buffer(0)]],
                        device float *out [[buffer(1)]],
                        device const float *x [[buffer(2)]],
                        device const int *rows [[buffer(3)]],
                        uint2 group [[threadgroup_position_in_grid]],
                        uint index [[thread_index_in_threadgroup]]) {
    device const float *source = x + long(rows[group.x]) * a.n_cols;
    device float *target = out + long(group.x) * a.n_cols;
    const int first = int(group.y) * GATHER_COLS, last = min(first + GATHER_COLS, a.n_cols);
    for (int c = first + int(index); c < last; c += GATHER_THREADS) target[c] = source[c];
}

// Grid (n_rows, chunks of SPLIT_COLS columns of the wider part).
kernel void split_rows(constant split_rows_args &a [[buffer(0)]],
                       device float *first [[buffer(1)]],
                       device float *second [[buffer(2)]],
                       device const float *x [[buffer(3)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint index [[thread_index_in_threadgroup]]) {
    const long row = group.x;
    device const float *source = x + row * (a.n_first + a.n_second);
    const int begin = int(group.y) * SPLIT_COLS, end = begin + SPLIT_COLS;
    for (int c = begin + int(index); c < end; c += SPLIT_THREADS) {
        if (c < a.n_first) first[row * a.first_stride + c] = source[c];
        if (c < a.n_second && a.second != 0)
            second[row * a.second_stride + c] = source[a.n_first + c];
    }
}

// Grid (chunks of CAP_ELEMENTS elements of all rows).
kernel void cap_logits(constant cap_logits_args &a [[buffer(0)]],
                       device float *x [[buffer(1)]],
                       uint group [[threadgroup_position_in_grid]],
                       uint index [[thread_index_in_threadgroup]]) {
    const long first = long(group) * CAP_ELEMENTS;
    const long last = min(first + CAP_ELEMENTS, long(a.n_rows) * a.n_cols);
    for (long i = first + index; i < last; i += CAP_THREADS) {
        const float scaled = a.scale * x[i];
        x[i] = a.softcap > 0 ? a.softcap * tanh(scaled / a.softcap) : scaled;
    }
}
