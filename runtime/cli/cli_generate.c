/* cli_generate.c: see cli_generate.h. */
#include "runtime/cli/cli_generate.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/number.h"
#include "runtime/cli/cli_sampling.h"
#include "runtime/cli/cli_signal.h"
#include "runtime/generate/reply_grammar.h"
#include "runtime/grammar/grammar.h"
#include "runtime/grammar/grammar_schema.h"
#include "runtime/host/plan_request.h"
#include "runtime/report/report.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ALL_LOGITS_UBATCH = 128, // keeps the rows of logits, which are long, few
    OUTPUT_BYTES = 1 << 16,
    GRAMMAR_BYTES = 4 << 20
};

#define WORTH_TELLING 1.1 // times as fast, for an option that is named unasked

// ---- Opening and closing ------------------------------------------------------------------------

static enum status open_engine(struct cli_generator *g, const struct cli_texts *texts,
                               uint64_t *load_ns, struct err *e) {
    const int32_t most = g->cli->options.n_predict;
    struct engine_options options;
    cli_engine_options(g->cli, &options);
    options.prompt = texts->prompt;
    options.prompt_bytes = texts->prompt_bytes;
    options.new_tokens = texts->prompt && most > 0 ? most : 0;
    if (texts->all_logits) {
        if (!options.workload.n_ubatch) options.workload.n_ubatch = ALL_LOGITS_UBATCH;
        options.workload.max_logits =
            max_i32(options.workload.max_logits, options.workload.n_ubatch);
    }
    const uint64_t start = clock_ns();
    if (cli_draft_open(&g->draft, g->cli, &options, e)) return e->status;
    const enum status status = engine_open(&g->engine, &options, e);
    progress_bar_clear(&g->cli->bar);
    *load_ns = clock_ns() - start;
    return status;
}

// Texts of an option; with -e they lie in copies.
struct read_list {
    struct text_list list;
    char *copies[TEXT_LIST]; // owned
};

static enum status read_texts(struct read_list *out, const struct text_list *given, bool escape,
                              struct err *e) {
    out->list = *given;
    for (int32_t i = 0; i < given->n && escape; i++) {
        const size_t length = strlen(given->texts[i]);
        out->copies[i] = mem_text(given->texts[i], length);
        if (!out->copies[i]) return err_memory(e, length, "the text of an option");
        cli_unescape(out->copies[i], length);
        out->list.texts[i] = out->copies[i];
    }
    return OK;
}

static void close_texts(struct read_list *texts) {
    for (int32_t i = 0; i < TEXT_LIST; i++) mem_free(texts->copies[i]);
}

// Reads text, or the file at path, if either is given. The caller frees *out.
static enum status read_either(const char *text, const char *path, char **out, struct err *e) {
    size_t length;
    if (path) return file_read_text(out, &length, path, GRAMMAR_BYTES, e);
    if (!text) return OK;
    *out = mem_text(text, strlen(text));
    return *out ? OK : err_memory(e, strlen(text), "the grammar");
}

// Makes the grammar of replies in a style, or, if style is NULL, of texts. The caller frees *out,
// which stays NULL if there is none.
static enum status make_grammar(char **out, const struct cli_generator *g,
                                const struct chat_style *style, const struct log *log,
                                struct err *e) {
    const struct reply_rules rules = {.grammar = g->grammar, .schema = g->schema};
    if (style) return reply_grammar(out, style, &rules, log, e);
    if (g->schema) return grammar_from_schema(out, g->schema, strlen(g->schema), log, e);
    return read_either(g->grammar, NULL, out, e);
}

// Drops the texts "none", which stand for no text at all.
static void drop_none(struct text_list *list) {
    int32_t kept = 0;
    for (int32_t i = 0; i < list->n; i++)
        if (strcmp(list->texts[i], "none") != 0) list->texts[kept++] = list->texts[i];
    list->n = kept;
}

