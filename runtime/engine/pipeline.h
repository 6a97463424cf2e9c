/* pipeline.h: runs the plan's steps on streams.
 *
 * A struct pipeline owns the scratch, KV and staging buffers, the streams and the events of every
 * device; it borrows plan, shape, model, weights and devices until pipeline_close. Everything is
 * allocated in pipeline_open. The CPU computes in the calling thread, which has encoded and started
 * what the accelerator can do before it begins; every wait of that thread names the step that it
 * waits for. One thread. Must not decide anything: where and in which order is the plan's. Tested
 * by tests/runtime/test_engine.c, tests/runtime/test_pipeline.c and tests/cli/cli_sim.sh.
 */
#ifndef TANDEM_RUNTIME_ENGINE_PIPELINE_H
#define TANDEM_RUNTIME_ENGINE_PIPELINE_H

#include "base/progress.h"
#include "kernels/device.h"
#include "runtime/engine/feed.h"
#include "runtime/engine/kv.h"
#include "runtime/model/model.h"
#include "runtime/engine/recorder.h"
#include "runtime/engine/weights.h"

struct pipeline_device {   // one device of a running plan
    struct device *device; // borrowed
    struct stream *compute, *copy_in, *copy_out;
    struct buffer scratch;
    struct event computed;        // on compute: what copy_out may read, and copy_in write over
    struct event arrived;         // on copy_in: what compute may read
    struct event sent[STEP_DATA]; // on copy_out: what others may read
    struct event finished; // on compute: a micro-batch, so that the next one's inputs may come
    bool has_shared[UNIT_KINDS]; // what units of the kind read together has been encoded for the
                                 // micro-batch that runs now
};

// What the accelerator may still be at.
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
    int32_t n_devices; // that are open; a device that holds nothing of the plan has no streams
    struct feeder feed;
    struct recorder recorder;
    struct buffer staging;         // on the host: the tables of the batch
    struct buffer kv[MAX_DEVICES]; // owned: of each accelerator, unit after unit
    struct buffer *host_kv;        // owned, [n_units], of attention on the host; else empty
    char **caches;                 // owned, [n_units]: where each unit's starts on its home
    enum pipeline_state state;
    enum batch_class batch;            // of the last micro-batch
    int32_t n_encoded;                 // of its steps
    const struct micro_batch *running; // borrowed, within pipeline_run
    int32_t n_between;  // units of a prompt that the CPU computes between two looks at the listener
    int32_t n_unpaused; // that are encoded since the last look
    int32_t awaited;    // step that the CPU waits with before it computes on; -1: none
    bool failed;        // a stream failed: nothing can run any more
};

// trace: borrowed until pipeline_close, gets a span for every step that ran; may be NULL.
// ERR_MEMORY if a device refuses what the plan promised. Call pipeline_close after a failure too.
enum status pipeline_open(struct pipeline *p, const struct placed_model *placed,
                          const struct weights *weights, struct trace *trace, struct err *e);
// Accepts a zeroed or half-open one. Host memory that a lost device may still read or write stays
// until the process ends.
void pipeline_close(struct pipeline *p);

// The tables of the next micro-batch, in host memory, for the caller to fill before pipeline_run;
// the positions of a session's tokens follow each other. Valid until then. After a micro-batch that
// still runs, pipeline_ready must have been called.
struct batch_tables pipeline_tables(const struct pipeline *p);

struct micro_batch {
    int32_t n_tokens;
    int32_t n_logits;     // rows[0..n_logits-1] are set; 0: the head is left out
    int32_t first_logits; // row of the logits buffer where they go
    // Told "prefill" within a micro-batch of more than 32 tokens, now and then when the CPU has
    // done its part so far: tokens before it and its share of n_tokens, of n_total. NULL: nobody is
    // told.
    const struct progress *progress;
    uint64_t n_before, n_total;
};

// Runs one micro-batch, for which the accelerator must be idle or pipeline_ready have been called:
// to its end, or if the plan runs ahead (plan->runs_ahead, more than 32 tokens) until all of it is
// encoded and the CPU has done its part. Up to 32 tokens wait for the micro-batch before to end
// where the CPU's caches are streamed, since it reads them then. ERR_DEVICE with the first failure
// of any stream; then every later run fails too. ERR_CANCELLED if the listener wants no more: then
// nothing runs any more, and what the micro-batch has computed is worth nothing.
enum status pipeline_run(struct pipeline *p, const struct micro_batch *batch, struct err *e);
// Waits until the tables and the CPU's residual stream may be overwritten. ERR_DEVICE.
enum status pipeline_ready(struct pipeline *p, struct err *e);
// Waits until everything is computed; nothing of it runs any more after a failure of the calls
// above either, unless the device is lost. ERR_DEVICE.
enum status pipeline_finish(struct pipeline *p, struct err *e);

// [max_logits, n_vocab] on the host, valid after pipeline_finish.
float *pipeline_logits(const struct pipeline *p);

#endif
