/* bench_estimate.h: what a test should take by the plan, and what it must take by the machine's
 * rates, for the columns beside the measured ones.
 *
 * Pure functions of plan and shape; nothing is owned. Any thread. Tested by
 * tests/runtime/test_bench.c.
 */
#ifndef TANDEM_RUNTIME_MEASURE_BENCH_ESTIMATE_H
#define TANDEM_RUNTIME_MEASURE_BENCH_ESTIMATE_H

#include "runtime/measure/bench_matrix.h"

#include "planner/planner.h"

// The least time that one pass can take where the plan has put everything, from the machine's
// rates; 0 without them.
//
// One token: for each unit the bytes of its weights and of the cache that is filled, by the rate of
// plain reads (weights that stay in the CPU's cache: by the best rate from there); of a split unit
// the longer one of its two lanes; for each hand-over the latency of a copy. More tokens: for each
// unit what its ops take besides starting; of devices that work on different micro-batches at once
// the busiest one; and at least what the link takes for the weights that are streamed.
double bench_limit_us(const struct plan *plan, const struct shape *shape, const struct pass *pass);

struct bench_estimate {
    double planned_us, limit_us; // 0 without rates
    double read_bytes;           // weights, by all devices
};
// A whole test, prompts handed over n_batch tokens at a time.
void bench_estimate(const struct plan *plan, const struct shape *shape,
                    const struct bench_test *test, int32_t n_batch, struct bench_estimate *out);

#endif
