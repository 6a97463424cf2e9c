/* commands.h: the commands of the command line, one file each.
 *
 * cli_NAME is `tandem NAME` (inspect is show too): it prints its result on standard output and
 * returns its first failure. `tandem bench` is in runtime/measure/cli_bench.h. Owns nothing. One
 * thread. Tested by tests/cli/cli_*.sh.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_COMMANDS_H
#define TANDEM_RUNTIME_COMMANDS_COMMANDS_H

#include "runtime/cli/cli_command.h"

enum status cli_run(struct cli *cli, struct err *e);
enum status cli_chat(struct cli *cli, struct err *e);
enum status cli_plan(struct cli *cli, struct err *e);
enum status cli_inspect(struct cli *cli, struct err *e);
enum status cli_devices(struct cli *cli, struct err *e);
enum status cli_calibrate(struct cli *cli, struct err *e);
enum status cli_doctor(struct cli *cli, struct err *e);
enum status cli_tokenize(struct cli *cli, struct err *e);
enum status cli_perplexity(struct cli *cli, struct err *e);
enum status cli_quantize(struct cli *cli, struct err *e);
enum status cli_imatrix(struct cli *cli, struct err *e);
enum status cli_pull(struct cli *cli, struct err *e);
enum status cli_list(struct cli *cli, struct err *e);
enum status cli_rm(struct cli *cli, struct err *e);

#endif
