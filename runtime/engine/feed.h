/* feed.h: fetches streamed weights, and the caches of streamed attention, into a ring of slots in
 * the accelerator's memory.
 *
 * A struct feeder owns the slots, the streams that fill them, their events and, with FEED_STAGED, a
 * few pinned blocks of host memory; it borrows plan, shape, weights and caches until feed_close.
 * Everything is allocated in feed_open; calls only encode. The plan decides which unit is in which
 * slot when. Called by the thread that drives the pipeline. Tested by
 * tests/runtime/test_pipeline.c.
 */
#ifndef TANDEM_RUNTIME_ENGINE_FEED_H
#define TANDEM_RUNTIME_ENGINE_FEED_H

#include "kernels/device.h"
#include "runtime/engine/kv.h"
#include "runtime/engine/weights.h"

struct feed_chunk { // bytes that one call on the stage stream copies into a block
    void *block;
    const void *source;
    uint64_t size_bytes;
};

// Rows of the caches that a micro-batch reads and adds.
struct feed_rows {
    struct kv_rows *past, *fresh; // owned, [pages]: rows before the batch, and rows of its tokens
    int32_t n_past, n_fresh;
    int32_t n_past_rows; // over all sessions
};

struct feeder {
    const struct plan *plan; // borrowed, as the next four; NULL: nothing is streamed
    const struct shape *shape;
    const struct weights *weights;
    const struct buffer *caches; // [n_units], of the host
    struct device *device;       // the accelerator
    struct stream *fetch;        // host memory -> slots
    struct stream *stage;        // mapped file -> blocks, NULL but for FEED_STAGED
    struct buffer slots;         // [RING_SLOTS] of slot_bytes
    struct buffer blocks;        // [n_blocks] of block_bytes
    struct event fetched[RING_SLOTS], used[RING_SLOTS]; // on fetch; on the stream that computes
    struct event *staged, *drained;                     // owned, [n_blocks], on stage and on fetch
    // All NULL if no attention is streamed whole; of this micro-batch.
    struct feed_rows rows, ring_rows; // ring_rows: of layers with a window, if there are any
    int32_t *first, *end;             // owned, [n_sessions]: positions of each session's tokens
    struct feed_chunk *chunks;        // owned, of all streamed units
    int32_t *first_chunk;             // owned, [n_units]
    bool cut;                         // the chunks are filled in
};

// Opens the ring; does nothing if the plan streams nothing. caches: [n_units], of units on the
// host. ERR_MEMORY, ERR_DEVICE. Call feed_close after a failure too.
enum status feed_open(struct feeder *f, const struct placed_model *placed,
                      const struct weights *weights, const struct buffer *caches, struct err *e);
// Accepts a zeroed or half-open one. Host memory that a lost device may read or write stays until
// the process ends; the owner of the caches does the same with them.
void feed_close(struct feeder *f);

// True if the ring holds the cache of this unit too, or the cache of any unit.
bool feed_moves_cache(const struct feeder *f, int32_t unit);
bool feed_moves_caches(const struct feeder *f);
// Past positions that a fetch of this unit's cache brings, of all sessions.
int32_t feed_past_rows(const struct feeder *f, int32_t unit);
// Sets the micro-batch whose cache rows are fetched and stored from now on. The tokens of each
// session have positions that follow each other.
void feed_batch(struct feeder *f, const struct batch_tables *t, int32_t n_tokens);

// Later fetches into the slot wait until all users of the slot are done.
void feed_begin(struct feeder *f, int32_t slot);
// Fetches the CPU's rows of the unit, and its cache, after feed_begin; the weights are loaded. A
// unit has the same slot in every pass, so its last store has ended when the slot is free.
void feed_fetch(struct feeder *f, int32_t unit, int32_t slot);
// Later commands on compute wait until the slot's last fetch is done.
void feed_use(struct feeder *f, int32_t slot, struct stream *compute);
// Frees the slot when the commands encoded on s so far are done. A later call replaces an earlier
// one.
void feed_release(struct feeder *f, int32_t slot, struct stream *s);
// Copies the rows that the batch has added to the unit's cache from the slot to the host's cache.
void feed_store(struct feeder *f, int32_t unit, int32_t slot, struct stream *copy_out);

// Sets in_slot to the fetched weights of the unit; tensors that are not fetched have no rows.
void feed_bind(const struct feeder *f, int32_t unit, int32_t slot,
               struct weight out[MAX_UNIT_TENSORS]);
// The address of the unit's cache in the slot.
void *feed_cache(const struct feeder *f, int32_t unit, int32_t slot);

#endif
