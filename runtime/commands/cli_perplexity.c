/* cli_perplexity.c: `tandem perplexity`: measures how well a model predicts a text. See commands.h.
 *
 * The tokens are cut into windows of -c tokens, each computed by itself from position 0. Every
 * token of a window but its first is scored with -ln of the probability that the model gave it,
 * added up in double precision. A last window of one token is left out. By the rule of
 * llama-perplexity (--second-half) a window begins with the token that begins texts, only tokens
 * behind its middle are scored, and a last window that is not full is left out; its files of
 * probabilities (logits_file.h) are for that rule. With a stride windows overlap, and what is new
 * in a window is scored (take_strides). Tasks with choices are left to choice_score.h.
 */
#include "runtime/commands/commands.h"

#include "base/clock.h"
#include "base/mem.h"
#include "runtime/cli/cli_generate.h"
#include "runtime/cli/cli_values.h"
#include "runtime/commands/choice_score.h"
#include "runtime/commands/divergence.h"
#include "runtime/commands/measure_model.h"
#include "runtime/commands/token_nats.h"
#include "runtime/generate/generate.h"
#include "runtime/report/report_json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { WINDOW = 512, UBATCH = 128 };

struct measurement {
    struct engine *engine;      // borrowed
    struct generator generator; // only reads
    struct token_list tokens;
    const int32_t *window; // the tokens of the window that is read
    char *text;
    size_t text_bytes;
    int32_t n_window;
    int32_t first_scored; // position in a window whose next token is the first to be scored
    int64_t n_windows;    // asked for, then those that there are
    int32_t step;         // tokens between the beginnings of windows
    uint64_t duration_ns;
    int64_t n_measured; // windows that are scored; fewer than n_windows after Ctrl-C
    int64_t n_scored;   // tokens
    double sum_nats, sum_squares;

    int32_t *begun;              // owned: a window with its first token replaced; NULL: none is
    struct logits_writer writer; // of --kl-divergence-base
    struct logits_file base;     // of --kl-divergence
    struct divergence divergence;
};

// Scores the token behind position, whose logits are in row i.
static enum status score_one(struct measurement *m, int32_t i, int32_t position, struct err *e) {
    const int32_t next = m->window[position + 1], n_vocab = engine_n_vocab(m->engine);
    const float *logits = engine_logits(m->engine, i);
    const double scored = token_nats(logits, n_vocab, next);
    if (!isfinite(scored))
        return err_set(e, ERR_DEVICE, "the logits of token %" PRId64 " are broken", m->n_scored);
    if (m->writer.row && logits_writer_add(&m->writer, logits, e)) return e->status;
    if (m->base.tokens) {
        struct logits_row base;
        if (logits_file_row(&m->base, m->n_scored, &base, e)) return e->status;
        divergence_add(&m->divergence, logits, n_vocab, &base, next, scored);
    }
    m->sum_nats += scored;
    m->sum_squares += scored * scored;
    m->n_scored++;
    return OK;
}

// Takes the logits of n positions of the window.
static enum status score(void *context, int32_t first, int32_t n, struct err *e) {
    struct measurement *m = context;
    for (int32_t i = 0; i < n; i++)
        if (first + i >= m->first_scored && score_one(m, i, first + i, e)) return e->status;
    return OK;
}

// The last token of a window is only predicted.
static enum status score_window(struct measurement *m, const int32_t *ids, int32_t count,
                                struct err *e) {
    const struct logits_sink logits = {score, m};
    if (m->begun) {
        memcpy(m->begun + 1, ids + 1, ((size_t)count - 1) * sizeof *ids);
        ids = m->begun;
    }
    m->window = ids;
    generate_forget(&m->generator);
    return generate_read(&m->generator, ids, count - 1, &logits, e);
}

// Forgets what the window that did not come to its end has added.
static void forget_window(struct measurement *m, const struct measurement *before) {
    m->n_scored = before->n_scored;
    m->sum_nats = before->sum_nats;
    m->sum_squares = before->sum_squares;
    m->divergence = before->divergence;
}

