/* metal_library.h: the kernels of kernels.def, compiled by Metal from text in this program.
 *
 * A struct metal_library is the device's and owns the pipelines. Metal compiles the text when a
 * device is opened, and the system keeps what came out for the next start of the same program. One
 * thread at a time. Tested by tests/kernels/test_metal.c.
 */
#ifndef TANDEM_KERNELS_METAL_METAL_LIBRARY_H
#define TANDEM_KERNELS_METAL_METAL_LIBRARY_H

#include "base/log.h"
#include "kernels/metal/metal_list.h"
#include "kernels/metal/metal_objc.h"

const char *metal_kernel_name(enum metal_kernel kernel); // "rms_norm"

struct metal_library {
    struct mtl_pipeline *pipelines[METAL_KERNEL_COUNT];
    uint32_t max_threads[METAL_KERNEL_COUNT]; // of a threadgroup
};

// Compiles source, a program in Metal's language. ERR_DEVICE names the line that does not compile,
// the kernel that is missing or refused, or the one whose simdgroups are not METAL_SIMD_WIDTH wide;
// the log gets all that Metal says. Close it after a failure too.
enum status metal_library_open(struct metal_library *library, const struct metal_objc *objc,
                               struct mtl_device *device, const char *source, const struct log *log,
                               struct err *e);
void metal_library_close(struct metal_library *library, const struct metal_objc *objc);

#endif
