/* jinja_heap.c: see jinja_heap.h. */
#include "runtime/jinja/jinja_heap.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 16, ALIGN = 16 };

struct jinja_block {
    struct jinja_block *next;
    _Alignas(16) char bytes[];
};

void jinja_heap_open(struct jinja_heap *h, struct err *e) {
    *h = (struct jinja_heap){.error = e};
    *e = (struct err){.status = OK};
}

void jinja_heap_close(struct jinja_heap *h) {
    while (h->blocks) {
        struct jinja_block *next = h->blocks->next;
        mem_free(h->blocks);
        h->blocks = next;
    }
    *h = (struct jinja_heap){0};
}

static bool add_block(struct jinja_heap *h, size_t size_bytes) {
    const size_t room = size_bytes > BLOCK_BYTES / 4 ? size_bytes : BLOCK_BYTES;
    struct jinja_block *block = mem_alloc(1, sizeof *block + room);
    if (!block) {
        err_memory(h->error, room, "a chat template");
        return false;
    }
    block->next = h->blocks;
    h->blocks = block;
    h->next = block->bytes;
    h->left = room;
    return true;
}

void *jinja_heap_take(struct jinja_heap *h, size_t size_bytes) {
    size_bytes = (size_bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (!jinja_heap_spend(h, size_bytes)) return NULL;
    if (size_bytes > h->left && !add_block(h, size_bytes)) return NULL;
    void *memory = h->next;
    h->next += size_bytes;
    h->left -= size_bytes;
    return memory;
}

void *jinja_heap_grow(struct jinja_heap *h, const void *old, uint32_t *capacity,
                      size_t size_bytes) {
    const uint32_t larger = *capacity ? *capacity * 2 : 8;
    char *memory = jinja_heap_take(h, larger * size_bytes);
    if (!memory) return NULL;
    if (old) memcpy(memory, old, *capacity * size_bytes);
    *capacity = larger;
    return memory;
}

bool jinja_heap_spend(struct jinja_heap *h, uint64_t size_bytes) {
    if (jinja_failed(h)) return false;
    h->work_bytes += size_bytes;
    if (h->work_bytes <= JINJA_WORK_BYTES) return true;
    jinja_fail(h, "it works on more than %d MiB of text", JINJA_WORK_BYTES >> 20);
    return false;
}

bool jinja_heap_enter(struct jinja_heap *h, int limit) {
    h->depth++;
    if (jinja_failed(h)) return false;
    if (h->depth > limit) jinja_fail(h, "it nests deeper than %d", limit);
    if (++h->steps > JINJA_STEPS) jinja_fail(h, "it runs more than %d steps", JINJA_STEPS);
    return !jinja_failed(h);
}

void jinja_heap_leave(struct jinja_heap *h) { h->depth--; }

void jinja_fail(struct jinja_heap *h, const char *what, ...) {
    char text[sizeof h->error->what];
    if (jinja_failed(h)) return;
    va_list arguments;
    va_start(arguments, what);
    vsnprintf(text, sizeof text, what, arguments);
    va_end(arguments);
    err_set(h->error, ERR_FORMAT, "the chat template, line %u: %s", h->line, text);
}
