/* heap_jemalloc.c: see heap.h; through jemalloc's mallctl. */
#include "runtime/cli/heap.h"

#include <jemalloc/jemalloc.h>

#include <stddef.h>

// 4096 is jemalloc's number for all arenas together (MALLCTL_ARENAS_ALL).
#define ALL_ARENAS "stats.arenas.4096."

static bool read_number(const char *name, uint64_t *out) {
    size_t size = sizeof *out;
    return mallctl(name, out, &size, NULL, 0) == 0;
}

void heap_watch_init(struct heap_watch *watch) {
    uint64_t *counter = NULL;
    size_t size = sizeof counter;
    bool known = mallctl("thread.allocatedp", (void *)&counter, &size, NULL, 0) == 0;
    *watch = (struct heap_watch){.allocated = known ? counter : NULL};
}

uint64_t heap_thread_bytes(const struct heap_watch *watch) {
    return watch->allocated ? *watch->allocated : 0;
}

bool heap_totals(struct heap_totals *totals) {
    *totals = (struct heap_totals){0};
    uint64_t epoch = 1, small, large; // writing the epoch refreshes the statistics
    if (mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) != 0) return false;
    if (!read_number(ALL_ARENAS "small.nmalloc", &small)) return false;
    if (!read_number(ALL_ARENAS "large.nmalloc", &large)) return false;
    totals->allocations = small + large;
    return read_number("stats.allocated", &totals->allocated_bytes) &&
           read_number("stats.resident", &totals->resident_bytes);
}
