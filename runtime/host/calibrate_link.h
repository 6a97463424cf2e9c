/* calibrate_link.h: how fast copies between the host and an accelerator are, and what they take
 * from the CPU's memory.
 *
 * Part of calibrate.c. A struct link_bench owns streams, events and host pages; it borrows both
 * rigs. One thread. Tested by tests/runtime/test_calibrate.c.
 */
#ifndef TANDEM_RUNTIME_HOST_CALIBRATE_LINK_H
#define TANDEM_RUNTIME_HOST_CALIBRATE_LINK_H

#include "runtime/host/calibration.h"
#include "runtime/host/rig.h"

enum { LINK_STAGES = 4 };

struct link_bench {
    struct rig *rig;         // of the accelerator, borrowed
    struct stopwatch *watch; // borrowed
    struct stream *in, *out;
    struct event event, computed, event_out; // on in, on the rig's stream, on out
    struct event drained[LINK_STAGES];       // copied out of that part of host
    void *host, *source;                     // pages, owned; source is never pinned
    uint64_t largest_bytes;
};

// ERR_MEMORY. close accepts a half-open one.
enum status link_open(struct link_bench *bench, struct rig *rig, struct stopwatch *watch,
                      struct err *e);
void link_close(struct link_bench *bench);

// Latency and both directions by size of block; *rates gets the largest blocks', and what goes from
// memory that is not pinned through a few pinned blocks.
enum status link_measure(struct link_bench *bench, struct link_rates *rates,
                         struct link_block blocks[LINK_BLOCKS], struct err *e);

// What one way takes besides its bytes, at least 0.1: half of the median of n >= 1 round trips with
// a block each way, less the blocks at these rates. Sorts the round trips.
double link_latency_us(double *round_trips_us, int32_t n, uint64_t block_bytes,
                       const struct link_rates *rates);

// Copies to the accelerator while the CPU multiplies with weights from memory: fills the four rates
// of *out.
enum status link_measure_beside(struct link_bench *bench, struct rig *cpu, enum weight_type type,
                                double to_gbps, struct calibration *out, struct err *e);

#endif
