/* vocab_open.c: see vocab_open.h. */
#include "tests/lib/vocab_open.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum status vocab_open_bytes(const void *bytes, size_t size_bytes, struct gguf *g, struct err *e) {
    int descriptor = memfd_create("vocabulary", 0);
    ASSERT(descriptor >= 0);
    ASSERT(write(descriptor, bytes, size_bytes) == (ssize_t)size_bytes);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    enum status status = gguf_open(g, path, e);
    close(descriptor);
    return status;
}

enum status vocab_open(const struct vocab_build *v, struct gguf *g, struct tokenizer **t,
                       const struct log *log, struct err *e) {
    struct gguf_build b;
    vocab_write(v, &b);
    enum status status = vocab_open_bytes(b.file.bytes, b.file.size, g, e);
    gguf_build_close(&b);
    if (status != OK) return status;
    status = tokenizer_open(t, g, log, e);
    if (status != OK) gguf_close(g);
    return status;
}
