/* swiglu.cu: out = gate * sigmoid(gate) * up.
 *
 * Grid (chunks of SWIGLU_ELEMENTS elements); a thread turns every SWIGLU_THREADS-th of them. Reads
 * 8 bytes and writes 4 per element; out may be gate or up, and any count is allowed. Tested by
 * tests/kernels/check_ops.c.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

KERNEL void __launch_bounds__(SWIGLU_THREADS) swiglu(const struct swiglu_args a) {
    int64_t first = (int64_t)blockIdx.x * SWIGLU_ELEMENTS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < SWIGLU_ELEMENTS; i += SWIGLU_THREADS) {
        if (first + i >= a.count) continue;
        float gate = a.gate[first + i];
        a.out[first + i] = gate / (1 + __expf(-gate)) * a.up[first + i];
    }
}
