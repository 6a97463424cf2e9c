/* fuzz_gguf.c: libFuzzer entry for the GGUF reader and for shapes read from it.
 *
 * Every input is opened as a file in memory; what is accepted is read whole through the public API,
 * and what is refused must say why. A shape that is made of it must pass shape_check. Split models
 * need more than one file and are left to tests/runtime/test_gguf.c. Run by tests/fuzz/fuzz.sh.
 */
#include "runtime/model/gguf_shape.h"

#include "tests/lib/gguf_walk.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static void read_shapes(const struct gguf *g) {
    static struct shape room; // megabytes: too slow to allocate each time
    struct shape *shape = &room;
    struct err e;
    if (gguf_shape(shape, g, &e))
        ASSERT(e.what[0]);
    else
        ASSERT(shape_check(shape, &e) == OK);
    if (gguf_shape_by_names(shape, g, &e))
        ASSERT(e.what[0]);
    else
        ASSERT(shape_check(shape, &e) == OK && !shape->can_run);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes) {
    char path[32];
    struct gguf g;
    struct err e;
    if (gguf_walk_bytes(bytes, size_bytes)) return 0;
    const int descriptor = memfd_create("shape.gguf", MFD_CLOEXEC);
    ASSERT(descriptor >= 0);
    ASSERT(write(descriptor, bytes, size_bytes) == (ssize_t)size_bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    if (gguf_open(&g, path, &e) == OK) read_shapes(&g);
    gguf_close(&g);
    close(descriptor);
    return 0;
}
