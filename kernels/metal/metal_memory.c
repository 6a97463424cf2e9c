/* metal_memory.c: see metal_memory.h. */
#include "kernels/metal/metal_memory.h"

#include "base/mem.h"

#include <string.h>
#include <unistd.h>

enum status metal_memory_open(struct metal_memory *m, const struct metal_objc *objc,
                              struct mtl_device *device, struct err *e) {
    const long page_bytes = sysconf(_SC_PAGESIZE);
    *m = (struct metal_memory){
        .objc = objc, .device = device, .page_bytes = page_bytes > 0 ? (uint64_t)page_bytes : 4096};
    m->limit_bytes = METAL_SEND(objc, device_buffer_max, device) & ~(2 * m->page_bytes - 1);
    m->regions = mem_alloc(METAL_REGIONS, sizeof *m->regions);
    if (!m->regions)
        return err_memory(e, METAL_REGIONS * sizeof *m->regions, "the table of Metal buffers");
    if (m->limit_bytes > 0) return OK;
    return err_set(e, ERR_DEVICE, "Metal makes no buffers on this GPU");
}

void metal_memory_close(struct metal_memory *m) {
    for (int32_t i = 0; i < m->n_regions; i++) m->objc->release(m->regions[i].buffer);
    mem_free(m->regions);
    *m = (struct metal_memory){0};
}

// The number of regions that begin at the address or before it.
static int32_t regions_before(const struct metal_memory *m, const char *address) {
    int32_t first = 0, last = m->n_regions;
    while (first < last) {
        const int32_t middle = first + (last - first) / 2;
        if (m->regions[middle].base <= address)
            first = middle + 1;
        else
            last = middle;
    }
    return first;
}

static void insert(struct metal_memory *m, const struct metal_region *region) {
    const int32_t place = regions_before(m, region->base);
    memmove(&m->regions[place + 1], &m->regions[place],
            (size_t)(m->n_regions - place) * sizeof *m->regions);
    m->regions[place] = *region;
    m->n_regions++;
}

bool metal_memory_add(struct metal_memory *m, void *base, uint64_t size_bytes) {
    const uint64_t before = (uintptr_t)base % m->page_bytes, half = m->limit_bytes / 2;
    char *first = (char *)base - before;
    const uint64_t length = round_up(before + size_bytes, m->page_bytes);
    for (uint64_t at = 0; at < length; at += half) {
        const uint64_t part = length - at < m->limit_bytes ? length - at : m->limit_bytes;
        const bool is_last = at + part == length;
        struct mtl_buffer *buffer = NULL;
        if (m->n_regions < METAL_REGIONS)
            buffer = METAL_SEND(m->objc, new_buffer, m->device, first + at, part,
                                METAL_STORAGE_SHARED, NULL);
        if (!buffer) {
            metal_memory_remove(m, base);
            return false;
        }
        const uint64_t skip = at ? 0 : before;
        const uint64_t end = is_last ? before + size_bytes - at : half;
        insert(m, &(struct metal_region){.base = first + at + skip,
                                         .size_bytes = end - skip,
                                         .buffer = buffer,
                                         .offset = skip,
                                         .reach_bytes = part - skip,
                                         .owner = base});
        if (is_last) break;
    }
    return true;
}

void metal_memory_remove(struct metal_memory *m, const void *base) {
    int32_t n = 0;
    for (int32_t i = 0; i < m->n_regions; i++)
        if (m->regions[i].owner == base)
            m->objc->release(m->regions[i].buffer);
        else
            m->regions[n++] = m->regions[i];
    m->n_regions = n;
}

const struct metal_region *metal_memory_find(const struct metal_memory *m, const void *address) {
    const int32_t n = regions_before(m, address);
    if (n == 0) return NULL;
    const struct metal_region *region = &m->regions[n - 1];
    return (uint64_t)((const char *)address - region->base) < region->size_bytes ? region : NULL;
}

bool metal_memory_holds(const struct metal_memory *m, const void *address, uint64_t size_bytes) {
    const char *at = address;
    const struct metal_region *region = metal_memory_find(m, at);
    const void *owner = region ? region->owner : NULL;
    for (uint64_t left = size_bytes; region && region->owner == owner;) {
        const uint64_t here = region->size_bytes - (uint64_t)(at - region->base);
        if (here >= left) return true;
        left -= here;
        at += here;
        region = metal_memory_find(m, at);
    }
    return false;
}
