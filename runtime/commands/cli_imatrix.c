/* cli_imatrix.c: `tandem imatrix`: measures how much each column of a model's matrices matters. See
 * commands.h.
 *
 * By the rule of llama-imatrix the tokens are cut into windows of -c tokens, each computed by
 * itself from position 0 and beginning with the token that begins texts; what fills no window is
 * left out. Logits of all tokens are asked for, since the last layer leaves out others. An
 * interrupted measurement leaves a file of the windows that were computed by then.
 */
#include "runtime/commands/commands.h"

#include "base/mem.h"
#include "base/new_file.h"
#include "runtime/cli/cli_signal.h"
#include "runtime/cli/cli_values.h"
#include "runtime/engine/input_sums.h"
#include "runtime/generate/generate.h"
#include "runtime/quantize/importance_write.h"
#include "runtime/report/report_json.h"

#include <inttypes.h>
#include <string.h>

enum { WINDOW = 512, UBATCH = 128 };

struct imatrix {
    struct engine *engine;
    struct generator generator; // only reads
    struct token_list tokens;
    char *text;
    size_t text_bytes;
    const char *path; // of the new file
    struct new_file file;
    int32_t n_window, n_windows, n_computed; // tokens of a window; windows
    struct importance_sums *list;            // owned, [n_matrices]: those that were used
    uint32_t n_matrices;
    uint64_t n_experts, n_unused; // matrices of experts, and those that no token went to
};

static enum status open_engine(struct imatrix *m, struct cli *cli, struct err *e) {
    struct engine_options options;
    cli_engine_options(cli, &options);
    struct workload *w = &options.workload;
    options.device_spec = "none";
    options.no_counting = true;
    if (!w->n_ctx) w->n_ctx = WINDOW;
    if (!w->n_ubatch) w->n_ubatch = w->n_ctx < UBATCH ? w->n_ctx : UBATCH;
    w->max_logits = w->n_ubatch;
    w->n_prompt = w->n_ctx; // nothing is generated
    w->n_gen = 1;
    if (engine_open(&m->engine, &options, e) || engine_sum_inputs(m->engine, e)) return e->status;
    progress_bar_clear(&cli->bar);
    m->n_window = engine_workload(m->engine)->n_ctx;
    const struct generate_options reading = {.sampler = {.repeat_penalty = 1}};
    return generate_open(&m->generator, m->engine, &reading, e);
}

static enum status read_tokens(struct imatrix *m, const struct cli_options *o, struct err *e) {
    const struct tokenizer_flags flags = {.add_special = true, .parse_special = false};
    if (tokenizer_encode(engine_tokenizer(m->engine), m->text, m->text_bytes, flags, &m->tokens, e))
        return e->status;
    const uint64_t most = m->tokens.count / (uint64_t)m->n_window;
    m->n_windows = most < INT32_MAX ? (int32_t)most : INT32_MAX;
    if (o->n_windows >= 0 && o->n_windows < m->n_windows) m->n_windows = o->n_windows;
    if (m->n_windows > 0) return OK;
    err_set(e, ERR_USAGE, "the text fills no window (-c)");
    err_expected(e, "at least %d tokens", m->n_window);
    err_actual(e, "%" PRIu64, m->tokens.count);
    return err_fix(e, "give a longer text: some hundred windows measure well");
}

static enum status ignore_logits(void *context, int32_t first, int32_t n, struct err *e) {
    (void)context;
    (void)first;
    (void)n;
    (void)e;
    return OK;
}

static enum status compute_windows(struct imatrix *m, struct cli *cli, struct err *e) {
    const struct tokenizer *tokenizer = engine_tokenizer(m->engine);
    const struct progress progress = cli_progress(cli);
    const struct logits_sink logits = {ignore_logits, NULL};
    const int32_t bos = tokenizer_adds_bos(tokenizer) ? tokenizer_bos(tokenizer) : -1;
    for (int32_t w = 0; w < m->n_windows; w++) {
        int32_t *window = m->tokens.ids + (int64_t)w * m->n_window;
        if (bos >= 0) window[0] = bos;
        generate_forget(&m->generator);
        if (generate_read(&m->generator, window, m->n_window, &logits, e)) return e->status;
        m->n_computed++;
        if (!progress_tell(&progress, "measure", (uint64_t)w + 1, (uint64_t)m->n_windows))
            return err_set(e, ERR_CANCELLED, "interrupted");
    }
    progress_bar_clear(&cli->bar);
    return OK;
}

