/* cli.c: see cli.h. */
#include "runtime/cli.h"

#include "runtime/cli_command.h"

#include <errno.h>
#include <string.h>

#define VERSION "0.1.0"

static enum status run_command(struct cli *cli, struct err *e) {
    switch (cli->options.command) {
    case COMMAND_RUN: return cli_run(cli, e);
    case COMMAND_CHAT: return cli_chat(cli, e);
    case COMMAND_PLAN: return cli_plan(cli, e);
    case COMMAND_INSPECT: return cli_inspect(cli, e);
    case COMMAND_DEVICES: return cli_devices(cli, e);
    case COMMAND_TOKENIZE: return cli_tokenize(cli, e);
    case COMMAND_PERPLEXITY: return cli_perplexity(cli, e);
    case COMMAND_HELP:
        cli_options_help(cli->options.topic, cli->drivers, cli->n_drivers, stdout);
        return OK;
    case COMMAND_VERSION: puts("tandem " VERSION); return OK;
    case COMMAND_COUNT: break;
    }
    return OK;
}

static int exit_code(const struct cli *cli, enum status status) {
    if (status == OK) return 0;
    if (status == ERR_USAGE) return 2;
    return cli->options.strict && status == ERR_MEMORY ? 3 : 1;
}

static int fail(struct cli *cli, const struct err *e) {
    char text[1024];
    fflush(stdout);
    progress_clear(&cli->progress);
    err_text(e, text, sizeof text);
    bool lost = e->status == ERR_USAGE && !strstr(text, "'tandem help");
    fprintf(stderr, "tandem: error: %s%s\n", text, lost ? "; see 'tandem help'" : "");
    return exit_code(cli, e->status);
}

int cli_main(int argc, char **argv, const struct device_driver *drivers, int32_t n_drivers) {
    struct cli cli = {.drivers = drivers, .n_drivers = n_drivers};
    struct err e = {0};
    if (cli_options_parse(&cli.options, argc, argv, &e) != OK) return fail(&cli, &e);
    const struct cli_options *o = &cli.options;
    cli.log.out = stderr;
    cli.log.level = o->quiet ? LOG_QUIET : o->verbose ? LOG_DEBUG : LOG_WARN;
    progress_init(&cli.progress, stderr, !o->quiet);
    if (run_command(&cli, &e) != OK) return fail(&cli, &e);
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        err_errno(&e, errno ? errno : EIO, "standard output");
        return fail(&cli, &e);
    }
    return 0;
}
