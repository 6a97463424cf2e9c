/* fake_buffer.c: buffers of the look-alike Metal: pages of the program's own, used where they lie;
 * see fake.h. Tested by tests/kernels/test_metal_rules.c.
 */
#include "tests/metal/fake.h"

#include <unistd.h>

static void free_buffer(void *object) {
    struct fake_buffer *b = object;
    atomic_fetch_sub(&fake()->allocated_bytes, b->length);
    fake_release(b->device);
}

static struct fake_class buffer_class = {
    .name = "MTLBuffer", .methods = (struct fake_method[]){{NULL, NULL}}, .dealloc = free_buffer};

void *fake_new_buffer(struct fake_device *device, void *selector, void *bytes, objc_number length,
                      objc_number options, void *deallocator) {
    (void)selector;
    const objc_number page = (objc_number)sysconf(_SC_PAGESIZE);
    if ((uintptr_t)bytes % page || length % page)
        fake_rule("page-alignment", "newBufferWithBytesNoCopy: %p, length %lu: no whole pages",
                  bytes, length);
    if (length == 0 || length > fake()->options.buffer_bytes)
        fake_rule("buffer-length", "%lu bytes of at most %llu", length,
                  (unsigned long long)fake()->options.buffer_bytes);
    if (options != METAL_STORAGE_SHARED || deallocator)
        fake_rule("buffer-options", "options %lu, deallocator %p", options, deallocator);
    if (!bytes || fake_fault(FAULT_BUFFER)) return NULL;
    struct fake_buffer *b = fake_new(&buffer_class, sizeof *b);
    b->device = fake_device_hold(device);
    b->bytes = bytes;
    b->length = length;
    atomic_fetch_add(&fake()->allocated_bytes, length);
    return b;
}