// Opens the generator, or gives it other options if it is open.
static enum status set_generator(struct cli_generator *g, bool opens, struct err *e) {
    const struct cli_options *o = &g->cli->options;
    struct read_list stops = {0}, breakers = {0};
    char *grammar = NULL;
    enum status status = OK;
    if (make_grammar(&grammar, g, g->style, &g->cli->log, e) ||
        read_texts(&stops, &o->stops, o->escape, e) ||
        read_texts(&breakers, &o->dry_breakers, o->escape, e))
        status = e->status;
    drop_none(&breakers.list);
    struct generate_options options = {
        .sampler = o->sampling,
        .n_batch = o->n_batch,
        .ignore_end = o->ignore_end,
        .stops = stops.list.texts,
        .n_stops = stops.list.n,
        .dry_breakers = o->dry_breakers.n > 0 ? breakers.list.texts : NULL,
        .n_dry_breakers = breakers.list.n,
        .grammar = grammar,
        .grammar_root = g->style ? REPLY_ROOT : NULL,
        .style = g->style,
        .draft = cli_draft_guesses(&g->draft, o),
    };
    options.sampler.biases = o->biases;
    options.sampler.n_biases = o->n_biases;
    if (!status)
        status = opens ? generate_open(&g->generator, g->engine, &options, e)
                       : generate_set_options(&g->generator, &options, e);
    close_texts(&stops);
    close_texts(&breakers);
    mem_free(grammar);
    return status;
}

// Samples as the model's file says where no option does.
static enum status take_sampling(struct cli_generator *g, struct err *e) {
    char told[SAMPLING_CHARS];
    if (cli_take_sampling(&g->cli->options, engine_gguf(g->engine), told, e)) return e->status;
    if (told[0] && !g->cli->options.quiet)
        fprintf(stderr, "tandem: the model's file asks for %s. Options that are given count more\n",
                told);
    return OK;
}

// A plan file says how many rows of logits there is memory for.
static enum status check_drafts(const struct cli_generator *g, struct err *e) {
    const struct cli_options *o = &g->cli->options;
    const bool by_model = o->drafts == DRAFTS_MODEL;
    const int32_t rows = engine_workload(g->engine)->max_logits,
                  most = by_model ? o->draft_model.n_most : o->draft_size_m;
    if (o->drafts == DRAFTS_NONE || !o->plan_path || rows > most) return OK;
    err_set(e, ERR_USAGE, "--spec-type: rows of logits in the plan %s", o->plan_path);
    err_expected(e, "%d", most + 1);
    err_actual(e, "%d", rows);
    return err_fix(e, "make the plan with the same --spec-type and %s",
                   by_model ? "--spec-draft-n-max" : "--spec-ngram-simple-size-m");
}

// A draft is computed with the token before it in one micro-batch.
static void check_room_for_drafts(const struct cli_generator *g) {
    if (g->cli->options.drafts == DRAFTS_NONE || g->generator.n_most > 0) return;
    log_line(&g->cli->log, LOG_WARN,
             "no tokens are guessed: -ub %d leaves no room for them beside the one before",
             engine_workload(g->engine)->n_ubatch);
}

static enum status buffer_output(struct cli_generator *g, struct err *e) {
    g->output = mem_alloc(OUTPUT_BYTES, 1);
    if (!g->output) return err_memory(e, OUTPUT_BYTES, "standard output");
    setvbuf(stdout, g->output, _IOFBF, OUTPUT_BYTES);
    return OK;
}

