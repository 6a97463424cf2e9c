/* cli_bench_common.c: see cli_bench_common.h. */
#include "runtime/measure/cli_bench_common.h"

#include "runtime/cli/cli_signal.h"

#include <string.h>

static enum status add_writer(struct bench_writers *w, const char *option, const char *format,
                              FILE *out, struct err *e) {
    struct bench_writer *writer = &w->all[w->n++];
    writer->out = out;
    if (bench_output_parse(format, &writer->format)) return OK;
    err_set(e, ERR_USAGE, "option %s", option);
    err_expected(e, "md, csv, json, jsonl or sql");
    return err_actual(e, "'%s'", format);
}

enum status bench_writers_init(struct bench_writers *w, const struct cli_options *o,
                               const char *table, struct err *e) {
    const struct bench_options *b = &o->bench;
    *w = (struct bench_writers){0};
    if (o->json && b->output) return err_set(e, ERR_USAGE, "--json and -o exclude each other");
    if (add_writer(w, "-o",
                   b->output ? b->output
                   : o->json ? "json"
                             : "md",
                   stdout, e) ||
        (b->output_err && add_writer(w, "-oe", b->output_err, stderr, e)))
        return e->status;
    for (int32_t i = 0; i < w->n; i++) w->all[i].table = table;
    return OK;
}

void bench_writers_columns(struct bench_writers *w, const struct bench_column *columns, int32_t n) {
    for (int32_t i = 0; i < w->n; i++) {
        w->all[i].columns = columns;
        w->all[i].n_columns = n;
    }
}

enum status bench_writers_row(struct bench_writers *w, const struct bench_record *record,
                              struct err *e) {
    for (int32_t i = 0; i < w->n; i++)
        if (bench_writer_row(&w->all[i], record, e)) return e->status;
    return OK;
}

enum status bench_writers_end(struct bench_writers *w, enum status status, struct err *e) {
    for (int32_t i = 0; i < w->n; i++) {
        struct err own = {0};
        if (!bench_writer_end(&w->all[i], &own) || status) continue;
        *e = own;
        status = own.status;
    }
    return status;
}

// Loading draws a bar; nothing is drawn while the clock runs.
static bool on_progress(void *context, const char *what, uint64_t done, uint64_t total) {
    struct cli *cli = context;
    if (strcmp(what, "load") == 0) progress_bar_show(&cli->bar, what, done, total);
    return !signal_seen();
}

enum status cli_bench_options(struct cli *cli, const struct bench_matrix *matrix,
                              const struct bench_config *config, struct engine_options *out,
                              struct err *e) {
    const int32_t needed = bench_matrix_context(matrix), given = cli->options.n_ctx;
    const bool kv_auto = config->kv_type_k == KV_TYPE_AUTO;
    struct workload *w = &out->workload;
    if (given && given < needed) {
        err_set(e, ERR_USAGE, "option -c");
        err_expected(e, "at least %d positions, for the longest test", needed);
        return err_actual(e, "%d", given);
    }
    cli_engine_options(cli, out);
    out->model_path = config->model;
    out->cpu.n_threads = config->n_threads;
    out->tensor_overrides = config->overrides.patterns;
    out->constraints.gpu_layers = config->gpu_layers;
    out->constraints.vram_bytes = config->vram_bytes;
    out->constraints.strategy = config->strategy;
    out->constraints.kv_auto = kv_auto;
    out->progress.tell = on_progress;
    *w = (struct workload){.n_ctx = given ? given : needed, .n_ubatch = config->n_ubatch};
    w->kv_type_k = kv_auto ? DTYPE_F16 : config->kv_type_k;
    w->kv_type_v = kv_auto ? DTYPE_F16 : config->kv_type_v;
    w->n_prompt = w->n_gen = 1;
    for (int32_t i = 0; i < matrix->n_tests; i++) {
        const struct bench_test *t = &matrix->tests[i];
        if (t->n_prompt > w->n_prompt) w->n_prompt = t->n_prompt;
        if (t->n_gen > w->n_gen) w->n_gen = t->n_gen;
    }
    return OK;
}

void cli_bench_say_run(int32_t run, int32_t n) {
    if (run < 0)
        fputs("warm-up\n", stderr);
    else
        fprintf(stderr, "run %d of %d\n", run + 1, n);
}

void cli_bench_say_rates(const struct cli *cli, const struct machine *machine) {
    if (cli->options.quiet || machine->rates == RATES_MEASURED) return;
    if (machine->rates == RATES_NONE)
        fprintf(stderr,
                "tandem: the speeds of this machine are unknown, so there is no planned speed\n");
    else
        fprintf(stderr,
                "tandem: planned speed and limit are by the speeds of %s; 'tandem calibrate' "
                "measures this machine's\n",
                machine->rates_name);
}
