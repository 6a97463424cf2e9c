/* calibrate.h: measures the rates of this computer that the planner uses.
 *
 * Opens CPU devices of its own, uses the accelerator it is given (which must not be sealed), and
 * frees all it took before it returns. Every figure is the median over several visits, and in each
 * visit the median of repeated runs. When time is short there are fewer visits; figures without a
 * visit are scaled from measured ones, and the machine's source text says so. A run in which the
 * program was stopped is repeated, and its time does not count. One thread. Nothing else should run
 * on the computer: the result says how much the visits differ and how busy other programs were.
 * Tested by tests/runtime/test_calibrate.c.
 */
#ifndef TANDEM_RUNTIME_HOST_CALIBRATE_H
#define TANDEM_RUNTIME_HOST_CALIBRATE_H

#include "kernels/cpu/device/cpu_device.h"
#include "planner/planner.h"
#include "runtime/host/calibration.h"
#include "runtime/options.h"

struct calibration_options {
    struct cpu_options cpu;    // as the engine's CPU will be opened
    uint64_t limit_ns;         // 0: 7 seconds, 9 with an accelerator
    uint64_t memory_bytes;     // most memory for weights on each device; 0: a useful size
    struct progress progress;  // told of "calibrate", in milliseconds
    const struct meter *meter; // borrowed; NULL: the computer's clocks
};

// Fills the rates of m (teams, both devices', the link's, the shared memory's) and sets its source.
// m->devices must describe the CPU and, if there is one, the accelerator. ERR_CANCELLED,
// ERR_MEMORY, ERR_DEVICE, and ERR_LIMIT where the program hardly gets any processor time, leave m
// untouched.
enum status calibrate(struct machine *m, struct device *accelerator,
                      const struct calibration_options *options, struct calibration *out,
                      struct err *e);

#endif
