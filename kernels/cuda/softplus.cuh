/* softplus.cuh: ln(1 + e^z), by which states take steps and rows are gated.
 *
 * Owns nothing; device code only. Source: Dugas et al. 2001. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CUDA_SOFTPLUS_CUH
#define TANDEM_KERNELS_CUDA_SOFTPLUS_CUH

#include "kernels/cuda/device.cuh"

// ln(1 + e^z); the logarithm is too coarse next to 1.
DEVICE_FN float softplus(float z) {
    const float e = __expf(z);
    if (z > 20) return z;
    return e < 0.01f ? e * (1 - e * (0.5f - e * 0.33333333f)) : __logf(1 + e);
}

#endif