// A cache of F16 may push weights off the GPU. The types stay as asked for, so that a text does not
// depend on free memory, but the way out is named.
static enum status tell_smaller_cache(const struct cli_generator *g, struct err *e) {
    const struct plan *plan = engine_plan(g->engine);
    const struct shape *shape = engine_shape(g->engine);
    struct engine_options options;
    double gain;
    char size[ERR_SIZE_CHARS];
    if (plan_layers_on_gpu(plan, shape) > shape->n_layers) return OK; // all of them, and the head
    cli_engine_options(g->cli, &options);
    if (g->draft.engine) options.constraints.ram_bytes = g->draft.ram_left;
    if (g->draft.engine) options.constraints.vram_bytes = g->draft.vram_left;
    if (plan_request_smaller_cache(plan, shape, &options, &gain, e)) return e->status;
    if (gain < WORTH_TELLING) return OK;
    uint64_t kv_bytes = 0;
    for (int32_t d = 0; d < plan->machine.n_devices; d++)
        kv_bytes += plan->devices[d].bytes[PLAN_KV];
    fprintf(stderr,
            "tandem: the KV cache takes %s, for which weights leave the GPU. With -ctk q8_0 -ctv "
            "q8_0 this would be about %.1f times as fast\n",
            err_size_needed(size, kv_bytes), gain);
    return OK;
}

static void tell_memory(const struct engine *engine) {
    struct memory_use use;
    report_memory_use(&use, engine);
    report_print_memory(&use, &engine_plan(engine)->machine, stderr);
}

// Says where both models are, with -v to the byte.
static enum status tell_plans(const struct cli_generator *g, struct err *e) {
    const struct engine *draft = g->draft.engine, *engine = g->engine;
    const bool verbose = g->cli->options.verbose;
    if (draft) report_print_draft_plan(engine_plan(draft), engine_shape(draft), stderr);
    if (draft && verbose) tell_memory(draft);
    report_print_plan(engine_plan(engine), engine_shape(engine), verbose, stderr);
    if (tell_smaller_cache(g, e)) return e->status;
    if (verbose) tell_memory(engine);
    return OK;
}

// Checks the grammar of texts, or of replies in a style, as far as it does not depend on the model.
static enum status check_grammar(const struct cli_generator *g, const struct chat_style *style,
                                 struct err *e) {
    const char *root = style ? REPLY_ROOT : "root";
    struct grammar parsed = {0};
    char *text = NULL;
    enum status status = OK;
    if (make_grammar(&text, g, style, NULL, e) ||
        (text && grammar_parse(&parsed, text, strlen(text), root, e)))
        status = e->status;
    grammar_close(&parsed);
    mem_free(text);
    return status;
}

// Reads the grammar and checks it, at first alone, for its lines to have their numbers. With a
// style this finds tools that the model has no known notation for.
static enum status read_grammar(struct cli_generator *g, struct err *e) {
    const struct cli_options *o = &g->cli->options;
    if (read_either(o->grammar, o->grammar_file, &g->grammar, e) ||
        read_either(o->schema, o->schema_file, &g->schema, e) || check_grammar(g, NULL, e))
        return e->status;
    return g->style ? check_grammar(g, g->style, e) : OK;
}

// Finds out without reading, which would empty a pipe, whether a text can be read from path.
static enum status check_text(const char *path, struct err *e) {
    struct stat found;
    if (!path || strcmp(path, "-") == 0) return OK;
    if (access(path, R_OK) != 0 || stat(path, &found) != 0) return err_errno(e, errno, "%s", path);
    return S_ISDIR(found.st_mode) ? err_errno(e, EISDIR, "%s", path) : OK;
}

// Finds out before a model is loaded, which may take minutes, whether the files are there that are
// read after it, whether the grammar is one, and whether the model can be given tools.
static enum status check_texts(struct cli_generator *g, struct err *e) {
    const struct cli_options *o = &g->cli->options;
    return check_text(o->file, e) || check_text(o->system_file, e) ? e->status : read_grammar(g, e);
}

enum status cli_generate_open(struct cli_generator *g, struct cli *cli,
                              const struct cli_texts *texts, struct err *e) {
    uint64_t load_ns = 0;
    *g = (struct cli_generator){.cli = cli, .style = texts->style};
    signal_watch();
    if (check_texts(g, e) || open_engine(g, texts, &load_ns, e) || check_drafts(g, e) ||
        cli_draft_start(&g->draft, cli, g->engine, e) || take_sampling(g, e) ||
        set_generator(g, true, e) || buffer_output(g, e))
        goto fail;
    g->generator.timings.load_ns = load_ns;
    check_room_for_drafts(g);
    heap_watch_init(&g->heap);
    if (!cli->options.quiet && tell_plans(g, e)) goto fail;
    return OK;
fail:
    cli_generate_close(g);
    return e->status;
}