// Adds a matrix to the list, unless it was never used.
static void add_matrix(struct imatrix *m, const struct input_sum *sum) {
    const uint64_t n_counts = sum->by_expert ? sum->n_matrices : 1;
    uint64_t n_used = 0;
    for (uint64_t i = 0; i < n_counts; i++) n_used += sum->counts[i] > 0;
    if (n_used == 0) return;
    m->list[m->n_matrices++] =
        (struct importance_sums){.name = sum->tensor->name,
                                 .sums = sum->sums,
                                 .counts = sum->counts,
                                 .n_columns = sum->n_columns * sum->n_matrices / n_counts,
                                 .n_counts = n_counts};
    if (!sum->by_expert) return;
    m->n_experts += n_counts;
    m->n_unused += n_counts - n_used;
}

static enum status write_file(struct imatrix *m, const struct cli_options *o, struct err *e) {
    const struct input_sums *sums = engine_input_sums(m->engine);
    const uint32_t n = input_sums_count(sums);
    m->list = mem_alloc(n, sizeof *m->list);
    if (!m->list) return err_memory(e, n * sizeof *m->list, "the list of matrices");
    for (uint32_t i = 0; i < n; i++) add_matrix(m, input_sums_at(sums, i));
    const struct importance_file file = {.list = m->list,
                                         .n = m->n_matrices,
                                         .dataset = o->file,
                                         .n_chunks = (uint32_t)m->n_computed,
                                         .chunk_tokens = (uint32_t)m->n_window};
    if (importance_write(&m->file, &file, e)) return e->status;
    return new_file_commit(&m->file, e);
}

// Computes all windows and writes the file, with fewer windows if it is interrupted. Matrices may
// have met a part of one more then: each has its own count of tokens.
static enum status measure(struct imatrix *m, struct cli *cli, struct err *e) {
    const struct cli_options *o = &cli->options;
    if (compute_windows(m, cli, e) == OK) return write_file(m, o, e);
    if (e->status != ERR_CANCELLED) return e->status;
    if (m->n_computed == 0) return err_set(e, ERR_CANCELLED, "interrupted; no file is left");
    if (write_file(m, o, e)) return e->status;
    return err_set(e, ERR_CANCELLED, "interrupted; %s has the inputs of %d of %d windows", m->path,
                   m->n_computed, m->n_windows);
}

static enum status print_result(const struct imatrix *m, const struct cli_options *o,
                                struct err *e) {
    if (o->json)
        return report_json_write(json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "file",
                                           report_json_text(m->path, strlen(m->path)), "windows",
                                           report_json_count((uint64_t)m->n_windows), "window",
                                           report_json_count((uint64_t)m->n_window), "matrices",
                                           report_json_count(m->n_matrices), "expert_matrices",
                                           report_json_count(m->n_experts),
                                           "expert_matrices_unused",
                                           report_json_count(m->n_unused)),
                                 stdout, e);
    if (o->quiet) return OK;
    fprintf(stderr, "%s: the inputs of %u matri%s, by %d window%s of %d tokens", m->path,
            m->n_matrices, m->n_matrices == 1 ? "x" : "ces", m->n_windows,
            m->n_windows == 1 ? "" : "s", m->n_window);
    if (m->n_unused > 0)
        fprintf(stderr,
                "; %" PRIu64 " of %" PRIu64 " matrices of experts were never used, which a longer "
                "text may change",
                m->n_unused, m->n_experts);
    fputc('\n', stderr);
    return OK;
}

static enum status check_options(const struct cli_options *o, struct err *e) {
    return o->n_windows ? OK : cli_value_bad(e, "--chunks", "at least 1, or -1 for all", "0");
}

enum status cli_imatrix(struct cli *cli, struct err *e) {
    const struct cli_options *o = &cli->options;
    struct imatrix m = {.path = o->output ? o->output : "imatrix.gguf"};
    enum status status = OK;
    signal_watch();
    if (check_options(o, e) || new_file_open(&m.file, m.path, e) ||
        cli_read_text(cli, &m.text, &m.text_bytes, e) || open_engine(&m, cli, e) ||
        read_tokens(&m, o, e) || measure(&m, cli, e) || print_result(&m, o, e))
        status = e->status;
    new_file_close(&m.file);
    generate_close(&m.generator);
    engine_close(m.engine);
    token_list_close(&m.tokens);
    mem_free(m.list);
    mem_free(m.text);
    return status;
}
