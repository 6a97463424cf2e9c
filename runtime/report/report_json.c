/* report_json.c: see report_json.h. */
#include "runtime/report/report_json.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "runtime/engine/trace.h"

#include <errno.h>
#include <string.h>

json_t *report_json_count(uint64_t count) {
    return json_integer(count > INT64_MAX ? INT64_MAX : (json_int_t)count);
}

json_t *report_json_text(const char *bytes, size_t length) {
    char *text = mem_alloc(length, 3); // an invalid byte becomes the three bytes of U+FFFD
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

// Adds what llama-server says of drafts too, where tokens were guessed, and the time that took.
static json_t *with_drafts(json_t *timings, const struct timings *t) {
    if (!timings || (t->drafted == 0 && t->guess_ns == 0)) return timings;
    json_t *drafts = json_pack("{s:I, s:I, s:f, s:f}", "draft_n", (json_int_t)t->drafted,
                               "draft_n_accepted", (json_int_t)t->accepted, "draft_ms",
                               timings_ms(t->guess_ns), "tokens_per_pass", timings_per_pass(t));
    json_object_update(timings, drafts);
    json_decref(drafts);
    return timings;
}

json_t *report_json_timings(const struct timings *t) {
    json_t *timings =
        json_pack("{s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f, s:I, s:I, s:I}", //
                  "prompt_n", (json_int_t)t->prompt_tokens,                  //
                  "prompt_ms", timings_ms(t->prompt_ns),                     //
                  "prompt_per_token_ms", timings_each_ms(t->prompt_tokens, t->prompt_ns),
                  "prompt_per_second", timings_rate(t->prompt_tokens, t->prompt_ns), //
                  "predicted_n", (json_int_t)t->new_tokens,                          //
                  "predicted_ms", timings_ms(t->decode_ns),                          //
                  "predicted_per_token_ms", timings_each_ms(t->decode_steps, t->decode_ns),
                  "predicted_per_second", timings_rate(t->decode_steps, t->decode_ns), //
                  "decode_steps", (json_int_t)t->decode_steps,                         //
                  "disk_bytes", (json_int_t)t->disk_bytes,                             //
                  "major_faults", (json_int_t)t->disk_faults);
    return with_drafts(timings, t);
}

json_t *report_json_memory(const struct memory_use *use) {
    const struct memory_row *rows = use->rows;
    json_t *list = json_array();
    for (int32_t i = 0; i < use->n_rows; i++)
        json_array_append_new(list,
                              json_pack("{s:o, s:s, s:o, s:o}", "device",
                                        report_json_text(rows[i].device, strlen(rows[i].device)),
                                        "purpose", purpose_name(rows[i].purpose), "planned_bytes",
                                        report_json_count(rows[i].planned_bytes), "allocated_bytes",
                                        report_json_count(rows[i].allocated_bytes)));
    return list;
}

json_t *report_json_peaks(const struct memory_use *use, const struct machine *machine) {
    json_t *list = json_array();
    for (int32_t d = 0; d < machine->n_devices; d++) {
        const char *name = machine->devices[d].name;
        json_array_append_new(list, json_pack("{s:o, s:o}", "device",
                                              report_json_text(name, strlen(name)), "peak_bytes",
                                              report_json_count(use->peak_bytes[d])));
    }
    return list;
}

static json_t *rates_report(const struct machine *machine) {
    static const char *const sources[] = {"none", "nearest", "file", "measured"};
    const char *name = machine->rates_name;
    return json_pack("{s:s, s:o}", "source", sources[machine->rates], "machine",
                     *name ? report_json_text(name, strlen(name)) : json_null());
}

json_t *report_json_predicted(const struct timings *t, const struct machine *machine) {
    const double prompt_ms = t->predicted_prompt_us / 1e3, decode_ms = t->predicted_decode_us / 1e3;
    const double decode_each = t->decode_steps ? decode_ms / (double)t->decode_steps : 0;
    if (machine->rates == RATES_NONE) return json_null();
    return json_pack("{s:f, s:f, s:I, s:f, s:f, s:o}", "prompt_ms", prompt_ms, "prompt_deviation",
                     timings_deviation(prompt_ms, timings_ms(t->prompt_ns)), "prompt_passes",
                     (json_int_t)t->prompt_passes, "decode_per_token_ms", decode_each,
                     "decode_deviation",
                     timings_deviation(decode_each, timings_each_ms(t->decode_steps, t->decode_ns)),
                     "rates", rates_report(machine));
}

static json_t *plan_device(const struct plan *plan, int32_t d) {
    const struct machine_device *device = &plan->machine.devices[d];
    json_t *row = json_pack(
        "{s:o, s:s, s:o, s:o}", "name", report_json_text(device->name, strlen(device->name)),
        "kind", device->kind, "capacity_bytes", report_json_count(device->capacity_bytes),
        "budget_bytes", report_json_count(device->budget_bytes));
    uint64_t total = 0;
    for (int p = 0; p < PLAN_PURPOSES; p++) {
        char key[32];
        snprintf(key, sizeof key, "%s_bytes", purpose_name((enum purpose)p));
        json_object_set_new(row, key, report_json_count(plan->devices[d].bytes[p]));
        total += plan->devices[d].bytes[p];
    }
    json_object_set_new(row, "total_bytes", report_json_count(total));
    return row;
}

// The shares of the time that the devices compute and copies run, and the bound of the phase.
static json_t *phase_report(double us, int32_t n_tokens, const struct phase_shares *shares) {
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:s}", "ms", us / 1e3, "tokens_per_second",
                     us > 0 ? n_tokens * 1e6 / us : 0, "cpu_share", shares->devices[0],
                     "accelerator_share", shares->devices[1], "copy_share", shares->copies, "bound",
                     bound_name(shares->bound));
}

