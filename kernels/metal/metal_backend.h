/* metal_backend.h: the device and the streams that the files of the Metal backend share.
 *
 * A device owns its Metal objects: library, pipelines, buffers and the regions of host memory that
 * it reaches; a stream owns a command queue, the command buffers that are under way and a thread
 * for work of the host. An address in a buffer is the host's address of the same bytes. Nothing of
 * a lost device is freed, since the GPU may still use it. Included only inside kernels/metal and by
 * its tests. One thread drives a device at a time. Tested by tests/kernels/test_metal.c.
 */
#ifndef TANDEM_KERNELS_METAL_METAL_BACKEND_H
#define TANDEM_KERNELS_METAL_METAL_BACKEND_H

#include "kernels/device.h"
#include "kernels/metal/metal_library.h"
#include "kernels/metal/metal_list.h"
#include "kernels/metal/metal_memory.h"

#include <pthread.h>

enum {
    METAL_PARTIAL_BYTES = 2 << 20, // of one compute stream
    METAL_RUNNING = 64,            // command buffers of one stream that are under way
    METAL_DISPATCHES = 512, // of a command buffer: then the GPU starts while others are encoded
    METAL_JOBS = 64,        // of the host, that one stream has waiting
};

struct metal_features {
    bool has_simdgroup_matrix;      // Apple7 and newer
    uint32_t max_threadgroup_bytes; // threadgroup memory of a dispatch
    uint32_t max_threads;           // of a threadgroup, before a pipeline's own limit
};

struct metal_device {
    struct device base;
    const struct log *log; // borrowed
    struct metal_objc objc;
    struct mtl_device *handle;
    struct metal_library library;
    struct metal_memory memory;
    struct metal_features features;
    struct err failure;           // of the first command buffer that failed; fails every stream
    struct metal_stream *streams; // all there are
    struct metal_event *events;   // all there are
    void *nothing;                // memory that stands for NULL where a buffer must be bound
    struct mtl_buffer *nothing_buffer;
    int64_t clock_offset_ns; // from Metal's clock to clock_ns
    bool refused_register;   // some memory is not reached, and the log says so
};

// Work of the host in a stream's order: a call, or a copy where fn is NULL.
struct metal_job {
    void (*fn)(void *context);
    void *context;
    struct row_copy copy;
    uint64_t ready; // value of the stream's event when all before it is done; one more: it is done
};

struct metal_host {
    struct mtl_event *event;
    uint64_t value; // last one that was encoded
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; // all below
    pthread_cond_t changed;
    struct metal_job jobs[METAL_JOBS];
    int first, n_jobs;
    bool quit; // the thread is to end
    bool skip; // the stream has failed: jobs are dropped
};

struct metal_stream {
    struct stream base;
    struct err failure;        // the first one; all that is encoded after it is skipped
    struct metal_stream *next; // of the device
    struct mtl_queue *queue;
    struct mtl_commands *commands; // being encoded; NULL: none
    struct mtl_compute *compute;   // encoder that is open in it, at most one of the two
    struct mtl_blit *blit;
    int n_dispatches;                            // in it
    struct mtl_commands *running[METAL_RUNNING]; // committed, the oldest at first
    int first, n_running;
    struct metal_host host;
    void *partial; // memory of METAL_PARTIAL_BYTES, of compute streams
};

struct metal_event {
    struct metal_event *next; // of the device
    struct mtl_event *handle;
    uint64_t value;                // that the last record signals
    struct mtl_commands *commands; // that signals it, retained; NULL: never recorded
    struct err failure;            // of the stream that recorded it
};

static inline struct metal_device *metal_of(const struct device *d) {
    return (struct metal_device *)d;
}

// ---- metal_wait.c

// Keeps a failure if it is the stream's first.
void metal_keep(struct metal_stream *s, const struct err *failure);
// False after a failure of the stream or of the device, or if the device is lost: all of them are
// the stream's then.
bool metal_is_good(struct metal_stream *s);
// Lets go the command buffers that are done. A failure of one is the device's.
void metal_reap(struct metal_stream *s);
// Reaps all streams; the status of the device's failure.
enum status metal_look(struct metal_device *d);
// True if nothing of the stream is left to be done, so that the host may work in its place.
bool metal_is_idle(struct metal_stream *s);
// Waits until the commands are done, no longer than the device's limit. The device's failure if
// they, or others, failed.
enum status metal_await(struct metal_device *d, struct mtl_commands *commands, struct err *e);
// Waits until the event has the value of its last record, which there must be.
enum status metal_await_event(struct metal_device *d, const struct metal_event *event,
                              struct err *e);
// Waits until nothing of the stream runs.
enum status metal_await_stream(struct metal_stream *s, struct err *e);

// ---- metal_encode.c

// True if the stream has a command buffer to encode into: makes one. False after a failure.
bool metal_begin(struct metal_stream *s);
// The encoder for kernels or for copies, with no other one open; NULL after a failure.
struct mtl_compute *metal_compute(struct metal_stream *s);
struct mtl_blit *metal_blit(struct metal_stream *s);
void metal_end_encoders(struct metal_stream *s);
// Commits everything encoded on the stream.
void metal_submit(struct metal_stream *s);

// ---- metal_event.c: entries of the device's class, and the functions below them

enum status metal_event_new(struct device *d, enum event_kind kind, struct event *out,
                            struct err *e);
void metal_event_free(struct event *event);
void metal_record(struct stream *stream, struct event *event);
void metal_wait_event(struct stream *stream, struct event *event);
enum status metal_event_wait(struct event *event, struct err *e);
enum status metal_event_time(struct event *event, uint64_t *out_ns, struct err *e);

// Compares Metal's clock with clock_ns by running an empty command buffer.
enum status metal_clock_start(struct metal_device *d, struct err *e);

// ---- metal_copy.c: entries of the device's class

bool metal_host_lend(struct device *d, const void *base, uint64_t size_bytes);
bool metal_host_register(struct device *d, void *base, uint64_t size_bytes);
void metal_host_unregister(struct device *d, void *base);
void metal_copy(struct stream *stream, void *target, const void *source, uint64_t size_bytes,
                enum copy_direction way);
void metal_copy_rows(struct stream *stream, const struct row_copy *copy, enum copy_direction way);

// ---- metal_host.c

enum status metal_host_open(struct metal_stream *s, struct err *e);
// Ends the thread, which a lost device's is not waited for.
void metal_host_close(struct metal_stream *s);
// Encodes the job, whose ready is set here.
void metal_host_add(struct metal_stream *s, const struct metal_job *job);
// Copies the rows in the calling thread.
void metal_copy_by_host(const struct row_copy *copy);

// ---- metal_launch.c

// The op table: every entry encodes its dispatches.
extern const struct op_table *const metal_op_table;

#endif
