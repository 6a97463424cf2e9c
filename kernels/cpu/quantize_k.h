/* quantize_k.h: the quantisers of single blocks of 256 elements.
 *
 * Private to quantize.c, since quantize.h is the interface. Pure functions; any thread. Tested by
 * tests/kernels/test_quantize.c.
 */
#ifndef TANDEM_KERNELS_CPU_QUANTIZE_K_H
#define TANDEM_KERNELS_CPU_QUANTIZE_K_H

#include <stdint.h>

// x[256], importance[256] or NULL; out is one block.
void quantize_q2_k(const float *x, const float *importance, uint8_t *out);
void quantize_q3_k(const float *x, const float *importance, uint8_t *out);
void quantize_q4_k(const float *x, const float *importance, uint8_t *out);
void quantize_q5_k(const float *x, const float *importance, uint8_t *out);
void quantize_q6_k(const float *x, const float *importance, uint8_t *out);

#endif
