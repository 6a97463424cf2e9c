/* small_plan.h: plans whose units are where a test says: of a small model on a machine of round
 * numbers, which can be checked by hand, and of invented ones.
 *
 * Owns the fixture that cmocka hands from test to test. For cmocka programs only: what is refused
 * fails the test. Used by tests/planner/test_schedule.c and tests/planner/test_simulate.c.
 */
#ifndef TANDEM_TESTS_LIB_SMALL_PLAN_H
#define TANDEM_TESTS_LIB_SMALL_PLAN_H

#include "tests/lib/invent.h"
#include "tests/lib/slow.h"

enum { N_RANDOM = SLOW ? 100 : 400 }; // rounds
enum { EMBD = 128, FF = 256, VOCAB = 320, UBATCH = 64 };

struct small_plan {
    struct shape shape;
    struct machine machine;
    struct workload workload;
    struct constraints c;
    struct plan plan, other;
    struct dice dice;
};
int open_small_plan(void **state);
int close_small_plan(void **state);

// Units: embed, attention and FFN of each layer, head. A row of an FFN's gate and up has 136 bytes,
// one of down 272: each matrix has 34816. One of attention has 128 rows of 136 bytes, 17408, and a
// position in its cache 512.
void small_model(struct small_plan *f, int32_t n_layers);
// The CPU reads 1 GB/s and the accelerator 2, whatever the number of tokens; the link carries 1.
// Every unit is on the CPU until the test says otherwise.
void given_ways(struct small_plan *f);
void solve_given(struct small_plan *f);

// All but the embedding on the accelerator; units of the kind are split by cpu_parts, or with 0 on
// the CPU, and streamed or not.
void ffns_apart(struct small_plan *f, int32_t n_layers, int cpu_parts, bool streamed);
void attention_apart(struct small_plan *f, int32_t n_layers, int cpu_parts, bool streamed);

// A random model, machine and ways; false if it does not fit.
bool invent_given(struct small_plan *f, uint64_t seed, int32_t max_units);

void assert_near(double actual, double expected); // to rounding

#endif
