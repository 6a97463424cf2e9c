/* drivers.h: the registry of accelerators: which backends this program was built with.
 *
 * Owns nothing; the list is constant. Included by programs (a main, a test, a bench), which hand
 * the list on; whoever opens devices gets it from them. Any thread. Tested by
 * tests/kernels/check_ops.c and tests/cli/cli_kernels.sh.
 */
#ifndef TANDEM_KERNELS_DRIVERS_H
#define TANDEM_KERNELS_DRIVERS_H

#include "kernels/device.h"

// The accelerators built into this program, in order of preference; *n gets their number (0 without
// any).
const struct device_driver *device_drivers(int *n);

#endif
