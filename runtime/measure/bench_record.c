/* bench_record.c: see bench_record.h. */
#include "runtime/measure/bench_record.h"

#include "runtime/tandem.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <time.h>

// ---- The model ----------------------------------------------------------------------------------

// Prints "24K", "135M", "1.24B", "8.03B".
static void print_label(char *out, size_t size_bytes, uint64_t n_params) {
    const double billions = (double)n_params / 1e9;
    if (billions >= 0.9995)
        snprintf(out, size_bytes, "%.3gB", billions);
    else if (billions >= 0.9995e-3)
        snprintf(out, size_bytes, "%.0fM", billions * 1e3);
    else
        snprintf(out, size_bytes, "%.0fK", billions * 1e6);
}

void bench_model_of(const struct shape *shape, struct bench_model *out) {
    uint64_t by_type[DTYPE_COUNT] = {0};
    int most = 0;
    char label[32];
    *out =
        (struct bench_model){.size_bytes = shape_weight_bytes(shape), .n_layers = shape->n_layers};
    for (int32_t u = 0; u < shape->n_units; u++) {
        const struct unit *unit = &shape->units[u];
        for (int32_t i = unit->shares_embed; i < unit->n_tensors; i++) { // tensor 0 is shared
            const struct unit_tensor *t = &unit->tensors[i];
            out->n_params += (uint64_t)t->n_cols * (uint64_t)t->n_rows * (uint64_t)t->n_matrices;
            by_type[t->type] += t->size_bytes;
        }
    }
    for (int t = 1; t < DTYPE_COUNT; t++)
        if (by_type[t] > by_type[most]) most = t;
    print_label(label, sizeof label, out->n_params);
    snprintf(out->type, sizeof out->type, "%s %s %s", shape->architecture, label,
             dtype_name((enum dtype)most));
}

// ---- Rows ---------------------------------------------------------------------------------------

void bench_row_add(struct bench_row *row, struct bench_field field) {
    ASSERT(row->n_fields < BENCH_FIELDS);
    row->fields[row->n_fields++] = field;
}

static void lower_case(char *out, size_t size_bytes, const char *text) {
    snprintf(out, size_bytes, "%s", text);
    for (char *c = out; *c; c++) *c = (char)tolower((unsigned char)*c);
}

