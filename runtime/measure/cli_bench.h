/* cli_bench.h: `tandem bench`.
 *
 * Owns nothing. One thread. Tested by tests/cli/cli_bench.sh.
 */
#ifndef TANDEM_RUNTIME_MEASURE_CLI_BENCH_H
#define TANDEM_RUNTIME_MEASURE_CLI_BENCH_H

#include "runtime/cli/cli_command.h"

// Measures what the options ask for and writes it to standard output. ERR_USAGE for options that
// exclude each other, else the error of cli_bench_strategies or of an engine.
enum status cli_bench(struct cli *cli, struct err *e);

#endif
