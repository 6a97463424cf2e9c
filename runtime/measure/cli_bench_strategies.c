/* cli_bench_strategies.c: `tandem bench --strategies`: measures every strategy of placement within
 * every limit of the accelerator's memory, beside the planner's choice. See cli_bench_strategies.h.
 *
 * Each row has engines of its own, one per round: its greedy tokens are compared with those of the
 * CPU alone, then a prompt and the tokens after it are timed. A round is one run of every strategy
 * within a limit; only times of the same round are compared. A strategy that does not fit has a row
 * that says so. The end of the output says how often the planner's choice was the best one.
 */
#include "runtime/measure/cli_bench_strategies.h"

#include "base/clock.h"
#include "base/mem.h"
#include "runtime/measure/bench_plot.h"
#include "runtime/measure/cli_bench_common.h"
#include "runtime/cli/cli_signal.h"
#include "runtime/host/devices.h"

#include <math.h>
#include <string.h>

enum { CHECKED_TOKENS = 32, PLOT_LIMITS = 16 };
static const double MIB = 1 << 20;

struct comparing {
    struct cli *cli; // borrowed
    struct bench_matrix matrix;
    struct bench_writers writers;
    struct machine machine;
    struct bench_model model; // of the reference
    struct bench_reference reference;
    struct bench_setup setup;
    struct bench_case *cases; // [n_configs, STRATEGIES]
    struct bench_case *now;
    struct bench_engine engine; // of now
    struct bench_row row;
};

// ---- What may be asked for ----------------------------------------------------------------------

static enum status check_options(const struct cli_options *o, struct err *e) {
    const struct bench_options *b = &o->bench;
    if (b->prompt_gen.n || b->n_depth.n)
        return err_set(e, ERR_USAGE, "--strategies measures one -p and one -n, no %s",
                       b->n_depth.n ? "-d" : "-pg");
    if (o->strategy != STRATEGY_AUTO)
        return err_set(e, ERR_USAGE, "--strategies and --strategy exclude each other");
    if (b->gpu_layers.n) return err_set(e, ERR_USAGE, "--strategies and -ngl exclude each other");
    if (b->plot_path && b->models.n > 1)
        return err_set(e, ERR_USAGE, "--plot draws one model, not %d", b->models.n);
    return OK;
}

// True if two configurations differ in model and limit alone.
static bool are_alike(const struct bench_config *a, const struct bench_config *b) {
    return a->gpu_layers == b->gpu_layers && a->n_batch == b->n_batch &&
           a->n_ubatch == b->n_ubatch && a->n_threads == b->n_threads &&
           a->kv_type_k == b->kv_type_k && a->kv_type_v == b->kv_type_v &&
           a->overrides.text == b->overrides.text;
}

static enum status check_matrix(struct bench_matrix *m, const struct bench_options *o,
                                struct err *e) {
    const bool pair = m->n_tests == 2 && m->tests[0].n_prompt && m->tests[1].n_gen;
    if (!pair) return err_set(e, ERR_USAGE, "--strategies needs one -p and one -n above 0");
    for (int32_t i = 1; i < m->n_configs; i++)
        if (!are_alike(&m->configs[0], &m->configs[i]))
            return err_set(e, ERR_USAGE, "with --strategies only -m and --vram are lists");
    if (m->configs[0].kv_type_k == KV_TYPE_AUTO)
        return err_set(e, ERR_USAGE, "--strategies needs one type of cache, not auto");
    if (o->plot_path && m->n_configs > PLOT_LIMITS)
        return err_set(e, ERR_USAGE, "--plot has room for %d limits, not %d", PLOT_LIMITS,
                       m->n_configs);
    m->tests[1].n_depth = m->tests[0].n_prompt; // the tokens come behind the prompt
    return OK;
}

// ---- Rows ---------------------------------------------------------------------------------------

