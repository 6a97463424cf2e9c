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

// True if rows can become this type.
bool quantize_knows(enum dtype type);

// The largest magnitude of an element: blocks store their scales in half precision.
float quantize_most(enum dtype type);

// Fills out with the blocks of x[n], where n is a multiple of the type's block and every element is
// a number of at most quantize_most. importance[n], which may be NULL, says how much the square of
// an element's error counts; it is 0 or more.
void quantize_row(enum dtype type, const float *x, const float *importance, uint8_t *out,
                  int64_t n);

#endif
