/* main_tandem.c: the program tandem: the command line with the accelerators of this build. */
#include "runtime/cli.h"

#include <stdlib.h>

int main(int argc, char **argv) {
    // Where /sys is missing, as in some containers, hwloc says so on standard error; the user
    // cannot act on it.
    setenv("HWLOC_HIDE_ERRORS", "2", 0);
    int n_drivers = 0;
    const struct device_driver *drivers = device_drivers(&n_drivers);
    return cli_main(argc, argv, drivers, n_drivers);
}
