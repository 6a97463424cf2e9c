/* block_scales.h: what random bytes need to be weights: where the scales of a block lie and how
 * large they should be.
 *
 * Owns nothing; pure. For tests and benches that invent weights. Any thread. Used by
 * tests/kernels/op_check.c and bench/lib/random_weights.c.
 */
#ifndef TANDEM_TESTS_LIB_BLOCK_SCALES_H
#define TANDEM_TESTS_LIB_BLOCK_SCALES_H

#include "kernels/dtypes.h"

#include <stdbool.h>

struct block_scales { // the factor and the offset
    int at[2];        // the byte of the block where the scale lies; -1: there is none
    bool power;       // scales are bytes n for 2^(n - 128), else halves
    bool nibbles;     // a half is the top nibbles of four words
    float factor[2];  // with which, all other bytes being random, elements have a mean of about 0
                      // and a deviation of about 1
};

struct block_scales block_scales_of(enum weight_type type);
// Writes the scales that a block has: values as halves, or the power of two next to a magnitude.
// Powers take no zero.
void block_scales_put(const struct block_scales *s, const float values[2], void *block);

#endif
