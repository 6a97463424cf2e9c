/* apple.h: what the tables of the macOS kernel mean: cores, caches, instructions, free memory.
 *
 * Takes the tables as functions or structs, so that it can be tested on any system; host_darwin.c
 * hands in the real ones. Owns nothing, allocates nothing and asks no system. A value that a table
 * lacks is unknown, and never a failure. Any thread. Tested by tests/base/test_apple.c.
 */
#ifndef TANDEM_BASE_APPLE_H
#define TANDEM_BASE_APPLE_H

#include "base/host.h"

#include <stdbool.h>

// The values that `sysctl -a` lists, by their names.
struct apple_table {
    bool (*number)(const void *context, const char *name, uint64_t *out); // false: there is none
    const void *context;
};

// Counts cores by their levels: level 0 is the fastest, and all others count as efficiency cores. A
// Mac of Intel's has one level, and an old system tells of none.
void apple_cores(struct host_cores *out, const struct apple_table *table);

// The instructions of the processor by the bits of Linux, as host_hwcaps gives them.
void apple_hwcaps(uint64_t out[2], const struct apple_table *table);

struct apple_pages { // counts of pages, of struct vm_statistics64
    uint64_t internal, purgeable, wired, compressed;
};

// The memory that programs could still take without a swap: all but what they hold (without what
// the system may discard), what is wired and what is compressed. Pages of files count as free.
uint64_t apple_free_bytes(uint64_t total_bytes, uint64_t page_bytes,
                          const struct apple_pages *pages);

#endif
