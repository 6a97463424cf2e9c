/* pipeline.h: runs the plan's steps on streams.
 *
 * A struct pipeline owns the scratch, KV and staging buffers, the streams and the events of every
 * device; it borrows plan, shape, model, weights and devices until pipeline_close. Everything is
 * allocated in pipeline_open. One thread. Must not decide anything: where and in which order is the
 * plan's. Tested by tests/test_engine.c and tests/cli_sim.sh.
 */
#ifndef TANDEM_RUNTIME_PIPELINE_H
#define TANDEM_RUNTIME_PIPELINE_H

#include "kernels/device.h"
#include "runtime/kv.h"
#include "runtime/model.h"
#include "runtime/weights.h"

struct pipeline_lane {     // one device of a running plan
    struct device *device; // borrowed
    struct stream *compute, *copy_in, *copy_out;
    struct buffer scratch;
    struct event computed; // on compute: what copy_out may read
    struct event arrived;  // on copy_in: what compute may read
    struct event sent;     // on copy_out: what others may read
    bool has_angles;       // of the micro-batch that runs now
};

struct pipeline {
    const struct plan *plan; // borrowed, as all here
    const struct shape *shape;
    const struct model *model;
    const struct weights *weights;
    struct pipeline_lane lanes[MAX_DEVICES];
    struct buffer staging; // on the host: the tables of the batch
    struct buffer *kv;     // owned, [n_units], empty but for attention
    bool failed;           // a stream failed: nothing can run any more
};

// ERR_MEMORY if a device refuses what the plan promised. Call pipeline_close after a failure too.
enum status pipeline_open(struct pipeline *p, const struct placed_model *placed,
                          const struct weights *weights, struct err *e);
void pipeline_close(struct pipeline *p); // accepts a zeroed or half-open one

// The tables of the next micro-batch, in host memory, for the caller to fill before pipeline_run.
struct batch_tables {
    int32_t *tokens, *positions, *sequences, *slots; // [n_ubatch]
    int32_t *rows;                                   // [max_logits]
    int32_t *pages;                                  // [n_sessions, pages per session]
};
struct batch_tables pipeline_tables(const struct pipeline *p);

struct micro_batch {
    int32_t n_tokens;
    int32_t n_logits;     // rows[0..n_logits-1] are set; 0: the head is left out
    int32_t first_logits; // row of the logits buffer where they go
};

// Runs one micro-batch to its end. ERR_DEVICE with the first failure of any stream; then every
// later run fails too.
enum status pipeline_run(struct pipeline *p, const struct micro_batch *batch, struct err *e);

// [max_logits, n_vocab] on the host, valid after pipeline_run.
float *pipeline_logits(const struct pipeline *p);

#endif
