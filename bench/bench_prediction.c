/* bench_prediction.c: what the planner predicts beside what the engine takes.
 *
 *   bench_prediction [-c FOLDER] [-o FILE.tsv] [-r REPEATS] [-k NTH] MODEL...
 *
 * For every model: the CPU alone and with a simulated accelerator behind a slow link, 1 and 2
 * threads, prompts of 16 to 512 tokens, several micro-batches, depths of context and layers on the
 * accelerator. Each pair of threads and device is calibrated just before its engines run, into
 * FOLDER (a new one below /tmp), and the predictions are those of the plan that the engine opened
 * with. Prefill is measured REPEATS times, decode by many tokens at one depth. -k takes every NTH
 * configuration only. At the end the median and the 90th percentile of the errors.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "runtime/calibrate.h"
#include "runtime/calibration_cache.h"
#include "runtime/placement.h"
#include "runtime/tandem.h"
#include "tests/sim_device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_ROWS = 1024,
    MAX_TIMES = 64,
    DECODE_TOKENS = 24,
    MOST_US = 6000000, // of one measurement
};

struct setting {
    const char *device; // NULL: none
    int32_t n_threads, n_prompt, n_ubatch, n_past, gpu_layers;
    enum dtype kv_type;
};

#define SIM  "sim:vram=3G,h2d=2G,d2h=2G"
#define SLOW "sim:vram=3G,h2d=200M,d2h=100M"

// Prompts are computed from n_past on; tokens are decoded after the prompt.
static const struct setting SETTINGS[] = {
    {"none", 1, 16, 512, 0, 0, DTYPE_F16},    {"none", 1, 64, 512, 0, 0, DTYPE_F16},
    {"none", 1, 128, 128, 0, 0, DTYPE_F16},   {"none", 1, 256, 64, 0, 0, DTYPE_F16},
    {"none", 1, 512, 512, 0, 0, DTYPE_F16},   {"none", 1, 64, 16, 1024, 0, DTYPE_F16},
    {"none", 1, 32, 512, 256, 0, DTYPE_Q8_0}, {"none", 2, 16, 512, 0, 0, DTYPE_F16},
    {"none", 2, 32, 8, 0, 0, DTYPE_F16},      {"none", 2, 128, 512, 0, 0, DTYPE_F16},
    {"none", 2, 256, 128, 0, 0, DTYPE_F16},   {"none", 2, 512, 512, 0, 0, DTYPE_F16},
    {"none", 2, 512, 64, 0, 0, DTYPE_Q8_0},   {"none", 2, 64, 512, 1024, 0, DTYPE_F16},
    {"none", 2, 32, 512, 512, 0, DTYPE_F32},  {SIM, 1, 16, 512, 0, 4, DTYPE_F16},
    {SIM, 1, 64, 64, 0, 8, DTYPE_F16},        {SIM, 1, 128, 512, 0, 12, DTYPE_F16},
    {SIM, 1, 256, 128, 0, 16, DTYPE_F16},     {SIM, 1, 64, 512, 512, 10, DTYPE_F16},
    {SLOW, 1, 16, 512, 0, 6, DTYPE_F16},      {SLOW, 1, 128, 32, 0, 12, DTYPE_F16},
    {SLOW, 1, 256, 256, 0, 14, DTYPE_Q8_0},   {SIM, 2, 32, 512, 0, 4, DTYPE_F16},
    {SIM, 2, 128, 64, 0, 8, DTYPE_F16},       {SIM, 2, 256, 512, 0, 12, DTYPE_F16},
    {SIM, 2, 64, 512, 1024, 16, DTYPE_F16},
};

struct row {
    double predicted_us, measured_us;
};

struct bench {
    const char *cache_path;
    FILE *out;
    int32_t n_repeats, nth, n_rows;
    struct row rows[MAX_ROWS];
    struct setting calibrated; // device and threads of the last calibration
    struct engine *engine;
    struct session *session;
    struct batch_item *items;
};

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double load_now(void) {
    double load = 0;
    return getloadavg(&load, 1) == 1 ? load : 0;
}

static void options_of(const struct bench *b, const struct setting *s, const char *model,
                       struct engine_options *out) {
    *out = (struct engine_options){
        .model_path = model,
        .device_spec = s->device,
        .drivers = &sim_driver,
        .n_drivers = 1,
        .cpu = {.isa = ISA_AUTO, .n_threads = s->n_threads},
        .workload = {.n_ctx = 2048,
                     .n_ubatch = s->n_ubatch,
                     .kv_type_k = s->kv_type,
                     .kv_type_v = s->kv_type,
                     .n_prompt = s->n_prompt,
                     .n_gen = DECODE_TOKENS},
        .constraints = {.gpu_layers = s->gpu_layers},
        .cache_path = b->cache_path,
    };
}

static enum status calibrate_for(struct bench *b, const struct setting *s, struct err *e) {
    struct device *devices[MAX_DEVICES] = {NULL};
    int32_t n;
    struct engine_options o;
    struct calibration_options c = {0};
    struct calibration result;
    struct calibration_key key;
    struct machine m;
    options_of(b, s, NULL, &o);
    c.cpu = o.cpu;
    enum status status = placement_open_devices(devices, &n, &o, e);
    if (!status) status = placement_describe(&m, devices, n, e);
    if (!status) status = calibrate(&m, devices[1], &c, &result, e);
    if (!status) {
        calibration_key_of(&key, devices, n, &o);
        status = calibration_store(&m, b->cache_path, &key, e);
    }
    placement_close_devices(devices);
    if (!status) fprintf(stderr, "%s, %d threads: %s\n", s->device, s->n_threads, m.source);
    b->calibrated = *s;
    return status;
}

static enum status eval(struct bench *b, int32_t n, double *us, struct err *e) {
    const int32_t n_vocab = engine_n_vocab(b->engine);
    for (int32_t i = 0; i < n; i++)
        b->items[i] = (struct batch_item){b->session, 1 + (i * 7919) % (n_vocab - 1), i == n - 1};
    const uint64_t start_ns = clock_ns();
    if (engine_eval(b->engine, b->items, n, e)) return e->status;
    *us = (double)(clock_ns() - start_ns) * 1e-3;
    return OK;
}

// The median of several evaluations of n tokens after n_past others, which are there already. The
// first one counts only if it is long.
static enum status measure(struct bench *b, int32_t n, int32_t n_past, int32_t n_times,
                           double *out_us, struct err *e) {
    double times[MAX_TIMES], sum_us = 0, us = 0;
    int32_t count = 0;
    for (int32_t i = 0; i <= n_times && (count == 0 || sum_us < MOST_US); i++) {
        session_truncate(b->session, n_past);
        if (eval(b, n, &us, e)) return e->status;
        sum_us += us;
        if (i > 0 || us > MOST_US / 4) times[count++] = us;
    }
    qsort(times, (size_t)count, sizeof *times, by_value);
    *out_us = times[count / 2];
    return OK;
}

static double predict(const struct bench *b, int32_t n, int32_t n_past) {
    const struct plan *plan = engine_plan(b->engine);
    double us = 0;
    for (int32_t done = 0; done < n;) {
        const int32_t left = n - done, ub = plan->workload.n_ubatch, now = left < ub ? left : ub;
        struct simulation sim;
        const struct pass pass = {now, done + now == n, n_past + done};
        plan_simulate(plan, engine_shape(b->engine), &pass, &sim);
        us += sim.total_us;
        done += now;
    }
    return us;
}

static void add_row(struct bench *b, const struct setting *s, const char *test,
                    const struct pass *pass, const struct row *row) {
    const double error = 100 * (row->predicted_us / row->measured_us - 1);
    fprintf(b->out, "%s\t%s\t%d\t%d\t%s\t%d\t%d\t%d\t%s\t%.3f\t%.3f\t%+.1f\t%.1f\n",
            engine_shape(b->engine)->name, s->device, s->n_threads, s->gpu_layers, test,
            pass->n_tokens, s->n_ubatch, pass->n_past, dtype_name(s->kv_type),
            row->predicted_us * 1e-3, row->measured_us * 1e-3, error, load_now());
    fflush(b->out);
    if (b->n_rows < MAX_ROWS) b->rows[b->n_rows++] = *row;
}

// Measures and predicts n tokens after n_past others.
static enum status compare(struct bench *b, const struct setting *s, const struct pass *pass,
                           int32_t n_times, struct err *e) {
    struct row row = {.predicted_us = predict(b, pass->n_tokens, pass->n_past)};
    if (measure(b, pass->n_tokens, pass->n_past, n_times, &row.measured_us, e)) return e->status;
    add_row(b, s, pass->n_tokens > 1 ? "prefill" : "decode", pass, &row);
    return OK;
}

static enum status run_setting(struct bench *b, const struct setting *s, const char *model,
                               struct err *e) {
    struct engine_options o;
    double us = 0;
    options_of(b, s, model, &o);
    if (engine_open(&b->engine, &o, e) || session_new(&b->session, b->engine, e)) return e->status;
    if (s->n_past > 0 && eval(b, s->n_past, &us, e)) return e->status;
    const struct pass prefill = {s->n_prompt, 1, s->n_past};
    const struct pass decode = {1, 1, s->n_past + s->n_prompt};
    if (compare(b, s, &prefill, b->n_repeats, e)) return e->status;
    return compare(b, s, &decode, DECODE_TOKENS, e);
}

static enum status run_model(struct bench *b, const char *model, struct err *e) {
    enum status status = OK;
    for (size_t i = 0; i < sizeof SETTINGS / sizeof *SETTINGS && !status; i++) {
        const struct setting *s = &SETTINGS[i];
        if (i % (size_t)b->nth) continue;
        const bool same = b->calibrated.device && !strcmp(b->calibrated.device, s->device) &&
                          b->calibrated.n_threads == s->n_threads;
        if (!same) status = calibrate_for(b, s, e);
        if (!status) status = run_setting(b, s, model, e);
        session_free(b->session);
        engine_close(b->engine);
        b->session = NULL;
        b->engine = NULL;
    }
    return status;
}

static void sum_up(const struct bench *b) {
    double errors[MAX_ROWS];
    if (b->n_rows == 0) return;
    for (int32_t i = 0; i < b->n_rows; i++)
        errors[i] = 100 * fabs(b->rows[i].predicted_us / b->rows[i].measured_us - 1);
    qsort(errors, (size_t)b->n_rows, sizeof *errors, by_value);
    printf("%d predictions: error median %.1f %%, 90th percentile %.1f %%, most %.1f %%\n",
           b->n_rows, errors[b->n_rows / 2], errors[b->n_rows * 9 / 10], errors[b->n_rows - 1]);
}

static int run_all(struct bench *b, char *const *models, int n_models) {
    struct err e = {0};
    enum status status = OK;
    char text[1024];
    fprintf(b->out, "model\tdevice\tthreads\tngl\ttest\ttokens\tubatch\tpast\tkv\tpredicted_ms\t"
                    "measured_ms\terror_percent\tload\n");
    b->items = mem_alloc(2048, sizeof *b->items);
    if (!b->items) status = err_memory(&e, 2048 * sizeof *b->items, "the batch");
    for (int i = 0; i < n_models && !status; i++) status = run_model(b, models[i], &e);
    if (status) fprintf(stderr, "bench_prediction: %s\n", err_text(&e, text, sizeof text));
    mem_free(b->items);
    sum_up(b);
    return status ? 1 : 0;
}

int main(int argc, char **argv) {
    char folder[] = "/tmp/tandem-prediction-XXXXXX";
    struct bench *b = mem_alloc(1, sizeof *b);
    if (!b) return 1;
    b->out = stdout;
    b->n_repeats = 5;
    b->nth = 1;
    bool good = true;
    for (int flag; (flag = getopt(argc, argv, "c:o:r:k:")) != -1;) {
        switch (flag) {
        case 'c': b->cache_path = optarg; break;
        case 'o': good = good && (b->out = fopen(optarg, "w")); break;
        case 'r': b->n_repeats = atoi(optarg); break;
        case 'k': b->nth = atoi(optarg); break;
        default: good = false;
        }
    }
    good = good && optind < argc && b->n_repeats >= 1 && b->n_repeats < MAX_TIMES && b->nth >= 1;
    if (!b->cache_path) b->cache_path = mkdtemp(folder);
    int code = 2;
    if (good && b->cache_path)
        code = run_all(b, argv + optind, argc - optind);
    else
        fprintf(stderr, "usage: %s [-c FOLDER] [-o FILE.tsv] [-r REPEATS] [-k NTH] MODEL...\n",
                argv[0]);
    if (b->out && b->out != stdout) fclose(b->out);
    mem_free(b);
    return code;
}
