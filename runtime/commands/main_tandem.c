/* main_tandem.c: the program tandem: the command line with the accelerators of this build. */
#include "kernels/drivers.h"
#include "runtime/commands/cli.h"

#include <stdlib.h>
#include <unistd.h>

// Some systems declare it nowhere.
extern char **environ;

int main(int argc, char **argv) {
    // Where /sys is missing, as in some containers, hwloc says so on standard error; the user
    // cannot act on it.
    setenv("HWLOC_HIDE_ERRORS", "2", 0);
    struct cli_environment environment = {
        .cache_home = getenv("XDG_CACHE_HOME"),
        .state_home = getenv("XDG_STATE_HOME"),
        .home = getenv("HOME"),
        .variables = environ,
        .calibrate = getenv("TANDEM_CALIBRATE"),
    };
    environment.drivers = device_drivers(&environment.n_drivers);
    return cli_main(argc, argv, &environment);
}