enum status cli_generate_set_options(struct cli_generator *g, struct err *e) {
    return set_generator(g, false, e);
}

void cli_generate_close(struct cli_generator *g) {
    if (g->output) {
        cli_flush_output(g->cli);
        setvbuf(stdout, NULL, _IOFBF, BUFSIZ); // the buffer below goes away
    }
    generate_close(&g->generator);
    cli_draft_close(&g->draft);
    engine_close(g->engine);
    mem_free(g->output);
    mem_free(g->grammar);
    mem_free(g->schema);
    *g = (struct cli_generator){0};
}

// ---- Reading and writing ------------------------------------------------------------------------

enum status cli_generate_read(struct cli_generator *g, const struct token_list *tokens,
                              const struct logits_sink *logits, struct err *e) {
    ASSERT(tokens->count <= INT32_MAX);
    const enum status status =
        generate_read(&g->generator, tokens->ids, (int32_t)tokens->count, logits, e);
    progress_bar_clear(&g->cli->bar);
    return status;
}

static struct heap_mark heap_now(const struct cli_generator *g) {
    struct heap_totals totals;
    heap_totals(&totals);
    return (struct heap_mark){heap_thread_bytes(&g->heap), totals.allocations};
}

// Counts the text of one token, and marks the heap at the second one.
static bool take_text(void *context, const char *text, size_t length) {
    struct cli_generator *g = context;
    (void)text;
    g->text_bytes += length;
    if (++g->n_calls == 2) g->start = heap_now(g);
    return !signal_seen();
}

void cli_flush_output(struct cli *cli) {
    errno = 0;
    if (fflush(stdout) != 0 && cli->output_errno == 0) cli->output_errno = errno ? errno : EIO;
}

// Wants no more text once standard output has refused some.
static bool print_text(void *context, const char *text, size_t length) {
    struct cli_generator *g = context;
    if (length > 0) {
        if (g->print)
            g->print(g->print_context, text, length);
        else
            fwrite(text, 1, length, stdout);
        cli_flush_output(g->cli);
    }
    return take_text(context, text, length) && !g->cli->output_errno;
}

enum status cli_generate_write(struct cli_generator *g, int32_t limit, bool silent,
                               enum stop_reason *reason, struct err *e) {
    const struct text_sink sink = {silent ? take_text : print_text, g};
    g->text_bytes = 0;
    g->n_calls = 0;
    // A bar would erase the line of the text.
    g->cli->bar.hidden = true;
    const enum status status = generate_write(&g->generator, limit, &sink, reason, e);
    g->cli->bar.hidden = false;
    if (g->n_calls >= 2) {
        const struct heap_mark end = heap_now(g);
        g->grown.thread_bytes += end.thread_bytes - g->start.thread_bytes;
        g->grown.allocations += end.allocations - g->start.allocations;
    }
    if (status != OK && !silent && g->text_bytes > 0) fputc('\n', stdout);
    return status;
}

void cli_generate_end(struct cli_generator *g) {
    const struct text_sink sink = {print_text, g};
    generate_end(&g->generator, &sink);
}

void cli_generate_report(const struct cli_generator *g) {
    const struct plan *plan = engine_plan(g->engine);
    const struct machine *machine = &plan->machine;
    struct memory_use use;
    if (g->cli->options.quiet) return;
    report_print_speeds(&g->generator.timings, machine, stderr);
    report_print_drafts(&g->generator.timings, stderr);
    cli_draft_report(&g->draft);
    report_print_disk(&g->generator.timings, plan, stderr);
    if (!g->cli->options.verbose) return;
    report_memory_use(&use, g->engine);
    report_print_timings(&g->generator.timings, stderr);
    report_print_bytes(&use, stderr);
    report_print_predicted(&g->generator.timings, machine, stderr);
    cli_print_usage(g->cli, g->engine);
}
