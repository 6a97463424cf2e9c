/* calibration_scale.h: rates for another number of threads or instruction set than those that were
 * measured.
 *
 * Changes a struct machine in place, by arithmetic alone. Must not measure. Any thread. Tested by
 * tests/runtime/test_calibrate.c.
 */
#ifndef TANDEM_RUNTIME_HOST_CALIBRATION_SCALE_H
#define TANDEM_RUNTIME_HOST_CALIBRATION_SCALE_H

#include "kernels/cpu/device/cpu_device.h"
#include "planner/planner.h"

// Threads of both teams, and the level of instructions.
struct cpu_setting {
    int32_t decode, prefill;
    enum cpu_isa isa; // not ISA_AUTO
};

// Scales the CPU's rates of m, which were measured with one setting and whose teams say how memory
// rates grow, to another setting, and says so in m->source. A rate near that of memory goes as the
// memory rate of the teams; another as the number of threads, up to the cores there are, and as the
// instruction sets compute.
void calibration_scale(struct machine *m, const struct cpu_setting *measured,
                       const struct cpu_setting *asked);

#endif
