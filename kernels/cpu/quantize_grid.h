/* quantize_grid.h: the quantisers of the types with codebooks of magnitudes: IQ2 and IQ3.
 *
 * Private to quantize.c, since quantize.h is the interface. Pure functions; any thread. Tested by
 * tests/kernels/test_quantize.c.
 */
#ifndef TANDEM_KERNELS_CPU_QUANTIZE_GRID_H
#define TANDEM_KERNELS_CPU_QUANTIZE_GRID_H

#include "kernels/dtypes.h"

#include <stdbool.h>
#include <stdint.h>

bool quantize_grid_knows(enum dtype type);

// x[n], importance[n] or NULL, n a multiple of 256.
void quantize_grid_row(enum dtype type, const float *x, const float *importance, uint8_t *out,
                       int64_t n);

#endif
