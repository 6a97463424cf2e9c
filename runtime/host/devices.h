/* devices.h: from options to open devices, from devices to a machine, and from a model and a
 * machine to a plan.
 *
 * Owns nothing: the caller owns the devices it is given. Used by engine.c and by the commands that
 * plan or measure. One thread. Tested by tests/runtime/test_engine.c and
 * tests/runtime/test_calibrate.c.
 */
#ifndef TANDEM_RUNTIME_HOST_DEVICES_H
#define TANDEM_RUNTIME_HOST_DEVICES_H

#include "runtime/options.h"

// Opens the CPU (devices[0]) and, if one is asked for or found, an accelerator (devices[1]).
// devices must be all NULL. ERR_USAGE for an unknown kind in device_spec ("none" is the CPU alone);
// an error of an accelerator that was named is passed on, of one that was only tried is logged. On
// failure everything is closed again. If options->calibrate, rates that the planner will need and
// that are not kept yet are measured here and kept. Without a number of threads the CPU is opened
// with the team that was measured to be enough for one token.
enum status devices_open(struct device *devices[MAX_DEVICES], int32_t *n,
                         const struct engine_options *options, struct err *e);
void devices_close(struct device *devices[MAX_DEVICES]); // accepts NULL entries; leaves NULLs

// Those devices and the computer around them, without rates.
enum status devices_describe(struct machine *out, struct device *const *devices, int32_t n,
                             struct err *e);
// The same with the rates that are kept for them (RATES_MEASURED), else those of the nearest known
// machine (RATES_NEAREST).
enum status devices_machine(struct machine *out, struct device *const *devices, int32_t n,
                            const struct engine_options *options, struct err *e);

// The plan for that model on those devices under the options' workload and constraints.
enum status devices_plan(struct plan *plan, const struct shape *shape,
                         struct device *const *devices, int32_t n_devices,
                         const struct engine_options *options, struct err *e);

#endif
