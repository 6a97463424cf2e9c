/* device.h: something that holds buffers and runs ops: the CPU, a GPU or a simulated GPU.
 *
 * A device owns its streams' and buffers' memory until they are freed, counts every byte by
 * purpose, and lends its op table. Ops and copies only encode; the first failure sticks to the
 * stream and stream_wait reports it. Nothing is allocated after device_seal. One thread drives a
 * device at a time. Must not know a model or a plan. Tested by tests/kernels/test_device.c (CPU and
 * simulated).
 */
#ifndef TANDEM_KERNELS_DEVICE_H
#define TANDEM_KERNELS_DEVICE_H

#include "base/err.h"
#include "base/log.h"
#include "kernels/ops.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum purpose { PURPOSE_WEIGHTS, PURPOSE_KV, PURPOSE_SCRATCH, PURPOSE_STAGING, PURPOSE_COUNT };
const char *purpose_name(enum purpose purpose); // "weights", "kv", "scratch", "staging"

struct device_info {
    char name[96];           // "Intel Xeon, 2 threads, avx2"
    char kind[16];           // "cpu", "sim", ...: the prefix of --device
    uint64_t capacity_bytes; // memory the device has
    uint64_t free_bytes;     // memory that could be used when the device was opened
    uint32_t align_bytes;    // buffers start at a multiple, tensors inside them are placed at
                             // multiples; power of two
    int32_t n_lanes;         // CPU threads of the larger team; 1 elsewhere
    bool is_host;            // buffer addresses are host memory: mapped files are used in place
    bool rounds_by_batch; // matmul and attention may round a token's result differently in another
                          // batch; elsewhere it is the same, bit for bit
    bool reaches_host;    // ops reach pinned host memory: a small copy on a compute stream is one
                          // of them, without a start of its own and waits between streams
    int32_t n_flags;      // events of event_new_flag that it has; 0: it cannot wait for the CPU
    char pci_id[16];      // "0000:01:00.0"; empty if it is no PCI device
    bool unified;         // its memory is the host's
    enum kv_order kv_order; // in which its attention reads a cache fastest; every device
                            // takes KV_BY_ROW
    bool pins_files;        // device_host_lend may pin memory that a file is mapped to
    double bus_gbps;        // peak of its memory, bus width times clock; 0: unknown
    char driver[32];        // version of its driver, empty: none or unknown
    char capability[16];    // "6.1", empty where there is no such number
    char details[1536];     // lines for people, \n between: what was found and chosen; may be empty
};

struct device {
    const struct device_class *class;
    const struct op_table *ops; // lent, valid until device_close
    struct device_info info;
    uint64_t used_bytes[PURPOSE_COUNT]; // allocated or mapped now, by purpose
    uint64_t peak_bytes;                // largest sum over purposes so far
    uint32_t n_refused;                 // buffers and streams that were refused for lack of memory
    double wait_limit_s; // longest wait of the calling thread; set by device_limit_waits
    bool lost;           // a wait passed the limit: nothing waits for this device any more
    bool sealed;         // no more buffers
};

struct buffer { // caller provides the struct; buffer_new and buffer_map fill it
    struct device *device;
    void *base; // device address
    uint64_t size_bytes;
    enum purpose purpose;
    bool mapped;    // borrowed from the caller of buffer_map: buffer_free does not free it
    bool abandoned; // set by the owner when a lost device may still use the memory: buffer_free
                    // leaves it to the process's end
};

#define DEVICE_WAIT_LIMIT_S 600.0 // of a device when it is opened

enum stream_kind { STREAM_COMPUTE, STREAM_COPY_IN, STREAM_COPY_OUT };

struct stream { // backends put this first in their own struct
    struct device *device;
    enum stream_kind kind;
    struct err failure; // OK until stream_wait reported the first failure; everything encoded after
                        // it is skipped. Only the driving thread reads it
};

enum event_kind { EVENT_PLAIN, EVENT_TIMED, EVENT_FLAG };

struct event { // a point on a stream; made before device_seal, recorded again and again
    struct device *device;
    void *handle;
    enum event_kind kind;
    // The word of a flag, in memory that the device and the CPU see: 0 from the call that encodes a
    // record until that is passed, else 1. NULL: another event.
    _Atomic uint32_t *flag;
};

