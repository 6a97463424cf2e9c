/* cli_generate.c: see cli_generate.h. */
#include "runtime/cli/cli_generate.h"

#include "base/clock.h"
#include "base/mem.h"
#include "runtime/cli/cli_signal.h"

#include <errno.h>
#include <string.h>

enum { ALL_LOGITS_UBATCH = 128 }; // keeps the rows of logits, which are long, few

const char *stop_reason_name(enum stop_reason reason) {
    static const char *const names[] = {"eos", "limit", "context", "interrupt"};
    return names[reason];
}

// ---- Opening and closing ------------------------------------------------------------------------

static enum status open_engine(struct generator *g, bool all_logits, struct err *e) {
    struct engine_options options;
    cli_engine_options(g->cli, &options);
    if (all_logits) {
        if (!options.workload.n_ubatch) options.workload.n_ubatch = ALL_LOGITS_UBATCH;
        options.workload.max_logits = options.workload.n_ubatch;
    }
    uint64_t start = clock_ns();
    enum status status = engine_open(&g->engine, &options, e);
    progress_bar_clear(&g->cli->bar);
    g->timings.load_ns = clock_ns() - start;
    if (status != OK) return status;
    return session_new(&g->session, g->engine, e);
}

static enum status make_buffers(struct generator *g, bool all_logits, struct err *e) {
    const struct workload *w = engine_workload(g->engine);
    int32_t most = all_logits ? w->max_logits : g->cli->options.n_batch;
    g->n_ctx = w->n_ctx;
    g->n_batch = most < w->n_ctx ? most : w->n_ctx;
    // The longest text: what the stream holds back, and one piece.
    g->piece_bytes = sizeof(struct token_stream) + tokenizer_longest(g->tokenizer) + 16;
    g->items = mem_alloc((size_t)g->n_batch, sizeof *g->items);
    g->tokens = mem_alloc((size_t)g->n_ctx + 1, sizeof *g->tokens);
    g->piece = mem_alloc(g->piece_bytes, 1);
    g->output = mem_alloc(OUTPUT_BYTES, 1);
    if (!g->items || !g->tokens || !g->piece || !g->output)
        return err_memory(e, (size_t)g->n_ctx * sizeof *g->tokens, "the text to come");
    setvbuf(stdout, g->output, _IOFBF, OUTPUT_BYTES);
    return OK;
}

static enum status open_sampler(struct generator *g, struct err *e) {
    const struct cli_options *o = &g->cli->options;
    struct sampler_options options = {
        .temp = o->temp,
        .top_k = o->top_k,
        .top_p = o->top_p,
        .min_p = o->min_p,
        .repeat_penalty = o->repeat_penalty,
        .repeat_last_n = o->repeat_last_n,
        .seed = o->seed,
    };
    return sampler_init(&g->sampler, &options, engine_n_vocab(g->engine), g->n_ctx, e);
}

enum status generator_open(struct generator *g, struct cli *cli, bool all_logits, struct err *e) {
    *g = (struct generator){.cli = cli};
    signal_watch();
    if (open_engine(g, all_logits, e) != OK) goto fail;
    g->tokenizer = engine_tokenizer(g->engine);
    if (make_buffers(g, all_logits, e) != OK) goto fail;
    if (open_sampler(g, e) != OK) goto fail;
    heap_watch_init(&g->heap);
    if (!cli->options.quiet)
        report_print_plan(engine_plan(g->engine), engine_shape(g->engine), stderr);
    if (cli->options.verbose) report_print_memory(g->engine, stderr);
    return OK;
fail:
    generator_close(g);
    return e->status;
}

void generator_close(struct generator *g) {
    if (g->output) {
        fflush(stdout);
        setvbuf(stdout, NULL, _IOFBF, BUFSIZ); // the buffer below goes away
    }
    session_free(g->session);
    engine_close(g->engine);
    sampler_close(&g->sampler);
    mem_free(g->items);
    mem_free(g->tokens);
    mem_free(g->piece);
    mem_free(g->output);
    *g = (struct generator){0};
}

// ---- The prompt ---------------------------------------------------------------------------------

static enum status write_logits(struct generator *g, int32_t n_rows, FILE *out, struct err *e) {
    size_t n_vocab = (size_t)engine_n_vocab(g->engine);
    for (int32_t i = 0; i < n_rows; i++)
        if (fwrite(engine_logits(g->engine, i), sizeof(float), n_vocab, out) != n_vocab)
            return err_errno(e, errno, "%s", g->cli->options.logits_path);
    return OK;
}

