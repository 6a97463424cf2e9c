/* mem.c: see mem.h. */
#include "base/mem.h"

#include "base/err.h"

#include <stdlib.h>

void *mem_alloc(size_t count, size_t size_bytes) {
    uint64_t total;
    if (!mul_size(count, size_bytes, &total)) return NULL;
    return calloc(1, total ? total : 1);
}

void *mem_resize(void *old, size_t count, size_t size_bytes) {
    uint64_t total;
    if (!mul_size(count, size_bytes, &total)) return NULL;
    return realloc(old, total ? total : 1);
}

void mem_free(void *memory) { free(memory); }
