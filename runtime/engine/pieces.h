/* pieces.h: the pieces of memory that hold the caches of one session, in an order that does not
 * depend on where they lie: how a session is copied, written to a file and read back.
 *
 * A struct cached borrows the running plan and the page lists. Only while nothing runs, and only in
 * the thread that drives the pipeline. A failure of a device is one of the pipeline too. Tested by
 * tests/runtime/test_pipeline.c.
 */
#ifndef TANDEM_RUNTIME_ENGINE_PIECES_H
#define TANDEM_RUNTIME_ENGINE_PIECES_H

#include "kernels/kv_page.h"
#include "runtime/engine/kv.h"
#include "runtime/engine/pipeline.h"
#include "runtime/engine/states.h"

// The caches of a session after n tokens.
struct cached {
    struct pipeline *pipeline; // borrowed, as the next
    const struct kv *kv;
    int32_t session, n;
    int32_t low;                // the first position in rings
    int32_t slots[STATE_SLOTS]; // of the session, of recurrent states; the first n_slots are set
    int32_t n_slots;
};

struct piece {
    int device;
    char *at;
    uint64_t size_bytes; // at most that of KV_PAGE positions, or of one state
    // The rows of a page that lies by head, in host memory, and has its start at `at`. They are
    // read, and written, as rows that lie one behind the other. n_rows 0: so does the piece.
    struct kv_view page;
    int32_t first_row, n_rows;
};

// Where a walk over the pieces is; zeroed at the start.
struct piece_walk {
    int32_t unit, part, position, slot;
};
// Sets *out to the next piece; false at the end. Units come in order; in each its keys, values, the
// inputs of its convolution, and its matrices. Two sessions with the same n, low and n_slots have
// pieces of the same sizes.
bool cached_next(const struct cached *c, struct piece_walk *walk, struct piece *out);
struct cached_sizes {
    uint64_t largest, padded; // bytes of the largest piece; of all, each padded to 8
};
struct cached_sizes cached_sizes(const struct cached *c);

// Copies every piece of source to target, which are sessions of one engine. ERR_DEVICE.
enum status cached_copy(const struct cached *target, const struct cached *source, struct err *e);
// Copies a piece to or from host memory. ERR_DEVICE.
enum status cached_read(const struct cached *c, const struct piece *piece, void *target,
                        struct err *e);
enum status cached_write(const struct cached *c, const struct piece *piece, const void *source,
                         struct err *e);

#endif
