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

#include "kernels/cpu/device/cpu_device.h"
#include "planner/planner.h"
#include "runtime/host/calibration.h"
#include "runtime/options.h"

struct calibration_options {
    struct cpu_options cpu;   // as the engine's CPU will be opened
    uint64_t limit_ns;        // 0: 7 seconds, 9 with an accelerator
    uint64_t memory_bytes;    // most that may be taken for weights on each device; 0: as is useful
    struct progress progress; // told of "calibrate", in milliseconds
};

// Fills the rates of m (teams, both devices', the link's, the shared memory's) and sets its source.
// m->devices must describe the CPU and, if there is one, the accelerator. ERR_CANCELLED, ERR_MEMORY
// or ERR_DEVICE leave m untouched.
enum status calibrate(struct machine *m, struct device *accelerator,
                      const struct calibration_options *options, struct calibration *out,
                      struct err *e);

#endif
