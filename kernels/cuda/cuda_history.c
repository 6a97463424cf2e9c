/* cuda_history.c: see cuda_history.h. The bytes of the lists lie in the store as a ring too: each
 * behind the one before, or at the start if the end is too near. */
#include "kernels/cuda/cuda_history.h"

#include "base/mem.h"

#include <string.h>

enum { KEY_BYTES = 256 }; // of the parameters, at the start and at the end of a list

enum status cuda_history_open(struct cuda_history *h, uint32_t n_max, uint32_t store_bytes,
                              struct err *e) {
    ASSERT(n_max > 0);
    *h = (struct cuda_history){.store_bytes = store_bytes, .n_max = n_max};
    h->store = mem_alloc(store_bytes, 1);
    h->lists = mem_alloc(n_max, sizeof *h->lists);
    h->keys = mem_alloc(n_max, sizeof *h->keys);
    if (h->store && h->lists && h->keys) return OK;
    return err_memory(e, store_bytes + n_max * (sizeof *h->lists + sizeof *h->keys),
                      "lists of launches that come again");
}

void cuda_history_close(struct cuda_history *h) {
    mem_free(h->store);
    mem_free(h->lists);
    mem_free(h->keys);
    *h = (struct cuda_history){0};
}

struct cuda_graph *cuda_history_at(const struct cuda_history *h, uint32_t i) {
    return &h->lists[(h->first + i) % h->n_max];
}

// ---- Comparing ----------------------------------------------------------------------------------

static uint64_t mix(uint64_t key, const char *bytes, uint32_t size_bytes) {
    for (uint32_t i = 0; i + sizeof key <= size_bytes; i += (uint32_t)sizeof key) {
        uint64_t word;
        memcpy(&word, bytes + i, sizeof word);
        key = (key ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        key ^= key >> 32;
    }
    return key;
}

// Differs for the lists of different layers, since each has weights of its own.
static uint64_t key_of(const struct cuda_list *list) {
    const uint32_t part = list->params_bytes < KEY_BYTES ? list->params_bytes : KEY_BYTES;
    const uint64_t sizes = (uint64_t)list->n_launches << 32 | list->params_bytes;
    return mix(mix(sizes, list->params, part), list->params + list->params_bytes - part, part) | 1;
}

static bool same(const struct cuda_list *a, const struct cuda_list *b) {
    return a->n_launches == b->n_launches && a->params_bytes == b->params_bytes &&
           !memcmp(a->launches, b->launches, (size_t)a->n_launches * sizeof *a->launches) &&
           !memcmp(a->params, b->params, a->params_bytes);
}

struct cuda_graph *cuda_history_find(const struct cuda_history *h, const struct cuda_list *list) {
    const uint64_t key = key_of(list);
    for (uint32_t i = 0; i < h->n_places; i++)
        if (h->keys[i] == key && same(&h->lists[i].list, list)) return &h->lists[i];
    return NULL;
}

// ---- The store ----------------------------------------------------------------------------------

static uint32_t launches_bytes(const struct cuda_list *list) {
    return (uint32_t)list->n_launches * (uint32_t)sizeof *list->launches;
}

static uint32_t size_of(const struct cuda_list *list) {
    return (uint32_t)round_up(launches_bytes(list) + list->params_bytes, sizeof(uint64_t));
}

// Finds a place for so many bytes. False if there is none.
static bool find_place(const struct cuda_history *h, uint32_t size_bytes, uint32_t *at) {
    const uint32_t used = h->n ? cuda_history_at(h, 0)->first_byte : h->store_bytes;
    const uint32_t end = h->n ? h->end_byte : 0;
    const bool wrapped = end <= used; // lists lie from used to the end of the store
    *at = end;
    if (wrapped) return used - end >= size_bytes;
    if (h->store_bytes - end >= size_bytes) return true;
    *at = 0;
    return used >= size_bytes;
}

struct cuda_graph *cuda_history_crowded(const struct cuda_history *h,
                                        const struct cuda_list *list) {
    uint32_t at;
    ASSERT(size_of(list) <= h->store_bytes);
    if (h->n < h->n_max && find_place(h, size_of(list), &at)) return NULL;
    return cuda_history_at(h, 0);
}

void cuda_history_drop(struct cuda_history *h) {
    ASSERT(h->n > 0);
    h->keys[h->first] = 0;
    h->first = (h->first + 1) % h->n_max;
    h->n--;
}

void cuda_history_add(struct cuda_history *h, const struct cuda_list *list) {
    const uint32_t place = (h->first + h->n) % h->n_max;
    struct cuda_graph *graph = &h->lists[place];
    uint32_t at;
    ASSERT(h->n < h->n_max);
    const bool found = find_place(h, size_of(list), &at);
    ASSERT(found);
    h->keys[place] = key_of(list);
    *graph = (struct cuda_graph){*list, at, at + size_of(list), NULL};
    graph->list.launches = (struct cuda_launch *)(void *)(h->store + at);
    graph->list.params = h->store + at + launches_bytes(list);
    memcpy(graph->list.launches, list->launches, launches_bytes(list));
    memcpy(graph->list.params, list->params, list->params_bytes);
    h->end_byte = graph->end_byte;
    h->n++;
    if (place >= h->n_places) h->n_places = place + 1;
}
