/* report.c: see report.h. */
#include "runtime/report.h"

#include "base/mem.h"
#include "runtime/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { MEMORY_ROWS = MAX_DEVICES * PURPOSE_COUNT };
static const double MIB = 1024.0 * 1024.0;

static double milliseconds(uint64_t ns) { return (double)ns / 1e6; }

// count / time in seconds; 0 without time.
static double rate(int64_t count, uint64_t ns) { return ns ? (double)count * 1e9 / (double)ns : 0; }
static double each_ms(int64_t count, uint64_t ns) {
    return count ? milliseconds(ns) / (double)count : 0;
}

// ---- For people ---------------------------------------------------------------------------------

void report_print_timings(const struct timings *t, FILE *out) {
    fprintf(out, "tandem: load   %10.1f ms\n", milliseconds(t->load_ns));
    fprintf(out, "tandem: prompt %10.1f ms, %6" PRId64 " tokens, %8.1f tokens/s\n",
            milliseconds(t->prompt_ns), t->prompt_tokens, rate(t->prompt_tokens, t->prompt_ns));
    fprintf(out, "tandem: new    %10.1f ms, %6" PRId64 " tokens, %8.1f tokens/s\n",
            milliseconds(t->decode_ns), t->new_tokens, rate(t->decode_steps, t->decode_ns));
}

void report_print_memory(const struct engine *engine, FILE *out) {
    struct memory_row rows[MEMORY_ROWS];
    int32_t n = engine_memory(engine, rows, MEMORY_ROWS);
    fprintf(out, "%-44s %-8s %12s %12s  MiB\n", "device", "purpose", "planned", "allocated");
    for (int32_t i = 0; i < n; i++)
        fprintf(out, "%-44.44s %-8s %12.2f %12.2f\n", rows[i].device, purpose_name(rows[i].purpose),
                (double)rows[i].planned_bytes / MIB, (double)rows[i].allocated_bytes / MIB);
    const struct machine *machine = &engine_plan(engine)->machine;
    for (int32_t d = 0; d < machine->n_devices; d++)
        fprintf(out, "%-44.44s %-8s %12s %12.2f\n", machine->devices[d].name, "peak", "",
                (double)engine_peak_bytes(engine, d) / MIB);
}

static int32_t layer_count(const struct plan *plan) { return (plan->n_units - 2) / 2; }

void report_print_plan(const struct plan *plan, FILE *out) {
    const struct machine *machine = &plan->machine;
    fprintf(out, "tandem: context %d, micro-batch %d", plan->workload.n_ctx,
            plan->workload.n_ubatch);
    if (machine->n_devices > 1)
        fprintf(out, ", %d of %d layers on %s", plan_layers_on_gpu(plan), layer_count(plan) + 1,
                machine->devices[1].kind);
    for (int32_t d = 0; d < machine->n_devices; d++)
        fprintf(out, "%s %.1f MiB on %s", d ? " +" : ", weights",
                (double)plan->devices[d].bytes[PLAN_WEIGHTS] / MIB, machine->devices[d].kind);
    fputc('\n', out);
}

// ---- JSON ---------------------------------------------------------------------------------------

json_t *report_count(uint64_t count) {
    return json_integer(count > INT64_MAX ? INT64_MAX : (json_int_t)count);
}

json_t *report_text(const char *bytes, size_t length) {
    char *text = mem_alloc(length, 3); // a bad byte becomes the three of U+FFFD
    if (!text) return NULL;
    size_t used = 0;
    for (size_t i = 0, step; i < length; i += step) {
        bool whole = utf8_look(bytes + i, length - i, &step) == UTF8_WHOLE;
        memcpy(text + used, whole ? bytes + i : "\xef\xbf\xbd", whole ? step : 3);
        if (!whole) step = 1;
        used += whole ? step : 3;
    }
    json_t *value = json_stringn(text, used);
    mem_free(text);
    return value;
}

json_t *report_timings(const struct timings *t) {
    return json_pack("{s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f, s:I}", //
                     "prompt_n", (json_int_t)t->prompt_tokens,        //
                     "prompt_ms", milliseconds(t->prompt_ns),         //
                     "prompt_per_token_ms", each_ms(t->prompt_tokens, t->prompt_ns),
                     "prompt_per_second", rate(t->prompt_tokens, t->prompt_ns), //
                     "predicted_n", (json_int_t)t->new_tokens,                  //
                     "predicted_ms", milliseconds(t->decode_ns),                //
                     "predicted_per_token_ms", each_ms(t->decode_steps, t->decode_ns),
                     "predicted_per_second", rate(t->decode_steps, t->decode_ns), //
                     "decode_steps", (json_int_t)t->decode_steps);
}