// Scores the windows until Ctrl-C comes, and counts them.
static enum status score_windows(struct measurement *m, struct cli *cli, struct err *e) {
    const struct progress progress = cli_progress(cli);
    const uint64_t size = (uint64_t)m->n_window, step = (uint64_t)m->step;
    const uint64_t most = ((uint64_t)m->n_windows - 1) * step + size;
    const uint64_t end = most < m->tokens.count ? most : m->tokens.count;
    const int64_t there = (int64_t)((end - 2) / step + 1);
    if (m->n_windows > there) m->n_windows = there;
    for (bool goes_on = true; goes_on && m->n_measured < m->n_windows; m->n_measured++) {
        const uint64_t first = (uint64_t)m->n_measured * step;
        const int32_t count = (int32_t)(end - first < size ? end - first : size);
        const struct measurement before = *m;
        const enum status status = score_window(m, m->tokens.ids + first, count, e);
        if (status) forget_window(m, &before);
        if (status) return status == ERR_CANCELLED ? OK : status;
        goes_on = progress_tell(&progress, "measure", first + (uint64_t)count, end);
    }
    return OK;
}

static enum status score_all(struct measurement *m, struct cli *cli, struct err *e) {
    const uint64_t start = clock_ns();
    if (score_windows(m, cli, e)) return e->status;
    m->duration_ns = clock_ns() - start;
    cli->interrupted = m->n_measured < m->n_windows;
    if (m->n_measured == 0) return err_set(e, ERR_CANCELLED, "interrupted; no window is scored");
    return m->writer.row && !cli->interrupted ? logits_writer_commit(&m->writer, e) : OK;
}

static void size(const void *context, struct workload *w) {
    const struct measurement *m = context;
    if (m->base.tokens) w->n_ctx = m->base.shape.n_window;
    if (!w->n_ctx) w->n_ctx = WINDOW;
    if (!w->n_ubatch) w->n_ubatch = w->n_ctx < UBATCH ? w->n_ctx : UBATCH;
    w->max_logits = w->n_ubatch;
    w->n_prompt = w->n_ctx; // nothing is generated
    w->n_gen = 1;
}

static enum status nothing_to_score(const struct measurement *m, int32_t least, struct err *e) {
    err_set(e, ERR_USAGE, "there is nothing to score");
    err_expected(e, "a text and a window (-c) of at least %d tokens", least);
    return err_actual(e, "%" PRIu64 " token%s, window %d", m->tokens.count,
                      m->tokens.count == 1 ? "" : "s", m->n_window);
}

// Prepares windows by the rule of llama-perplexity.
static enum status take_second_halves(struct measurement *m, struct err *e) {
    const struct tokenizer *tokenizer = engine_tokenizer(m->engine);
    const int32_t bos = tokenizer_bos(tokenizer);
    if (m->n_window < 4 || m->tokens.count < (uint64_t)m->n_window)
        return nothing_to_score(m, m->n_window < 4 ? 4 : m->n_window, e);
    m->first_scored = m->n_window / 2;
    const int64_t full = (int64_t)(m->tokens.count / (uint64_t)m->n_window);
    if (m->n_windows > full) m->n_windows = full;
    if (bos < 0 || !tokenizer_adds_bos(tokenizer)) return OK;
    m->begun = mem_alloc((size_t)m->n_window, sizeof *m->begun);
    if (!m->begun) return err_memory(e, (size_t)m->n_window * sizeof *m->begun, "a window");
    m->begun[0] = bos;
    return OK;
}

// Prepares windows that overlap by the rule of llama-perplexity: each is full, and at least one
// token is behind it. The last stride tokens of each are scored, behind at least one other.
static enum status take_strides(struct measurement *m, int32_t stride, struct err *e) {
    const uint64_t window = (uint64_t)m->n_window;
    if (stride >= m->n_window) {
        err_set(e, ERR_USAGE, "--ppl-stride is as long as a window (-c)");
        err_expected(e, "at most %d", m->n_window - 1);
        return err_actual(e, "%d", stride);
    }
    if (m->tokens.count <= window) return nothing_to_score(m, m->n_window + 1, e);
    m->step = stride;
    m->first_scored = m->n_window - stride - 1;
    const int64_t full = (int64_t)((m->tokens.count - window - 1) / (uint64_t)stride + 1);
    if (m->n_windows > full) m->n_windows = full;
    return OK;
}

