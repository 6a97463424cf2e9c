/* report_json.h: the times and bytes of a run, and a plan, as JSON for other programs.
 *
 * Owns nothing; values belong to the caller (json_decref). Names of the timings are those of
 * llama.cpp's server. One thread. Tested by tests/runtime/test_report.c.
 */
#ifndef TANDEM_RUNTIME_REPORT_REPORT_JSON_H
#define TANDEM_RUNTIME_REPORT_REPORT_JSON_H

#include "runtime/generate/timings.h"
#include "runtime/report/report.h"

#include <jansson.h>

struct trace;

// NULL only if memory is out, like everything of jansson; report_json_write reports it.
json_t *report_json_timings(const struct timings *t);
json_t *report_json_memory(const struct memory_use *use); // [{device, purpose, planned_bytes, ...}]
json_t *report_json_peaks(const struct memory_use *use,
                          const struct machine *machine); // [{device, peak_bytes}]
json_t *report_json_predicted(const struct timings *t, const struct machine *machine);
// Workload, devices with bytes, placement, rates and prediction.
json_t *report_json_plan(const struct plan *plan, const struct shape *shape);
json_t *report_json_units(const struct plan *plan,
                          const struct shape *shape); // [{name, device, ...}]
json_t *report_json_steps(const struct plan *plan, const struct shape *shape,
                          enum batch_class batch);
// Utilisation of devices and link by batch class; null for a class that was not run, and without a
// trace.
json_t *report_json_usage(const struct trace *t, const struct machine *machine);
// The predictions of changes, each with whether it helps beside report_json_advice_now.
json_t *report_json_advice(const struct plan *plan, const struct shape *shape,
                           const struct advice_result advice[ADVICES]);
// The prediction that advice is compared with, in the midst of a context; null without rates.
json_t *report_json_advice_now(const struct plan *plan, const struct shape *shape);

// Makes a JSON string of any bytes: a byte that is no UTF-8 becomes U+FFFD.
json_t *report_json_text(const char *bytes, size_t length);
json_t *report_json_count(uint64_t count); // an integer; above INT64_MAX it stops there

// Writes root and a newline, and frees it. ERR_MEMORY for NULL, ERR_FILE if out refuses.
enum status report_json_write(json_t *root, FILE *out, struct err *e);

#endif