static bool before_run(void *context, const struct bench_test *test, int32_t run) {
    const struct comparing *x = context;
    char name[64], limit[32] = "no limit";
    if (x->cli->options.bench.progress) {
        if (x->now->config.vram_bytes)
            bench_print_size(limit, sizeof limit, x->now->config.vram_bytes);
        fprintf(stderr, "tandem: %d/%d %s, %s, %s: ", (int)(x->now - x->cases) + 1,
                x->matrix.n_configs * STRATEGIES, limit, strategy_name(x->now->config.strategy),
                bench_test_name(test, name, sizeof name));
        cli_bench_say_run(run, x->setup.n_repeats);
    } else {
        const int64_t i = x->now - x->cases, n = x->setup.n_repeats, round = run < 0 ? 0 : run;
        const int64_t done = (i / STRATEGIES * n + round) * STRATEGIES + i % STRATEGIES;
        progress_bar_show(&x->cli->bar, "measure", (uint64_t)done,
                          (uint64_t)(x->matrix.n_configs * n * STRATEGIES));
    }
    return !signal_seen();
}

static double speed_of(const struct bench_result *r, double us) {
    return us > 0 ? (r->test.n_prompt + r->test.n_gen) * 1e6 / us : NAN;
}
static double percent_of(const struct bench_result *r, const struct bench_estimate *estimate) {
    return estimate->limit_us > 0 ? 100 * estimate->limit_us / r->time_us.median : NAN;
}

struct part_names {
    const char *median, *stddev, *planned, *limit, *percent, *samples;
};
static const struct part_names PROMPT_NAMES = {"prompt_median_ts",        "prompt_stddev_ts",
                                               "prompt_planned_ts",       "prompt_limit_ts",
                                               "prompt_percent_of_limit", "prompt_samples_ns"};
static const struct part_names GEN_NAMES = {"gen_median_ts",        "gen_stddev_ts",
                                            "gen_planned_ts",       "gen_limit_ts",
                                            "gen_percent_of_limit", "gen_samples_ns"};

static void add_part(struct bench_row *row, const struct bench_result *r,
                     const struct bench_estimate *estimate, const struct part_names *names) {
    const bool known = r->n > 0;
    bench_row_add(row, bench_real(names->median, known ? speed_of(r, r->time_us.median) : NAN));
    bench_row_add(row, bench_real(names->stddev, known ? r->speed.stddev : NAN));
    bench_row_add(row, bench_real(names->planned, speed_of(r, estimate->planned_us)));
    bench_row_add(row, bench_real(names->limit, speed_of(r, estimate->limit_us)));
    bench_row_add(row, bench_real(names->percent, known ? percent_of(r, estimate) : NAN));
    bench_row_add(row, bench_counts(names->samples, r->ns, r->n));
}

static void add_agreement(struct bench_row *row, const struct bench_case *c) {
    const struct bench_agreement *a = &c->agreement;
    const bool differs = !c->is_refused && a->first_difference >= 0;
    bench_row_add(row, c->is_refused ? bench_unknown("tokens_agree")
                                     : bench_flag("tokens_agree", a->is_good));
    bench_row_add(row, differs ? bench_count("first_difference", a->first_difference)
                               : bench_unknown("first_difference"));
    bench_row_add(row, bench_real("nmse", differs ? a->nmse : NAN));
}

static void fill_row(struct comparing *x) {
    struct bench_row *row = &x->row;
    const struct bench_case *c = x->now;
    const struct engine *engine = x->engine.engine; // NULL: refused
    bench_row_begin(row, &x->machine, &x->model, c->config.model, x->cli->options.device);
    bench_row_add_plan(row, engine ? engine_plan(engine) : NULL,
                       engine ? engine_shape(engine) : NULL, &c->config);
    bench_row_add_kept(row, &x->cli->options, &c->config);
    bench_row_add(row, bench_count("n_prompt", x->setup.n_prompt));
    bench_row_add(row, bench_count("n_gen", x->setup.n_gen));
    bench_row_add(row, bench_text("refused", c->why));
    add_part(row, &c->prompt, &c->prompt_estimate, &PROMPT_NAMES);
    add_part(row, &c->gen, &c->gen_estimate, &GEN_NAMES);
    bench_row_add(
        row, bench_real("first_token_ms", c->is_refused ? NAN : c->prompt.time_us.median * 1e-3));
    bench_row_add(row, bench_real("total_ms", bench_case_total_us(c) * 1e-3));
    bench_row_add_memory(row, engine);
    bench_row_add(row, bench_count("replans", c->n_replans));
    add_agreement(row, c);
}

#define CELL(name) static void name(const struct comparing *x, char out[BENCH_CELL_BYTES])
#define REAL_CELL(name, value, digits)                                                     \
    CELL(name) {                                                                           \
        bench_print_real(out, BENCH_CELL_BYTES, x->now->is_refused ? NAN : value, digits); \
    }
