/* cli.c: see cli.h. */
#include "runtime/cli.h"

#include "base/file.h"
#include "base/mem.h"
#include "runtime/cli_signal.h"

#include <errno.h>
#include <string.h>

#define VERSION "0.1.0"

enum { TEXT_LIMIT_BYTES = 256 << 20 };

static bool on_progress(void *context, const char *what, uint64_t done, uint64_t total) {
    struct cli *cli = context;
    progress_show(&cli->progress, what, done, total);
    return !signal_seen();
}

void cli_engine_options(struct cli *cli, struct engine_options *out) {
    const struct cli_options *o = &cli->options;
    *out = (struct engine_options){
        .model_path = o->model,
        .device_spec = o->device,
        .drivers = cli->drivers,
        .n_drivers = cli->n_drivers,
        .cpu = {o->isa, o->n_threads, o->n_threads_batch, o->no_bind},
        .workload = {.n_ctx = o->n_ctx,
                     .n_ubatch = o->n_ubatch,
                     .kv_type_k = o->kv_type_k,
                     .kv_type_v = o->kv_type_v},
        .constraints = {.gpu_layers = o->gpu_layers,
                        .vram_bytes = o->vram_bytes,
                        .ram_bytes = o->ram_bytes},
        .log = &cli->log,
        .progress = on_progress,
        .progress_context = cli,
    };
}

// Turns \n and its like into what they mean, in place; returns the new length. An unknown one stays
// as it is.
static size_t unescape(char *text, size_t length) {
    static const char from[] = "nrt\\\"'", to[] = "\n\r\t\\\"'";
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        const char *known =
            text[i] == '\\' && i + 1 < length && text[i + 1] ? strchr(from, text[i + 1]) : NULL;
        text[used++] = known ? to[known - from] : text[i];
        if (known) i++;
    }
    text[used] = 0;
    return used;
}

enum status cli_read_text(const struct cli *cli, char **text, size_t *length, struct err *e) {
    const struct cli_options *o = &cli->options;
    if (!o->prompt)
        return file_read_text(text, length, o->from_stdin ? "-" : o->file, TEXT_LIMIT_BYTES, e);
    *length = strlen(o->prompt);
    *text = mem_text(o->prompt, *length);
    if (!*text) return err_memory(e, *length, "the prompt");
    if (o->escape) *length = unescape(*text, *length);
    return OK;
}

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
