/* metal_list.h: dispatches of kernels as they are encoded into a stream's command buffer.
 *
 * A stream owns its command buffer and the encoder that is open in it; metal_encode.c opens and
 * ends them as commands need, and flushing commits. Nothing is kept beside: Metal copies parameters
 * as they are encoded. After a failure of the stream everything is skipped. One thread drives a
 * device at a time. Tested by tests/kernels/test_metal.c.
 */
#ifndef TANDEM_KERNELS_METAL_METAL_LIST_H
#define TANDEM_KERNELS_METAL_METAL_LIST_H

#include <stdint.h>

enum metal_kernel {
#define METAL_KERNEL(name, params, n_pointers) METAL_##name,
#include "kernels/metal/kernels.def"
#undef METAL_KERNEL
    METAL_KERNEL_COUNT
};

enum {
    METAL_PARAMS_MAX = 4096, // the largest setBytes
    METAL_SIMD_WIDTH = 32,   // threads of a simdgroup that the kernels need
};

struct metal_grid {
    uint32_t x, y, z;           // threadgroups; nothing is encoded where one is 0
    uint32_t threads;           // of a threadgroup, along x
    uint32_t threadgroup_bytes; // of [[threadgroup(0)]], a multiple of 16; 0: the kernel has none
};

struct metal_stream; // metal_backend.h

// Encodes a dispatch. params begins with the pointers that kernels.def counts: each is NULL or an
// address in a buffer of the device or in registered host memory. params is copied.
void metal_add(struct metal_stream *s, enum metal_kernel kernel, struct metal_grid grid,
               const void *params, uint32_t params_bytes);

#endif
