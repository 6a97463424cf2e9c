/* heap_none.c: see heap.h; for builds without jemalloc. */
#include "runtime/cli/heap.h"

void heap_watch_init(struct heap_watch *watch) { *watch = (struct heap_watch){0}; }

uint64_t heap_thread_bytes(const struct heap_watch *watch) {
    return watch->allocated ? *watch->allocated : 0;
}

bool heap_totals(struct heap_totals *totals) {
    *totals = (struct heap_totals){0};
    return false;
}
