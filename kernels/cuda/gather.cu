/* gather.cu: out[i] = x[rows[i]].
 *
 * Grid (n_rows, chunks of GATHER_COLS columns); a thread strides over the columns of the chunk by
 * GATHER_THREADS. Reads and writes each element once; any n_cols. Tested by
 * tests/kernels/check_ops.c.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

KERNEL void __launch_bounds__(GATHER_THREADS) gather_rows(const struct gather_rows_args a) {
    const float *x = a.x + (int64_t)a.rows[blockIdx.x] * a.n_cols;
    float *out = a.out + (int64_t)blockIdx.x * a.n_cols;
    int first = (int)blockIdx.y * GATHER_COLS, last = min(first + GATHER_COLS, a.n_cols);
    for (int c = first + (int)threadIdx.x; c < last; c += GATHER_THREADS) out[c] = x[c];
}
