/* report.h: what a run measured, for people on standard error and as JSON.
 *
 * Owns nothing; JSON values belong to the caller (json_decref). Names of the timings are those of
 * llama.cpp's server. One thread. Tested by tests/cli/cli_sim.sh.
 */
#ifndef TANDEM_RUNTIME_REPORT_REPORT_H
#define TANDEM_RUNTIME_REPORT_REPORT_H

#include "runtime/engine/engine.h"
#include "runtime/generate/timings.h"

#include <jansson.h>

struct trace;

// Prints "label: 12 tokens in 34.5 ms, 347.8 tokens/s" lines. The rate of new tokens counts passes.
void report_print_timings(const struct timings *t, FILE *out);
// Measured beside predicted, per step class, and bytes allocated beside planned; nothing of what
// was not run. A line says whose rates they are if they were not measured here.
void report_print_predicted(const struct timings *t, const struct engine *engine, FILE *out);
// Device and purpose with planned and allocated bytes, and each device's peak.
void report_print_memory(const struct engine *engine, FILE *out);
// One line: layers on the accelerator, bytes of weights on each device, context.
void report_print_plan(const struct plan *plan, const struct shape *shape, FILE *out);

// NULL only if memory is out, like everything of jansson; report_write_json reports it.
json_t *report_timings(const struct timings *t);
json_t *report_memory(const struct engine *engine); // [{device, purpose, planned_bytes, ...}]
json_t *report_peaks(const struct engine *engine);  // [{device, peak_bytes}]
json_t *report_predicted(const struct timings *t, const struct engine *engine);
// Workload, devices with bytes, placement, rates and prediction.
json_t *report_plan(const struct plan *plan, const struct shape *shape);
json_t *report_units(const struct plan *plan, const struct shape *shape); // [{name, device, ...}]
json_t *report_steps(const struct plan *plan, const struct shape *shape, enum batch_class batch);
// How busy everything was, by batch class: null for what was not run, or without a trace.
json_t *report_usage(const struct trace *t, const struct machine *machine);
json_t *report_advice(const struct plan *plan, const struct advice_result advice[ADVICES]);

// A JSON string of any bytes: what is no UTF-8 becomes U+FFFD.
json_t *report_text(const char *bytes, size_t length);
json_t *report_count(uint64_t count); // an integer; above INT64_MAX it stops there

// Writes root and a newline, and frees it. ERR_MEMORY for NULL, ERR_FILE if out refuses.
enum status report_write_json(json_t *root, FILE *out, struct err *e);

// Writes bytes from a file so that a terminal shows but does not obey them: control characters and
// what is no UTF-8 as \n, \x1b, \u0085. After limit characters it says how many bytes are left.
void report_print_escaped(const char *bytes, size_t length, size_t limit, FILE *out);

#endif