static json_t *prediction_report(const struct plan *plan, const struct prediction *p) {
    return json_pack("{s:o, s:o, s:f}", "prompt",
                     phase_report(p->prompt_us, plan->workload.n_prompt, &p->prompt), "decode",
                     phase_report(p->decode_us, 1, &p->decode), "total_ms", p->total_us / 1e3);
}

static json_t *predict_report(const struct plan *plan, const struct shape *shape) {
    struct prediction prediction;
    if (plan->machine.rates == RATES_NONE) return json_null();
    plan_predict(plan, shape, &prediction);
    return prediction_report(plan, &prediction);
}

static json_t *machine_report(const struct machine *m) {
    return json_pack(
        "{s:o, s:i, s:i, s:i, s:o}", "name", report_json_text(m->name, strlen(m->name)), "cores",
        m->n_cores, "threads", m->n_threads, "unused_accelerators", m->n_unused_accelerators,
        "ram_limited_by", report_json_text(m->ram_limited_by, strlen(m->ram_limited_by)));
}

json_t *report_json_plan(const struct plan *plan, const struct shape *shape) {
    json_t *devices = json_array(), *units = json_array();
    for (int32_t d = 0; d < plan->machine.n_devices; d++)
        json_array_append_new(devices, plan_device(plan, d));
    for (int32_t u = 0; u < plan->n_units; u++)
        json_array_append_new(units, json_integer(plan->place.units[u].device));
    const struct workload *w = &plan->workload;
    json_t *ring =
        json_pack("{s:s, s:o, s:i, s:o, s:b}", "feed", feed_name(plan->place.feed), "slot_bytes",
                  report_json_count(plan->slot_bytes), "blocks", plan->n_blocks, "block_bytes",
                  report_json_count(plan->block_bytes), "runs_ahead", plan->runs_ahead);
    return json_pack(
        "{s:o, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "machine",
        machine_report(&plan->machine), "n_ctx", w->n_ctx, "n_ubatch", w->n_ubatch, "prompt_tokens",
        w->n_prompt, "gen_tokens", w->n_gen, "layers", shape->n_layers + 1, "gpu_layers",
        plan_layers_on_gpu(plan, shape), "cache_type_k", dtype_name(w->kv_type_k), "cache_type_v",
        dtype_name(w->kv_type_v), "devices", devices, "unit_device", units, "streaming", ring,
        "rates", rates_report(&plan->machine), "prediction", predict_report(plan, shape));
}

