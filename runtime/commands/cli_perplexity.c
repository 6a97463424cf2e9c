/* cli_perplexity.c: `tandem perplexity`: measures how well a model predicts a text. See commands.h.
 *
 * The tokens are cut into windows of -c tokens, each computed by itself from position 0. Every
 * token of a window but its first is scored with -ln of the probability that the model gave it,
 * added up in double precision. A last window of one token is left out.
 */
#include "runtime/commands/commands.h"

#include "base/clock.h"
#include "base/mem.h"
#include "runtime/cli/cli_signal.h"
#include "runtime/generate/generate.h"
#include "runtime/report/report.h"
#include "runtime/report/report_json.h"

#include <inttypes.h>
#include <math.h>

enum { WINDOW = 512, UBATCH = 128 };

struct measurement {
    struct engine *engine;
    struct generator generator; // only reads
    struct token_list tokens;
    const int32_t *window; // the tokens of the window that is read
    char *text;
    size_t text_bytes;
    int32_t n_window;
    int64_t n_scored;
    double sum_nats;
    uint64_t duration_ns;
};

// -ln of the probability of token: ln of the sum of all exp(logit), minus its own logit.
static double nats(const float *logits, int32_t n_vocab, int32_t token) {
    float most = logits[0];
    for (int32_t i = 1; i < n_vocab; i++)
        if (logits[i] > most) most = logits[i];
    double sum = 0;
    for (int32_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - most);
    return log(sum) + most - logits[token];
}

// Scores n tokens of the window: for each, the logits against the token that follows it.
static enum status score(void *context, int32_t first, int32_t n, struct err *e) {
    struct measurement *m = context;
    for (int32_t i = 0; i < n; i++) {
        const int32_t next = m->window[first + i + 1];
        const double scored = nats(engine_logits(m->engine, i), engine_n_vocab(m->engine), next);
        if (!isfinite(scored))
            return err_set(e, ERR_DEVICE, "the logits after token %" PRId64 " are broken",
                           m->n_scored + i);
        m->sum_nats += scored;
    }
    m->n_scored += n;
    return OK;
}

// The last token of a window is only predicted.
static enum status score_window(struct measurement *m, const int32_t *ids, int32_t count,
                                struct err *e) {
    const struct logits_sink logits = {score, m};
    m->window = ids;
    generate_forget(&m->generator);
    return generate_read(&m->generator, ids, count - 1, &logits, e);
}

static enum status score_all(struct measurement *m, struct cli *cli, struct err *e) {
    const struct progress progress = cli_progress(cli);
    uint64_t start = clock_ns();
    for (uint64_t first = 0; first + 1 < m->tokens.count; first += (uint64_t)m->n_window) {
        uint64_t left = m->tokens.count - first;
        int32_t count = left < (uint64_t)m->n_window ? (int32_t)left : m->n_window;
        if (score_window(m, m->tokens.ids + first, count, e)) return e->status;
        if (!progress_tell(&progress, "measure", first + (uint64_t)count, m->tokens.count))
            return err_set(e, ERR_CANCELLED, "interrupted");
    }
    progress_bar_clear(&cli->bar);
    m->duration_ns = clock_ns() - start;
    return OK;
}

static enum status open_engine(struct measurement *m, struct cli *cli, struct err *e) {
    struct engine_options options;
    cli_engine_options(cli, &options);
    struct workload *w = &options.workload;
    if (!w->n_ctx) w->n_ctx = WINDOW;
    if (!w->n_ubatch) w->n_ubatch = w->n_ctx < UBATCH ? w->n_ctx : UBATCH;
    w->max_logits = w->n_ubatch;
    w->n_prompt = w->n_ctx; // nothing is generated
    w->n_gen = 1;
    if (engine_open(&m->engine, &options, e)) return e->status;
    progress_bar_clear(&cli->bar);
    m->n_window = engine_workload(m->engine)->n_ctx;
    if (!cli->options.quiet)
        report_print_plan(engine_plan(m->engine), engine_shape(m->engine), cli->options.verbose,
                          stderr);
    const struct generate_options reading = {.sampler = {.repeat_penalty = 1}};
    return generate_open(&m->generator, m->engine, &reading, e);
}

static enum status read_tokens(struct measurement *m, struct err *e) {
    const struct tokenizer *tokenizer = engine_tokenizer(m->engine);
    struct tokenizer_flags flags = {.add_special = true, .parse_special = false};
    if (tokenizer_encode(tokenizer, m->text, m->text_bytes, flags, &m->tokens, e)) return e->status;
    if (m->tokens.count >= 2 && m->n_window >= 2) return OK;
    err_set(e, ERR_USAGE, "there is nothing to score");
    err_expected(e, "a text and a window (-c) of at least 2 tokens");
    return err_actual(e, "%" PRIu64 " tokens, window %d", m->tokens.count, m->n_window);
}

static enum status write_result(const struct measurement *m, const struct cli *cli, struct err *e) {
    double mean = m->sum_nats / (double)m->n_scored;
    double speed = (double)m->n_scored * 1e9 / (double)m->duration_ns;
    if (cli->options.json)
        return report_json_write(
            json_pack("{s:I, s:f, s:f, s:f, s:i, s:o}", "tokens", (json_int_t)m->n_scored,
                      "mean_nats", mean, "perplexity", exp(mean), "tokens_per_second", speed,
                      "window", m->n_window, "usage",
                      report_json_usage(engine_trace(m->engine), &engine_plan(m->engine)->machine)),
            stdout, e);
    printf("%" PRId64 " tokens scored in windows of %d, %.6f nats each, perplexity %.4f\n",
           m->n_scored, m->n_window, mean, exp(mean));
    fflush(stdout);
    if (!cli->options.quiet) fprintf(stderr, "tandem: %.1f tokens/s\n", speed);
    cli_print_usage(cli, m->engine);
    return OK;
}

enum status cli_perplexity(struct cli *cli, struct err *e) {
    struct measurement m = {0};
    enum status status = OK;
    signal_watch();
    if (cli_check_trace(cli, e) || cli_read_text(cli, &m.text, &m.text_bytes, e) ||
        open_engine(&m, cli, e) || read_tokens(&m, e) || score_all(&m, cli, e) ||
        write_result(&m, cli, e))
        status = e->status;
    status = cli_write_trace(cli, m.engine, status, e);
    generate_close(&m.generator);
    engine_close(m.engine);
    token_list_close(&m.tokens);
    mem_free(m.text);
    return status;
}