json_t *report_memory(const struct engine *engine) {
    struct memory_row rows[MEMORY_ROWS];
    int32_t n = engine_memory(engine, rows, MEMORY_ROWS);
    json_t *list = json_array();
    for (int32_t i = 0; i < n; i++)
        json_array_append_new(list,
                              json_pack("{s:o, s:s, s:o, s:o}", "device",
                                        report_text(rows[i].device, strlen(rows[i].device)),
                                        "purpose", purpose_name(rows[i].purpose), "planned_bytes",
                                        report_count(rows[i].planned_bytes), "allocated_bytes",
                                        report_count(rows[i].allocated_bytes)));
    return list;
}

json_t *report_peaks(const struct engine *engine) {
    const struct machine *machine = &engine_plan(engine)->machine;
    json_t *list = json_array();
    for (int32_t d = 0; d < machine->n_devices; d++) {
        const char *name = machine->devices[d].name;
        json_array_append_new(list,
                              json_pack("{s:o, s:o}", "device", report_text(name, strlen(name)),
                                        "peak_bytes", report_count(engine_peak_bytes(engine, d))));
    }
    return list;
}

static json_t *plan_device(const struct plan *plan, int32_t d) {
    const struct machine_device *device = &plan->machine.devices[d];
    json_t *row =
        json_pack("{s:o, s:s, s:o, s:o}", "name", report_text(device->name, strlen(device->name)),
                  "kind", device->kind, "capacity_bytes", report_count(device->capacity_bytes),
                  "budget_bytes", report_count(device->budget_bytes));
    for (int p = 0; p < PLAN_PURPOSES; p++) {
        char key[32];
        snprintf(key, sizeof key, "%s_bytes", purpose_name((enum purpose)p));
        json_object_set_new(row, key, report_count(plan->devices[d].bytes[p]));
    }
    return row;
}

json_t *report_plan(const struct plan *plan) {
    json_t *devices = json_array(), *units = json_array();
    for (int32_t d = 0; d < plan->machine.n_devices; d++)
        json_array_append_new(devices, plan_device(plan, d));
    for (int32_t u = 0; u < plan->n_units; u++)
        json_array_append_new(units, json_integer(plan->unit_device[u]));
    const struct workload *w = &plan->workload;
    return json_pack("{s:i, s:i, s:i, s:i, s:s, s:s, s:o, s:o}", "n_ctx", w->n_ctx, "n_ubatch",
                     w->n_ubatch, "layers", layer_count(plan) + 1, "gpu_layers",
                     plan_layers_on_gpu(plan), "cache_type_k", dtype_name(w->kv_type_k),
                     "cache_type_v", dtype_name(w->kv_type_v), "devices", devices, "unit_device",
                     units);
}

enum status report_write_json(json_t *root, FILE *out, struct err *e) {
    if (!root) return err_memory(e, 0, "the JSON result");
    int result = json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(root);
    if (result != 0 || fputc('\n', out) == EOF) return err_errno(e, errno, "standard output");
    return OK;
}

// ---- Bytes for a terminal -----------------------------------------------------------------------

static void print_control(uint32_t code, FILE *out) {
    switch (code) {
    case '\n': fputs("\\n", out); break;
    case '\r': fputs("\\r", out); break;
    case '\t': fputs("\\t", out); break;
    default: fprintf(out, code < 0x80 ? "\\x%02x" : "\\u%04x", code);
    }
}

void report_print_escaped(const char *bytes, size_t length, size_t limit, FILE *out) {
    size_t i = 0;
    for (size_t step; i < length && limit > 0; i += step, limit--) {
        if (utf8_look(bytes + i, length - i, &step) != UTF8_WHOLE) {
            step = 1;
            fprintf(out, "\\x%02x", (unsigned char)bytes[i]);
            continue;
        }
        uint32_t code = utf8_code(bytes + i, step);
        if (code < 0x20 || (code >= 0x7f && code < 0xa0))
            print_control(code, out);
        else
            fwrite(bytes + i, 1, step, out);
    }
    if (i < length) fprintf(out, "... (%zu more bytes)", length - i);
}
