/* cli_bench.c: `tandem bench`: measures tokens per second of every combination of the given lists,
 * in the formats and with the names of llama-bench. See cli_bench.h.
 *
 * A configuration is an engine; its tests run one after the other, each a few times after a
 * warm-up. The plan's prediction and the machine's limit are shown beside the measured speed.
 */
#include "runtime/measure/cli_bench.h"

#include "base/clock.h"
#include "base/mem.h"
#include "runtime/measure/bench_estimate.h"
#include "runtime/measure/bench_measure.h"
#include "runtime/measure/cli_bench_common.h"
#include "runtime/measure/cli_bench_strategies.h"
#include "runtime/cli/cli_signal.h"

#include <math.h>
#include <string.h>

static const double MIB = 1 << 20;

// ---- One test -----------------------------------------------------------------------------------

struct measuring {
    struct cli *cli; // borrowed
    struct bench_matrix matrix;
    struct bench_writers writers;
    struct bench_engine engine;
    struct bench_model model; // of the engine
    const struct bench_config *config;
    int32_t n_done; // tests
    struct bench_result result;
    struct bench_estimate estimate;
    struct bench_row row;
};

static bool before_run(void *context, const struct bench_test *test, int32_t run) {
    const struct measuring *m = context;
    const struct bench_options *o = &m->cli->options.bench;
    char name[64];
    if (o->progress) {
        fprintf(stderr, "tandem: %d/%lld %s: ", m->n_done + 1,
                (long long)m->matrix.n_tests * m->matrix.n_configs,
                bench_test_name(test, name, sizeof name));
        cli_bench_say_run(run, o->n_repeats);
    } else {
        const int64_t n_runs = o->n_repeats + 1, done = m->n_done * n_runs + run + 1;
        progress_bar_show(&m->cli->bar, "measure", (uint64_t)(done < 0 ? 0 : done),
                          (uint64_t)(m->matrix.n_tests * (int64_t)m->matrix.n_configs * n_runs));
    }
    return !signal_seen();
}

static enum status measure(struct measuring *m, const struct bench_test *test, struct err *e) {
    const struct bench_options *o = &m->cli->options.bench;
    const struct bench_runs runs = {!o->no_warmup, before_run, m};
    const struct plan *plan = engine_plan(m->engine.engine);
    clock_sleep_ns((uint64_t)o->delay_s * 1000000000u);
    if (bench_engine_measure(&m->engine, test, &runs, &m->result, e)) return e->status;
    bench_estimate(plan, engine_shape(m->engine.engine), test, m->engine.n_batch, &m->estimate);
    return OK;
}

// Tokens per second of the test if it took us; NAN if that is not known.
static double speed_of(const struct measuring *m, double us) {
    const struct bench_test *test = &m->result.test;
    return us > 0 ? (test->n_prompt + test->n_gen) * 1e6 / us : NAN;
}
static double percent_of_limit(const struct measuring *m) {
    return m->estimate.limit_us > 0 ? 100 * m->estimate.limit_us / m->result.time_us.median : NAN;
}
static double weights_gbps(const struct measuring *m) {
    return m->estimate.read_bytes / (m->result.time_us.median * 1e3);
}

// ---- What comes out -----------------------------------------------------------------------------

static void fill_row(struct measuring *m) {
    struct bench_row *row = &m->row;
    const struct bench_result *r = &m->result;
    const struct plan *plan = engine_plan(m->engine.engine);
    bench_row_begin(row, &plan->machine, &m->model, m->config->model, m->cli->options.device);
    bench_row_add_plan(row, plan, engine_shape(m->engine.engine), m->config);
    bench_row_add_kept(row, &m->cli->options, m->config);
    bench_row_add(row, bench_count("n_prompt", r->test.n_prompt));
    bench_row_add(row, bench_count("n_gen", r->test.n_gen));
    bench_row_add(row, bench_count("n_depth", r->test.n_depth));
    bench_row_add(row, bench_count("avg_ns", llround(r->time_us.mean * 1e3)));
    bench_row_add(row, bench_count("stddev_ns", llround(r->time_us.stddev * 1e3)));
    bench_row_add(row, bench_real("avg_ts", r->speed.mean));
    bench_row_add(row, bench_real("stddev_ts", r->speed.stddev));
    bench_row_add(row, bench_real("median_ts", speed_of(m, r->time_us.median)));
    bench_row_add(row, bench_real("planned_ts", speed_of(m, m->estimate.planned_us)));
    bench_row_add(row, bench_real("limit_ts", speed_of(m, m->estimate.limit_us)));
    bench_row_add(row, bench_real("percent_of_limit", percent_of_limit(m)));
    bench_row_add(row, bench_real("gbps", weights_gbps(m)));
    bench_row_add_memory(row, m->engine.engine);
    bench_row_add(row, bench_counts("samples_ns", r->ns, r->n));
    bench_row_add(row, bench_reals("samples_ts", r->ts, r->n));
}

