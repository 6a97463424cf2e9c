/* cli_quantize.c: `tandem quantize`: writes a model with smaller types. See commands.h. */
#include "runtime/commands/commands.h"

#include "runtime/cli/cli_signal.h"
#include "runtime/quantize/quantize_file.h"
#include "runtime/report/report_json.h"

#include <string.h>

static enum status print_json(const struct cli_options *o, const struct quantize_result *r,
                              struct err *e) {
    json_t *file = o->dry_run ? json_null() : report_json_text(o->output, strlen(o->output));
    return report_json_write(json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "file", file,
                                       "parts", report_json_count(r->n_parts), "type", o->mixture,
                                       "source_bytes", report_json_count(r->source_bytes),
                                       "target_bytes", report_json_count(r->target_bytes),
                                       "tensors", report_json_count(r->n_tensors), "quantized",
                                       report_json_count(r->n_changed), "with_importance",
                                       report_json_count(r->n_important)),
                             stdout, e);
}

static void print_result(const struct cli_options *o, const struct quantize_result *r) {
    char source[ERR_SIZE_CHARS], target[ERR_SIZE_CHARS];
    fprintf(stderr, "%s: %s, from %s; %u of %u tensors quantised", o->output,
            err_size_needed(target, r->target_bytes), err_size_needed(source, r->source_bytes),
            r->n_changed, r->n_tensors);
    if (o->importance) fprintf(stderr, ", %u of them with importance", r->n_important);
    if (o->keep_split) fprintf(stderr, "; in %u part%s", r->n_parts, r->n_parts == 1 ? "" : "s");
    fputc('\n', stderr);
}

static void print_dry_run(const struct cli_options *o, const struct quantize_result *r) {
    char source[ERR_SIZE_CHARS], target[ERR_SIZE_CHARS];
    printf("%s would have %s, from %s; %u of %u tensors quantised", o->mixture,
           err_size_needed(target, r->target_bytes), err_size_needed(source, r->source_bytes),
           r->n_changed, r->n_tensors);
    if (o->importance) printf(", %u of them with importance", r->n_important);
    if (r->n_elements > 0)
        printf("; %.2f bits per weight", 8 * (double)r->target_bytes / (double)r->n_elements);
    putchar('\n');
}

static struct importance_choice chosen_importance(const struct cli_options *o) {
    const bool excludes = o->exclude_weights.n > 0;
    const struct text_list *list = excludes ? &o->exclude_weights : &o->include_weights;
    return (struct importance_choice){list->texts, list->n, excludes};
}

enum status cli_quantize(struct cli *cli, struct err *e) {
    const struct cli_options *o = &cli->options;
    struct quantize_options options = {.source = o->model,
                                       .target = o->dry_run ? NULL : o->output,
                                       .importance = o->importance,
                                       .important = chosen_importance(o),
                                       .types = {.output = o->output_type,
                                                 .embedding = o->embedding_type,
                                                 .named = o->tensor_types.texts,
                                                 .n_named = o->tensor_types.n,
                                                 .named_file = o->tensor_type_file,
                                                 .pure = o->pure,
                                                 .leave_output = o->leave_output},
                                       .overrides = o->key_overrides.texts,
                                       .n_overrides = o->key_overrides.n,
                                       .prune_layers = o->prune_layers,
                                       .keep_split = o->keep_split,
                                       .requantize = o->requantize,
                                       .n_threads = o->n_threads,
                                       .log = &cli->log,
                                       .progress = cli_progress(cli)};
    struct quantize_result result;
    if (mixture_find(&options.mixture, o->mixture, e)) return e->status;
    signal_watch();
    const enum status status = quantize_file(&options, &result, e);
    progress_bar_clear(&cli->bar);
    if (status) return status;
    if (o->json) return print_json(o, &result, e);
    if (o->dry_run)
        print_dry_run(o, &result);
    else if (!o->quiet)
        print_result(o, &result);
    return OK;
}
