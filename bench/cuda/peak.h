/* peak.h: the parameter and the shape of the kernels that only multiply.
 *
 * Plain C, read by the host, by the device compilers and by the emulator. A thread runs n_rounds
 * times PEAK_STEPS steps of each of its PEAK_CHAINS chains; a step is one instruction. Owns
 * nothing. Tested by tests/cli/cli_kernels.sh.
 */
#ifndef TANDEM_BENCH_CUDA_PEAK_H
#define TANDEM_BENCH_CUDA_PEAK_H

#include <stdint.h>

enum {
    PEAK_THREADS = 256, // of a block; grid (any number of blocks)
    PEAK_CHAINS = 8,
    PEAK_STEPS = 16,
    PEAK_DIFFERENT = -1, // written by a thread whose sums are not all equal; no sum is this
};

struct peak_params {
    uint32_t *out; // [blocks * PEAK_THREADS] the bits of one sum of each thread
    uint32_t a, b; // the operands of all lanes: four bytes, two halves, or a float
    int32_t n_rounds;
    int32_t zero; // no padding
};

#endif