static enum status read_tokens(struct measurement *m, const struct cli_options *o, struct err *e) {
    const struct tokenizer *tokenizer = engine_tokenizer(m->engine);
    const struct logits_file *base = &m->base;
    struct tokenizer_flags flags = {.add_special = true, .parse_special = false};
    for (int64_t i = 0; base->tokens && i < (int64_t)base->shape.n_windows * m->n_window; i++)
        if (token_list_push(&m->tokens, base->tokens[i], e)) return e->status;
    if (!base->tokens && tokenizer_encode(tokenizer, m->text, m->text_bytes, flags, &m->tokens, e))
        return e->status;
    if (m->tokens.count < 2 || m->n_window < 2) return nothing_to_score(m, 2, e);
    m->n_windows = o->n_windows < 0 ? INT32_MAX : o->n_windows;
    m->step = m->n_window;
    if (o->stride) return take_strides(m, o->stride, e);
    return o->second_half || o->logits_base ? take_second_halves(m, e) : OK;
}

// Checks the file of --kl-divergence against the model, or begins that of --kl-divergence-base.
static enum status open_files(struct measurement *m, const struct cli_options *o, struct err *e) {
    const int32_t n_vocab = engine_n_vocab(m->engine);
    const struct logits_shape shape = {m->n_window, n_vocab, (int32_t)m->n_windows};
    if (!o->logits_base) return OK;
    if (!m->base.tokens)
        return logits_writer_open(&m->writer, o->logits_base, &shape, m->tokens.ids, e);
    if (m->base.shape.n_vocab != n_vocab) {
        err_set(e, ERR_FORMAT, "%s: is of a model with another vocabulary", o->logits_base);
        err_expected(e, "%d tokens", n_vocab);
        return err_actual(e, "%d", m->base.shape.n_vocab);
    }
    for (uint64_t i = 0; i < m->tokens.count; i++)
        if (m->tokens.ids[i] < 0 || m->tokens.ids[i] >= n_vocab)
            return err_set(e, ERR_FORMAT, "%s: holds tokens that there are not", o->logits_base);
    return divergence_open(&m->divergence, m->n_windows * logits_file_scored(&shape), e);
}

static enum status measure(void *context, struct cli *cli, struct engine *engine, struct err *e) {
    static const struct generate_options reading = {.sampler = {.repeat_penalty = 1}};
    struct measurement *m = context;
    m->engine = engine;
    m->n_window = engine_workload(engine)->n_ctx;
    if (generate_open(&m->generator, engine, &reading, e) || read_tokens(m, &cli->options, e) ||
        open_files(m, &cli->options, e))
        return e->status;
    return score_all(m, cli, e);
}

// ---- What comes out -----------------------------------------------------------------------------

static json_t *estimate_report(const struct estimate *v) {
    return json_pack("{s:f, s:f}", "value", v->value, "error", v->error);
}

static json_t *divergence_report(const struct divergence_result *r) {
    return json_pack("{s:o, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:f}", "mean",
                     estimate_report(&r->mean), "median", r->median, "p90", r->p90, "p99", r->p99,
                     "p99_9", r->p999, "most", r->most, "probability_rms", estimate_report(&r->gap),
                     "same_best", estimate_report(&r->same_best), "log_perplexity_ratio",
                     estimate_report(&r->ratio), "base_perplexity", exp(r->base_nats.value));
}