#define CELL(name) static void name(const struct measuring *m, char out[BENCH_CELL_BYTES])
CELL(model_cell) { snprintf(out, BENCH_CELL_BYTES, "%s", m->row.model.type); }
CELL(size_cell) { bench_print_size(out, BENCH_CELL_BYTES, m->row.model.size_bytes); }
CELL(params_cell) { bench_print_params(out, BENCH_CELL_BYTES, m->row.model.n_params); }
CELL(backend_cell) { snprintf(out, BENCH_CELL_BYTES, "%s", m->row.backend); }
CELL(layers_cell) {
    if (m->config->gpu_layers == GPU_LAYERS_ALL)
        snprintf(out, BENCH_CELL_BYTES, "all");
    else
        snprintf(out, BENCH_CELL_BYTES, "%d", m->config->gpu_layers);
}
CELL(vram_cell) {
    if (m->config->vram_bytes)
        bench_print_size(out, BENCH_CELL_BYTES, m->config->vram_bytes);
    else
        snprintf(out, BENCH_CELL_BYTES, "-");
}
CELL(threads_cell) {
    const int32_t n_lanes = engine_plan(m->engine.engine)->machine.devices[0].n_lanes;
    snprintf(out, BENCH_CELL_BYTES, "%d", m->config->n_threads ? m->config->n_threads : n_lanes);
}
CELL(batch_cell) { snprintf(out, BENCH_CELL_BYTES, "%d", m->config->n_batch); }
CELL(ubatch_cell) {
    snprintf(out, BENCH_CELL_BYTES, "%d", engine_workload(m->engine.engine)->n_ubatch);
}
CELL(kv_k_cell) { snprintf(out, BENCH_CELL_BYTES, "%s", m->row.kv_type_k); }
CELL(kv_v_cell) { snprintf(out, BENCH_CELL_BYTES, "%s", m->row.kv_type_v); }
CELL(n_cpu_moe_cell) {
    if (m->cli->options.cpu_experts)
        snprintf(out, BENCH_CELL_BYTES, "all");
    else
        snprintf(out, BENCH_CELL_BYTES, "%d", m->cli->options.n_cpu_experts);
}
CELL(cpu_cache_cell) { snprintf(out, BENCH_CELL_BYTES, "%d", m->cli->options.cpu_cache); }
CELL(overrides_cell) { snprintf(out, BENCH_CELL_BYTES, "%s", m->config->overrides.text); }
CELL(test_cell) { bench_test_name(&m->result.test, out, BENCH_CELL_BYTES); }
CELL(speed_cell) {
    snprintf(out, BENCH_CELL_BYTES, "%.2f ± %.2f", m->result.speed.mean, m->result.speed.stddev);
}
CELL(median_cell) {
    bench_print_real(out, BENCH_CELL_BYTES, speed_of(m, m->result.time_us.median), 2);
}
CELL(planned_cell) {
    bench_print_real(out, BENCH_CELL_BYTES, speed_of(m, m->estimate.planned_us), 2);
}
CELL(gbps_cell) { bench_print_real(out, BENCH_CELL_BYTES, weights_gbps(m), 2); }
CELL(limit_cell) { bench_print_real(out, BENCH_CELL_BYTES, percent_of_limit(m), 1); }
CELL(peak_vram_cell) {
    const uint64_t size_bytes = bench_peak_vram(m->engine.engine);
    bench_print_real(out, BENCH_CELL_BYTES, (double)size_bytes / MIB, 1);
}
CELL(peak_ram_cell) {
    const uint64_t size_bytes = engine_peak_bytes(m->engine.engine, 0);
    bench_print_real(out, BENCH_CELL_BYTES, (double)size_bytes / MIB, 1);
}
#undef CELL

static bool keeps_experts(const struct cli_options *o) {
    return o->cpu_experts || o->n_cpu_experts;
}
static bool keeps_cache(const struct cli_options *o) { return o->cpu_cache; }

