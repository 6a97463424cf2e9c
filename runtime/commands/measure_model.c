/* measure_model.c: see measure_model.h. */
#include "runtime/commands/measure_model.h"

#include "runtime/cli/cli_signal.h"
#include "runtime/report/report.h"

// Opens the engine, and says where the model is.
static enum status open_engine(const struct measure_steps *steps, void *context, struct cli *cli,
                               struct engine **out, struct err *e) {
    struct engine_options options;
    cli_engine_options(cli, &options);
    steps->size(context, &options.workload);
    if (engine_open(out, &options, e)) return e->status;
    progress_bar_clear(&cli->bar);
    if (!cli->options.quiet)
        report_print_plan(engine_plan(*out), engine_shape(*out), cli->options.verbose, stderr);
    return OK;
}

enum status measure_model(const struct measure_steps *steps, void *context, struct cli *cli,
                          struct err *e) {
    struct engine *engine = NULL;
    enum status status = OK;
    signal_watch();
    if (cli_check_trace(cli, e) || steps->read(context, cli, e) ||
        open_engine(steps, context, cli, &engine, e) || steps->measure(context, cli, engine, e))
        status = e->status;
    progress_bar_clear(&cli->bar);
    if (!status) status = steps->write(context, cli, e);
    status = cli_write_trace(cli, engine, status, e);
    steps->close(context);
    engine_close(engine);
    return status;
}
