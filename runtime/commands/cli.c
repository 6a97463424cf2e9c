/* cli.c: see cli.h. */
#include "runtime/commands/cli.h"

#include "base/mem.h"
#include "runtime/cli/cli_generate.h"
#include "runtime/cli/cli_help.h"
#include "runtime/cli/cli_models.h"
#include "runtime/cli/cli_pages.h"
#include "runtime/commands/commands.h"
#include "runtime/measure/cli_bench.h"
#include "runtime/tandem.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static enum status write_page(const char *name, struct err *e) {
    if (cli_page_write(name, stdout)) return OK;
    err_set(e, ERR_USAGE, "there is no page %s", name);
    return err_fix(e, "take --man, --bash, --zsh or --fish");
}

static enum status write_output(struct cli *cli, struct err *e) {
    cli_flush_output(cli);
    if (cli->output_errno || ferror(stdout))
        return err_errno(e, cli->output_errno ? cli->output_errno : EIO, "standard output");
    return OK;
}

static enum status run_command(struct cli *cli, struct err *e) {
    switch (cli->options.command) {
    case COMMAND_RUN: return cli_run(cli, e);
    case COMMAND_CHAT: return cli_chat(cli, e);
    case COMMAND_PLAN: return cli_plan(cli, e);
    case COMMAND_BENCH:
        return cli->options.bench.list_devices ? cli_devices(cli, e) : cli_bench(cli, e);
    case COMMAND_INSPECT: return cli_inspect(cli, e);
    case COMMAND_DEVICES: return cli_devices(cli, e);
    case COMMAND_CALIBRATE: return cli_calibrate(cli, e);
    case COMMAND_DOCTOR: return cli_doctor(cli, e);
    case COMMAND_TOKENIZE: return cli_tokenize(cli, e);
    case COMMAND_PERPLEXITY: return cli_perplexity(cli, e);
    case COMMAND_QUANTIZE: return cli_quantize(cli, e);
    case COMMAND_IMATRIX: return cli_imatrix(cli, e);
    case COMMAND_PULL: return cli_pull(cli, e);
    case COMMAND_LIST: return cli_list(cli, e);
    case COMMAND_SHOW: return cli_inspect(cli, e);
    case COMMAND_RM: return cli_rm(cli, e);
    case COMMAND_HELP:
        if (cli->options.page) return write_page(cli->options.page, e);
        cli_help(cli->options.topic, cli->drivers, cli->n_drivers, stdout);
        return OK;
    case COMMAND_VERSION: puts("tandem " TANDEM_VERSION); return OK;
    case COMMAND_COUNT: break;
    }
    return OK;
}

enum { EXIT_INTERRUPTED = 128 + 2 }; // as of a program that SIGINT ends: loops of a shell end too

static int exit_code(const struct cli *cli, enum status status) {
    if (status == ERR_CANCELLED) return EXIT_INTERRUPTED;
    if (status == OK) return 0;
    if (status == ERR_USAGE) return 2;
    return cli->options.strict && status == ERR_MEMORY ? 3 : 1;
}

// Prints the second line of an error: what the person can do, and where the help is.
static void print_way_out(const struct cli *cli, const struct err *e) {
    const bool helps = e->status == ERR_USAGE && !strstr(e->fix, "'tandem help");
    const enum command command = cli->options.command;
    if (!e->fix[0] && !helps) return;
    fputs("  ", stderr);
    if (e->fix[0]) {
        const bool ended = strchr(".?", e->fix[strlen(e->fix) - 1]);
        fprintf(stderr, "%c%s%s", toupper((unsigned char)e->fix[0]), e->fix + 1, ended ? "" : ".");
    }
    if (helps)
        fprintf(stderr, "%sSee 'tandem help%s%s'.", e->fix[0] ? " " : "",
                command < COMMAND_HELP ? " " : "",
                command < COMMAND_HELP ? command_name(command) : "");
    fputc('\n', stderr);
}