CELL(model_cell) { snprintf(out, BENCH_CELL_BYTES, "%s", x->model.type); }
CELL(limit_cell) {
    if (x->now->config.vram_bytes)
        bench_print_size(out, BENCH_CELL_BYTES, x->now->config.vram_bytes);
    else
        snprintf(out, BENCH_CELL_BYTES, "-");
}
CELL(strategy_cell) {
    snprintf(out, BENCH_CELL_BYTES, "%s", strategy_name(x->now->config.strategy));
}
static void print_speed(const struct bench_case *c, const struct bench_result *r,
                        char out[BENCH_CELL_BYTES]) {
    if (c->is_refused)
        snprintf(out, BENCH_CELL_BYTES, "-");
    else
        snprintf(out, BENCH_CELL_BYTES, "%.2f ± %.2f", speed_of(r, r->time_us.median),
                 r->speed.stddev);
}
CELL(prompt_cell) { print_speed(x->now, &x->now->prompt, out); }
CELL(gen_cell) { print_speed(x->now, &x->now->gen, out); }
REAL_CELL(prompt_planned_cell, speed_of(&x->now->prompt, x->now->prompt_estimate.planned_us), 2)
REAL_CELL(gen_planned_cell, speed_of(&x->now->gen, x->now->gen_estimate.planned_us), 2)
REAL_CELL(prompt_percent_cell, percent_of(&x->now->prompt, &x->now->prompt_estimate), 1)
REAL_CELL(gen_percent_cell, percent_of(&x->now->gen, &x->now->gen_estimate), 1)
REAL_CELL(first_token_cell, x->now->prompt.time_us.median * 1e-3, 1)
REAL_CELL(total_cell, bench_case_total_us(x->now) * 1e-3, 1)
REAL_CELL(vram_cell, (double)x->now->peak_vram_bytes / MIB, 1)
REAL_CELL(ram_cell, (double)x->now->peak_ram_bytes / MIB, 1)
REAL_CELL(pinned_cell, (double)x->now->pinned_bytes / MIB, 1)
CELL(tokens_cell) {
    if (x->now->is_refused)
        snprintf(out, BENCH_CELL_BYTES, "does not fit: %s", x->now->why);
    else
        bench_agreement_text(&x->now->agreement, out, BENCH_CELL_BYTES);
}
#undef REAL_CELL
#undef CELL

static const struct {
    struct bench_column column;
    void (*print)(const struct comparing *x, char out[BENCH_CELL_BYTES]);
} COLUMNS[] = {
    {{"model", 20, true}, model_cell},
    {{"vram limit", 10, false}, limit_cell},
    {{"strategy", 15, true}, strategy_cell},
    {{"prompt t/s", 18, false}, prompt_cell},
    {{"planned", 8, false}, prompt_planned_cell},
    {{"limit %", 7, false}, prompt_percent_cell},
    {{"gen t/s", 16, false}, gen_cell},
    {{"planned", 8, false}, gen_planned_cell},
    {{"limit %", 7, false}, gen_percent_cell},
    {{"1st ms", 8, false}, first_token_cell},
    {{"total ms", 9, false}, total_cell},
    {{"VRAM MiB", 8, false}, vram_cell},
    {{"RAM MiB", 8, false}, ram_cell},
    {{"pinned", 8, false}, pinned_cell},
    {{"tokens", 10, true}, tokens_cell},
};
enum { COLUMN_COUNT = sizeof COLUMNS / sizeof *COLUMNS };

static enum status write_row(struct comparing *x, struct err *e) {
    struct bench_column shown[COLUMN_COUNT];
    char cells[COLUMN_COUNT][BENCH_CELL_BYTES];
    fill_row(x);
    for (int i = 0; i < COLUMN_COUNT; i++) {
        shown[i] = COLUMNS[i].column;
        COLUMNS[i].print(x, cells[i]);
    }
    bench_writers_columns(&x->writers, shown, COLUMN_COUNT);
    const struct bench_record record = {x->row.fields, x->row.n_fields,
                                        (const char(*)[BENCH_CELL_BYTES])cells};
    return bench_writers_row(&x->writers, &record, e);
}

// ---- All of them --------------------------------------------------------------------------------

