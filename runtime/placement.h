/* placement.h: from options to open devices, and from a model and devices to a plan.
 *
 * Owns nothing: the caller owns the devices it is given. Used by engine.c and by `tandem plan`. One
 * thread. Tested by tests/test_engine.c.
 */
#ifndef TANDEM_RUNTIME_PLACEMENT_H
#define TANDEM_RUNTIME_PLACEMENT_H

#include "runtime/model.h"
#include "runtime/tandem.h"

// Opens the CPU (devices[0]) and, if one is asked for or found, an accelerator (devices[1]).
// devices must be all NULL. ERR_USAGE for an unknown kind in device_spec ("none" is the CPU alone);
// an error of an accelerator that was named is passed on, of one that was only tried is logged. On
// failure everything is closed again.
enum status placement_open_devices(struct device *devices[MAX_DEVICES], int32_t *n,
                                   const struct engine_options *options, struct err *e);
void placement_close_devices(
    struct device *devices[MAX_DEVICES]); // accepts NULL entries; leaves NULLs

// The plan for that model on those devices under the options' workload and constraints.
enum status placement_solve(struct plan *plan, const struct shape *shape,
                            struct device *const *devices, int32_t n_devices,
                            const struct engine_options *options, struct err *e);

#endif
