/* recorder.h: takes the time of every step of a running plan and hands it to a trace.
 *
 * A struct recorder owns events around the steps of two micro-batches, the one that runs and the
 * one before it, made in recorder_open; it borrows plan, shape and trace until recorder_close.
 * Without a trace every call does nothing. Must not wait for anything that still has to be encoded.
 * The thread that drives the pipeline. Tested by tests/runtime/test_pipeline.c.
 */
#ifndef TANDEM_RUNTIME_ENGINE_RECORDER_H
#define TANDEM_RUNTIME_ENGINE_RECORDER_H

#include "kernels/device.h"
#include "runtime/engine/trace.h"
#include "runtime/engine/weights.h"

// The stream that a step runs on: whose, and which.
struct step_place {
    int8_t device;
    enum trace_track track;
};
struct step_place step_place(const struct step *step);

struct span_mark {
    struct trace_span span;
    int32_t step;               // of the class, for the planned times
    struct event *first, *last; // NULL: the span has its times
};

struct recorder_bank { // one micro-batch
    struct span_mark *marks;
    struct event *events[MAX_DEVICES]; // [n_events]
    int32_t n_marks, n_used[MAX_DEVICES];
    struct pass pass;
    enum batch_class batch;
};

struct recorder {
    struct trace *trace; // borrowed, as the next two; NULL: nothing is recorded
    const struct plan *plan;
    const struct shape *shape;
    struct recorder_bank banks[2]; // by pass number
    int32_t n_events[MAX_DEVICES];
    struct step_times *planned; // owned, one for each step of the longest class
    int32_t pass;               // number of the one that runs
};

// trace NULL: none is wanted. ERR_MEMORY, ERR_DEVICE. Call recorder_close after a failure too.
enum status recorder_open(struct recorder *r, const struct placed_model *placed,
                          struct trace *trace, struct err *e);
void recorder_close(struct recorder *r); // accepts a zeroed or half-open one

// A new micro-batch; what the one before the last left is forgotten.
void recorder_begin(struct recorder *r, enum batch_class batch, const struct pass *pass);
// The step with that index begins on stream, or on track of its device if that is another one than
// step_place says. NULL without a trace.
struct span_mark *recorder_first(struct recorder *r, int32_t step, enum trace_track track,
                                 struct stream *stream, uint64_t bytes);
void recorder_last(struct span_mark *mark, struct stream *stream); // NULL is allowed
// A step of which this thread has taken the time.
void recorder_add(struct recorder *r, int32_t step, uint64_t first_ns, uint64_t last_ns);
// Hands the spans of the micro-batch that runs (before 0) or of the one before it (1) to the trace;
// all of it must have been encoded and soon be done. ERR_DEVICE.
enum status recorder_collect(struct recorder *r, int32_t before, struct err *e);

#endif
