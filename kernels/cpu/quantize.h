/* quantize.h: turns rows of floats into the blocks of the formats that dequantize.c defines.
 *
 * Pure functions that own nothing; any thread. The bytes depend on the row and its importance
 * alone. Tested by tests/kernels/test_quantize.c.
 */
#ifndef TANDEM_KERNELS_CPU_QUANTIZE_H
#define TANDEM_KERNELS_CPU_QUANTIZE_H

#include "kernels/dtypes.h"

#include <stdbool.h>
#include <stdint.h>

// The largest magnitude of an element: all formats store scales in half precision.
#define QUANTIZE_MOST 65504.0F

// True if rows can become this type.
bool quantize_knows(enum dtype type);

// Fills out with the blocks of x[n], where n is a multiple of the type's block and every element is
// a number of at most QUANTIZE_MOST. importance[n], which may be NULL, says how much the square of
// an element's error counts; it is 0 or more.
void quantize_row(enum dtype type, const float *x, const float *importance, uint8_t *out,
                  int64_t n);

#endif
