/* cli.h: the command line program: from arguments to an exit code.
 *
 * Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 the world
 * failed, 2 wrong usage, 3 with --strict if the placement does not fit or the accelerator refuses
 * its memory. One thread. Tested by tests/cli/cli_*.sh.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_CLI_H
#define TANDEM_RUNTIME_COMMANDS_CLI_H

#include "kernels/device.h"

struct cli_environment {
    const struct device_driver *drivers; // the accelerators that this program knows
    int n_drivers;
    const char *cache_home; // XDG_CACHE_HOME, or NULL
    const char *state_home; // XDG_STATE_HOME, or NULL
    const char *home;       // HOME, or NULL
    char *const *variables; // all, NAME=VALUE, for those of llama.cpp; ended by NULL
    const char *calibrate;  // TANDEM_CALIBRATE: "never" forbids calibration that nobody asked for
};

// Runs the command that argv asks for and returns the exit code.
int cli_main(int argc, char **argv, const struct cli_environment *environment);

#endif