void bench_row_begin(struct bench_row *row, const struct machine *machine,
                     const struct bench_model *model, const char *path, const char *device) {
    static const char *const rates[] = {"none", "nearest", "file", "measured"};
    const struct machine_device *devices = machine->devices;
    const time_t now = time(NULL);
    struct tm utc;
    *row = (struct bench_row){.model = *model};
    snprintf(row->backend, sizeof row->backend, "%s", devices[machine->n_devices - 1].kind);
    for (char *c = row->backend; *c; c++) *c = (char)toupper((unsigned char)*c);
    strftime(row->time, sizeof row->time, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    bench_row_add(row, bench_text("build_version", TANDEM_VERSION));
    bench_row_add(row, bench_text("cpu_info", devices[0].name));
    bench_row_add(row, bench_text("gpu_info", machine->n_devices > 1 ? devices[1].name : ""));
    bench_row_add(row, bench_text("backends", row->backend));
    bench_row_add(row, bench_text("model_filename", path));
    bench_row_add(row, bench_text("model_type", row->model.type));
    bench_row_add(row, bench_count("model_size", (int64_t)row->model.size_bytes));
    bench_row_add(row, bench_count("model_n_params", (int64_t)row->model.n_params));
    bench_row_add(row, bench_text("devices", device ? device : "auto"));
    bench_row_add(row, bench_text("rates", rates[machine->rates]));
    bench_row_add(row, bench_text("test_time", row->time));
}

// The plan in a few numbers.
struct summary {
    int32_t n_ubatch, n_threads, n_layers, n_split, n_streamed;
};

static struct summary summary_of(const struct plan *plan, const struct shape *shape) {
    struct summary s = {plan->workload.n_ubatch, plan->machine.devices[0].n_lanes,
                        plan_layers_on_gpu(plan, shape), 0, 0};
    for (int32_t u = 0; u < plan->n_units; u++) {
        s.n_split += plan->place.units[u].cpu_parts > 0;
        s.n_streamed += plan->place.units[u].streamed;
    }
    return s;
}

void bench_row_add_plan(struct bench_row *row, const struct plan *plan, const struct shape *shape,
                        const struct bench_config *config) {
    const struct summary s = plan ? summary_of(plan, shape) : (struct summary){0};
    const enum dtype k = plan ? plan->workload.kv_type_k : config->kv_type_k;
    const enum dtype v = plan ? plan->workload.kv_type_v : config->kv_type_v;
    const int32_t n_threads = config->n_threads ? config->n_threads : s.n_threads;
    const bool all = plan && config->gpu_layers == GPU_LAYERS_ALL;
    lower_case(row->kv_type_k, sizeof row->kv_type_k, dtype_name(k));
    lower_case(row->kv_type_v, sizeof row->kv_type_v, dtype_name(v));
    const struct bench_field fields[] = {
        bench_count("n_batch", config->n_batch),
        bench_count("n_ubatch", s.n_ubatch),
        bench_count("n_threads", n_threads),
        bench_text("type_k", row->kv_type_k),
        bench_text("type_v", row->kv_type_v),
        bench_count("n_gpu_layers", all ? shape->n_layers + 1 : config->gpu_layers),
        bench_count("vram_limit_bytes", (int64_t)config->vram_bytes),
        bench_text("strategy", strategy_name(config->strategy)),
        bench_count("layers_on_gpu", s.n_layers),
        bench_count("units_split", s.n_split),
        bench_count("units_streamed", s.n_streamed),
        bench_text("feed", feed_name(plan ? plan->place.feed : FEED_NONE)),
        bench_flag("runs_ahead", plan && plan->runs_ahead),
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) bench_row_add(row, fields[i]);
}

void bench_row_add_kept(struct bench_row *row, const struct cli_options *o,
                        const struct bench_config *config) {
    const int32_t n_layers = o->cpu_experts ? row->model.n_layers : o->n_cpu_experts;
    bench_row_add(row, bench_count("n_cpu_moe", n_layers));
    bench_row_add(row, bench_flag("no_kv_offload", o->cpu_cache));
    bench_row_add(row, bench_text("tensor_buft_overrides", config->overrides.text));
}

uint64_t bench_peak_vram(const struct engine *engine) {
    return engine_plan(engine)->machine.n_devices > 1 ? engine_peak_bytes(engine, 1) : 0;
}

uint64_t bench_pinned_bytes(const struct engine *engine) {
    const struct plan *plan = engine_plan(engine);
    return plan->machine.n_devices > 1 ? plan->pinned_bytes : 0;
}

void bench_row_add_memory(struct bench_row *row, const struct engine *engine) {
    bench_row_add(row,
                  bench_count("peak_vram_bytes", engine ? (int64_t)bench_peak_vram(engine) : 0));
    bench_row_add(
        row, bench_count("peak_ram_bytes", engine ? (int64_t)engine_peak_bytes(engine, 0) : 0));
    bench_row_add(row,
                  bench_count("pinned_bytes", engine ? (int64_t)bench_pinned_bytes(engine) : 0));
}

// ---- Cells --------------------------------------------------------------------------------------

void bench_print_size(char *out, size_t size_bytes, uint64_t value) {
    const double mib = (double)value / (1 << 20);
    if (mib < 1)
        snprintf(out, size_bytes, "%.2f KiB", mib * 1024);
    else if (mib < 1024)
        snprintf(out, size_bytes, "%.2f MiB", mib);
    else
        snprintf(out, size_bytes, "%.2f GiB", mib / 1024);
}

void bench_print_params(char *out, size_t size_bytes, uint64_t value) {
    if (value < 1000000000)
        snprintf(out, size_bytes, "%.2f M", (double)value / 1e6);
    else
        snprintf(out, size_bytes, "%.2f B", (double)value / 1e9);
}

void bench_print_real(char *out, size_t size_bytes, double value, int digits) {
    if (isfinite(value))
        snprintf(out, size_bytes, "%.*f", digits, value);
    else
        snprintf(out, size_bytes, "-");
}