// Describes the accelerator before anything is measured.
static enum status look_at_machine(struct comparing *x, const struct engine_options *options,
                                   struct err *e) {
    struct device *devices[MAX_DEVICES] = {NULL};
    int32_t n = 0;
    if (devices_open(devices, &n, options, e)) return e->status;
    enum status status = devices_machine(&x->machine, devices, n, options, e);
    devices_close(devices);
    if (status || n > 1) return status;
    err_set(e, ERR_UNSUPPORTED, "--strategies needs a GPU, and none can be used here");
    return err_fix(e, "see 'tandem devices'");
}

// Computes the reference for every row on the CPU alone, and reads the model's facts from that
// engine.
static enum status open_reference(struct comparing *x, const struct bench_config *config,
                                  struct err *e) {
    struct engine_options options;
    const int32_t n = x->setup.n_gen < CHECKED_TOKENS ? x->setup.n_gen : CHECKED_TOKENS;
    bench_reference_close(&x->reference);
    if (cli_bench_options(x->cli, &x->matrix, config, &options, e)) return e->status;
    options.device_spec = "none";
    options.constraints = (struct constraints){.gpu_layers = GPU_LAYERS_AUTO};
    options.tensor_overrides = NULL;
    if (bench_reference_open(&x->reference, &options, x->setup.n_prompt, n, e))
        return err_context(e, "the CPU alone, to compare with");
    x->model = x->reference.model;
    return OK;
}

static enum status run_case(struct comparing *x, const struct bench_config *config, int32_t s,
                            int32_t round, struct err *e) {
    struct engine_options options;
    x->now->config = *config;
    x->now->config.strategy = bench_strategy(s);
    if (cli_bench_options(x->cli, &x->matrix, &x->now->config, &options, e)) return e->status;
    clock_sleep_ns((uint64_t)x->cli->options.bench.delay_s * 1000000000u);
    enum status status = bench_case_run(x->now, &x->engine, &x->setup, &options, round, e);
    progress_bar_clear(&x->cli->bar);
    if (!status && round == x->setup.n_repeats - 1) status = write_row(x, e);
    bench_engine_close(&x->engine);
    return status;
}

// Runs all strategies within one limit, in rounds.
static enum status run_limit(struct comparing *x, int32_t i, struct err *e) {
    for (int32_t round = 0; round < x->setup.n_repeats; round++) {
        for (int32_t s = 0; s < STRATEGIES; s++) {
            x->now = &x->cases[i * STRATEGIES + s];
            if (run_case(x, &x->matrix.configs[i], s, round, e)) return e->status;
        }
    }
    return OK;
}

static enum status run_all(struct comparing *x, struct err *e) {
    const struct bench_config *configs = x->matrix.configs;
    for (int32_t i = 0; i < x->matrix.n_configs; i++) {
        const bool is_new = i == 0 || configs[i].model != configs[i - 1].model;
        if (is_new && open_reference(x, &configs[i], e)) return e->status;
        if (run_limit(x, i, e)) return e->status;
    }
    return OK;
}

// ---- The end ------------------------------------------------------------------------------------

static void print_verdict(const struct bench_case *cases, const struct bench_verdict *v,
                          FILE *out) {
    char limit[32] = "no limit";
    if (cases->config.vram_bytes) bench_print_size(limit, sizeof limit, cases->config.vram_bytes);
    if (v->best < 0) {
        fprintf(out, "  %s: nothing fits\n", limit);
        return;
    }
    const struct bench_case *best = &cases[v->best];
    fprintf(out, "  %s: best %s, %.1f ms; ", limit, strategy_name(best->config.strategy),
            bench_case_total_us(best) * 1e-3);
    if (v->chosen < 0)
        fputs("the planner's choice did not fit\n", out);
    else if (v->chosen == v->best)
        fputs("that is the planner's choice\n", out);
    else
        fprintf(out, "the planner's choice %.1f ms, %.3f times as long in the median round\n",
                bench_case_total_us(&cases[v->chosen]) * 1e-3, v->ratio);
}