enum copy_direction {
    COPY_TO_DEVICE,
    COPY_FROM_DEVICE,
    COPY_WITHIN
}; // host -> device, device -> host, same device

// Rows that lie apart: row i goes from source + i * source_stride to target + i * target_stride.
// Source and target do not overlap.
struct row_copy {
    void *target;
    const void *source;
    uint64_t target_stride, source_stride, row_bytes; // strides >= row_bytes
    int32_t n_rows;
};

// The functions of a backend. Every entry is set. All but close and wait only encode.
struct device_class {
    enum status (*buffer_new)(struct device *d, uint64_t size_bytes, enum purpose purpose,
                              void **base, struct err *e);
    void (*buffer_free)(struct device *d, void *base, uint64_t size_bytes);
    uint64_t (*free_bytes)(struct device *d);
    bool (*host_register)(struct device *d, void *base, uint64_t size_bytes);
    bool (*host_lend)(struct device *d, const void *base, uint64_t size_bytes);
    void (*host_unregister)(struct device *d, void *base);
    enum status (*stream_new)(struct device *d, enum stream_kind kind, struct stream **out,
                              struct err *e);
    void (*stream_free)(struct stream *s);
    enum status (*event_new)(struct device *d, enum event_kind kind, struct event *out,
                             struct err *e);
    void (*event_free)(struct event *event);
    void (*copy)(struct stream *s, void *target, const void *source, uint64_t size_bytes,
                 enum copy_direction way);
    void (*copy_rows)(struct stream *s, const struct row_copy *copy, enum copy_direction way);
    void (*call)(struct stream *s, void (*fn)(void *context), void *context);
    enum status (*event_time)(struct event *event, uint64_t *out_ns, struct err *e);
    void (*record)(struct stream *s, struct event *event);
    void (*wait_event)(struct stream *s, struct event *event); // event may belong to another device
    enum status (*event_wait)(struct event *event, struct err *e); // the calling thread waits
    void (*flush)(struct stream *s);
    enum status (*wait)(struct stream *s, struct err *e);
    void (*batch_hint)(struct device *d, int32_t n_tokens);
    void (*close)(struct device *d);
};

// The public calls: they check preconditions, keep the books, and go through the class.

// size bytes of device memory, counted under purpose; contents undefined. ERR_MEMORY (naming
// device, purpose, wanted, free) if refused or sealed. size 0 is allowed and allocates nothing.
enum status buffer_new(struct device *d, uint64_t size_bytes, enum purpose purpose,
                       struct buffer *out, struct err *e);
// Counts size bytes at base, memory that the caller keeps alive, on a device with is_host. Never
// fails.
void buffer_map(struct device *d, void *base, uint64_t size_bytes, enum purpose purpose,
                struct buffer *out);
void buffer_free(struct buffer *b); // accepts a zeroed one; leaves it zeroed

// Bytes that d says it could give now, other programs' memory left out; 0 if it cannot tell.
uint64_t device_free_bytes(struct device *d);

// Tells d that copies will go to and from host memory at base, so that it can pin it: only then
// they run beside everything else. Never fails: where pinning is refused copies are slower, the log
// says so, and false comes back. A few regions at a time, unregistered before the memory and the
// device go; a region that was not registered, or NULL, may be unregistered.
bool device_host_register(struct device *d, void *base, uint64_t size_bytes);
void device_host_unregister(struct device *d, void *base);
// The same for memory that only copies to d read and nobody may write, such as a mapped file. Where
// that is refused nothing is logged: the caller has another way. Ends with device_host_unregister.
bool device_host_lend(struct device *d, const void *base, uint64_t size_bytes);

enum status stream_new(struct device *d, enum stream_kind kind, struct stream **out, struct err *e);
void stream_free(struct stream *s); // NULL is allowed; waits for what runs
enum status event_new(struct device *d, struct event *out, struct err *e);
// The same for an event whose time will be asked for, which may cost the device more.
enum status event_new_timed(struct device *d, struct event *out, struct err *e);
// A flag: an event that lets the CPU and a compute stream of d wait for each other within work that
// has been submitted, so that nothing is submitted in between. It is recorded on a stream of d and
// waited for by the calling thread or a stream of the CPU, or recorded on a stream of the CPU and
// waited for by one of d. The record is encoded first, but the stream of it need not have been
// flushed: a wait for d flushes it, and whoever lets d wait flushes the CPU before it waits for d.
// When a flag is recorded again, its last record has been passed, and so has every wait for that.
// A wait of d does not report a failure of the CPU's stream, which reports it itself; a lost device
// waits for no flag any more. ERR_MEMORY if more than info.n_flags are wanted.
enum status event_new_flag(struct device *d, struct event *out, struct err *e);
void event_free(struct event *event); // accepts a zeroed one
// Recording a flag on behalf of the CPU, without a stream: down is the moment of encoding, up that
// of passing it. All that the calling thread wrote before is seen by what waited for it.
void event_lower(struct event *flag);
void event_raise(struct event *flag);
bool event_is_up(const struct event *flag);

