/* bench_matrix.h: the configurations and tests of `tandem bench`: every combination of the lists
 * and ranges on the command line.
 *
 * A struct bench_matrix owns its tables and borrows the models' names from the options. Must not
 * open files or devices. Any thread. Tested by tests/runtime/test_bench.c.
 */
#ifndef TANDEM_RUNTIME_MEASURE_BENCH_MATRIX_H
#define TANDEM_RUNTIME_MEASURE_BENCH_MATRIX_H

#include "planner/planner.h"
#include "runtime/cli/cli_options.h"

enum {
    BENCH_VALUES = 256,   // of one list
    BENCH_CONFIGS = 4096, // most combinations of configurations, and of tests
};

struct bench_values {
    int64_t values[BENCH_VALUES];
    int32_t n;
};

// Appends the values that text lists, each in low..high: "4", "1,2,4", "1-8", "1-8+2" (every
// second), "1-64*2" (each twice the one before). A negative number stands alone. ERR_USAGE, naming
// option and piece, for anything else, also for an empty or endless range.
enum status bench_values_add(struct bench_values *out, const char *option, const char *text,
                             int64_t low, int64_t high, struct err *e);

// One test: n_prompt tokens in micro-batches, then n_gen one by one, behind n_depth positions that
// are filled before the clock starts.
struct bench_test {
    int32_t n_prompt, n_gen, n_depth;
};
// "pp512", "tg128", "pp512+tg128", "pp512 @ d1024". Returns out.
char *bench_test_name(const struct bench_test *test, char *out, size_t size_bytes);

// One value of -ot.
struct bench_overrides {
    const char *text;     // for people: "PATTERN=DEVICE;...", or "none"
    const char *patterns; // for an engine: "PATTERN=DEVICE,..."; NULL: none
};

// The options of one engine that vary.
struct bench_config {
    const char *model;   // borrowed
    uint64_t vram_bytes; // 0: no limit
    int32_t gpu_layers, n_batch;
    int32_t n_ubatch;  // 0: the planner's choice
    int32_t n_threads; // 0: automatic
    enum dtype kv_type_k, kv_type_v;
    struct bench_overrides overrides; // borrowed from the matrix
    enum strategy strategy;           // no list of the command line: set by the caller
};

struct bench_matrix {
    struct bench_config *configs; // the last list varies fastest: models, vram, layers, overrides,
    int32_t n_configs;            // batch, ubatch, types of K and V, threads
    struct bench_test *tests;     // of each config: by depth, prompts then generations then both
    int32_t n_tests;
    struct bench_overrides *overrides; // [BENCH_VALUES]
    char *texts;                       // of these
};

// Defaults: prompts of 512, 128 tokens to generate, depth 0, batches of 2048. ERR_USAGE,
// ERR_MEMORY; then *m is closed.
enum status bench_matrix_open(struct bench_matrix *m, const struct bench_options *o, struct err *e);
void bench_matrix_close(struct bench_matrix *m); // accepts a zeroed one; leaves it zeroed
// Positions that the longest test needs.
int32_t bench_matrix_context(const struct bench_matrix *m);

#endif
