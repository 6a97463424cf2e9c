/* main_tandem.c: the program tandem: the command line with the accelerators of this build. */
#include "base/file.h"
#include "kernels/drivers.h"
#include "runtime/commands/cli.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// Some systems declare it nowhere.
extern char **environ;

// Where there is no home to write to, as in some containers, a driver would translate its kernels
// at every start: it gets a folder beside what tandem has measured.
static void keep_kernels(const struct cli_environment *environment) {
    const char *base = environment->cache_home, *home = environment->home;
    if (!base || base[0] != '/' || (home && access(home, W_OK) == 0)) return;
    for (int i = 0; i < environment->n_drivers; i++) {
        const struct device_driver *driver = &environment->drivers[i];
        char path[PATH_MAX];
        struct err ignored;
        const int length = snprintf(path, sizeof path, "%s/tandem/%s", base, driver->prefix);
        if (!driver->cache_variable || length >= (int)sizeof path) continue;
        if (file_make_folders(path, &ignored) == OK) setenv(driver->cache_variable, path, 0);
    }
}

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
    keep_kernels(&environment);
    return cli_main(argc, argv, &environment);
}
