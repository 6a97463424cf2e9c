/* cli_help.h: the pages of "tandem help" and "tandem COMMAND --help", from the table of options.
 *
 * Owns nothing. Must not know what options do. Any thread. Tested by tests/runtime/test_options.c
 * and tests/cli/cli_usage.sh.
 */
#ifndef TANDEM_RUNTIME_CLI_CLI_HELP_H
#define TANDEM_RUNTIME_CLI_CLI_HELP_H

#include "kernels/device.h"
#include "runtime/cli/cli_options.h"

#include <stdint.h>
#include <stdio.h>

// Prints the page of a command, or the list of all. drivers are listed under --device.
void cli_help(enum command topic, const struct device_driver *drivers, int32_t n_drivers,
              FILE *out);

#endif
