/* pipeline.h: runs the plan's steps on streams.
 *
 * A struct pipeline owns the scratch, KV and staging buffers, the streams and the events of every
 * device; it borrows plan, shape, model, weights and devices until pipeline_close. Everything is
 * allocated in pipeline_open. The CPU computes in the calling thread, which first encodes and
 * submits all work that the accelerator can do meanwhile; every wait of that thread names the step
 * that it waits for. One thread. Must not decide anything: the plan has the places and the order.
 * Tested by tests/runtime/test_engine.c, tests/runtime/test_pipeline.c and tests/cli/cli_sim.sh.
 */
#ifndef TANDEM_RUNTIME_ENGINE_PIPELINE_H
#define TANDEM_RUNTIME_ENGINE_PIPELINE_H

#include "base/progress.h"
#include "kernels/device.h"
#include "runtime/engine/feed.h"
#include "runtime/engine/paging.h"
#include "runtime/engine/kv.h"
#include "runtime/model/model.h"
#include "runtime/engine/recorder.h"
#include "runtime/engine/weights.h"
#include "runtime/host/expert_counts.h"

struct pipeline_device {   // one device of a running plan
    struct device *device; // borrowed
    struct stream *compute, *copy_in, *copy_out;
    struct buffer scratch;
    struct event computed; // on compute: copy_out may read the result, and copy_in overwrite it
    struct event arrived;  // on copy_in: compute may read the data
    struct event sent[STEP_DATA]; // on copy_out: other devices may read the data
    struct event finished; // on compute: end of a micro-batch; then the next one's inputs may come
    struct event *flags;   // [n_flags], owned: one for each send of a small micro-batch, in order
    int32_t n_flags;       // 0: the CPU computes before more is encoded
    bool has_shared[UNIT_KINDS]; // the data that units of the kind share is encoded for the running
                                 // micro-batch
};

// The work that the accelerator may still have.
enum pipeline_state {
    PIPELINE_IDLE,    // nothing
    PIPELINE_RUNNING, // a micro-batch whose tables and residual stream it may not have copied yet
    PIPELINE_READY,   // a micro-batch, but the host's memory is free for the next one
};

struct pipeline {
    const struct plan *plan; // borrowed, as the next three
    const struct shape *shape;
    const struct model *model;
    const struct weights *weights;
    struct pipeline_device devices[MAX_DEVICES];
    int32_t n_devices; // devices with streams; a device without bytes in the plan has none
    struct feeder feed;
    struct pager pager;
    struct recorder recorder;
    struct expert_counts *counts;  // borrowed: the experts that the CPU computes with are counted;
                                   // NULL: they are not
    bool counts_batch;             // the running micro-batch is of one sequence
    struct buffer staging;         // on the host: the tables of the batch
    struct buffer kv[MAX_DEVICES]; // owned: each accelerator's, unit after unit
    struct buffer *host_kv;        // owned, [n_units]: the host's, empty for other units
    char **caches;                 // owned, [n_units]: start of each unit's cache on its device
    enum pipeline_state state;
    enum batch_class batch;            // of the last micro-batch
    int32_t n_encoded;                 // of its steps
    const struct micro_batch *running; // borrowed, within pipeline_run
    int32_t n_between;                 // units of a prompt that the CPU computes between two pauses
    int32_t n_unpaused;                // units encoded since the last pause
    int32_t awaited; // the step that the CPU has to wait for before it continues; -1: none
    int32_t n_sent;  // sends of the running micro-batch that are encoded
    struct event *handed[STEP_DATA]; // the flags of what an accelerator has sent last
    bool failed;                     // a stream failed: nothing can run any more
};

// trace: borrowed until pipeline_close, gets a span for every step that ran; may be NULL.
// ERR_MEMORY if a device refuses memory that the plan counted on. Call pipeline_close after a
// failure too.
enum status pipeline_open(struct pipeline *p, const struct placed_model *placed,
                          const struct weights *weights, struct trace *trace, struct err *e);
// Accepts a zeroed or half-open one. Host memory that a lost device may still read or write stays
// until the process ends.
void pipeline_close(struct pipeline *p);

// The tables of the next micro-batch, in host memory, for the caller to fill before pipeline_run;
// the positions of a session's tokens are consecutive. Valid until pipeline_run. While a
// micro-batch runs, call pipeline_ready first.
struct batch_tables pipeline_tables(const struct pipeline *p);

struct micro_batch {
    int32_t n_tokens;
    int32_t n_logits;     // rows[0..n_logits-1] are set, in order; 0: the tail is left out
    int32_t first_logits; // row of the logits buffer where they go
    // Called with "prefill" within a micro-batch of more than 32 tokens, whenever the CPU pauses:
    // the tokens before it and the CPU's share of n_tokens, of n_total. NULL: no listener.
    const struct progress *progress;
    uint64_t n_before, n_total;
};

// Runs one micro-batch; before it the accelerator must be idle or pipeline_ready have been called.
// Returns at its end, or if the plan runs ahead (plan->runs_ahead, more than 32 tokens) when all of
// it is encoded and the CPU has done its work. Up to 32 tokens first wait for the end of the
// previous micro-batch if the CPU's caches are streamed, since the CPU reads them. ERR_DEVICE with
// the first failure of any stream; every later run fails too. ERR_CANCELLED if the listener wants
// no more: nothing runs any more, and the results of the micro-batch are invalid.
enum status pipeline_run(struct pipeline *p, const struct micro_batch *batch, struct err *e);
// Waits until the tables and the CPU's residual stream may be overwritten. ERR_DEVICE.
enum status pipeline_ready(struct pipeline *p, struct err *e);
// Waits until everything is computed. After a failure of the calls above nothing runs any more
// either, unless a device is lost. ERR_DEVICE.
enum status pipeline_finish(struct pipeline *p, struct err *e);

// Says that a device has failed before, so that nothing can run any more. ERR_DEVICE.
enum status pipeline_refuse(struct err *e);

// How the cache of a unit lies on its device: as attention there reads its types fastest, but by
// row if rows of it go to another device, or if its rows are keys and values in one.
enum kv_order pipeline_kv_order(const struct pipeline *p, int32_t unit);

// [max_logits, n_vocab] on the host, valid after pipeline_finish.
float *pipeline_logits(const struct pipeline *p);

#endif
