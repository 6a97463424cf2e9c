/* jinja_heap.h: the memory and the limits of one template or of one rendering.
 *
 * A struct jinja_heap owns its blocks, which are freed together; it borrows the struct err. The
 * first failure sticks to it: later calls give NULL or undefined at once, so that callers need not
 * check each step, only what they follow. Templates are hostile: every piece of work is spent from
 * the limits here. One thread. Tested by tests/runtime/test_jinja.c.
 */
#ifndef TANDEM_RUNTIME_JINJA_JINJA_HEAP_H
#define TANDEM_RUNTIME_JINJA_JINJA_HEAP_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    JINJA_NESTING = 200,         // of tags and expressions in the source
    JINJA_DEPTH = 600,           // of what runs inside each other, with macros
    JINJA_STEPS = 1000000,       // tags and expressions that run
    JINJA_TEXT_BYTES = 16 << 20, // of the output, and of any text
    JINJA_WORK_BYTES = 1 << 28,  // copied, compared or searched, with all memory taken
};

struct jinja_block; // of memory

struct jinja_heap {
    struct jinja_block *blocks; // owned
    char *next;                 // free bytes of the first block
    size_t left;
    uint64_t steps, work_bytes; // spent
    int depth;
    uint32_t line;     // of the source, for messages
    struct err *error; // borrowed; its status is the first failure
};

void jinja_heap_open(struct jinja_heap *h, struct err *e); // *e becomes OK
void jinja_heap_close(struct jinja_heap *h);               // accepts a zeroed one

static inline bool jinja_failed(const struct jinja_heap *h) { return h->error->status != OK; }

// Zeroed memory until jinja_heap_close; NULL after a failure.
void *jinja_heap_take(struct jinja_heap *h, size_t size_bytes);

// Takes a larger array in place of old[n] and copies its n elements of size_bytes each. Grows
// *capacity. NULL after a failure.
void *jinja_heap_grow(struct jinja_heap *h, const void *old, uint32_t *capacity, size_t size_bytes);

// Spends work on size_bytes. False after a failure.
bool jinja_heap_spend(struct jinja_heap *h, uint64_t size_bytes);

// One step further down, at most limit deep; jinja_heap_leave goes up again, also after a failure.
bool jinja_heap_enter(struct jinja_heap *h, int limit);
void jinja_heap_leave(struct jinja_heap *h);

// The template is wrong: ERR_FORMAT with its line, unless it failed before.
void jinja_fail(struct jinja_heap *h, const char *what, ...) __attribute__((format(printf, 2, 3)));

#endif
