/* report.c: see report.h. */
#include "runtime/report/report.h"

#include "base/mem.h"
#include "runtime/engine/trace.h"
#include "runtime/text/utf8.h"

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

// How far the prediction is off, in parts of what was measured.
static double deviation(double predicted, double measured) {
    return measured > 0 ? (predicted - measured) / measured : 0;
}

static const struct machine *machine_of(const struct engine *engine) {
    return &engine_plan(engine)->machine;
}

static void print_rates(const struct machine *machine, FILE *out) {
    if (machine->rates == RATES_NEAREST || machine->rates == RATES_FILE)
        fprintf(out, "; by the rates of %s, which are not measured here", machine->rates_name);
}

static bool print_class(const char *name, const char *unit, double measured, double predicted,
                        FILE *out) {
    if (predicted <= 0 || measured <= 0) return false;
    fprintf(out, "%s %.1f %s (predicted %.1f, %+.0f %%)", name, measured, unit, predicted,
            100 * deviation(predicted, measured));
    return true;
}

static void print_bytes(const struct engine *engine, FILE *out) {
    struct memory_row rows[MEMORY_ROWS];
    int32_t n = engine_memory(engine, rows, MEMORY_ROWS);
    uint64_t planned = 0, allocated = 0;
    for (int32_t i = 0; i < n; i++) {
        planned += rows[i].planned_bytes;
        allocated += rows[i].allocated_bytes;
    }
    fprintf(out, "tandem: memory %9.1f MiB allocated, %.1f MiB planned\n", (double)allocated / MIB,
            (double)planned / MIB);
}

void report_print_predicted(const struct timings *t, const struct engine *engine, FILE *out) {
    print_bytes(engine, out);
    if (t->predicted_prompt_us <= 0 && t->predicted_decode_us <= 0) return;
    fputs("tandem: ", out);
    if (print_class("decode", "ms/token", each_ms(t->decode_steps, t->decode_ns),
                    t->predicted_decode_us / 1e3 / (double)(t->decode_steps ? t->decode_steps : 1),
                    out) &&
        t->prompt_passes > 0)
        fputs(", ", out);
    print_class("prompt", "ms/micro-batch", each_ms(t->prompt_passes, t->prompt_ns),
                t->predicted_prompt_us / 1e3 / (double)(t->prompt_passes ? t->prompt_passes : 1),
                out);
    print_rates(machine_of(engine), out);
    fputc('\n', out);
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

// Units that are computed in another way than whole and where they are.
static void print_ways(const struct plan *plan, FILE *out) {
    int32_t n_split = 0, n_streamed = 0;
    for (int32_t u = 0; u < plan->n_units; u++) {
        n_split += plan->place.units[u].cpu_parts > 0;
        n_streamed += plan->place.units[u].streamed;
    }
    if (n_split) fprintf(out, ", %d units split by rows", n_split);
    if (n_streamed)
        fprintf(out, ", %d streamed in prompts (%s, %d slots)", n_streamed,
                feed_name(plan->place.feed), plan->place.n_slots);
}

void report_print_plan(const struct plan *plan, const struct shape *shape, FILE *out) {
    const struct machine *machine = &plan->machine;
    fprintf(out, "tandem: context %d, micro-batch %d", plan->workload.n_ctx,
            plan->workload.n_ubatch);
    if (machine->n_devices > 1)
        fprintf(out, ", %d of %d layers on %s", plan_layers_on_gpu(plan, shape),
                shape->n_layers + 1, machine->devices[1].name);
    for (int32_t d = 0; d < machine->n_devices; d++)
        fprintf(out, "%s %.1f MiB on %s", d ? " +" : ", weights",
                (double)plan->devices[d].bytes[PLAN_WEIGHTS] / MIB, machine->devices[d].kind);
    print_ways(plan, out);
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

static json_t *rates_report(const struct machine *machine) {
    static const char *const sources[] = {"none", "nearest", "file", "measured"};
    const char *name = machine->rates_name;
    return json_pack("{s:s, s:o}", "source", sources[machine->rates], "machine",
                     *name ? report_text(name, strlen(name)) : json_null());
}

json_t *report_predicted(const struct timings *t, const struct engine *engine) {
    const double prompt_ms = t->predicted_prompt_us / 1e3, decode_ms = t->predicted_decode_us / 1e3;
    const double decode_each = t->decode_steps ? decode_ms / (double)t->decode_steps : 0;
    if (machine_of(engine)->rates == RATES_NONE) return json_null();
    return json_pack("{s:f, s:f, s:I, s:f, s:f, s:o}", "prompt_ms", prompt_ms, "prompt_deviation",
                     deviation(prompt_ms, milliseconds(t->prompt_ns)), "prompt_passes",
                     (json_int_t)t->prompt_passes, "decode_per_token_ms", decode_each,
                     "decode_deviation",
                     deviation(decode_each, each_ms(t->decode_steps, t->decode_ns)), "rates",
                     rates_report(machine_of(engine)));
}

static json_t *plan_device(const struct plan *plan, int32_t d) {
    const struct machine_device *device = &plan->machine.devices[d];
    json_t *row =
        json_pack("{s:o, s:s, s:o, s:o}", "name", report_text(device->name, strlen(device->name)),
                  "kind", device->kind, "capacity_bytes", report_count(device->capacity_bytes),
                  "budget_bytes", report_count(device->budget_bytes));
    uint64_t total = 0;
    for (int p = 0; p < PLAN_PURPOSES; p++) {
        char key[32];
        snprintf(key, sizeof key, "%s_bytes", purpose_name((enum purpose)p));
        json_object_set_new(row, key, report_count(plan->devices[d].bytes[p]));
        total += plan->devices[d].bytes[p];
    }
    json_object_set_new(row, "total_bytes", report_count(total));
    return row;
}

// Shares of the time, by device and of copies, and what binds.
static json_t *phase_report(double us, int32_t n_tokens, const double share[MAX_DEVICES],
                            double copies, enum bound bound) {
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:s}", "ms", us / 1e3, "tokens_per_second",
                     us > 0 ? n_tokens * 1e6 / us : 0, "cpu_share", share[0], "accelerator_share",
                     share[1], "copy_share", copies, "bound", bound_name(bound));
}

