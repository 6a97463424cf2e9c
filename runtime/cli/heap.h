/* heap.h: the counters of the memory allocator, which prove that decoding allocates nothing.
 *
 * Owns nothing. Two implementations, of which a build links one: heap_jemalloc.c asks jemalloc,
 * heap_none.c says that nothing is known, for builds whose allocator belongs to a sanitizer. A
 * struct heap_watch counts for the thread that made it. Tested by tests/cli/cli_sim.sh.
 */
#ifndef TANDEM_RUNTIME_CLI_HEAP_H
#define TANDEM_RUNTIME_CLI_HEAP_H

#include <stdbool.h>
#include <stdint.h>

struct heap_watch {
    const uint64_t *allocated; // bytes that this thread has ever allocated; NULL: not known
};

// Prepares heap_thread_bytes, which the same thread may call from then on.
void heap_watch_init(struct heap_watch *watch);
// Bytes that the thread has ever allocated; freed ones count too. 0 if not known.
uint64_t heap_thread_bytes(const struct heap_watch *watch);

struct heap_totals {          // of the whole process
    uint64_t allocations;     // ever made
    uint64_t allocated_bytes; // now
    uint64_t resident_bytes;  // pages held, with the allocator's own
};
// False, and *totals zeroed, if not known.
bool heap_totals(struct heap_totals *totals);

#endif
