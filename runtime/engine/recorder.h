/* recorder.h: measures the time of every step of a running plan and adds it to a trace.
 *
 * A struct recorder owns events around the steps of two micro-batches, the one that runs and the
 * one before it, made in recorder_open; it borrows plan, shape and trace until recorder_close.
 * Without a trace every call does nothing. Must not wait for anything that still has to be encoded.
 * Called by the thread that drives the pipeline. Tested by tests/runtime/test_pipeline.c.
 */
#ifndef TANDEM_RUNTIME_ENGINE_RECORDER_H
#define TANDEM_RUNTIME_ENGINE_RECORDER_H

#include "kernels/device.h"
#include "runtime/engine/trace.h"
#include "runtime/engine/weights.h"

// The stream that a step runs on: its device and its track.
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
    int32_t pass;               // number of the pass that runs
};

// trace NULL: nothing is recorded. ERR_MEMORY, ERR_DEVICE. Call recorder_close after a failure too.
enum status recorder_open(struct recorder *r, const struct placed_model *placed,
                          struct trace *trace, struct err *e);
void recorder_close(struct recorder *r); // accepts a zeroed or half-open one

// Begins a micro-batch; forgets the marks of the last but one.
void recorder_begin(struct recorder *r, enum batch_class batch, const struct pass *pass);
// Notes that the step with that index begins on stream. track is the stream's, which may differ
// from that of step_place. NULL without a trace.
struct span_mark *recorder_first(struct recorder *r, int32_t step, enum trace_track track,
                                 struct stream *stream, uint64_t bytes);
void recorder_last(struct span_mark *mark, struct stream *stream); // NULL is allowed
// Adds a step that this thread has timed itself.
void recorder_add(struct recorder *r, int32_t step, uint64_t first_ns, uint64_t last_ns);
// Adds the spans of the running micro-batch (before 0) or of the one before it (before 1) to the
// trace, and waits for their events, all of which must have been encoded. ERR_DEVICE.
enum status recorder_collect(struct recorder *r, int32_t before, struct err *e);

#endif