static json_t *prediction_report(const struct plan *plan, const struct prediction *p) {
    return json_pack(
        "{s:o, s:o, s:f}", "prompt",
        phase_report(p->prompt_us, plan->workload.n_prompt, p->prompt_share, p->prompt_copy_share,
                     p->prompt_bound),
        "decode",
        phase_report(p->decode_us, 1, p->decode_share, p->decode_copy_share, p->decode_bound),
        "total_ms", p->total_us / 1e3);
}

static json_t *predict_report(const struct plan *plan, const struct shape *shape) {
    struct prediction prediction;
    if (plan->machine.rates == RATES_NONE) return json_null();
    plan_predict(plan, shape, &prediction);
    return prediction_report(plan, &prediction);
}

static json_t *machine_report(const struct machine *m) {
    return json_pack("{s:o, s:i, s:i, s:i, s:o}", "name", report_text(m->name, strlen(m->name)),
                     "cores", m->n_cores, "threads", m->n_threads, "unused_accelerators",
                     m->n_unused_accelerators, "ram_limited_by",
                     report_text(m->ram_limited_by, strlen(m->ram_limited_by)));
}

json_t *report_plan(const struct plan *plan, const struct shape *shape) {
    json_t *devices = json_array(), *units = json_array();
    for (int32_t d = 0; d < plan->machine.n_devices; d++)
        json_array_append_new(devices, plan_device(plan, d));
    for (int32_t u = 0; u < plan->n_units; u++)
        json_array_append_new(units, json_integer(plan->place.units[u].device));
    const struct workload *w = &plan->workload;
    json_t *ring = json_pack(
        "{s:s, s:i, s:o, s:i, s:o, s:b}", "feed", feed_name(plan->place.feed), "slots",
        plan->place.n_slots, "slot_bytes", report_count(plan->slot_bytes), "blocks", plan->n_blocks,
        "block_bytes", report_count(plan->block_bytes), "runs_ahead", plan->runs_ahead);
    return json_pack(
        "{s:o, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "machine",
        machine_report(&plan->machine), "n_ctx", w->n_ctx, "n_ubatch", w->n_ubatch, "prompt_tokens",
        w->n_prompt, "gen_tokens", w->n_gen, "layers", shape->n_layers + 1, "gpu_layers",
        plan_layers_on_gpu(plan, shape), "cache_type_k", dtype_name(w->kv_type_k), "cache_type_v",
        dtype_name(w->kv_type_v), "devices", devices, "unit_device", units, "streaming", ring,
        "rates", rates_report(&plan->machine), "prediction", predict_report(plan, shape));
}

json_t *report_units(const struct plan *plan, const struct shape *shape) {
    json_t *list = json_array();
    for (int32_t u = 0; u < plan->n_units; u++) {
        char name[64];
        plan_unit_name(&shape->units[u], name, sizeof name);
        json_array_append_new(list,
                              json_pack("{s:s, s:i, s:i, s:b, s:o, s:o, s:o, s:o}", "name", name,
                                        "device", plan->place.units[u].device, "cpu_parts",
                                        plan->place.units[u].cpu_parts, "streamed",
                                        plan->place.units[u].streamed, "weights_bytes",
                                        report_count(plan->unit_weight_bytes[u]),
                                        "cpu_weights_bytes", report_count(plan->unit_cpu_bytes[u]),
                                        "kv_bytes", report_count(plan->unit_kv_bytes[u]),
                                        "read_bytes", report_count(plan->unit_read_bytes[u])));
    }
    return list;
}

