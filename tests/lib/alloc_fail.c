/* alloc_fail.c: see alloc_fail.h. */
#include "tests/lib/alloc_fail.h"

#include <stdatomic.h>
#include <stddef.h>

static _Atomic int64_t fail_at, count, mapped_bytes;

void *__real_mem_alloc(size_t n, size_t size_bytes);
void *__real_mem_resize(void *old, size_t n, size_t size_bytes);
void *__real_mem_map_pages(size_t size_bytes);
void __real_mem_unmap_pages(void *memory, size_t size_bytes);
void *__wrap_mem_alloc(size_t n, size_t size_bytes);
void *__wrap_mem_resize(void *old, size_t n, size_t size_bytes);
void *__wrap_mem_map_pages(size_t size_bytes);
void __wrap_mem_unmap_pages(void *memory, size_t size_bytes);

void *__wrap_mem_alloc(size_t n, size_t size_bytes) {
    return ++count == fail_at ? NULL : __real_mem_alloc(n, size_bytes);
}

void *__wrap_mem_resize(void *old, size_t n, size_t size_bytes) {
    return ++count == fail_at ? NULL : __real_mem_resize(old, n, size_bytes);
}

void *__wrap_mem_map_pages(size_t size_bytes) {
    void *pages = ++count == fail_at ? NULL : __real_mem_map_pages(size_bytes);
    if (pages) mapped_bytes += (int64_t)size_bytes;
    return pages;
}

void __wrap_mem_unmap_pages(void *memory, size_t size_bytes) {
    if (memory) mapped_bytes -= (int64_t)size_bytes;
    __real_mem_unmap_pages(memory, size_bytes);
}

void alloc_fail_at(int64_t n) {
    count = 0;
    fail_at = n;
}

bool alloc_fail_happened(void) { return fail_at > 0 && count >= fail_at; }

int64_t alloc_fail_count(void) { return count; }

int64_t alloc_fail_mapped_bytes(void) { return mapped_bytes; }
