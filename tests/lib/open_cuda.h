/* open_cuda.h: opens the emulated GPU for tests, which fail where that is refused.
 *
 * The caller owns the device. For cmocka programs only, in the thread of the test. Used by tests of
 * the CUDA backend; what such a device gives, open_device.h makes.
 */
#ifndef TANDEM_TESTS_LIB_OPEN_CUDA_H
#define TANDEM_TESTS_LIB_OPEN_CUDA_H

#include "kernels/cuda/cuda_list.h"
#include "kernels/device.h"

// Launches that opening a device makes, and the kernels that these run.
enum {
    CUDA_LAUNCHES_AT_START = CUDA_GRAPH_LAUNCHES + 1 + 2, // the third and the last one are graphs
    CUDA_KERNELS_AT_START = 2 * CUDA_GRAPH_LAUNCHES + 2,
};

// capability: as "8.6", or NULL for the emulator's own; EMU_CUDA_CC keeps it.
struct device *open_cuda(const char *capability);

#endif
