/* strmap.c: see strmap.h. */
#include "base/strmap.h"

#include "base/hash.h"
#include "base/mem.h"

#include <string.h>

static uint32_t hash_key(const char *key, uint32_t length) {
    uint64_t h = hash_more(HASH_OF_NOTHING, key, length);
    h ^= h >> 32;
    return (uint32_t)(h * 0x9e3779b97f4a7c15u >> 32);
}

enum status strmap_init(struct strmap *m, uint32_t capacity, struct err *e) {
    *m = (struct strmap){.capacity = capacity};
    uint64_t slots = 16;
    while (slots < (uint64_t)capacity * 2) slots *= 2;
    m->slots = slots <= UINT32_MAX ? mem_alloc(slots, sizeof *m->slots) : NULL;
    if (!m->slots) return err_memory(e, slots * sizeof *m->slots, "a name table");
    m->mask = (uint32_t)(slots - 1);
    return OK;
}

// The slot of the key, or the free slot where it would go.
static struct strmap_slot *find(const struct strmap *m, const char *key, uint32_t length,
                                uint32_t hash) {
    for (uint32_t i = hash & m->mask;; i = (i + 1) & m->mask) {
        struct strmap_slot *slot = &m->slots[i];
        if (!slot->key) return slot;
        if (slot->hash == hash && slot->length == length && memcmp(slot->key, key, length) == 0)
            return slot;
    }
}

bool strmap_put(struct strmap *m, const char *key, uint32_t length, uint32_t value) {
    ASSERT(key);
    ASSERT(m->slots);
    uint32_t hash = hash_key(key, length);
    struct strmap_slot *slot = find(m, key, length, hash);
    if (slot->key) return false;
    ASSERT(m->count < m->capacity);
    *slot = (struct strmap_slot){key, length, value, hash};
    m->count++;
    return true;
}

bool strmap_get(const struct strmap *m, const char *key, uint32_t length, uint32_t *value) {
    if (!m->slots) return false;
    struct strmap_slot *slot = find(m, key, length, hash_key(key, length));
    if (!slot->key) return false;
    *value = slot->value;
    return true;
}

void strmap_close(struct strmap *m) {
    mem_free(m->slots);
    *m = (struct strmap){0};
}
