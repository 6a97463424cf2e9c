/* bench_record.h: the fields about machine and model in every row of a benchmark, and their texts.
 *
 * A struct bench_row owns the list of its fields; their texts are borrowed from the engine, the
 * configuration and the row itself, which must not move. One thread. Tested by
 * tests/runtime/test_bench.c and tests/cli/cli_bench.sh.
 */
#ifndef TANDEM_RUNTIME_MEASURE_BENCH_RECORD_H
#define TANDEM_RUNTIME_MEASURE_BENCH_RECORD_H

#include "runtime/cli/cli_command.h"
#include "runtime/measure/bench_format.h"
#include "runtime/measure/bench_matrix.h"
#include "runtime/engine/engine.h"

enum { BENCH_FIELDS = 64, BENCH_TEXT_BYTES = 96 };

struct bench_model {
    char
        type[BENCH_TEXT_BYTES]; // "llama 135M Q4_1": architecture, parameters, type of most weights
    uint64_t size_bytes, n_params;
    int32_t n_layers;
};
void bench_model_of(const struct shape *shape, struct bench_model *out);

struct bench_row {
    struct bench_field fields[BENCH_FIELDS];
    int32_t n_fields;
    struct bench_model model;
    char backend[BENCH_TEXT_BYTES];    // "CPU", "SIM": the kind of the accelerator, or of the CPU
                                       // without one
    char kv_type_k[16], kv_type_v[16]; // "f16"
    char time[32];                     // now, "2026-01-31T12:00:00Z"
};
void bench_row_add(struct bench_row *row, struct bench_field field);
// Starts a row: machine and model. path is the model's file, device is --device or NULL. Fields
// that llama-bench has too have its names.
void bench_row_begin(struct bench_row *row, const struct machine *machine,
                     const struct bench_model *model, const char *path, const char *device);
// Adds the options and the plan's figures; zeros without a plan (NULL).
void bench_row_add_plan(struct bench_row *row, const struct plan *plan, const struct shape *shape,
                        const struct bench_config *config);
// Adds the options that keep parts of the model on the CPU.
void bench_row_add_kept(struct bench_row *row, const struct cli_options *o,
                        const struct bench_config *config);
// Adds the bytes that the engine has taken; zeros without an engine (NULL).
void bench_row_add_memory(struct bench_row *row, const struct engine *engine);
// The most that the accelerator had allocated; 0 without one. What is pinned likewise.
uint64_t bench_peak_vram(const struct engine *engine);
uint64_t bench_pinned_bytes(const struct engine *engine);

// Print texts for cells: "98.22 MiB", "1.50 GiB"; "135.00 M", "8.03 B"; "-" for a real that is not
// finite.
void bench_print_size(char *out, size_t size_bytes, uint64_t value);
void bench_print_params(char *out, size_t size_bytes, uint64_t value);
void bench_print_real(char *out, size_t size_bytes, double value, int digits);

#endif
