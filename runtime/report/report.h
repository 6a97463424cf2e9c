/* report.h: what a run measured, for people.
 *
 * Owns nothing and computes nothing but sums and shares: report_json.h says the same to programs.
 * One thread. Tested by tests/cli/cli_plan.sh and cli_trace.sh.
 */
#ifndef TANDEM_RUNTIME_REPORT_REPORT_H
#define TANDEM_RUNTIME_REPORT_REPORT_H

#include "runtime/engine/engine.h"
#include "runtime/generate/timings.h"

#include <stdio.h>

// Prints "label: 12 tokens in 34.5 ms, 347.8 tokens/s" lines. The rate of new tokens counts passes.
void report_print_timings(const struct timings *t, FILE *out);
// Measured beside predicted, per step class, and bytes allocated beside planned; nothing of what
// was not run. A line says whose rates they are if they were not measured here.
void report_print_predicted(const struct timings *t, const struct engine *engine, FILE *out);
// Device and purpose with planned and allocated bytes, and each device's peak.
void report_print_memory(const struct engine *engine, FILE *out);
// One line: layers on the accelerator, bytes of weights on each device, context.
void report_print_plan(const struct plan *plan, const struct shape *shape, FILE *out);

// Writes bytes from a file so that a terminal shows but does not obey them: control characters and
// what is no UTF-8 as \n, \x1b, \u0085. After limit characters it says how many bytes are left.
void report_print_escaped(const char *bytes, size_t length, size_t limit, FILE *out);

#endif
