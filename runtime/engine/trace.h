/* trace.h: the times of a running plan beside the planned ones, for a file that Perfetto and
 * Chrome's tracing page read, and for the figures of "-v".
 *
 * A struct trace owns a table of spans of fixed size, taken in trace_open; when it is full, further
 * spans are counted and dropped. pipeline.c adds a span for every step of every micro-batch once
 * the device's times are known; nothing is allocated then. Must not wait for devices. One thread.
 * runtime/report/trace_write.c writes the file. Tested by tests/runtime/test_trace.c and
 * tests/cli/cli_trace.sh.
 */
#ifndef TANDEM_RUNTIME_ENGINE_TRACE_H
#define TANDEM_RUNTIME_ENGINE_TRACE_H

#include "planner/planner.h"

// Tracks of a device, one per stream.
enum trace_track { TRACK_COMPUTE, TRACK_COPY_IN, TRACK_COPY_OUT, TRACK_FETCH, TRACK_STAGE, TRACKS };
const char *trace_track_name(enum trace_track track); // "compute", "copy in", ...

// A step on one stream, from its start on the stream (after its waits; a STEP_WAIT is such a wait)
// to its end. Spans of one track never overlap.
struct trace_span {
    enum step_kind kind;
    enum trace_track track;
    int8_t device; // the stream's device: a send of the CPU is on the accelerator's TRACK_COPY_IN
    int16_t unit;  // or -1
    enum step_phase phase;                    // of compute
    int32_t pass, n_tokens, n_past;           // micro-batch number since trace_open
    uint64_t bytes;                           // copied
    uint64_t first_ns, last_ns;               // measured, by clock_ns
    double planned_first_us, planned_last_us; // from the start of the pass; both 0: not planned
    double planned_period_us; // from the pass's start until the next may start, as in struct
                              // simulation; 0: until the pass ends
};

struct trace;
// room for n_spans, at least 1. ERR_MEMORY.
enum status trace_open(struct trace **out, int32_t n_spans, struct err *e);
void trace_close(struct trace *t); // NULL is allowed
// Adds a span; span->pass is never less than that of the span before.
void trace_add(struct trace *t, const struct trace_span *span);
int32_t trace_count(const struct trace *t);
const struct trace_span *trace_at(const struct trace *t, int32_t i); // i < trace_count
int64_t trace_dropped(const struct trace *t);

// Lengths of unions of intervals: time that several spans share counts once.
struct trace_times {
    double total_us;             // while any pass ran
    double busy_us[MAX_DEVICES]; // while the device computed
    double copy_us;              // while anything was copied between devices (not TRACK_STAGE)
    double hidden_us;            // of that, while any device computed
};
// Totals of the spans of one batch class. If spans were dropped, the last pass in the table is
// incomplete and left out.
struct trace_usage {
    int32_t n_passes;
    int64_t n_tokens;
    struct trace_times measured, planned;
    uint64_t to_bytes, from_bytes; // copied to and from the accelerator
    uint64_t fetched_bytes;        // of to_bytes, weights and caches
};
void trace_usage(const struct trace *t, enum batch_class batch, struct trace_usage *out);
// Prints for people, after a run with -v: for each class that ran, utilisation of each device and
// of the link with its GB/s, bytes copied per token, and the share of the copies' time that was
// hidden, each beside the planned figure.
void trace_print(const struct trace *t, const struct plan *plan, FILE *out);

#endif