// A column is always shown, or only if its option is given or an accelerator is used.
static const struct column {
    struct bench_column column;
    void (*print)(const struct measuring *m, char out[BENCH_CELL_BYTES]);
    size_t option; // offset of a list in struct bench_options; 0: none, models come first there
    bool always, with_accelerator;
    bool (*is_given)(const struct cli_options *o); // of an option that is no list; NULL: none
} COLUMNS[] = {
#define LIST(field) offsetof(struct bench_options, field)
    {{"model", 30, true}, model_cell, 0, true, false, NULL},
    {{"size", 10, false}, size_cell, 0, true, false, NULL},
    {{"params", 10, false}, params_cell, 0, true, false, NULL},
    {{"backend", 10, true}, backend_cell, 0, true, false, NULL},
    {{"ngl", 3, false}, layers_cell, LIST(gpu_layers), false, true, NULL},
    {{"vram", 10, false}, vram_cell, LIST(vram), false, false, NULL},
    {{"threads", 7, false}, threads_cell, 0, true, false, NULL},
    {{"n_batch", 7, false}, batch_cell, LIST(n_batch), false, false, NULL},
    {{"n_ubatch", 8, false}, ubatch_cell, LIST(n_ubatch), false, false, NULL},
    {{"type_k", 6, false}, kv_k_cell, LIST(kv_type_k), false, false, NULL},
    {{"type_v", 6, false}, kv_v_cell, LIST(kv_type_v), false, false, NULL},
    {{"n_cpu_moe", 9, false}, n_cpu_moe_cell, 0, false, false, keeps_experts},
    {{"nkvo", 4, false}, cpu_cache_cell, 0, false, false, keeps_cache},
    {{"ot", 20, true}, overrides_cell, LIST(tensor_overrides), false, false, NULL},
    {{"test", 15, false}, test_cell, 0, true, false, NULL},
    {{"t/s", 20, false}, speed_cell, 0, true, false, NULL},
    {{"median", 8, false}, median_cell, 0, true, false, NULL},
    {{"planned", 8, false}, planned_cell, 0, true, false, NULL},
    {{"GB/s", 6, false}, gbps_cell, 0, true, false, NULL},
    {{"limit %", 7, false}, limit_cell, 0, true, false, NULL},
    {{"VRAM MiB", 8, false}, peak_vram_cell, 0, false, true, NULL},
    {{"RAM MiB", 8, false}, peak_ram_cell, 0, true, false, NULL},
#undef LIST
};
enum { COLUMN_COUNT = sizeof COLUMNS / sizeof *COLUMNS };

static bool is_shown(const struct measuring *m, const struct column *column) {
    const struct bench_options *o = &m->cli->options.bench;
    if (column->always || (column->is_given && column->is_given(&m->cli->options))) return true;
    if (column->with_accelerator && engine_plan(m->engine.engine)->machine.n_devices > 1)
        return true;
    return column->option &&
           ((const struct text_list *)(const void *)((const char *)o + column->option))->n > 0;
}

static enum status write_row(struct measuring *m, struct err *e) {
    struct bench_column shown[COLUMN_COUNT];
    char cells[COLUMN_COUNT][BENCH_CELL_BYTES];
    int32_t n = 0;
    fill_row(m);
    for (int i = 0; i < COLUMN_COUNT; i++) {
        if (!is_shown(m, &COLUMNS[i])) continue;
        shown[n] = COLUMNS[i].column;
        COLUMNS[i].print(m, cells[n++]);
    }
    bench_writers_columns(&m->writers, shown, n);
    const struct bench_record record = {m->row.fields, m->row.n_fields,
                                        (const char(*)[BENCH_CELL_BYTES])cells};
    return bench_writers_row(&m->writers, &record, e);
}

// ---- All of them --------------------------------------------------------------------------------

static enum status run_config(struct measuring *m, struct err *e) {
    struct engine_options options;
    if (cli_bench_options(m->cli, &m->matrix, m->config, &options, e) ||
        bench_engine_open(&m->engine, &options, m->config->n_batch, e))
        return e->status;
    progress_bar_clear(&m->cli->bar);
    bench_model_of(engine_shape(m->engine.engine), &m->model);
    if (m->n_done == 0) cli_bench_say_rates(m->cli, &engine_plan(m->engine.engine)->machine);
    for (int32_t i = 0; i < m->matrix.n_tests; i++) {
        if (measure(m, &m->matrix.tests[i], e)) return e->status;
        progress_bar_clear(&m->cli->bar);
        if (write_row(m, e)) return e->status;
        m->n_done++;
    }
    bench_engine_close(&m->engine);
    return OK;
}

static enum status run_all(struct measuring *m, struct err *e) {
    if (bench_result_open(&m->result, m->cli->options.bench.n_repeats, e)) return e->status;
    for (int32_t i = 0; i < m->matrix.n_configs; i++) {
        m->matrix.configs[i].strategy = m->cli->options.strategy;
        m->config = &m->matrix.configs[i];
        if (run_config(m, e)) return e->status;
    }
    return OK;
}

static enum status bench_lists(struct cli *cli, struct err *e) {
    struct measuring *m = mem_alloc(1, sizeof *m);
    if (!m) return err_memory(e, sizeof *m, "the benchmark");
    m->cli = cli;
    signal_watch();
    enum status status = bench_matrix_open(&m->matrix, &cli->options.bench, e);
    if (!status) status = bench_writers_init(&m->writers, &cli->options, "tandem_bench", e);
    if (!status) status = bench_writers_end(&m->writers, run_all(m, e), e);
    progress_bar_clear(&cli->bar);
    bench_engine_close(&m->engine);
    bench_matrix_close(&m->matrix);
    bench_result_close(&m->result);
    mem_free(m);
    return status;
}

enum status cli_bench(struct cli *cli, struct err *e) {
    if (cli->options.bench.strategies) return cli_bench_strategies(cli, e);
    if (cli->options.bench.plot_path)
        return err_set(e, ERR_USAGE, "--plot draws strategies: add --strategies");
    return bench_lists(cli, e);
}
