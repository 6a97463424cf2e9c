/* calibrate.h: measures how fast this computer is: the planner's rates.
 *
 * Opens CPU devices of its own, uses the accelerator it is given (which must not be sealed), and
 * frees all it took before it returns. Every figure is the median of several visits, in each of
 * which it is the median of repeated runs; when time is short there are fewer visits, what had none
 * is scaled from what was measured, and the machine's source text says so. One thread, and nothing
 * else should run on the computer. Tested by tests/runtime/test_calibrate.c.
 */
#ifndef TANDEM_RUNTIME_HOST_CALIBRATE_H
#define TANDEM_RUNTIME_HOST_CALIBRATE_H

#include "kernels/device.h"
#include "planner/planner.h"
#include "runtime/options.h"

enum { LINK_BLOCKS = 7 }; // 4 KiB, 16 KiB, ... 16 MiB

// Copies of one size: GB/s by [pinned]; 0: not measured.
struct link_block {
    uint64_t size_bytes;
    double to_gbps[2], from_gbps[2];
};

struct calibration_options {
    struct cpu_options cpu;   // as the engine's CPU will be opened
    uint64_t limit_ns;        // 0: 10 seconds, 13.5 with an accelerator
    uint64_t memory_bytes;    // most that may be taken for weights on each device; 0: as is useful
    struct progress progress; // told of "calibrate", in milliseconds
};

// What is not kept in the machine.
struct calibration {
    uint32_t measured[MAX_DEVICES]; // bit 1 << WEIGHT_x: by itself in all classes; others scaled
    struct link_block blocks[LINK_BLOCKS];
    double cpu_alone_gbps, cpu_beside_gbps;   // reading weights, without and beside copies
    double copy_alone_gbps, copy_beside_gbps; // copies to the device, likewise
    int32_t decode_team;                      // threads that the rates of one token are of
    double seconds;
};

// Fills the rates of m (teams, both devices', the link's, the shared memory's) and sets its source.
// m->devices must describe the CPU and, if there is one, the accelerator. ERR_CANCELLED, ERR_MEMORY
// or ERR_DEVICE leave m untouched.
enum status calibrate(struct machine *m, struct device *accelerator,
                      const struct calibration_options *options, struct calibration *out,
                      struct err *e);

#endif
