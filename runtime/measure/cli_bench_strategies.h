/* cli_bench_strategies.h: the other kind of `tandem bench`: --strategies.
 *
 * Owns nothing. One thread. Tested by tests/cli/cli_bench.sh.
 */
#ifndef TANDEM_RUNTIME_MEASURE_CLI_BENCH_STRATEGIES_H
#define TANDEM_RUNTIME_MEASURE_CLI_BENCH_STRATEGIES_H

#include "runtime/cli/cli_command.h"

// Measures every strategy within every limit, and judges the planner's choice. ERR_USAGE for
// options that exclude each other, ERR_UNSUPPORTED without an accelerator, ERR_DEVICE if any row
// computed other tokens than the CPU alone.
enum status cli_bench_strategies(struct cli *cli, struct err *e);

#endif
