/* softplus.h: ln(1 + e^z), by which states take steps and rows are gated.
 *
 * Pure inline functions; any thread. Included by the definitions and by the files of x86 and NEON.
 * Source: Dugas et al. 2001. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_SOFTPLUS_H
#define TANDEM_KERNELS_CPU_SOFTPLUS_H

#include "kernels/ops.h"

#include <math.h>

// Beyond 20, where e^z may be infinite, both are z to within 2.1e-9.
static inline double softplus(double z) { return z > 20 ? z : log1p(exp(z)); }
static inline float softplus_float(float z) { return z > 20 ? z : log1pf(expf(z)); }

// The factor of a row of swiglu.
static inline float swiglu_share(const struct swiglu_args *a, int64_t row) {
    if (!a->row_gate) return 1;
    const float x = a->row_gate[row];
    return a->row_form == ROW_SOFTPLUS ? softplus_float(x) : 1 / (1 + expf(-x));
}

#endif
