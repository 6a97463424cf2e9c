/* kernel_table.h: every kernel of kernels.def and of bench/cuda/peak.def by name, compiled for each
 * instruction set of the images.
 *
 * One table per set: kernel_table.c and all .cu files are compiled with its CUDA_ARCH and linked
 * into one object from which only the table is visible. Owns nothing. Tested by
 * tests/kernels/test_emulator.c.
 */
#ifndef TANDEM_TESTS_EMULATOR_KERNEL_TABLE_H
#define TANDEM_TESTS_EMULATOR_KERNEL_TABLE_H

#include <stddef.h>

struct fake_kernel {
    const char *name;
    void (*run)(const void *params);
    size_t params_bytes;
};

// Ended by a NULL name.
extern const struct fake_kernel kernels_610[], kernels_750[], kernels_800[];

// The table for an image of that architecture (61, 75, 80, ...): the newest that is not newer.
static inline const struct fake_kernel *kernel_table(int arch) {
    return arch >= 80 ? kernels_800 : arch >= 75 ? kernels_750 : kernels_610;
}

#endif
