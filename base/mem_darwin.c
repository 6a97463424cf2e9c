/* mem_darwin.c: see mem.h. Pages of macOS: 16 KiB on a Mac of Apple's, 4 KiB on one of Intel's,
 * never huge.
 *
 * Alignment is as on Linux, so it suits a GPU that takes whole pages. Built by make macos-check,
 * never run on a Mac.
 */
#include "base/mem.h"

#include "base/err.h"

#include <sys/mman.h>
#include <unistd.h>

enum { BLOCK = 2 << 20 };

void *mem_map_pages(size_t size_bytes) {
    ASSERT(size_bytes > 0);
    if (size_bytes > SIZE_MAX - 2 * (size_t)BLOCK) return NULL;
    const size_t size = round_up(size_bytes, BLOCK), room = size + BLOCK;
    char *start = mmap(NULL, room, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return NULL;
    char *aligned = (char *)round_up((uintptr_t)start, BLOCK);
    if (aligned > start) munmap(start, (size_t)(aligned - start));
    const size_t tail = (size_t)(start + room - (aligned + size));
    if (tail) munmap(aligned + size, tail);
    return aligned;
}

void mem_unmap_pages(void *memory, size_t size_bytes) {
    if (memory) munmap(memory, round_up(size_bytes, BLOCK));
}

void mem_use_small_pages(void *memory, size_t size_bytes) {
    (void)memory;
    (void)size_bytes;
}

bool mem_populate(void *memory, size_t size_bytes) {
    const size_t size = round_up(size_bytes, BLOCK), page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t at = 0; at < size; at += page) ((volatile char *)memory)[at] = 0;
    return true;
}