// Encodes a copy of size bytes. The host side must stay valid until the stream passes it.
void stream_copy(struct stream *s, void *target, const void *source, uint64_t size_bytes,
                 enum copy_direction way);
// Encodes a copy of rows as one command, whatever their number. Either side may be memory of the
// CPU.
void stream_copy_rows(struct stream *s, const struct row_copy *copy, enum copy_direction way);
// Encodes a call of fn(context) when everything before it on s is done; what follows waits for its
// return. It runs in a thread of the device's (the CPU's: the calling thread; a driver that cannot
// call back: there too, and stream_call waits for what is before it) and must not call into any
// device. Skipped, as everything, after a failure of s.
void stream_call(struct stream *s, void (*fn)(void *context), void *context);
// event becomes "done" when s has passed this point. A later record replaces an earlier one. An
// event that was never recorded is done.
void stream_record(struct stream *s, struct event *event);
// Nothing encoded on s after this runs before event is done. An event of the CPU must have been
// flushed before.
void stream_wait_event(struct stream *s, struct event *event);
// The calling thread waits until event is done; one of the CPU must have been flushed before.
// ERR_DEVICE (the stream's first failure) if its stream failed, and a stream that waits for it
// fails with the same.
enum status event_wait(struct event *event, struct err *e);
// When the last record of a timed event was passed, by clock_ns (base/clock.h). Only for one that
// is done: after stream_wait or event_wait. ERR_DEVICE if its stream failed; 0 if never recorded.
enum status event_time(struct event *event, uint64_t *out_ns, struct err *e);
// Waits of the calling thread for d (event_wait, stream_wait, a stream of the CPU that waits for an
// event of d) give up after that long with ERR_DEVICE, naming device and limit; d is lost then:
// later waits fail at once, what is encoded is skipped, and freeing and closing do not wait for
// what still runs, so host memory that it may touch (and contexts of calls) must be left to the
// process's end. The default is DEVICE_WAIT_LIMIT_S. seconds > 0.
void device_limit_waits(struct device *d, double seconds);
// For backends: when a wait for d that begins now is to be given up, by clock_ns.
uint64_t device_deadline_ns(const struct device *d);
// For backends: gives d up, or says again that it was. ERR_DEVICE.
enum status device_lose(struct device *d, struct err *e);
// Starts whatever was only encoded. The CPU works in the calling thread: when flush returns, its
// work is done.
void stream_flush(struct stream *s);
// Flushes and waits until the stream is empty; reports and keeps the first failure.
enum status stream_wait(struct stream *s, struct err *e);

// Says how many tokens the next ops carry: the CPU picks its decode or its prefill team by it.
void device_batch_hint(struct device *d, int32_t n_tokens);
// From here on buffer_new, stream_new and event_new are refused: memory is what the plan said.
void device_seal(struct device *d);
uint64_t device_used_bytes(const struct device *d); // sum over purposes
void device_forget_peak(struct device *d);          // counts it anew from what is used now
void device_close(struct device *d); // NULL is allowed; streams and buffers must be freed before

struct cpu_options; // kernels/cpu/device/cpu_device.h

// A kind of accelerator that a program knows: --device prefix:spec opens it. ERR_UNSUPPORTED means
// that this machine has none. The log must outlive the device.
struct device_driver {
    const char *prefix; // "sim"
    const char *help;   // one line for --help
    // Environment variable with the folder in which its driver keeps kernels that it translated,
    // which is below the home otherwise; NULL: none.
    const char *cache_variable;
    uint16_t pci_vendor; // of the cards that it drives; 0: it looks for none on the PCI bus
    enum status (*open)(struct device **out, const char *spec, const struct cpu_options *options,
                        const struct log *log, struct err *e);
};

#endif
