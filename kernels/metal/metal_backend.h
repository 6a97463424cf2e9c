/* metal_backend.h: the device and the streams that the files of the Metal backend share.
 *
 * A device owns its Metal objects: library, pipelines, buffers and the regions of host memory that
 * it reaches; a stream owns a command queue and the command buffers that are under way. An address
 * in a buffer is the host's address of the same bytes. Included only inside kernels/metal and by
 * its tests. One thread drives a device at a time. Tested by tests/kernels/test_metal.c.
 */
#ifndef TANDEM_KERNELS_METAL_METAL_BACKEND_H
#define TANDEM_KERNELS_METAL_METAL_BACKEND_H

#include "kernels/device.h"
#include "kernels/metal/metal_list.h"

enum {
    METAL_PARTIAL_BYTES = 2 << 20, // of one compute stream
};

struct metal_features {
    bool has_simdgroup_matrix;      // Apple7 and newer
    uint32_t max_threadgroup_bytes; // threadgroup memory of a dispatch
    uint32_t max_threads;           // of a threadgroup, before a pipeline's own limit
};

struct metal_device {
    struct device base;
    const struct log *log; // borrowed
    struct metal_features features;
};

struct metal_stream {
    struct stream base;
    struct err failure; // the first one; all that is encoded after it is skipped
    void *partial;      // memory of METAL_PARTIAL_BYTES, of compute streams
};

static inline struct metal_device *metal_of(const struct device *d) {
    return (struct metal_device *)d;
}

// ---- metal_launch.c

// The op table: every entry encodes its dispatches.
extern const struct op_table *const metal_op_table;

#endif