static void print_error(struct cli *cli, const struct err *e) {
    char text[1024];
    fprintf(stderr, "tandem: error: %s\n", err_sentence(e, text, sizeof text));
    print_way_out(cli, e);
}

static int fail(struct cli *cli, const struct err *e) {
    fflush(stdout);
    progress_bar_clear(&cli->bar);
    print_error(cli, e);
    if (cli->screen >= 0 && dup2(cli->screen, STDERR_FILENO) >= 0) print_error(cli, e);
    return exit_code(cli, e->status);
}

// Sends to the file of --log-file what goes to standard error from here on.
static enum status open_log(struct cli *cli, struct err *e) {
    const char *path = cli->options.log_path;
    if (!path) return OK;
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) return err_errno(e, errno, "%s", path);
    cli->screen = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    const bool taken = dup2(file, STDERR_FILENO) >= 0;
    const int failure = errno;
    close(file);
    return taken ? OK : err_errno(e, failure, "%s", path);
}

// Lines for people are written unbuffered and unchecked; here a log that lacks some is an error.
static enum status check_log(const struct cli *cli, struct err *e) {
    const char *path = cli->options.log_path;
    if (!path || !ferror(stderr)) return OK;
    err_set(e, ERR_FILE, "%s: lines of the log are missing, because they could not be written",
            path);
    return err_fix(e, "make room on its disk, or give --log-file another name");
}

// base/tandem, where base by the rules of XDG is an absolute path, else ~/other/tandem; NULL
// without a home.
static const char *own_folder(char out[PATH_MAX], const char *base, const char *home,
                              const char *other) {
    int length = 0;
    if (base && base[0] == '/')
        length = snprintf(out, PATH_MAX, "%s/tandem", base);
    else if (home && home[0] == '/')
        length = snprintf(out, PATH_MAX, "%s/%s/tandem", home, other);
    return length > 0 && length < PATH_MAX ? out : NULL;
}

// Takes the places of standard streams that are closed, so that no file of ours gets one and with
// it the text of that stream. Reading and writing there still fail as if it were closed.
static void hold_standard_streams(void) {
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++)
        if (fcntl(stream, F_GETFD) < 0)
            (void)open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int cli_main(int argc, char **argv, const struct cli_environment *environment) {
    char cache[PATH_MAX], state[PATH_MAX];
    const char *home = environment->home;
    const char *calibrate = environment->calibrate;
    struct cli cli = {
        .drivers = environment->drivers,
        .n_drivers = environment->n_drivers,
        .cache_path = own_folder(cache, environment->cache_home, home, ".cache"),
        .state_path = own_folder(state, environment->state_home, home, ".local/state"),
        .screen = -1,
        .may_calibrate = !calibrate || strcmp(calibrate, "never") != 0,
    };
    const char *terminal = cli_variable(environment->variables, "TERM");
    struct err e = {0};
    cli.dumb = terminal && strcmp(terminal, "dumb") == 0;
    hold_standard_streams();
    if (cli_options_parse(&cli.options, argc, argv, environment->variables, &e) != OK)
        return fail(&cli, &e);
    const struct cli_options *o = &cli.options;
    cli.log.out = stderr;
    cli.log.level = o->quiet ? LOG_QUIET : o->verbose ? LOG_DEBUG : LOG_WARN;
    if (open_log(&cli, &e)) return fail(&cli, &e);
    progress_bar_init(&cli.bar, stderr, !o->quiet && !cli.dumb);
    for (int32_t i = 0; i < o->n_ignored; i++)
        log_line(&cli.log, LOG_NOTE, "%s has no effect: %s", o->ignored[i]->names[0],
                 o->ignored[i]->reason);
    cli_models_open(&cli, environment->variables);
    const bool failed = cli_join_overrides(&cli, &e) || cli_models_take(&cli, &e) ||
                        run_command(&cli, &e) || write_output(&cli, &e) || check_log(&cli, &e);
    cli_models_close(&cli);
    mem_free(cli.tensor_overrides);
    if (failed) return fail(&cli, &e);
    return cli.interrupted ? EXIT_INTERRUPTED : 0;
}
