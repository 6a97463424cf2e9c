/* cli_bench_common.h: options for an engine and writers for results, which the two kinds of `tandem
 * bench` share.
 *
 * A struct bench_writers borrows streams and columns. One thread. Tested by tests/cli/cli_bench.sh.
 */
#ifndef TANDEM_RUNTIME_MEASURE_CLI_BENCH_COMMON_H
#define TANDEM_RUNTIME_MEASURE_CLI_BENCH_COMMON_H

#include "runtime/measure/bench_record.h"
#include "runtime/cli/cli_command.h"

struct bench_writers { // standard output, and standard error if -oe is given
    struct bench_writer all[2];
    int32_t n;
};
// ERR_USAGE for an unknown format.
enum status bench_writers_init(struct bench_writers *w, const struct cli_options *o,
                               const char *table, struct err *e);
// Columns are borrowed until the next row is written.
void bench_writers_columns(struct bench_writers *w, const struct bench_column *columns, int32_t n);
enum status bench_writers_row(struct bench_writers *w, const struct bench_record *record,
                              struct err *e);
// Ends every table, also after a failure. Returns status, or the first error of writing if it is
// OK.
enum status bench_writers_end(struct bench_writers *w, enum status status, struct err *e);

// Fills the options of an engine for one configuration, with room for the longest test. ERR_USAGE
// if -c is too short.
enum status cli_bench_options(struct cli *cli, const struct bench_matrix *matrix,
                              const struct bench_config *config, struct engine_options *out,
                              struct err *e);

// Says on standard error which run of a test begins; -1 is the warm-up.
void cli_bench_say_run(int32_t run, int32_t n);
// Says on standard error which machine's rates the planned times and the limits use, if they were
// not measured here.
void cli_bench_say_rates(const struct cli *cli, const struct machine *machine);

#endif
