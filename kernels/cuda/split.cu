/* split.cu: parts rows of two halves.
 *
 * Grid (n_rows, chunks of SPLIT_COLS columns of a half); a thread strides over the columns by
 * SPLIT_THREADS. Reads and writes each element once; any n_cols. Tested by
 * tests/kernels/check_ops.c.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

KERNEL void __launch_bounds__(SPLIT_THREADS) split_rows(const struct split_rows_args a) {
    const int64_t at = (int64_t)blockIdx.x * a.n_cols;
    const int first = (int)blockIdx.y * SPLIT_COLS, last = min(first + SPLIT_COLS, a.n_cols);
    for (int c = first + (int)threadIdx.x; c < last; c += SPLIT_THREADS) {
        a.first[at + c] = a.x[2 * at + c];
        a.second[at + c] = a.x[2 * at + a.n_cols + c];
    }
}
