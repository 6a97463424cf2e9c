/* toys.h: small kernels, right and wrong ones, by which tests/kernels/test_simt.c tests the
 * emulator.
 *
 * Plain C, read by toys.cu and by the test. Owns nothing.
 */
#ifndef TANDEM_TESTS_EMULATOR_TOYS_H
#define TANDEM_TESTS_EMULATOR_TOYS_H

#include <stdint.h>

struct toy { // the parameter of every toy
    float *out;
    const float *in;
    const void *a, *b; // fragments' matrices
    int n;
};

// X(name): right ones, then wrong ones.
// clang-format off
#define TOYS_RIGHT(X) \
    X(indices)        \
    X(block_sum)      \
    X(shuffles)       \
    X(ballot)         \
    X(half_warps)     \
    X(atomics)        \
    X(arithmetic)     \
    X(pipeline)       \
    X(tiles)          \
    X(mma_16_8_16)    \
    X(mma_16_8_8)     \
    X(mma_16_8_32)    \
    X(mma_8_8_16)     \
    X(loads)
#define TOYS_WRONG(X)    \
    X(divergent_barrier) \
    X(early_exit)        \
    X(late_barrier)      \
    X(half_a_warp)       \
    X(absent_lane)       \
    X(foreign_mask)      \
    X(ended_lanes)       \
    X(divergent_shuffle) \
    X(forgotten_copy)    \
    X(crooked_copy)      \
    X(too_many_copies)   \
    X(crooked_tile)      \
    X(shared_overrun)    \
    X(unset_shared)      \
    X(early_read)
// clang-format on

#endif