json_t *report_json_units(const struct plan *plan, const struct shape *shape) {
    json_t *list = json_array();
    for (int32_t u = 0; u < plan->n_units; u++) {
        char name[64];
        plan_unit_name(&shape->units[u], name, sizeof name);
        json_array_append_new(
            list,
            json_pack("{s:s, s:i, s:i, s:b, s:o, s:o, s:o, s:o}", "name", name, "device",
                      plan->place.units[u].device, "cpu_parts", plan->place.units[u].cpu_parts,
                      "streamed", plan->place.units[u].streamed, "weights_bytes",
                      report_json_count(plan->unit_weight_bytes[u]), "cpu_weights_bytes",
                      report_json_count(plan->unit_cpu_bytes[u]), "kv_bytes",
                      report_json_count(plan->unit_kv_bytes[u]), "read_bytes",
                      report_json_count(plan->unit_read_bytes[u])));
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
    if (step->tail) json_object_set_new(row, "tail", json_true());
    if (step->bytes_fixed) json_object_set_new(row, "bytes", report_json_count(step->bytes_fixed));
    if (step->bytes_per_row)
        json_object_set_new(row, "bytes_per_row", report_json_count(step->bytes_per_row));
    if (step->bytes_per_past)
        json_object_set_new(row, "bytes_per_past", report_json_count(step->bytes_per_past));
    if (step->bytes_per_past && step->most_past < INT32_MAX)
        json_object_set_new(row, "most_past", json_integer(step->most_past));
    return row;
}

json_t *report_json_steps(const struct plan *plan, const struct shape *shape,
                          enum batch_class batch) {
    const struct pass pass = plan_pass(plan, batch);
    batch = batch_class_of(pass.n_tokens); // few tokens run as a smaller class
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
                     (json_int_t)u.n_tokens, "to_bytes", report_json_count(u.to_bytes),
                     "from_bytes", report_json_count(u.from_bytes), "fetched_bytes",
                     report_json_count(u.fetched_bytes), "bytes_per_token",
                     (double)(u.to_bytes + u.from_bytes) / (double)u.n_tokens, "measured",
                     times_report(&u, &u.measured, machine), "planned",
                     u.planned.total_us > 0 ? times_report(&u, &u.planned, machine) : json_null());
}

json_t *report_json_usage(const struct trace *t, const struct machine *machine) {
    if (!t) return json_null();
    return json_pack("{s:o, s:o, s:o, s:I}", "one", class_report(t, machine, BATCH_ONE), "small",
                     class_report(t, machine, BATCH_SMALL), "prefill",
                     class_report(t, machine, BATCH_PREFILL), "dropped_spans",
                     (json_int_t)trace_dropped(t));
}

json_t *report_json_advice_now(const struct plan *plan, const struct shape *shape) {
    struct prediction now;
    if (plan->machine.rates == RATES_NONE) return json_null();
    advise_now(plan, shape, &now);
    return prediction_report(plan, &now);
}

json_t *report_json_advice(const struct plan *plan, const struct shape *shape,
                           const struct advice_result advice[ADVICES]) {
    json_t *list = json_array();
    struct prediction now = {0};
    if (plan->machine.rates != RATES_NONE) advise_now(plan, shape, &now);
    for (int i = 0; i < ADVICES; i++) {
        const struct advice_result *a = &advice[i];
        if (!a->exists) continue;
        json_t *prediction =
            a->prediction.decode_us > 0 ? prediction_report(plan, &a->prediction) : json_null();
        json_array_append_new(list, json_pack("{s:s, s:b, s:i, s:o}", "text", a->text, "helps",
                                              advise_helps(&now, &a->prediction), "units_on_gpu",
                                              a->units_on_gpu, "prediction", prediction));
    }
    return list;
}

enum status report_json_write(json_t *root, FILE *out, struct err *e) {
    if (!root) return err_memory(e, 0, "the JSON result");
    int result = json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(root);
    if (result != 0 || fputc('\n', out) == EOF) return err_errno(e, errno, "standard output");
    return OK;
}
