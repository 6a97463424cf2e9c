/* bench_measure.h: runs tests on an engine against the clock.
 *
 * A struct bench_engine owns an engine, its one session and a batch. The token at a position is
 * always the same pseudo-random one, so that a cache filled for one test serves the next. Nothing
 * is sampled and no text is made. Must not print. One thread. Tested by tests/runtime/test_bench.c
 * and tests/cli/cli_bench.sh.
 */
#ifndef TANDEM_RUNTIME_MEASURE_BENCH_MEASURE_H
#define TANDEM_RUNTIME_MEASURE_BENCH_MEASURE_H

#include "runtime/measure/bench_matrix.h"
#include "runtime/engine/engine.h"

struct bench_engine {
    struct engine *engine;
    struct session *session;
    struct batch_item *items;          // [n_batch]
    int32_t n_batch;                   // tokens of a prompt per call of the engine
    uint64_t (*now_ns)(void *context); // the clock that runs are timed by; a test may bring its own
    void *clock_context;               // borrowed
};

// On failure *b is closed.
enum status bench_engine_open(struct bench_engine *b, const struct engine_options *options,
                              int32_t n_batch, struct err *e);
void bench_engine_close(struct bench_engine *b); // accepts a zeroed one; leaves it zeroed

// The token at a position, 1..n_known-1.
int32_t bench_token(int32_t position, int32_t n_known);

// Evaluates the next n tokens as a prompt; logits only for the last of each batch.
enum status bench_engine_prompt(struct bench_engine *b, int32_t n, struct err *e);

// Makes the session n_depth positions long, then runs the test; *duration_ns is the time of the
// test alone.
enum status bench_engine_run(struct bench_engine *b, const struct bench_test *test,
                             uint64_t *duration_ns, struct err *e);

struct bench_stats {
    double mean, stddev; // of a sample, n - 1; 0 for a single value
    double median, least, most;
};
// Computes the figures of n >= 1 values. scratch is room for n values.
void bench_stats(const double *values, int32_t n, double *scratch, struct bench_stats *out);

// The times of several runs of a test.
struct bench_result {
    struct bench_test test;
    int32_t n;    // runs
    uint64_t *ns; // [n], owned, as those below
    double *us, *ts, *scratch;
    struct bench_stats time_us, speed; // speed in tokens per second
};
enum status bench_result_open(struct bench_result *r, int32_t n, struct err *e);
void bench_result_close(struct bench_result *r); // accepts a zeroed one; leaves it zeroed

// Called before each run; run -1 is the warm-up, which does not count. Returning false stops with
// ERR_CANCELLED.
typedef bool (*bench_run_fn)(void *context, const struct bench_test *test, int32_t run);
struct bench_runs {
    bool warm_up; // first a run that does not count: the prompt, and one token
    bench_run_fn before;
    void *context;
};
// Runs the test out->n times.
enum status bench_engine_measure(struct bench_engine *b, const struct bench_test *test,
                                 const struct bench_runs *runs, struct bench_result *out,
                                 struct err *e);
// Makes the single run with that index, 0..out->n-1, after a warm-up that does not count. For
// engines that take turns; call it with the last index last, which sets out->time_us and
// out->speed.
enum status bench_engine_measure_one(struct bench_engine *b, const struct bench_test *test,
                                     const struct bench_runs *runs, int32_t run,
                                     struct bench_result *out, struct err *e);

#endif
