/* mem.h: the only door to malloc.
 *
 * Everything here is host memory for metadata (tables, names, states); weights, KV and activations
 * come from device buffers instead. Owns nothing. Any thread. Tests make the nth call fail by
 * linking with --wrap (tests/lib/alloc_fail.h), so a constructor can be swept for every refused
 * allocation. Tested by tests/base/test_base.c.
 */
#ifndef TANDEM_BASE_MEM_H
#define TANDEM_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// count * size zeroed bytes, or NULL if refused or if the product overflows. count or size 0 gives
// a valid pointer. The caller owns the result and frees it with mem_free.
void *mem_alloc(size_t count, size_t size_bytes);

// Grows or shrinks memory from mem_alloc to count * size bytes; new bytes are not zeroed. NULL
// leaves old untouched.
void *mem_resize(void *old, size_t count, size_t size_bytes);

// Copies length bytes of text and adds a terminator. NULL if refused.
static inline char *mem_text(const char *text, size_t length) {
    char *copy = length < SIZE_MAX ? (char *)mem_alloc(length + 1, 1) : NULL;
    for (size_t i = 0; copy && i < length; i++) copy[i] = text[i];
    return copy;
}

// NULL is allowed.
void mem_free(void *memory);

// Pages of host memory for buffers, zeroed, in steps of 64 KiB. From 2 MiB on they are aligned to
// that and huge ones are asked for as far as they are filled. NULL if refused. Freed by
// mem_unmap_pages with the same size.
void *mem_map_pages(size_t size_bytes);
void mem_unmap_pages(void *memory, size_t size_bytes);
// Has memory from mem_map_pages lie in pages as small as those of a mapped file.
void mem_use_small_pages(void *memory, size_t size_bytes);
// Takes the pages of memory from mem_map_pages now instead of at first touch. False if the system
// refuses them.
bool mem_populate(void *memory, size_t size_bytes);

// false on overflow, and then *out is untouched. The only way sizes from a file are multiplied or
// added.
static inline bool mul_size(uint64_t a, uint64_t b, uint64_t *out) {
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product)) return false;
    *out = product;
    return true;
}
static inline bool add_size(uint64_t a, uint64_t b, uint64_t *out) {
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) return false;
    *out = sum;
    return true;
}

// size rounded up to a multiple of align, a power of two. The caller makes sure that it cannot
// overflow.
static inline uint64_t round_up(uint64_t size, uint64_t align) {
    return (size + align - 1) & ~(align - 1);
}

#endif
