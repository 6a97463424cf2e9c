/* run_kernel.h: runs one Metal kernel on the host's memory, without a device around it.
 *
 * For tests of kernels alone. The caller owns all memory; faults of the emulator end the test.
 * Tested by tests/kernels/test_metal_kernels.c.
 */
#ifndef TANDEM_TESTS_METAL_RUN_KERNEL_H
#define TANDEM_TESTS_METAL_RUN_KERNEL_H

#include "kernels/metal/metal_list.h"
#include "tests/emulator/simt.h"

// Runs the kernel of that name as metal_add encodes it: its parameters at buffer index 0, and at
// index k + 1 what the k-th of the pointers with which they begin points to. False with the text of
// the fault.
bool run_kernel(struct simt *engine, const char *name, struct metal_grid grid, const void *params,
                uint32_t n_pointers, struct simt_report *report);

#endif
