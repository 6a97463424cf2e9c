/* calibrate_link.h: measures copies between the host and an accelerator, and how much they slow
 * down the CPU's reads.
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
    struct event given, taken; // flags of the CPU and of the rig's stream, if the device has any
    struct event drained[LINK_STAGES]; // that stage of host has been copied
    void *host, *source;               // pages, owned; source is never pinned
    uint64_t largest_bytes;
    bool pinned; // the device has pinned host
};

// ERR_MEMORY. close accepts a half-open one.
enum status link_open(struct link_bench *bench, struct rig *rig, struct stopwatch *watch,
                      struct err *e);
void link_close(struct link_bench *bench);

// Measures the latency and both directions by size of block. *rates gets the rates of the largest
// blocks, and of memory that is not pinned and copied through a few pinned blocks.
enum status link_measure(struct link_bench *bench, struct link_rates *rates,
                         struct link_block blocks[LINK_BLOCKS], struct err *e);

// The latency of one way, at least 0.1: half of the median of n >= 1 round trips with a block each
// way, less the blocks at these rates. Sorts the round trips.
double link_latency_us(double *round_trips_us, int32_t n, uint64_t block_bytes,
                       const struct link_rates *rates);

// Measures copies to the accelerator while the CPU multiplies with weights from memory; fills the
// four rates of *out.
enum status link_measure_beside(struct link_bench *bench, struct rig *cpu, enum weight_type type,
                                double to_gbps, struct calibration *out, struct err *e);

#endif
