/* main_tandem_sim.c: the program tandem-sim: tandem with the simulated accelerator for tests. */
#include "kernels/drivers.h"
#include "runtime/commands/cli.h"
#include "tests/sim/sim_device.h"

#include <stdlib.h>
#include <unistd.h>

enum { DRIVERS_MAX = 8 };

int main(int argc, char **argv) {
    // Where /sys is missing, as in some containers, hwloc says so on standard error; the user
    // cannot act on it.
    setenv("HWLOC_HIDE_ERRORS", "2", 0);
    int n = 0;
    const struct device_driver *real = device_drivers(&n);
    struct device_driver drivers[DRIVERS_MAX] = {sim_driver};
    ASSERT(n < DRIVERS_MAX);
    for (int i = 0; i < n; i++) drivers[i + 1] = real[i];
    const struct cli_environment environment = {
        .drivers = drivers,
        .n_drivers = n + 1,
        .cache_home = getenv("XDG_CACHE_HOME"),
        .state_home = getenv("XDG_STATE_HOME"),
        .home = getenv("HOME"),
        .variables = environ,
        .calibrate = getenv("TANDEM_CALIBRATE"),
    };
    return cli_main(argc, argv, &environment);
}
