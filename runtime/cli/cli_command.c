/* cli_command.c: see cli_command.h. */
#include "runtime/cli/cli_command.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/new_file.h"
#include "runtime/cli/cli_signal.h"
#include "runtime/report/trace_write.h"

#include <string.h>

enum {
    TEXT_LIMIT_BYTES = 256 << 20,
    // A pass of a large model has some hundred steps.
    FILE_SPANS = 1 << 20, // --trace
    USAGE_SPANS = 1 << 17 // -v alone: in a long run its figures cover the first passes
};

static bool computes(const struct cli_options *o) {
    return o->command == COMMAND_RUN || o->command == COMMAND_CHAT ||
           (o->command == COMMAND_BENCH && !o->bench.list_devices);
}

static bool on_progress(void *context, const char *what, uint64_t done, uint64_t total) {
    struct cli *cli = context;
    progress_bar_show(&cli->bar, what, done, total);
    if (!signal_seen()) return true;
    // Ctrl-C skips a measurement that nobody asked for, and nothing else.
    if (strcmp(what, "calibrate") == 0 && computes(&cli->options)) signal_watch();
    return false;
}

struct progress cli_progress(struct cli *cli) {
    return (struct progress){on_progress, cli};
}

static int32_t trace_spans(const struct cli_options *o) {
    if (o->trace_path) return FILE_SPANS;
    // A benchmark measures without the events that a trace needs, unless it asks for them itself.
    return o->verbose && o->command != COMMAND_BENCH ? USAGE_SPANS : 0;
}

enum status cli_join_overrides(struct cli *cli, struct err *e) {
    const struct text_list *list = &cli->options.tensor_overrides;
    size_t size_bytes = 0, used = 0;
    for (int32_t i = 0; i < list->n; i++) size_bytes += strlen(list->texts[i]) + 1;
    if (!list->n) return OK;
    cli->tensor_overrides = mem_alloc(size_bytes, 1);
    if (!cli->tensor_overrides) return err_memory(e, size_bytes, "the -ot patterns");
    for (int32_t i = 0; i < list->n; i++) {
        const size_t length = strlen(list->texts[i]);
        if (i) cli->tensor_overrides[used++] = ',';
        memcpy(cli->tensor_overrides + used, list->texts[i], length + 1);
        used += length;
    }
    return OK;
}

// Rows of logits that drafts take; 0: the default.
static int32_t draft_rows(const struct cli_options *o) {
    if (o->drafts == DRAFTS_NGRAM) return o->draft_size_m + 1;
    return o->drafts == DRAFTS_MODEL ? o->draft_model.n_most + 1 : 0;
}

void cli_engine_options(struct cli *cli, struct engine_options *out) {
    const struct cli_options *o = &cli->options;
    const bool kv_auto = o->kv_type_k == KV_TYPE_AUTO;
    *out = (struct engine_options){
        .model_path = o->model,
        .device_spec = o->device,
        .drivers = cli->drivers,
        .n_drivers = cli->n_drivers,
        .cpu = {o->isa, o->n_threads, o->n_threads_batch, o->no_bind},
        .workload = {.n_ctx = o->n_ctx,
                     .n_ubatch = o->n_ubatch,
                     .kv_type_k = kv_auto ? DTYPE_F16 : o->kv_type_k,
                     .kv_type_v = kv_auto ? DTYPE_F16 : o->kv_type_v,
                     .n_prompt = o->n_prompt,
                     .n_gen = o->n_gen,
                     .max_logits = draft_rows(o),
                     .full_windows = o->full_windows},
        .constraints = {.gpu_layers = o->gpu_layers,
                        .vram_bytes = o->vram_bytes,
                        .ram_bytes = o->ram_bytes,
                        .cpu_experts = o->cpu_experts ? CPU_EXPERTS_ALL : o->n_cpu_experts,
                        .kv_auto = kv_auto,
                        .strategy = o->strategy,
                        .place = {.feed = o->feed}},
        .tensor_overrides = cli->tensor_overrides,
        .cpu_cache = o->cpu_cache,
        .plan_path = o->plan_path,
        .cache_path = cli->cache_path,
        // Commands that compute no tokens, such as plan, take the rates that are known.
        .calibrate = cli->may_calibrate && computes(o),
        .measured = &cli->measured,
        .allow_paging = o->allow_paging,
        .lock_memory = o->lock_memory,
        .strict = o->strict,
        .trace_spans = trace_spans(o),
        .wait_limit_s = (double)o->wait_limit_s,
        .log = &cli->log,
        .progress = cli_progress(cli),
    };
}

void cli_draft_options(struct cli *cli, struct engine_options *out) {
    const struct cli_options *o = &cli->options;
    const struct draft_model_options *d = &o->draft_model;
    const bool kv_auto = d->kv_type_k == KV_TYPE_AUTO;
    cli_engine_options(cli, out);
    out->model_path = d->path;
    if (d->n_threads) out->cpu.n_threads = d->n_threads;
    if (d->n_threads_batch) out->cpu.n_threads_batch = d->n_threads_batch;
    out->workload = (struct workload){.kv_type_k = kv_auto ? DTYPE_F16 : d->kv_type_k,
                                      .kv_type_v = kv_auto ? DTYPE_F16 : d->kv_type_v,
                                      .n_prompt = o->n_prompt,
                                      .n_gen = o->n_gen};
    out->constraints = (struct constraints){.gpu_layers = d->gpu_layers,
                                            .vram_bytes = o->vram_bytes,
                                            .ram_bytes = o->ram_bytes,
                                            .kv_auto = kv_auto};
    out->tensor_overrides = out->plan_path = NULL;
    out->cpu_cache = out->allow_paging = false;
    out->trace_spans = 0;
}

enum status cli_check_trace(const struct cli *cli, struct err *e) {
    const char *path = cli->options.trace_path;
    return path ? new_file_check(path, e) : OK;
}

enum status cli_write_trace(const struct cli *cli, const struct engine *engine, enum status status,
                            struct err *e) {
    const char *path = cli->options.trace_path;
    const struct trace *trace = engine ? engine_trace(engine) : NULL;
    struct err failure = {0};
    if (!path || !trace ||
        trace_write(trace, engine_plan(engine), engine_shape(engine), path, &failure) == OK)
        return status;
    if (status != OK) {
        log_line(&cli->log, LOG_WARN, "no trace: %s", failure.what);
        return status;
    }
    *e = failure;
    return e->status;
}

void cli_print_usage(const struct cli *cli, const struct engine *engine) {
    const struct trace *trace = engine_trace(engine);
    if (cli->options.verbose && trace) trace_print(trace, engine_plan(engine), stderr);
}

size_t cli_unescape(char *text, size_t length) {
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
    if (!o->prompt) {
        const char *path = o->from_stdin ? "-" : o->file;
        if (file_read_text(text, length, path, TEXT_LIMIT_BYTES, e)) return e->status;
        // An editor ends the last line of a file, which is not meant as part of the prompt.
        if (o->command == COMMAND_RUN && *length > 0 && (*text)[*length - 1] == '\n') --*length;
        return OK;
    }
    *length = strlen(o->prompt);
    *text = mem_text(o->prompt, *length);
    if (!*text) return err_memory(e, *length, "the prompt");
    if (o->escape) *length = cli_unescape(*text, *length);
    return OK;
}
