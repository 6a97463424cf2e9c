/* kv.h: the page lists of the KV cache: which pages belong to which session, and where their rows
 * lie.
 *
 * A struct kv owns the page lists and the free list; the cache buffers belong to the pipeline. A
 * page is KV_PAGE positions of every layer without a window. Layers with one keep a ring of pages
 * for each session: position p is in page p / KV_PAGE modulo the ring's length, so its list never
 * changes, and the newest positions overwrite the oldest (states.h says which are left). Undoing
 * tokens, sharing and moving are edits of the other lists. Nothing is allocated after kv_open. One
 * thread. Tested by tests/runtime/test_kv.c.
 */
#ifndef TANDEM_RUNTIME_ENGINE_KV_H
#define TANDEM_RUNTIME_ENGINE_KV_H

#include "planner/planner.h"

struct kv {
    int32_t n_sessions, pages_per_session, n_ctx;
    int32_t *pages;   // owned, [n_sessions, pages_per_session]; unused entries are 0
    int32_t *ring;    // owned, as pages, of layers with a window; NULL: the model has none
    int32_t *n_pages; // owned, [n_sessions] in use
    int32_t *free;    // owned, stack of free pages
    int32_t n_free;
    bool *taken; // owned, [n_sessions]
};

enum status kv_open(struct kv *kv, const struct workload *w, struct err *e);
void kv_close(struct kv *kv); // accepts a zeroed or half-open one

// Takes a free session index into *out. ERR_LIMIT if all are in use.
enum status kv_take(struct kv *kv, int32_t *out, struct err *e);
void kv_give_back(struct kv *kv, int32_t session);

// Gives positions 0..length-1 of a session pages. ERR_LIMIT beyond n_ctx.
enum status kv_reserve(struct kv *kv, int32_t session, int32_t length, struct err *e);
// Gives back every page that holds only positions from length on.
void kv_truncate(struct kv *kv, int32_t session, int32_t length);
// Cache row of a reserved position.
int32_t kv_row(const struct kv *kv, int32_t session, int32_t position);
// The same in layers with a window, which the model has.
int32_t kv_ring_row(const struct kv *kv, int32_t session, int32_t position);

// Consecutive rows of a cache.
struct kv_rows {
    int32_t first, count;
};
// Appends the rows of positions first..end-1 of a session with these pages to the runs
// rows[0..n-1], and joins rows that adjoin the last run to it. Adds at most one run for each page.
// Returns the new number of runs.
int32_t kv_add_rows(struct kv_rows *rows, int32_t n, const int32_t *pages, int32_t first,
                    int32_t end);

// How the cache of one unit lies in memory, at a multiple of the device's align_bytes: all keys,
// then all values.
struct kv_layout {
    uint64_t k_row_bytes, v_row_bytes; // of one position
    uint64_t values, states;           // where they start
};
struct kv_layout kv_layout_of(const struct workload *w, const struct unit *unit,
                              uint32_t align_bytes);

#endif
