/* cli.h: the command line program: from arguments to an exit code.
 *
 * A struct cli is made by cli_main and lent to the command that runs. Results go to standard
 * output, everything else to standard error. Exit codes: 0 done, 1 the world failed, 2 wrong usage,
 * 3 --strict and the placement asked for does not fit. One thread. Tested by tests/cli_*.sh.
 */
#ifndef TANDEM_RUNTIME_CLI_H
#define TANDEM_RUNTIME_CLI_H

#include "runtime/cli_options.h"
#include "runtime/progress.h"
#include "runtime/tandem.h"

struct cli {
    struct cli_options options;
    const struct device_driver *drivers; // borrowed
    int32_t n_drivers;
    struct log log;
    struct progress progress;
};

// Runs the command that argv asks for and returns the exit code. drivers are the accelerators that
// this program knows.
int cli_main(int argc, char **argv, const struct device_driver *drivers, int32_t n_drivers);

// The commands, one file each.
enum status cli_run(struct cli *cli, struct err *e);
enum status cli_chat(struct cli *cli, struct err *e);
enum status cli_plan(struct cli *cli, struct err *e);
enum status cli_inspect(struct cli *cli, struct err *e);
enum status cli_devices(struct cli *cli, struct err *e);
enum status cli_tokenize(struct cli *cli, struct err *e);
enum status cli_perplexity(struct cli *cli, struct err *e);

// What they share. Fills *out from the options; the progress call draws the bar and stops at
// Ctrl-C.
void cli_engine_options(struct cli *cli, struct engine_options *out);
// The text of -p, -f or --stdin. The caller frees *text with mem_free.
enum status cli_read_text(const struct cli *cli, char **text, size_t *length, struct err *e);

#endif