static enum status check_room(const struct generator *g, int32_t n, struct err *e) {
    int32_t room = g->n_ctx - session_length(g->session);
    if (n <= room) return OK;
    err_set(e, ERR_LIMIT, "the prompt does not fit into the context of %d positions", g->n_ctx);
    err_expected(e, "at most %d tokens", room);
    err_actual(e, "%d", n);
    return err_fix(e, "use a longer context: -c %d", session_length(g->session) + n + 1);
}

enum status generator_read(struct generator *g, const int32_t *ids, int32_t n, FILE *logits,
                           struct err *e) {
    ASSERT(n > 0);
    if (check_room(g, n, e) != OK) return e->status;
    int32_t before = session_length(g->session);
    uint64_t start = clock_ns();
    for (int32_t first = 0, count; first < n; first += count) {
        count = n - first < g->n_batch ? n - first : g->n_batch;
        timings_predict_prompt(&g->timings, engine_plan(g->engine), engine_shape(g->engine),
                               session_length(g->session), count,
                               logits ? count : first + count == n);
        for (int32_t i = 0; i < count; i++) {
            bool wanted = logits || first + i == n - 1;
            g->items[i] = (struct batch_item){g->session, ids[first + i], wanted};
        }
        if (engine_eval(g->engine, g->items, count, e) != OK ||
            (logits && write_logits(g, count, logits, e) != OK)) {
            session_truncate(g->session, before);
            return e->status;
        }
        g->prompt_row = logits ? count - 1 : 0;
    }
    progress_bar_clear(&g->cli->bar);
    g->timings.prompt_ns += clock_ns() - start;
    g->timings.prompt_tokens += n;
    for (int32_t i = 0; i < n; i++) sampler_accept(&g->sampler, ids[i]);
    return OK;
}

// ---- The answer ---------------------------------------------------------------------------------

static void print_piece(struct generator *g, size_t length) {
    fwrite(g->piece, 1, length, stdout);
    fflush(stdout);
}

// Why no further token is drawn after n of them, or false.
static bool stops_here(const struct generator *g, int32_t limit, enum stop_reason *reason) {
    if (limit >= 0 && g->n_tokens >= limit)
        *reason = STOP_LIMIT;
    else if (session_length(g->session) >= g->n_ctx)
        *reason = STOP_CONTEXT;
    else if (signal_seen())
        *reason = STOP_INTERRUPT;
    else
        return false;
    return true;
}

// The counters of the heap at the moment.
struct heap_mark {
    uint64_t thread_bytes, allocations;
};

static struct heap_mark heap_now(const struct generator *g) {
    struct heap_totals totals;
    heap_totals(&totals);
    return (struct heap_mark){heap_thread_bytes(&g->heap), totals.allocations};
}

static enum status decode(struct generator *g, int32_t limit, struct token_stream *stream,
                          enum stop_reason *reason, struct err *e) {
    int64_t steps = 0;
    struct heap_mark start = {0, 0};
    for (int32_t row = g->prompt_row, token;; row = 0) {
        if (sampler_draw(&g->sampler, engine_logits(g->engine, row), &token, e)) return e->status;
        sampler_accept(&g->sampler, token);
        g->timings.new_tokens++;
        if (!g->cli->options.ignore_end && tokenizer_is_end(g->tokenizer, token)) {
            *reason = STOP_END;
            break;
        }
        g->tokens[g->n_tokens++] = token;
        if (stream) print_piece(g, token_stream_push(stream, token, g->piece, g->piece_bytes));
        if (stops_here(g, limit, reason)) break;
        const struct batch_item item = {g->session, token, true};
        if (engine_eval(g->engine, &item, 1, e)) return e->status;
        if (steps++ == 0) start = heap_now(g);
    }
    if (steps > 0) {
        struct heap_mark end = heap_now(g);
        g->heap_bytes += end.thread_bytes - start.thread_bytes;
        g->heap_allocations += end.allocations - start.allocations;
    }
    g->timings.decode_steps += steps;
    timings_predict_decode(&g->timings, engine_plan(g->engine), engine_shape(g->engine),
                           session_length(g->session), steps);
    return OK;
}

enum status generator_write(struct generator *g, int32_t limit, bool silent,
                            enum stop_reason *reason, struct err *e) {
    struct token_stream stream;
    token_stream_init(&stream, g->tokenizer, false);
    g->n_tokens = 0;
    *reason = STOP_LIMIT;
    if (limit == 0) return OK;
    uint64_t start = clock_ns();
    enum status status = decode(g, limit, silent ? NULL : &stream, reason, e);
    if (!silent) print_piece(g, token_stream_finish(&stream, g->piece, g->piece_bytes));
    g->timings.decode_ns += clock_ns() - start;
    return status;
}