static void print_divergence(const struct divergence_result *r) {
    printf("the other model: perplexity %.4f; ln(perplexity ratio) %.6f +- %.6f\n"
           "KL divergence %.6f +- %.6f nats; median %.6f, 90 %% %.6f, 99 %% %.6f, 99.9 %% %.6f, "
           "most %.6f\n"
           "probability of the next token: RMS of the difference %.3f +- %.3f %%\n"
           "same best token: %.3f +- %.3f %%\n",
           exp(r->base_nats.value), r->ratio.value, r->ratio.error, r->mean.value, r->mean.error,
           r->median, r->p90, r->p99, r->p999, r->most, 100 * r->gap.value, 100 * r->gap.error,
           100 * r->same_best.value, 100 * r->same_best.error);
}

// True by the rule of llama-perplexity without a stride.
static bool is_second_half(const struct measurement *m) {
    return m->first_scored > 0 && m->step == m->n_window;
}

static enum status write_result(void *context, struct cli *cli, struct err *e) {
    struct measurement *m = context;
    const struct estimate scored = divergence_mean(m->sum_nats, m->sum_squares, m->n_scored);
    const double mean = scored.value;
    struct divergence_result result;
    if (m->base.tokens) divergence_result(&m->divergence, m->sum_nats, m->sum_squares, &result);
    double speed = (double)m->n_scored * 1e9 / (double)m->duration_ns;
    if (cli->options.json)
        return report_json_write(
            json_pack("{s:I, s:I, s:I, s:b, s:f, s:f, s:f, s:f, s:i, s:i, s:b, s:o, s:o}", "tokens",
                      (json_int_t)m->n_scored, "windows", (json_int_t)m->n_measured,
                      "windows_asked", (json_int_t)m->n_windows, "stopped", cli->interrupted,
                      "mean_nats", mean, "error_nats", scored.error, "perplexity", exp(mean),
                      "tokens_per_second", speed, "window", m->n_window, "stride", m->step,
                      "second_half", is_second_half(m), "divergence",
                      m->base.tokens ? divergence_report(&result) : json_null(), "usage",
                      report_json_usage(engine_trace(m->engine), &engine_plan(m->engine)->machine)),
            stdout, e);
    printf("%" PRId64 " token%s scored in ", m->n_scored, m->n_scored == 1 ? "" : "s");
    if (m->step < m->n_window) printf("the last %d of ", m->step);
    printf("%s of %d, %.6f nats each, perplexity %.4f +- %.4f",
           is_second_half(m) ? "second halves of windows" : "windows", m->n_window, mean, exp(mean),
           exp(mean) * scored.error);
    if (cli->interrupted)
        printf("; stopped after %" PRId64 " of %" PRId64 " windows", m->n_measured, m->n_windows);
    putchar('\n');
    if (m->base.tokens) print_divergence(&result);
    cli_flush_output(cli);
    if (cli->interrupted && m->writer.row)
        log_line(&cli->log, LOG_WARN, "%s is not written: it is to have all windows",
                 cli->options.logits_base);
    if (!cli->options.quiet) fprintf(stderr, "tandem: %.1f tokens/s\n", speed);
    cli_print_usage(cli, m->engine);
    return OK;
}

static enum status open_text(void *context, const struct cli *cli, struct err *e) {
    const struct cli_options *o = &cli->options;
    struct measurement *m = context;
    if (!o->n_windows) return cli_value_bad(e, "--chunks", "at least 1, or -1 for all", "0");
    if (o->kl_divergence) return logits_file_open(&m->base, o->logits_base, e);
    if (cli_read_text(cli, &m->text, &m->text_bytes, e)) return e->status;
    if (m->text_bytes > 0) return OK;
    return err_set(e, ERR_USAGE, "%s: there is nothing to score", o->file);
}

static void close_all(void *context) {
    struct measurement *m = context;
    generate_close(&m->generator);
    token_list_close(&m->tokens);
    logits_writer_close(&m->writer);
    logits_file_close(&m->base);
    divergence_close(&m->divergence);
    mem_free(m->begun);
    mem_free(m->text);
}

enum status cli_perplexity(struct cli *cli, struct err *e) {
    static const struct measure_steps steps = {open_text, size, measure, write_result, close_all};
    struct measurement m = {0};
    if (choice_score_wanted(&cli->options)) return choice_score(cli, e);
    return measure_model(&steps, &m, cli, e);
}