// Prints the summary: on standard output with a Markdown table, otherwise on standard error.
static void print_summary(const struct comparing *x) {
    FILE *out = x->writers.all[0].format == BENCH_MD ? stdout : stderr;
    const int32_t n = x->matrix.n_configs;
    int32_t n_good = 0;
    if (x->cli->options.quiet) return;
    for (int32_t i = 0; i < n; i++) {
        struct bench_verdict v;
        bench_verdict(&x->cases[i * STRATEGIES], STRATEGIES, &v);
        n_good += v.is_good;
    }
    fprintf(out,
            "\nThe planner's choice takes at most %.0f %% longer than the best strategy within %d "
            "of %d limit%s, for a prompt of %d token%s and %d new:\n",
            100 * (BENCH_CHOICE_RATIO - 1), n_good, n, n == 1 ? "" : "s", x->setup.n_prompt,
            x->setup.n_prompt == 1 ? "" : "s", x->setup.n_gen);
    for (int32_t i = 0; i < n; i++) {
        struct bench_verdict v;
        bench_verdict(&x->cases[i * STRATEGIES], STRATEGIES, &v);
        print_verdict(&x->cases[i * STRATEGIES], &v, out);
    }
}

static enum status draw(const struct comparing *x, struct err *e) {
    char title[160], subtitle[256];
    const struct bench_plot plot = {x->cases, x->matrix.n_configs, title, subtitle,
                                    x->cli->options.bench.plot_path};
    if (!plot.path) return OK;
    snprintf(title, sizeof title, "%s: prompt of %d token%s, %d new", x->model.type,
             x->setup.n_prompt, x->setup.n_prompt == 1 ? "" : "s", x->setup.n_gen);
    snprintf(subtitle, sizeof subtitle, "%s; %s", x->machine.devices[1].name,
             x->machine.devices[0].name);
    return bench_plot_draw(&plot, e);
}

static enum status judge(const struct comparing *x, struct err *e) {
    int32_t n_wrong = 0;
    const struct bench_case *first = NULL;
    for (int32_t i = 0; i < x->matrix.n_configs * STRATEGIES; i++) {
        const struct bench_case *c = &x->cases[i];
        if (c->is_refused || c->agreement.is_good) continue;
        n_wrong++;
        if (!first) first = c;
    }
    if (!n_wrong) return OK;
    err_set(e, ERR_DEVICE, "%d row%s computed other tokens than the CPU alone, first %s", n_wrong,
            n_wrong == 1 ? "" : "s", strategy_name(first->config.strategy));
    return e->status;
}

static enum status prepare(struct comparing *x, struct err *e) {
    const struct cli_options *o = &x->cli->options;
    struct engine_options options;
    if (check_options(o, e) || bench_matrix_open(&x->matrix, &o->bench, e) ||
        check_matrix(&x->matrix, &o->bench, e) ||
        bench_writers_init(&x->writers, o, "tandem_strategies", e) ||
        (o->bench.plot_path && bench_plot_check(o->bench.plot_path, e)) ||
        cli_bench_options(x->cli, &x->matrix, &x->matrix.configs[0], &options, e) ||
        look_at_machine(x, &options, e))
        return e->status;
    const size_t n = (size_t)x->matrix.n_configs * STRATEGIES;
    x->cases = mem_alloc(n, sizeof *x->cases);
    if (!x->cases) return err_memory(e, n * sizeof *x->cases, "the results");
    x->setup = (struct bench_setup){.n_prompt = x->matrix.tests[0].n_prompt,
                                    .n_gen = x->matrix.tests[1].n_gen,
                                    .n_repeats = o->bench.n_repeats,
                                    .reference = &x->reference,
                                    .runs = {!o->bench.no_warmup, before_run, x}};
    cli_bench_say_rates(x->cli, &x->machine);
    return OK;
}

static enum status compare(struct comparing *x, struct err *e) {
    if (prepare(x, e)) return e->status;
    if (bench_writers_end(&x->writers, run_all(x, e), e)) return e->status;
    print_summary(x);
    if (draw(x, e)) return e->status;
    return judge(x, e);
}

enum status cli_bench_strategies(struct cli *cli, struct err *e) {
    struct comparing *x = mem_alloc(1, sizeof *x);
    if (!x) return err_memory(e, sizeof *x, "the benchmark");
    x->cli = cli;
    signal_watch();
    const enum status status = compare(x, e);
    progress_bar_clear(&cli->bar);
    bench_engine_close(&x->engine);
    for (int32_t i = 0; x->cases && i < x->matrix.n_configs * STRATEGIES; i++)
        bench_case_close(&x->cases[i]);
    mem_free(x->cases);
    bench_reference_close(&x->reference);
    bench_matrix_close(&x->matrix);
    mem_free(x);
    return status;
}
