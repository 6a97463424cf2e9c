/* feed.h: the ring of slots in the accelerator's memory that streamed weights pass through.
 *
 * A struct feeder owns the slots, the streams that fill them, their events and, with FEED_STAGED, a
 * few pinned blocks of host memory; it borrows plan, shape and weights until feed_close. Everything
 * is allocated in feed_open; calls only encode. Must not decide what goes into which slot when:
 * that is the plan's. The thread that drives the pipeline. Tested by tests/test_pipeline.c.
 */
#ifndef TANDEM_RUNTIME_FEED_H
#define TANDEM_RUNTIME_FEED_H

#include "kernels/device.h"
#include "runtime/weights.h"

struct feed_chunk { // bytes on their way through a block: what a call on the stage stream copies
    void *block;
    const void *source;
    uint64_t size_bytes;
};

struct feeder {
    const struct plan *plan; // borrowed, as the next three; NULL: nothing is streamed
    const struct shape *shape;
    const struct weights *weights;
    struct device *device; // the accelerator
    struct stream *fetch;  // host memory -> slots
    struct stream *stage;  // mapped file -> blocks, NULL but for FEED_STAGED
    struct buffer slots;   // [n_slots] of slot_bytes
    struct buffer blocks;  // [n_blocks] of block_bytes
    struct event fetched[MAX_SLOTS], used[MAX_SLOTS]; // on fetch; on the stream that computes
    struct event *staged, *drained;                   // owned, [n_blocks], on stage and on fetch
    struct feed_chunk *chunks;                        // owned, of all streamed units
    int32_t *first_chunk;                             // owned, [n_units]
    bool cut;                                         // the chunks are filled in
};

// Nothing if the plan streams nothing. ERR_MEMORY, ERR_DEVICE. Call feed_close after a failure too.
enum status feed_open(struct feeder *f, const struct placed_model *placed,
                      const struct weights *weights, struct err *e);
// Accepts a zeroed or half-open one. Host memory that a lost device may read stays until the
// process ends.
void feed_close(struct feeder *f);

// What is fetched to the slot from now on waits until everything computed with it is done.
void feed_begin(struct feeder *f, int32_t slot);
// Fetches what the CPU has of the unit, after feed_begin; the weights are loaded.
void feed_fetch(struct feeder *f, int32_t unit, int32_t slot);
// What follows on compute waits until the slot's last fetch is done.
void feed_use(struct feeder *f, int32_t slot, struct stream *compute);
// What was encoded on compute so far is all that reads the slot.
void feed_release(struct feeder *f, int32_t slot, struct stream *compute);

// What the CPU has of the unit as tensors in the slot; the others' data is NULL.
void feed_bind(const struct feeder *f, int32_t unit, int32_t slot,
               struct tensor out[W_LAYER_COUNT]);

#endif
