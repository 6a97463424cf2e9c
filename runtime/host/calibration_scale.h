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

// The setting that those options ask for; usual is that of a CPU opened without any.
struct cpu_setting calibration_asked(const struct cpu_options *options,
                                     const struct cpu_setting *usual);

// Scales the CPU's rates of m, which were measured with one setting, to another one
// (machine_scale.h), and says so in m->source. Computing also goes as the instruction sets do. m is
// left alone if both settings are the same.
void calibration_scale(struct machine *m, const struct cpu_setting *measured,
                       const struct cpu_setting *asked);

#endif
