/* cli.h: the command line program: from arguments to an exit code.
 *
 * Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 the world
 * failed, 2 wrong usage, 3 --strict and the placement asked for does not fit. One thread. Tested by
 * tests/cli_*.sh.
 */
#ifndef TANDEM_RUNTIME_CLI_H
#define TANDEM_RUNTIME_CLI_H

#include "kernels/device.h"

// Runs the command that argv asks for and returns the exit code. drivers are the accelerators that
// this program knows.
int cli_main(int argc, char **argv, const struct device_driver *drivers, int32_t n_drivers);

#endif
