/* mem_linux.c: see mem.h. Pages of Linux, huge ones where it has them. */
#include "base/mem.h"

#include "base/err.h"

#include <errno.h>
#include <sys/mman.h>

// Headers of a C library before 2.34 do not name it; Linux since 5.14 has it whatever they say.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { PAGE = 64 << 10, HUGE_PAGE = 2 << 20 }; // no system has larger small pages

// Memory takes no more than it needs: the end that fills no huge page lies in small ones.
static size_t whole_pages(size_t size_bytes) { return round_up(size_bytes, PAGE); }

void *mem_map_pages(size_t size_bytes) {
    ASSERT(size_bytes > 0);
    if (size_bytes > SIZE_MAX - 2 * (size_t)HUGE_PAGE) return NULL;
    const size_t page = size_bytes < HUGE_PAGE ? (size_t)PAGE : (size_t)HUGE_PAGE;
    size_t size = whole_pages(size_bytes), room = size + page;
    char *start = mmap(NULL, room, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return NULL;
    char *aligned = (char *)round_up((uintptr_t)start, page);
    if (aligned > start) munmap(start, (size_t)(aligned - start));
    size_t tail = (size_t)(start + room - (aligned + size));
    if (tail) munmap(aligned + size, tail);
    if (page == HUGE_PAGE) madvise(aligned, size, MADV_HUGEPAGE);
    return aligned;
}

void mem_unmap_pages(void *memory, size_t size_bytes) {
    if (memory) munmap(memory, whole_pages(size_bytes));
}

void mem_use_small_pages(void *memory, size_t size_bytes) {
    madvise(memory, whole_pages(size_bytes), MADV_NOHUGEPAGE);
}

bool mem_populate(void *memory, size_t size_bytes) {
    const size_t size = whole_pages(size_bytes);
    if (madvise(memory, size, MADV_POPULATE_WRITE) == 0) return true;
    if (errno != EINVAL) return false;
    // Linux before 5.14 has no such call.
    for (size_t at = 0; at < size; at += 4096) ((volatile char *)memory)[at] = 0;
    return true;
}
