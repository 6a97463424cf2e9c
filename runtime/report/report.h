/* report.h: the times and bytes of a run as lines for people.
 *
 * Owns nothing and computes nothing but sums and shares; report_json.h has the same for programs.
 * One thread. Tested by tests/runtime/test_report.c.
 */
#ifndef TANDEM_RUNTIME_REPORT_REPORT_H
#define TANDEM_RUNTIME_REPORT_REPORT_H

#include "runtime/engine/engine.h"
#include "runtime/generate/timings.h"

#include <stdbool.h>
#include <stdio.h>

// The bytes that the devices of an engine hold.
struct memory_use {
    struct memory_row rows[MAX_DEVICES * PURPOSE_COUNT];
    int32_t n_rows;
    uint64_t peak_bytes[MAX_DEVICES];
};
void report_memory_use(struct memory_use *out, const struct engine *engine);

// Prints two lines: the speed of reading prompts and of generating, each beside the plan's, which
// is called an estimate where this machine was not measured. The speed of generating counts steps,
// since the first token after a prompt needs none.
void report_print_speeds(const struct timings *t, const struct machine *machine, FILE *out);
// Prints a line if tokens were guessed, or guessing took time of a text: how many, how many of them
// were drawn, and how many tokens each pass gave; and the share of all time that guessing took,
// where that is 1 % or more.
void report_print_drafts(const struct timings *t, FILE *out);
// Prints two lines if the process read more from the disk than a program's own pages while it
// computed: how much, and how the weights stay in RAM. Locking them there is no way for a plan that
// reads some from the disk in each pass.
void report_print_disk(const struct timings *t, const struct plan *plan, FILE *out);
// Prints three lines: the times of loading, of the prompts and of the new tokens.
void report_print_timings(const struct timings *t, FILE *out);
// Prints one line: allocated and planned bytes of all devices.
void report_print_bytes(const struct memory_use *use, FILE *out);
// Prints one line: measured and predicted times of the classes that ran, and the machine whose
// rates were used if they were not measured here. Prints no line without a prediction.
void report_print_predicted(const struct timings *t, const struct machine *machine, FILE *out);
// Prints a table: device and purpose with planned and allocated bytes, and the peak of each device.
void report_print_memory(const struct memory_use *use, const struct machine *machine, FILE *out);
// Prints one line: layers on the GPU, bytes of weights, context; with detail also the micro-batch
// and what is split and streamed.
void report_print_plan(const struct plan *plan, const struct shape *shape, bool detail, FILE *out);

// The same line for a draft model.
void report_print_draft_plan(const struct plan *plan, const struct shape *shape, FILE *out);

// Writes bytes from a file so that a terminal shows them and does not obey them: control characters
// and bytes that are no UTF-8 as \n, \x1b, \u0085. After limit characters it says how many bytes
// are left.
void report_print_escaped(const char *bytes, size_t length, size_t limit, FILE *out);

#endif
