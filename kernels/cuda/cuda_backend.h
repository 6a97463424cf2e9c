/* cuda_backend.h: the device, streams, events and op table that the files of the CUDA backend
 * share.
 *
 * A device owns the driver, the device's primary context and the loaded kernels; a stream owns its
 * launches and the memory for the partial results of attention over long contexts, and of matmuls
 * whose columns are split. Nothing of a lost device is freed, since the driver would wait for it.
 * Included only inside kernels/cuda. One thread drives a device at a time. Tested by
 * tests/kernels/test_cuda.c.
 */
#ifndef TANDEM_KERNELS_CUDA_CUDA_BACKEND_H
#define TANDEM_KERNELS_CUDA_CUDA_BACKEND_H

#include "kernels/cuda/cuda_list.h"
#include "kernels/device.h"

enum {
    CUDA_REGIONS = 1032, // host memory that may be pinned at once: a cache for each layer, and more
    CUDA_PARTIAL_BYTES = 2 << 20, // of one compute stream
    CUDA_FLAGS = 2048,    // a token takes up to eight for a layer of which the CPU has a part
    CUDA_FLAG_BYTES = 64, // each has a line of the cache of its own
};

struct cuda_base { // a moment that is known on the device's clock and on the host's
    struct CUevent_st *event;
    uint64_t time_ns; // by clock_ns
};

struct cuda_region { // pinned host memory
    char *base;      // NULL: none
    uint64_t size_bytes;
    unsigned long long address; // where kernels find it; 0: they do not reach it
};

enum cuda_flag_state {
    CUDA_FLAG_FREE,
    CUDA_FLAG_TAKEN,
    CUDA_FLAG_AWAITED, // the device has waited for it, and may do so now
};

struct cuda_flags {
    char *words; // NULL: none
    bool pinned;
    uint64_t address; // where the device finds them
    enum cuda_flag_state states[CUDA_FLAGS];
};

struct cuda_device {
    struct device base;
    const struct log *log; // borrowed
    struct cuda_driver driver;
    struct CUctx_st *context;
    struct cuda_program program;
    int number; // the driver's number of the device
    int arch;   // compute capability: 75 is 7.5
    int n_multiprocessors;
    bool tensor_cores;       // the device has them, and the loaded kernels use them
    bool wsl2;               // the system starts work late, unless it is asked about it
    struct cuda_times times; // of its kernels, if they are asked for: else it has no events
    struct cuda_region pinned[CUDA_REGIONS];
    int n_pinned;         // places of the table that were ever taken
    bool refused_pinning; // some memory could not be pinned, and the log says so
    struct cuda_flags flags;
    struct CUstream_st *clock;   // the base is recorded on this stream; nothing else runs on it
    struct cuda_base clock_base; // that times of events are measured from
};

// Activations that lie quantised in scratch, so that the next matmul of the same x does not
// quantise them again.
struct cuda_quantized {
    const float *x; // NULL: none
    const void *scratch;
    int32_t n_tokens, n_cols;
    bool tiles; // for GEMMs: these lie otherwise for every n_tokens
};

struct cuda_stream {
    struct stream base;
    struct CUstream_st *handle;
    struct err failure;         // the first one; all that is encoded after it is skipped
    struct cuda_queue queue;    // of compute streams
    unsigned long long partial; // device memory of CUDA_PARTIAL_BYTES, of compute streams
    struct cuda_quantized quantized;
};

static inline _Atomic uint32_t *cuda_flag_word(const struct cuda_flags *flags, int place) {
    return (_Atomic uint32_t *)(void *)(flags->words + (size_t)place * CUDA_FLAG_BYTES);
}

static inline uint64_t cuda_flag_address(const struct cuda_flags *flags, int place) {
    return flags->address + (uint64_t)place * CUDA_FLAG_BYTES;
}

static inline struct cuda_device *cuda_of(const struct device *d) {
    return (struct cuda_device *)d;
}

// ---- cuda_backend.c

// Makes the device's context current in the calling thread.
void cuda_enter(const struct cuda_device *cuda);
// Submits everything encoded on the stream; the context is current afterwards. Keeps the first
// failure; a lost device is a failure.
void cuda_submit(struct cuda_stream *s);
// Keeps a failure of the driver, if it is the stream's first.
void cuda_keep(struct cuda_stream *s, unsigned code, const char *what);
// Appends a launch, after submitting a full list; skipped after a failure.
void cuda_add(struct cuda_stream *s, enum cuda_kernel kernel, struct cuda_grid grid,
              const void *params, uint32_t params_bytes);

// Takes a word, which is up. Returns its place, -1 if none is left.
int cuda_flag_take(struct cuda_device *cuda, _Atomic uint32_t **out);
void cuda_flag_give_back(struct cuda_device *cuda, int place);
// Appends the command to the list of a compute stream; skipped after a failure.
void cuda_flag_encode(struct cuda_stream *s, enum cuda_flag_command command, int place);
// Gives the device up. It waits for no flag any more, so that all that it was given ends.
// ERR_DEVICE.
enum status cuda_lose(struct cuda_device *cuda, struct err *e);

// ---- cuda_copy.c: entries of the device's class

bool cuda_host_register(struct device *d, void *base, uint64_t size_bytes);
bool cuda_host_lend(struct device *d, const void *base, uint64_t size_bytes);
void cuda_host_unregister(struct device *d, void *base);
void cuda_copy(struct stream *stream, void *target, const void *source, uint64_t size_bytes,
               enum copy_direction way);
void cuda_copy_rows(struct stream *stream, const struct row_copy *copy, enum copy_direction way);

// ---- cuda_launch.c

// The op table: every entry appends its launches to the stream's queue.
extern const struct op_table *const cuda_op_table;

// ---- cuda_event.c: entries of the device's class, and the functions below them

enum status cuda_event_new(struct device *d, enum event_kind kind, struct event *out,
                           struct err *e);
void cuda_event_free(struct event *event);
void cuda_record(struct stream *stream, struct event *event);
void cuda_wait_event(struct stream *stream, struct event *event);
enum status cuda_event_wait(struct event *event, struct err *e);
enum status cuda_event_time(struct event *event, uint64_t *out_ns, struct err *e);

// Waits until the driver's stream is empty, no longer than the device's limit.
enum status cuda_await_stream(struct cuda_device *cuda, struct CUstream_st *stream, struct err *e);

// Makes the stream and the events that the times of events need; cuda_clock_start records the first
// base.
enum status cuda_clock_open(struct cuda_device *cuda, struct err *e);
enum status cuda_clock_start(struct cuda_device *cuda, struct err *e);
void cuda_clock_close(struct cuda_device *cuda); // accepts one that was never or half opened

// ---- cuda_flags.c

// Makes flags and tries them; info.n_flags is 0 afterwards where the device cannot wait for the
// CPU. ERR_MEMORY; ERR_DEVICE if the device does not answer. The stream of the clock must be open,
// and nothing run there.
enum status cuda_flags_open(struct cuda_device *cuda, struct err *e);
void cuda_flags_close(struct cuda_device *cuda); // accepts flags that were never or half opened

#endif
