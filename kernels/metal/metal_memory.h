/* metal_memory.h: which Metal buffer holds an address.
 *
 * All memory is the host's and page aligned: buffers of the device are pages of ours, registered
 * memory is the caller's, and both are wrapped in Metal buffers without a copy. Metal limits the
 * length of a buffer, so longer memory has several that overlap by half: what begins in one half
 * of the limit reaches as far beyond. A struct metal_memory is the device's and owns the Metal
 * buffers, not the memory. One thread at a time. Tested by tests/kernels/test_metal.c.
 */
#ifndef TANDEM_KERNELS_METAL_METAL_MEMORY_H
#define TANDEM_KERNELS_METAL_METAL_MEMORY_H

#include "kernels/metal/metal_objc.h"

enum { METAL_REGIONS = 2048 }; // a cache and a piece of weights for each layer, and more

struct metal_region { // what begins at base and before base + size_bytes is reached through buffer
    char *base;
    uint64_t size_bytes;
    struct mtl_buffer *buffer; // owned
    uint64_t offset;           // of base in it
    uint64_t reach_bytes;      // from base to its end; at least size_bytes
    const void *owner;         // address that metal_memory_add was called with
};

struct metal_memory {
    const struct metal_objc *objc; // borrowed, like the next
    struct mtl_device *device;
    uint64_t page_bytes;
    uint64_t limit_bytes;         // longest Metal buffer, a multiple of two pages
    struct metal_region *regions; // by base, METAL_REGIONS of them
    int32_t n_regions;
};

// ERR_MEMORY if host memory is refused. Close it after a failure too.
enum status metal_memory_open(struct metal_memory *m, const struct metal_objc *objc,
                              struct mtl_device *device, struct err *e);
// Releases what is left. Accepts a zeroed one; leaves it zeroed.
void metal_memory_close(struct metal_memory *m);

// Wraps size bytes at base, and what else lies in their pages. False if Metal refuses or the table
// is full; nothing is wrapped then. No part may be wrapped already.
bool metal_memory_add(struct metal_memory *m, void *base, uint64_t size_bytes);
// Undoes it; does nothing for other addresses.
void metal_memory_remove(struct metal_memory *m, const void *base);

// The region of an address, or NULL.
const struct metal_region *metal_memory_find(const struct metal_memory *m, const void *address);
// True if all of them are wrapped, as parts of the same memory.
bool metal_memory_holds(const struct metal_memory *m, const void *address, uint64_t size_bytes);

#endif
