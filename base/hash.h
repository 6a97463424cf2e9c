/* hash.h: a hash of bytes, for tables, names of files and comparisons, not against forgery. Owns
 * nothing; any thread. Source: FNV-1a of Fowler, Noll and Vo, 64 bits.
 */
#ifndef TANDEM_BASE_HASH_H
#define TANDEM_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_OF_NOTHING UINT64_C(0xcbf29ce484222325)

// The hash of what hash stands for with the bytes behind it.
static inline uint64_t hash_more(uint64_t hash, const void *bytes, size_t size_bytes) {
    const uint8_t *at = bytes;
    for (size_t i = 0; i < size_bytes; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

#endif
