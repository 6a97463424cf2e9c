/* quantize_iq4.h: the quantisers of single blocks of the types with 16 uneven values.
 *
 * Private to quantize.c, since quantize.h is the interface. Pure functions; any thread. Tested by
 * tests/kernels/test_quantize.c.
 */
#ifndef TANDEM_KERNELS_CPU_QUANTIZE_IQ4_H
#define TANDEM_KERNELS_CPU_QUANTIZE_IQ4_H

#include <stdint.h>

// x[32] or x[256], importance of the same length or NULL; out is one block.
void quantize_iq4_nl(const float *x, const float *importance, uint8_t *out);
void quantize_iq4_xs(const float *x, const float *importance, uint8_t *out);

#endif