static json_t *step_report(const struct step *step, const struct step_times *times) {
    static const char *const phases[] = {"all", "in", "mid", "out"};
    json_t *row = json_pack("{s:s, s:i, s:i, s:i, s:f, s:f}", "kind", step_kind_name(step->kind),
                            "device", step->device, "peer", step->peer, "unit", step->unit,
                            "first_ms", times->first_us / 1e3, "last_ms", times->last_us / 1e3);
    if (step->slot >= 0) json_object_set_new(row, "slot", json_integer(step->slot));
    if (step->kind == STEP_COMPUTE)
        json_object_set_new(row, "phase", json_string(phases[step->phase]));
    if (step->kind == STEP_SEND) {
        json_object_set_new(row, "data", json_string(step_data_name(step->data)));
        json_object_set_new(row, "first_col", json_integer(step->first_col));
        json_object_set_new(row, "cols", json_integer(step->n_cols));
    }
    if (step->bytes_fixed) json_object_set_new(row, "bytes", report_count(step->bytes_fixed));
    if (step->bytes_per_row)
        json_object_set_new(row, "bytes_per_row", report_count(step->bytes_per_row));
    if (step->bytes_per_past)
        json_object_set_new(row, "bytes_per_past", report_count(step->bytes_per_past));
    return row;
}

json_t *report_steps(const struct plan *plan, const struct shape *shape, enum batch_class batch) {
    const struct pass pass = plan_pass(plan, batch);
    batch = batch_class_of(pass.n_tokens); // a small micro-batch is not of the class it stands for
    const int32_t n = plan->n_steps[batch];
    struct step_times *times = mem_alloc((size_t)n, sizeof *times);
    if (!times) return NULL;
    if (plan->machine.rates != RATES_NONE) plan_step_times(plan, shape, &pass, times);
    json_t *list = json_array();
    for (int32_t i = 0; i < n; i++) {
        const struct step *step = &plan->steps[batch][i];
        json_array_append_new(list, step_report(step, &times[i]));
    }
    mem_free(times);
    return list;
}

// Shares of the time from the first step of a pass to its last.
static json_t *times_report(const struct trace_usage *u, const struct trace_times *t,
                            const struct machine *machine) {
    const double whole = t->total_us > 0 ? t->total_us : 1,
                 copies = t->copy_us > 0 ? t->copy_us : 1;
    json_t *busy = json_array();
    for (int32_t d = 0; d < machine->n_devices; d++)
        json_array_append_new(busy, json_real(t->busy_us[d] / whole));
    return json_pack("{s:f, s:f, s:o, s:f, s:f, s:f}", "pass_ms", t->total_us / u->n_passes / 1e3,
                     "total_ms", t->total_us / 1e3, "busy_share", busy, "link_share",
                     t->copy_us / whole, "link_gbps",
                     (double)(u->to_bytes + u->from_bytes) / copies / 1e3, "hidden_share",
                     t->hidden_us / copies);
}

static json_t *class_report(const struct trace *t, const struct machine *machine,
                            enum batch_class batch) {
    struct trace_usage u;
    trace_usage(t, batch, &u);
    if (u.n_passes == 0) return json_null();
    return json_pack("{s:i, s:I, s:o, s:o, s:o, s:f, s:o, s:o}", "passes", u.n_passes, "tokens",
                     (json_int_t)u.n_tokens, "to_bytes", report_count(u.to_bytes), "from_bytes",
                     report_count(u.from_bytes), "fetched_bytes", report_count(u.fetched_bytes),
                     "bytes_per_token", (double)(u.to_bytes + u.from_bytes) / (double)u.n_tokens,
                     "measured", times_report(&u, &u.measured, machine), "planned",
                     u.planned.total_us > 0 ? times_report(&u, &u.planned, machine) : json_null());
}

json_t *report_usage(const struct trace *t, const struct machine *machine) {
    if (!t) return json_null();
    return json_pack("{s:o, s:o, s:o, s:I}", "one", class_report(t, machine, BATCH_ONE), "small",
                     class_report(t, machine, BATCH_SMALL), "prefill",
                     class_report(t, machine, BATCH_PREFILL), "dropped_spans",
                     (json_int_t)trace_dropped(t));
}

json_t *report_advice(const struct plan *plan, const struct advice_result advice[ADVICES]) {
    json_t *list = json_array();
    for (int i = 0; i < ADVICES; i++) {
        const struct advice_result *a = &advice[i];
        if (!a->exists) continue;
        json_t *prediction =
            a->prediction.decode_us > 0 ? prediction_report(plan, &a->prediction) : json_null();
        json_array_append_new(list, json_pack("{s:s, s:i, s:o}", "text", a->text, "units_on_gpu",
                                              a->units_on_gpu, "prediction", prediction));
    }
    return list;
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
