/* cap.cu: scales and caps logits in place.
 *
 * Grid (chunks of CAP_ELEMENTS elements of all rows); a thread strides over the chunk by
 * CAP_THREADS. Reads and writes each element once; any number of rows and columns. Tested by
 * tests/kernels/check_ops.c.
 */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/params.h"

KERNEL void __launch_bounds__(CAP_THREADS) cap_logits(const struct cap_logits_args a) {
    const int64_t count = (int64_t)a.n_rows * a.n_cols;
    const int64_t first = (int64_t)blockIdx.x * CAP_ELEMENTS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < CAP_ELEMENTS; i += CAP_THREADS) {
        if (first + i >= count) continue;
        const float x = a.scale * a.x[first + i];
        a.x[first + i] = a.softcap > 0 ? cap_score(x, a.softcap) : x;
    }
}
