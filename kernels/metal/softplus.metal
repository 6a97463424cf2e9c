/* softplus.metal: ln(1 + e^z), by which states take steps and rows are gated.
 *
 * Owns nothing; no kernel. Source: Dugas et al. 2001. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_METAL_SOFTPLUS_METAL
#define TANDEM_KERNELS_METAL_SOFTPLUS_METAL

#include "kernels/metal/device.metal"

// ln(1 + e^z); the logarithm is too coarse next to 1.
static float softplus(float z) {
    if (z > 20) return z;
    const float e = exp(z);
    return e < 0.01f ? e * (1 - e * (0.5f - e * 0.33333333f)) : log(1 + e);
}

#endif
