/* cli_run.c: `tandem run`: goes on with a prompt. See commands.h. */
#include "runtime/commands/commands.h"

#include "base/mem.h"
#include "base/new_file.h"
#include "runtime/cli/cli_generate.h"
#include "runtime/report/report_json.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct run {
    struct cli_generator writer;
    struct token_list prompt;
    char *text; // of the prompt
    size_t text_bytes;
    struct new_file logits; // of --logits-out
    enum stop_reason reason;
};

static enum status encode_prompt(struct run *run, struct err *e) {
    const struct cli *cli = run->writer.cli;
    struct tokenizer_flags flags = {.add_special = true,
                                    .parse_special = !cli->options.no_parse_special};
    if (tokenizer_encode(engine_tokenizer(run->writer.engine), run->text, run->text_bytes, flags,
                         &run->prompt, e))
        return e->status;
    if (run->prompt.count) return OK;
    return err_set(e, ERR_USAGE, "no token of the model stands for this prompt");
}

// Finds out before the model is loaded whether a prompt without text is one: it is with models that
// begin texts with a token.
static enum status check_prompt(const struct run *run, const char *model, struct err *e) {
    struct gguf gguf = {0};
    struct tokenizer *tokenizer = NULL;
    enum status status = OK;
    if (run->text_bytes > 0) return OK;
    if (gguf_open(&gguf, model, e) || tokenizer_open(&tokenizer, &gguf, NULL, e))
        status = e->status;
    else if (!tokenizer_adds_bos(tokenizer))
        status = err_set(e, ERR_USAGE, "the prompt is empty");
    tokenizer_close(tokenizer);
    gguf_close(&gguf);
    return status;
}

static enum status write_logits(void *context, int32_t first, int32_t n, struct err *e) {
    struct run *run = context;
    const struct engine *engine = run->writer.engine;
    const size_t n_vocab = (size_t)engine_n_vocab(engine);
    (void)first;
    for (int32_t i = 0; i < n; i++)
        if (new_file_write(&run->logits, engine_logits(engine, i), n_vocab * sizeof(float), e))
            return e->status;
    return OK;
}

// Decodes the drawn tokens again, up to where printing ended: before a stop text.
static json_t *text_of_tokens(const struct run *run) {
    const struct generator *g = &run->writer.generator;
    size_t room = ((size_t)g->n_tokens + 1) * g->piece_bytes, used = 0;
    char *text = mem_alloc(room, 1);
    if (!text) return NULL;
    struct token_stream stream;
    token_stream_init(&stream, g->tokenizer, false);
    for (int32_t i = 0; i < g->n_tokens; i++)
        used += token_stream_push(&stream, g->tokens[i], text + used, room - used);
    used += token_stream_finish(&stream, text + used, room - used);
    ASSERT(run->writer.text_bytes <= used);
    json_t *value = report_json_text(text, run->writer.text_bytes);
    mem_free(text);
    return value;
}

static json_t *heap_report(const struct heap_mark *grown) {
    struct heap_totals totals;
    if (!heap_totals(&totals)) return json_null();
    return json_pack("{s:o, s:o, s:o, s:o}", "bytes_after_first_token",
                     report_json_count(grown->thread_bytes), "allocations_after_first_token",
                     report_json_count(grown->allocations), "allocated_bytes",
                     report_json_count(totals.allocated_bytes), "resident_bytes",
                     report_json_count(totals.resident_bytes));
}

// Adds the draft model's plan and memory, if there is one. False: no memory.
static bool add_draft_model(json_t *root, const struct engine *draft) {
    if (!draft) return true;
    struct memory_use use;
    report_memory_use(&use, draft);
    json_t *model = json_pack("{s:o, s:o, s:o}", "memory", report_json_memory(&use), "peak",
                              report_json_peaks(&use, &engine_plan(draft)->machine), "plan",
                              report_json_plan(engine_plan(draft), engine_shape(draft)));
    return json_object_set_new(root, "draft_model", model) == 0;
}

static enum status write_result(struct run *run, struct err *e) {
    const struct generator *g = &run->writer.generator;
    const struct engine *engine = run->writer.engine;
    const struct machine *machine = &engine_plan(engine)->machine;
    struct memory_use use;
    report_memory_use(&use, engine);
    json_t *ids = json_array();
    for (int32_t i = 0; i < g->n_tokens; i++)
        json_array_append_new(ids, json_integer(g->tokens[i]));
    json_t *root = json_pack(
        "{s:o, s:o, s:I, s:s, s:I, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "text",
        text_of_tokens(run), "tokens", ids, "prompt_tokens", (json_int_t)run->prompt.count, "stop",
        stop_reason_name(run->reason), "seed", (json_int_t)g->sampler.options.seed, "load_ms",
        (double)g->timings.load_ns / 1e6, "timings", report_json_timings(&g->timings), "predicted",
        report_json_predicted(&g->timings, machine), "memory", report_json_memory(&use), "peak",
        report_json_peaks(&use, machine), "heap", heap_report(&run->writer.grown), "usage",
        report_json_usage(engine_trace(engine), machine), "plan",
        report_json_plan(engine_plan(engine), engine_shape(engine)));
    if (root && !add_draft_model(root, run->writer.draft.engine))
        return json_decref(root), err_memory(e, 1, "the JSON result");
    if (root && run->writer.cli->options.echo &&
        json_object_set_new(root, "prompt", report_json_text(run->text, run->text_bytes)))
        return json_decref(root), err_memory(e, run->text_bytes, "the JSON result");
    return report_json_write(root, stdout, e);
}

