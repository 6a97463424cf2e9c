/* bench_estimate.h: the predicted time of a test by the plan, and its least time by the machine's
 * rates, for the columns beside the measured ones.
 *
 * Pure functions of plan and shape; nothing is owned. Any thread. Tested by
 * tests/runtime/test_bench.c.
 */
#ifndef TANDEM_RUNTIME_MEASURE_BENCH_ESTIMATE_H
#define TANDEM_RUNTIME_MEASURE_BENCH_ESTIMATE_H

#include "runtime/measure/bench_matrix.h"

#include "planner/planner.h"

// The least time that one pass can take with the plan's placement, from the machine's rates; 0
// without rates.
//
// One token: for each unit the bytes of its weights and of the filled part of its KV cache, by the
// rate of plain reads (for weights that stay in the CPU's cache by the best rate from the cache);
// for a split unit the slower device; for each hand-over the latency of a copy. More tokens: for
// each unit the time of its ops without starting them; the busiest device if devices work on
// different micro-batches at once; and at least the time of the link for streamed weights.
double bench_limit_us(const struct plan *plan, const struct shape *shape, const struct pass *pass);

struct bench_estimate {
    double planned_us, limit_us; // 0 without rates
    double read_bytes;           // weights, by all devices
};
// Estimates a whole test, whose prompts come n_batch tokens at a time.
void bench_estimate(const struct plan *plan, const struct shape *shape,
                    const struct bench_test *test, int32_t n_batch, struct bench_estimate *out);

#endif
