/* open_cuda.h: opens the emulated GPU for tests, which fail where that is refused.
 *
 * The caller owns the device. For cmocka programs only, in the thread of the test. Used by tests of
 * the CUDA backend; what such a device gives, open_device.h makes.
 */
#ifndef TANDEM_TESTS_LIB_OPEN_CUDA_H
#define TANDEM_TESTS_LIB_OPEN_CUDA_H

#include "kernels/device.h"

// capability: as "8.6", or NULL for the emulator's own; EMU_CUDA_CC keeps it.
struct device *open_cuda(const char *capability);

#endif