static void print_end(const struct run *run) {
    const struct generator *g = &run->writer.generator;
    const struct cli_options *o = &run->writer.cli->options;
    cli_flush_output(run->writer.cli);
    run->writer.cli->interrupted = run->reason == STOP_CANCEL && !run->writer.cli->output_errno;
    if (o->quiet) return;
    if (run->reason == STOP_CONTEXT)
        fprintf(stderr, "tandem: the context of %d tokens is full. Use a larger -c for more\n",
                g->n_ctx);
    if (run->writer.cli->interrupted) fprintf(stderr, "tandem: stopped\n");
    if (o->verbose && g->sampler.options.temp > 0)
        fprintf(stderr, "tandem: seed %lld\n", (long long)g->sampler.options.seed);
    cli_generate_report(&run->writer);
}

// ---- The prompt cache ---------------------------------------------------------------------------

// Takes the state of an earlier prompt, if the file is there and not empty, and what this prompt
// begins with alike: *n_kept tokens of it.
static enum status load_cache(struct run *run, int32_t *n_kept, struct err *e) {
    struct generator *g = &run->writer.generator;
    const struct cli_options *o = &run->writer.cli->options;
    struct stat file;
    *n_kept = 0;
    if (!o->prompt_cache || stat(o->prompt_cache, &file) != 0) return OK;
    if (S_ISREG(file.st_mode) && file.st_size == 0) return OK;
    if (session_load(g->session, o->prompt_cache, e)) return err_context(e, "--prompt-cache");
    *n_kept = generate_keep_same(g, run->prompt.ids, (int32_t)run->prompt.count);
    if (!o->quiet)
        fprintf(stderr, "tandem: %d of the prompt's %d token%s from %s\n", *n_kept,
                (int)run->prompt.count, run->prompt.count == 1 ? " comes" : "s come",
                o->prompt_cache);
    return OK;
}

static enum status save_cache(const struct run *run, struct err *e) {
    const struct cli_options *o = &run->writer.cli->options;
    const struct generator *g = &run->writer.generator;
    if (!o->prompt_cache || o->prompt_cache_ro) return OK;
    const enum status status = session_save(g->session, g->pending, o->prompt_cache, e);
    return status ? err_context(e, "--prompt-cache") : OK;
}

// Reads what the cache does not have of the prompt, and keeps the new state.
static enum status read_prompt(struct run *run, struct err *e) {
    const struct logits_sink logits = {write_logits, run};
    int32_t n_kept;
    if (load_cache(run, &n_kept, e)) return e->status;
    const struct token_list rest = {.ids = run->prompt.ids + n_kept,
                                    .count = run->prompt.count - (uint64_t)n_kept};
    const bool wanted = run->writer.cli->options.logits_path != NULL;
    if (cli_generate_read(&run->writer, &rest, wanted ? &logits : NULL, e) ||
        (wanted && new_file_commit(&run->logits, e)))
        return e->status;
    return save_cache(run, e);
}

static enum status check_cache(const struct cli_options *o, struct err *e) {
    if (o->prompt_cache && o->logits_path) {
        err_set(e, ERR_USAGE, "--prompt-cache does not go with --logits-out");
        return err_fix(e, "leave one of them out: a kept prompt gives no logits");
    }
    if (o->prompt_cache || !(o->prompt_cache_all || o->prompt_cache_ro)) return OK;
    err_set(e, ERR_USAGE, "%s needs --prompt-cache",
            o->prompt_cache_all ? "--prompt-cache-all" : "--prompt-cache-ro");
    return err_fix(e, "name the file: --prompt-cache FILE");
}

// Finds out before the model is loaded, and a long prompt read, whether the file can be written.
static enum status check_cache_path(const struct cli_options *o, struct err *e) {
    if (!o->prompt_cache || o->prompt_cache_ro) return OK;
    return new_file_check(o->prompt_cache, e) ? err_context(e, "--prompt-cache") : OK;
}

static enum status generate(struct run *run, struct err *e) {
    const struct cli_options *o = &run->writer.cli->options;
    if (read_prompt(run, e)) return e->status;
    if (o->echo && !o->json) fwrite(run->text, 1, run->text_bytes, stdout);
    if (cli_generate_write(&run->writer, o->n_predict, o->json, &run->reason, e)) return e->status;
    if (o->prompt_cache_all && save_cache(run, e)) return e->status;
    if (!o->json && (o->n_predict != 0 || o->echo)) fputc('\n', stdout);
    print_end(run);
    return o->json ? write_result(run, e) : OK;
}

static enum status open_model(struct run *run, struct cli *cli, struct err *e) {
    const struct cli_texts texts = {.all_logits = cli->options.logits_path != NULL,
                                    .prompt = run->text,
                                    .prompt_bytes = run->text_bytes};
    return cli_generate_open(&run->writer, cli, &texts, e);
}

enum status cli_run(struct cli *cli, struct err *e) {
    const char *logits = cli->options.logits_path;
    struct run run = {0};
    enum status status = OK;
    // The file of the logits is begun before the model, so that a wrong path costs no time.
    if (check_cache(&cli->options, e) || check_cache_path(&cli->options, e) ||
        cli_check_trace(cli, e) || cli_read_text(cli, &run.text, &run.text_bytes, e) ||
        check_prompt(&run, cli->options.model, e) ||
        (logits && new_file_open_over(&run.logits, logits, e)) || open_model(&run, cli, e) ||
        encode_prompt(&run, e) || generate(&run, e))
        status = e->status;
    new_file_close(&run.logits);
    status = cli_write_trace(cli, run.writer.engine, status, e);
    cli_generate_close(&run.writer);
    token_list_close(&run.prompt);
    mem_free(run.text);
    return status;
}
