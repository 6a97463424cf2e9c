/* bench_measure.c: see bench_measure.h. */
#include "runtime/measure/bench_measure.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"
#include "runtime/text/tokenizer.h"

#include <math.h>
#include <stdlib.h>

static uint64_t clock_of_machine(void *context) {
    (void)context;
    return clock_ns();
}

enum status bench_engine_open(struct bench_engine *b, const struct engine_options *options,
                              int32_t n_batch, struct err *e) {
    struct engine_options own = *options;
    own.no_counting = true;
    *b = (struct bench_engine){.now_ns = clock_of_machine};
    if (engine_open(&b->engine, &own, e)) return e->status;
    const int32_t n_ctx = engine_workload(b->engine)->n_ctx;
    b->n_batch = n_batch < n_ctx ? n_batch : n_ctx;
    b->items = mem_alloc((size_t)b->n_batch, sizeof *b->items);
    if (!b->items) {
        err_memory(e, (size_t)b->n_batch * sizeof *b->items, "a batch");
        goto fail;
    }
    if (session_new(&b->session, b->engine, e)) goto fail;
    return OK;
fail:
    bench_engine_close(b);
    return e->status;
}

void bench_engine_close(struct bench_engine *b) {
    session_free(b->session);
    engine_close(b->engine);
    mem_free(b->items);
    *b = (struct bench_engine){0};
}

int32_t bench_token(int32_t position, int32_t n_known) {
    ASSERT(n_known >= 1);
    // Source: Steele, Lea, Flood 2014, SplitMix64.
    uint64_t x = ((uint64_t)position + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return n_known < 2 ? 0 : 1 + (int32_t)(x % (uint64_t)(n_known - 1));
}

static struct batch_item next_item(const struct bench_engine *b, int32_t ahead) {
    const int32_t n_known = (int32_t)tokenizer_count(engine_tokenizer(b->engine));
    const int32_t token = bench_token(session_length(b->session) + ahead, n_known);
    return (struct batch_item){b->session, token, false};
}

enum status bench_engine_prompt(struct bench_engine *b, int32_t n, struct err *e) {
    for (int32_t done = 0, count; done < n; done += count) {
        count = n - done < b->n_batch ? n - done : b->n_batch;
        for (int32_t i = 0; i < count; i++) b->items[i] = next_item(b, i);
        b->items[count - 1].want_logits = true;
        if (engine_eval(b->engine, b->items, count, e)) return e->status;
    }
    return OK;
}

// Evaluates the next n tokens one by one.
static enum status generate(struct bench_engine *b, int32_t n, struct err *e) {
    for (int32_t i = 0; i < n; i++) {
        struct batch_item item = next_item(b, 0);
        item.want_logits = true;
        if (engine_eval(b->engine, &item, 1, e)) return e->status;
    }
    return OK;
}

// Makes the session n positions long: forgets later positions, computes missing ones.
static enum status fill(struct bench_engine *b, int32_t n, struct err *e) {
    const int32_t length = session_length(b->session);
    if (length >= n) {
        session_truncate(b->session, n);
        return OK;
    }
    return bench_engine_prompt(b, n - length, e);
}

enum status bench_engine_run(struct bench_engine *b, const struct bench_test *test,
                             uint64_t *duration_ns, struct err *e) {
    if (fill(b, test->n_depth, e)) return e->status;
    const uint64_t start_ns = b->now_ns(b->clock_context);
    if (bench_engine_prompt(b, test->n_prompt, e) || generate(b, test->n_gen, e)) return e->status;
    *duration_ns = b->now_ns(b->clock_context) - start_ns;
    return OK;
}

void bench_stats(const double *values, int32_t n, double *scratch, struct bench_stats *out) {
    ASSERT(n >= 1);
    double sum = 0, squares = 0;
    for (int32_t i = 0; i < n; i++) {
        scratch[i] = values[i];
        sum += values[i];
    }
    const double mean = sum / n;
    for (int32_t i = 0; i < n; i++) squares += (values[i] - mean) * (values[i] - mean);
    qsort(scratch, (size_t)n, sizeof *scratch, order_f64);
    *out = (struct bench_stats){
        .mean = mean,
        .stddev = n > 1 ? sqrt(squares / (n - 1)) : 0,
        .median = (scratch[(n - 1) / 2] + scratch[n / 2]) / 2,
        .least = scratch[0],
        .most = scratch[n - 1],
    };
}

enum status bench_result_open(struct bench_result *r, int32_t n, struct err *e) {
    ASSERT(n >= 1);
    const size_t count = (size_t)n;
    *r = (struct bench_result){.n = n};
    r->ns = mem_alloc(count, sizeof *r->ns);
    r->us = mem_alloc(3 * count, sizeof *r->us);
    if (!r->ns || !r->us) {
        bench_result_close(r);
        return err_memory(e, 4 * count * sizeof *r->us, "the times");
    }
    r->ts = r->us + n;
    r->scratch = r->ts + n;
    return OK;
}

void bench_result_close(struct bench_result *r) {
    mem_free(r->ns);
    mem_free(r->us);
    *r = (struct bench_result){0};
}

static enum status run_once(struct bench_engine *b, const struct bench_test *test, int32_t run,
                            const struct bench_runs *runs, uint64_t *ns, struct err *e) {
    if (!runs->before(runs->context, test, run))
        return err_set(e, ERR_CANCELLED, "the benchmark was stopped");
    return bench_engine_run(b, test, ns, e);
}

static enum status warm_up(struct bench_engine *b, const struct bench_test *test,
                           const struct bench_runs *runs, struct err *e) {
    const struct bench_test warm = {test->n_prompt, test->n_gen > 0, test->n_depth};
    uint64_t ignored_ns;
    return runs->warm_up ? run_once(b, &warm, -1, runs, &ignored_ns, e) : OK;
}

static enum status measure_run(struct bench_engine *b, const struct bench_test *test,
                               const struct bench_runs *runs, int32_t run, struct bench_result *out,
                               struct err *e) {
    if (run_once(b, test, run, runs, &out->ns[run], e)) return e->status;
    out->test = *test;
    out->us[run] = (double)out->ns[run] * 1e-3;
    out->ts[run] = (test->n_prompt + test->n_gen) / (out->us[run] * 1e-6);
    if (run < out->n - 1) return OK;
    bench_stats(out->us, out->n, out->scratch, &out->time_us);
    bench_stats(out->ts, out->n, out->scratch, &out->speed);
    return OK;
}

enum status bench_engine_measure(struct bench_engine *b, const struct bench_test *test,
                                 const struct bench_runs *runs, struct bench_result *out,
                                 struct err *e) {
    if (warm_up(b, test, runs, e)) return e->status;
    for (int32_t i = 0; i < out->n; i++)
        if (measure_run(b, test, runs, i, out, e)) return e->status;
    return OK;
}

enum status bench_engine_measure_one(struct bench_engine *b, const struct bench_test *test,
                                     const struct bench_runs *runs, int32_t run,
                                     struct bench_result *out, struct err *e) {
    ASSERT(run >= 0 && run < out->n);
    if (warm_up(b, test, runs, e)) return e->status;
    return measure_run(b, test, runs, run, out, e);
}
