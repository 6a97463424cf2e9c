/* cli_bench.c: `tandem bench`: measures tokens per second. See cli_command.h. */
#include "runtime/cli_command.h"

enum status cli_bench(struct cli *cli, struct err *e) {
    if (cli->options.bench.list_devices) return cli_devices(cli, e);
    return err_set(e, ERR_UNSUPPORTED, "nothing can be measured yet");
}
