/* random_weights.h: makes weights of any type in the range of a model's, for benchmarks.
 *
 * Owns nothing. Any thread, one per state.
 */
#ifndef TANDEM_BENCH_LIB_RANDOM_WEIGHTS_H
#define TANDEM_BENCH_LIB_RANDOM_WEIGHTS_H

#include "kernels/dtypes.h"

// Fills out with count elements of that type around 0 with about that deviation: random bytes with
// block scales that fit. count is a multiple of the type's block. *state is any number but 0.
void random_weights(enum weight_type type, void *out, uint64_t count, float deviation,
                    uint64_t *state);

#endif
