/* rig.h: a device set up to be timed: memory to read, activations, tables, and a stopwatch.
 *
 * A struct rig owns a stream and buffers on a device that it borrows; the device must not be
 * sealed. Used by calibrate.c and bench/lib/reference.c. It times the device's own ops, with
 * weights and caches from a pool of bytes that are finite numbers in every type. One thread. Tested
 * by tests/runtime/test_calibrate.c.
 */
#ifndef TANDEM_RUNTIME_HOST_RIG_H
#define TANDEM_RUNTIME_HOST_RIG_H

#include "base/progress.h"
#include "kernels/device.h"
#include "planner/planner.h"
#include "runtime/host/meter.h"

enum {
    RIG_TOKENS = 512,
    RIG_HEADS = 16,
    RIG_KV_HEADS = 4,
    RIG_HEAD_DIM = 64,
    RIG_KEYS = 2048,
};

// The time limits of measuring, and the listener that may stop it.
struct stopwatch {
    uint64_t start_ns, limit_ns; // of the whole measurement; the limit counts from the start
    uint64_t part_end_ns;        // the end of the part, of whose time phases take shares
    uint64_t phase_end_ns;       // the current phase ends by then if it can
    int32_t figures_left;     // figures that share the phase's remaining time, with the current one
    struct progress progress; // told of "calibrate", in milliseconds
    const struct meter *meter; // borrowed; NULL: this computer's
    // While the program is stopped (a signal, a frozen container, programs that take all processor
    // time), the watch stands still, and the run that it stopped in is repeated.
    uint64_t seen_ns, seen_own_ns; // the last reading of the meter
    uint64_t lost_ns;              // in which it was stopped
    int32_t n_stops;
    bool waits; // for a device: then the program takes no processor time although it goes on
};
// The meter's time without what is lost.
uint64_t stopwatch_now(struct stopwatch *watch);
// True if a run that was expected to take about usual_us took so long that the program must have
// been stopped in it. Its time is lost, and it has to be repeated.
bool stopwatch_too_long(struct stopwatch *watch, double us, double usual_us);
// Begins a part, which takes a share of all remaining time, or a phase, which takes a share of the
// part's remaining time for that many figures.
void stopwatch_part(struct stopwatch *watch, double share);
void stopwatch_phase(struct stopwatch *watch, double share, int32_t figures);
// False if a measurement of that duration does not fit into the phase any more.
bool stopwatch_fits(struct stopwatch *watch, double us);
// Counts a figure that is done or left out. ERR_CANCELLED if the progress call says so, ERR_LIMIT
// if the program was stopped so often that no figure means anything.
enum status stopwatch_step(struct stopwatch *watch, struct err *e);

struct rig {
    struct device *device; // borrowed
    struct stream *stream;
    struct buffer pool, work;
    int32_t n_cols, n_rows; // of the matrices that are multiplied with
    int32_t n_tokens;       // most tokens of one call
    int32_t n_keys;         // most keys of attention
    float *x, *out, *more;  // device addresses in work: [n_tokens, n_cols] each
    void *scratch;
    int32_t *positions, *cache_rows, *pages, *sequences, *rows; // tables in work
    double op_us, pass_us, launch_us, start_us;                 // set by rig_overheads
    double usual_us; // of the runs of the current figure; 0: not known
    int64_t n_calls; // so far: tells which part of the pool the next call reads
};

// Rows and columns of a matrix of which each lane of the CPU gets 512 Ki weights, as of a model's:
// a lane that gets fewer ends before the last one has begun. A power of two, 1024 to 4096.
int32_t rig_size_for_lanes(int32_t n_lanes);
// host_pool is memory of pool_bytes for a device that is the host (filled by rig_fill), NULL
// elsewhere: then the rig makes and fills a pool of its own. size is the number of rows and columns
// of the matrices. ERR_MEMORY.
enum status rig_open(struct rig *rig, struct device *device, void *host_pool, uint64_t pool_bytes,
                     int32_t size, struct err *e);
void rig_close(struct rig *rig); // accepts a zeroed or half-open one
// Bytes that are small positive numbers in every weight type, cache type and scale.
void rig_fill(void *memory, uint64_t size_bytes);

// The calls that are timed: encode puts call number i on the rig's stream.
struct job {
    void (*encode)(struct rig *rig, const struct job *job, int64_t i);
    enum weight_type type;  // of matmuls
    enum dtype kv_type;     // of attention
    int32_t n_tokens;       // also passed to device_batch_hint
    int32_t n_rows, n_keys; // of matmuls; of attention
    uint64_t stride_bytes;  // from one part of the pool to the next
    int64_t n_parts;        // parts of the pool that are read in turn
    int64_t step;           // parts from one call to the next; 0: the next one
    bool warm;              // all parts are read once before
    bool rests;             // on the CPU: it waits after each call for as long as that took, as for
                            // an accelerator, while other programs may take the cache
};

// Makes a matmul of the rig's size that reads window_bytes of the pool in turn (0: all).
struct job rig_matmul(const struct rig *rig, enum weight_type type, int32_t n_tokens,
                      uint64_t window_bytes);
// Makes attention of n_tokens tokens at the end of n_keys, with KV caches all over the pool.
struct job rig_attention(const struct rig *rig, enum dtype kv_type, int32_t n_tokens,
                         int32_t n_keys);
// Makes the vector ops of a layer with n_tokens tokens; *bytes gets the bytes that they read and
// write.
struct job rig_vectors(const struct rig *rig, int32_t n_tokens, uint64_t *bytes);

uint64_t job_weight_bytes(const struct rig *rig, const struct job *matmul); // of one call
// Bytes that its activations and results count for in the planner's cost.c.
double job_activation_bytes(const struct rig *rig, const struct job *matmul);
double job_attention_flops(const struct job *attention); // as cost.c counts them
// Bytes that its queries count for in the planner's cost.c, on the CPU.
double job_query_bytes(const struct job *attention);

// Measures microseconds of one call: the median of repeated runs of many calls each, until they are
// stable or the figure's share of the time is used up; at least one run. Subtracts op_us if it is
// known.
enum status rig_time(struct rig *rig, struct stopwatch *watch, const struct job *job,
                     double *out_us, struct err *e);
// Microseconds of one of the n calls of a run without the known overheads. At most three quarters
// of the run, and of the call, are subtracted, since noise can make the overheads longer than
// either.
double rig_net_us(const struct rig *rig, double run_us, int64_t n);
// Measures microseconds of one call for each part of the pool, without warming up.
enum status rig_pass(struct rig *rig, struct stopwatch *watch, const struct job *job,
                     double *out_us, struct err *e);
// Measures op_us (the mean op of a layer with tiny sizes), pass_us, launch_us of an accelerator,
// and start_us.
enum status rig_overheads(struct rig *rig, struct stopwatch *watch, enum weight_type type,
                          struct err *e);

double median_of(double *values, int32_t n); // of n >= 1, the upper of two middle ones; sorts them

#endif
