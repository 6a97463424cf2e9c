/* main_tandem.c: the program tandem: the command line with the accelerators of this build. */
#include "runtime/cli.h"

int main(int argc, char **argv) {
    int n_drivers = 0;
    const struct device_driver *drivers = device_drivers(&n_drivers);
    return cli_main(argc, argv, drivers, n_drivers);
}
