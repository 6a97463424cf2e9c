/* split.cu: parts rows in two.
 *
 * Grid (n_rows, chunks of SPLIT_COLS columns of the wider part); a thread strides over the columns
 * of its chunk in both by SPLIT_THREADS. Reads and writes each element once; any widths. Tested by
 * tests/kernels/check_ops.c.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

KERNEL void __launch_bounds__(SPLIT_THREADS) split_rows(const struct split_rows_args a) {
    const int64_t row = blockIdx.x;
    const float *x = a.x + row * (a.n_first + a.n_second);
    const int begin = (int)blockIdx.y * SPLIT_COLS, end = begin + SPLIT_COLS;
    for (int c = begin + (int)threadIdx.x; c < end; c += SPLIT_THREADS) {
        if (c < a.n_first) a.first[row * a.first_stride + c] = x[c];
        if (c < a.n_second && a.second) a.second[row * a.second_stride + c] = x[a.n_first + c];
    }
}
