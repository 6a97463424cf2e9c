/* devices.h: opens the devices of the options, describes them as a machine, and plans a model on
 * it.
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
// the error of an accelerator that device_spec names is returned, that of one that was only tried
// is logged. On failure everything is closed again. If options->calibrate is set, missing rates
// that the planner will need are measured and kept, in options->measured if not in the cache.
// Without a number of threads the CPU is opened with the team that is enough for one token, if that
// was measured.
enum status devices_open(struct device *devices[MAX_DEVICES], int32_t *n,
                         const struct engine_options *options, struct err *e);
void devices_close(struct device *devices[MAX_DEVICES]); // accepts NULL entries; leaves NULLs

// Describes those devices and the computer around them, without rates.
enum status devices_describe(struct machine *out, struct device *const *devices, int32_t n,
                             struct err *e);
// Describes them with the kept rates (RATES_MEASURED), else with those of the nearest known machine
// (RATES_NEAREST), both for the threads of the options.
enum status devices_machine(struct machine *out, struct device *const *devices, int32_t n,
                            const struct engine_options *options, struct err *e);

// Plans that model on those devices under the options' workload and constraints.
enum status devices_plan(struct plan *plan, const struct shape *shape,
                         struct device *const *devices, int32_t n_devices,
                         const struct engine_options *options, struct err *e);

#endif
