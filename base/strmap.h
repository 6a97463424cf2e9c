/* strmap.h: finds a u32 by a run of bytes: GGUF keys, tensor names, vocabulary pieces, merge pairs.
 *
 * Owns its slots; borrows every key (valid as long as the map is used). Open addressing, at most
 * half full, FNV-1a mixed at the end. Must not copy keys. Filled by one thread, then read by any.
 * Tested by tests/base/test_base.c.
 */
#ifndef TANDEM_BASE_STRMAP_H
#define TANDEM_BASE_STRMAP_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct strmap_slot {
    const char *key; // borrowed; NULL: the slot is free
    uint32_t length;
    uint32_t value;
    uint32_t hash;
};

struct strmap {
    struct strmap_slot *slots; // owned
    uint32_t mask;             // slots - 1, a power of two less one
    uint32_t count, capacity;
};

// Room for capacity keys; putting more is a bug. ERR_MEMORY if refused.
enum status strmap_init(struct strmap *m, uint32_t capacity, struct err *e);

// Adds key unless it is there. Returns true if it was added; false leaves the old value.
bool strmap_put(struct strmap *m, const char *key, uint32_t length, uint32_t value);

// True and *value if the key is there. A zeroed map holds nothing.
bool strmap_get(const struct strmap *m, const char *key, uint32_t length, uint32_t *value);

// Accepts a zeroed map; leaves it zeroed.
void strmap_close(struct strmap *m);

#endif
