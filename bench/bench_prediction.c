/* bench_prediction.c: compares the planner's predictions with the times of the engine.
 *
 *   bench_prediction [-c FOLDER] [-o FILE.tsv] [-r ROUNDS] [-x PERCENT] [-k NTH] [-w KIND]
 *                    [-m MINUTES] [-d DEVICE] [-s SPECIFICATION] MODEL...
 *
 * Covers for every model the CPU alone with 1 and 2 threads, and with a simulated accelerator
 * behind a slow link; prompts of 16 to 512 tokens, several micro-batches, depths of context, and
 * plans of every kind: layers on the accelerator, all of the model there, units split by rows,
 * streamed, attention on the CPU over more than 8,000 keys, and, of models with experts, experts on
 * the CPU that are streamed in prompts, in a second run of the model, for which a first one has
 * counted the experts that tokens choose. Counts are kept apart for the CPU and for the device: one
 * that computes next to nothing has tokens choose other experts. A core simulates the accelerator,
 * so the CPU beside it gets one thread, on another core, since plans are not made for more threads
 * than cores. The simulated one has the rates of a small GPU and computes next to nothing
 * (tests/sim/sim_timed.h): computing would take memory from the CPU, as no GPU does. -s has other
 * words for it; without any it computes. -k takes every NTH configuration only, -w those of one
 * kind; -m starts no round of a model later than MINUTES after its first. With -d an accelerator of
 * this machine takes the place of the simulated one with the quicker link, beside all of the CPU's
 * threads, and the other configurations are left out.
 *
 * A round calibrates each pair of threads and device, as tandem does by itself, into FOLDER/cpu and
 * FOLDER/device (FOLDER is a new one below /tmp), and right after it opens an engine for each of
 * its configurations, asks the plan for predictions, and measures. Before and after each
 * measurement a kernel that the calibration has timed, the reference, is timed again. If its time
 * differs by more than PERCENT (10), the machine's speed has changed since the calibration, and the
 * round does not count for that row. A measurement in which other programs took more than a tenth
 * of a processor is repeated at once, up to MEASUREMENTS times; if all were disturbed, or the
 * calibration was noisy, the round does not count either. Rounds are repeated with new calibrations
 * until ROUNDS (3) count or MORE_ROUNDS times as many are done.
 *
 * A row shows the round with the median error, of two middle ones their mean, among the ROUNDS
 * that count and whose reference differed least; if none counts, among those that come nearest to
 * it. So the choice does not depend on the errors. It says how many rounds were run, how many
 * counted, and by how much its reference differed. The end has the median and the 90th percentile
 * (nearest rank) of the errors of all rows, and of the rows of each kind.
 */
#include "base/affinity.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"
#include "bench/lib/ranks.h"
#include "bench/lib/reference.h"
#include "kernels/drivers.h"
#include "planner/planner.h"
#include "runtime/host/calibrate.h"
#include "runtime/host/calibration_cache.h"
#include "runtime/host/devices.h"
#include "runtime/host/meter.h"
#include "runtime/engine/engine.h"
#include "tests/sim/sim_device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_ROWS = 1024,
    MAX_ROUNDS = 32,
    MORE_ROUNDS = 2,
    MAX_TIMES = 24,
    LEAST_TIMES = 3,
    BURST_US = 600000, // evaluations of one measurement start within that time
    CONTEXT = 2048,
    LONG_CONTEXT = 8448, // of PLAN_LONG
    CALIBRATIONS = 3,
    MEASUREMENTS = 4,   // of one row and round, if the others were disturbed
    COUNTED = 64,       // tokens of the prompts that experts are counted in
    COUNTED_TIMES = 16, // of each prompt, enough for models of more than four layers
    MAX_TOKENS = LONG_CONTEXT,
};

enum plan_kind {
    PLAN_CPU,      // no accelerator
    PLAN_LAYERS,   // some layers on it
    PLAN_WHOLE,    // all of the model
    PLAN_SPLIT,    // FFNs split by rows, and attention where it pays
    PLAN_STREAMED, // units of the CPU streamed in prompts
    PLAN_LONG,     // attention on the CPU over more than 8,000 keys
    PLAN_EXPERTS,  // experts on the CPU
    KINDS
};
static const char *const KIND_NAMES[KINDS] = {"cpu",      "layers", "whole",  "split",
                                              "streamed", "long",   "experts"};

struct setting {
    const char *device;
    int32_t n_threads, n_prompt, n_ubatch, n_past, gpu_layers;
    enum dtype kv_type;
    enum plan_kind kind;
    int32_t vram_percent; // of the model file, for the accelerator; 0: no limit
};

#define RATES "read=40G,flops=1000G,op=3,launch=2,latency=10"
#define SIM   "sim:vram=3G,h2d=2G,d2h=2G"
#define SLOW  "sim:vram=3G,h2d=200M,d2h=100M"
#define AUTO  GPU_LAYERS_AUTO
#define ALL   GPU_LAYERS_ALL

// Prompts are computed from n_past on; tokens are decoded after the prompt. Settings that share a
// calibration are adjacent.
static const struct setting SETTINGS[] = {
    {"none", 1, 16, 512, 0, 0, DTYPE_F16, PLAN_CPU, 0},
    {"none", 1, 64, 512, 0, 0, DTYPE_F16, PLAN_CPU, 0},
    {"none", 1, 128, 128, 0, 0, DTYPE_F16, PLAN_CPU, 0},
    {"none", 1, 256, 64, 0, 0, DTYPE_F16, PLAN_CPU, 0},
    {"none", 1, 512, 512, 0, 0, DTYPE_F16, PLAN_CPU, 0},
    {"none", 1, 64, 16, 256, 0, DTYPE_F16, PLAN_CPU, 0},
    {"none", 1, 32, 512, 256, 0, DTYPE_Q8_0, PLAN_CPU, 0},
    {"none", 2, 16, 512, 0, 0, DTYPE_F16, PLAN_CPU, 0},
    {"none", 2, 32, 8, 0, 0, DTYPE_F16, PLAN_CPU, 0},
    {"none", 2, 128, 512, 0, 0, DTYPE_F16, PLAN_CPU, 0},
    {"none", 2, 256, 128, 0, 0, DTYPE_F16, PLAN_CPU, 0},
    {"none", 2, 512, 512, 0, 0, DTYPE_F16, PLAN_CPU, 0},
    {"none", 2, 512, 64, 0, 0, DTYPE_Q8_0, PLAN_CPU, 0},
    {"none", 2, 64, 512, 512, 0, DTYPE_F16, PLAN_CPU, 0},
    {"none", 2, 32, 512, 512, 0, DTYPE_F32, PLAN_CPU, 0},
    {SIM, 1, 16, 512, 0, 4, DTYPE_F16, PLAN_LAYERS, 0},
    {SIM, 1, 64, 64, 0, 8, DTYPE_F16, PLAN_LAYERS, 0},
    {SIM, 1, 128, 512, 0, 12, DTYPE_F16, PLAN_LAYERS, 0},
    {SIM, 1, 256, 128, 0, 16, DTYPE_F16, PLAN_LAYERS, 0},
    {SIM, 1, 64, 512, 256, 10, DTYPE_F16, PLAN_LAYERS, 0},
    {SLOW, 1, 16, 512, 0, 6, DTYPE_F16, PLAN_LAYERS, 0},
    {SLOW, 1, 128, 32, 0, 12, DTYPE_F16, PLAN_LAYERS, 0},
    {SLOW, 1, 256, 256, 0, 14, DTYPE_Q8_0, PLAN_LAYERS, 0},
    {SIM, 1, 16, 512, 0, ALL, DTYPE_F16, PLAN_WHOLE, 0},
    {SIM, 1, 256, 128, 0, ALL, DTYPE_F16, PLAN_WHOLE, 0},
    {SIM, 1, 512, 512, 512, ALL, DTYPE_F16, PLAN_WHOLE, 0},
    {SIM, 1, 16, 512, 0, AUTO, DTYPE_F16, PLAN_SPLIT, 60},
    {SIM, 1, 128, 128, 0, AUTO, DTYPE_F16, PLAN_SPLIT, 75},
    {SIM, 1, 512, 512, 256, AUTO, DTYPE_F16, PLAN_SPLIT, 90},
    {SLOW, 1, 64, 512, 0, AUTO, DTYPE_F16, PLAN_SPLIT, 75},
    {SIM, 1, 64, 512, 0, AUTO, DTYPE_F16, PLAN_STREAMED, 60},
    {SIM, 1, 512, 512, 0, AUTO, DTYPE_F16, PLAN_STREAMED, 75},
    {SIM, 1, 512, 128, 256, AUTO, DTYPE_F16, PLAN_STREAMED, 60},
    {SLOW, 1, 256, 256, 0, AUTO, DTYPE_F16, PLAN_STREAMED, 75},
    {"none", 1, 16, 512, 8192, 0, DTYPE_F16, PLAN_LONG, 0},
    {"none", 2, 128, 512, 8192, 0, DTYPE_F16, PLAN_LONG, 0},
    {SIM, 1, 16, 512, 8192, ALL, DTYPE_F16, PLAN_LONG, 0},
    {SIM, 1, 128, 128, 8192, ALL, DTYPE_Q8_0, PLAN_LONG, 0},
    {"none", 1, 64, 512, 0, 0, DTYPE_F16, PLAN_EXPERTS, 0},
    {"none", 2, 512, 512, 0, 0, DTYPE_F16, PLAN_EXPERTS, 0},
    {SIM, 1, 16, 512, 0, ALL, DTYPE_F16, PLAN_EXPERTS, 0},
    {SIM, 1, 128, 512, 0, ALL, DTYPE_F16, PLAN_EXPERTS, 0},
    {SIM, 1, 512, 512, 256, ALL, DTYPE_F16, PLAN_EXPERTS, 0},
};
#undef AUTO
#undef ALL
enum { N_SETTINGS = sizeof SETTINGS / sizeof *SETTINGS, TESTS = 2 }; // prefill and decode

// Processors that other programs may keep busy during a measurement.
static const double OTHERS_LIMIT = 0.1;

// One round of one row. off: the difference of the reference's time from that in the calibration,
// as a share of the latter; the greater of before and after. disturbed: other programs kept
// processors busy in the calibration or the measurement.
struct round {
    double predicted_us, measured_us, off, load;
    bool disturbed;
};
struct row {
    struct round rounds[MAX_ROUNDS];
    int32_t n, n_good;
};

struct bench {
    const char *cache_path;
    const char *device;  // instead of the simulated one; NULL: that
    const char *rates;   // words that are added to the simulated one's
    char spec[256];      // of the current setting
    char folder[1024];   // below cache_path, of the current setting
    struct affinity own; // of the program at its start
    FILE *out;
    int32_t n_rounds, nth, only; // only: a kind, -1: all
    uint64_t limit_ns;           // in which rounds of one model may begin
    double limit;                // of off
    bool is_noisy;               // the last calibration
    struct reference reference;
    struct engine *engine;
    struct session *session;
    struct batch_item items[MAX_TOKENS];
    int32_t n_tokens; // so far: the next ones are others, which choose other experts
    struct row rows[N_SETTINGS][TESTS];
    double errors[KINDS][MAX_ROWS];
    int32_t n_errors[KINDS], n_all, n_off; // rows; rounds, and those that do not count
};

static double error_of(const struct round *r) {
    return 100 * (r->predicted_us / r->measured_us - 1);
}

static int by_error(const void *a, const void *b) {
    const double x = error_of(a), y = error_of(b);
    return (x > y) - (x < y);
}

static int by_disturbance(const void *a, const void *b) {
    const struct round *x = a, *y = b;
    const int order = x->disturbed - y->disturbed;
    return order ? order : order_f64(&x->off, &y->off);
}

// ---- Opening ------------------------------------------------------------------------------------

static void options_of(struct bench *b, const struct setting *s, const char *model,
                       struct engine_options *out) {
    struct stat file = {0};
    const bool simulated = strcmp(s->device, "none") != 0 && *b->rates;
    (void)snprintf(b->spec, sizeof b->spec, "%s%s%s", s->device, simulated ? "," : "",
                   simulated ? b->rates : "");
    (void)snprintf(b->folder, sizeof b->folder, "%s/%s", b->cache_path,
                   strcmp(s->device, "none") == 0 && !b->device ? "cpu" : "device");
    if (model) (void)stat(model, &file); // engine_open says what is wrong with it
    *out = (struct engine_options){
        .model_path = model,
        .device_spec = b->device ? b->device : b->spec,
        .drivers = &sim_driver,
        .n_drivers = 1,
        .cpu = {.isa = ISA_AUTO, .n_threads = b->device ? 0 : s->n_threads},
        .workload = {.n_ctx = s->kind == PLAN_LONG ? LONG_CONTEXT : CONTEXT,
                     .n_ubatch = s->n_ubatch,
                     .kv_type_k = s->kv_type,
                     .kv_type_v = s->kv_type,
                     .n_prompt = s->n_prompt,
                     .n_gen = MAX_TIMES},
        .constraints = {.gpu_layers = s->gpu_layers,
                        .vram_bytes = (uint64_t)file.st_size / 100 * (uint64_t)s->vram_percent,
                        .cpu_experts = s->kind == PLAN_EXPERTS ? CPU_EXPERTS_ALL : 0,
                        .strategy = s->kind == PLAN_SPLIT      ? STRATEGY_ROW_SPLIT
                                    : s->kind == PLAN_STREAMED ? STRATEGY_STREAMED
                                                               : STRATEGY_AUTO},
        .cpu_cache = s->kind == PLAN_LONG,
        .cache_path = b->folder,
    };
    if (b->device) out->drivers = device_drivers(&out->n_drivers);
}

static bool is_multiplied(const struct unit_tensor *t, enum weight_type *type) {
    return (t->use == USE_MATRIX || t->use == USE_EXPERTS) && dtype_weight(t->type, type);
}

// Calibrates until the machine is quiet, a few times at most. The least noisy one counts, as that
// which tandem keeps.
static enum status calibrate_quietly(struct machine *m, struct device *accelerator,
                                     const struct calibration_options *options,
                                     struct calibration *out, struct err *e) {
    enum status status = calibrate(m, accelerator, options, out, e);
    for (int i = 1; i < CALIBRATIONS && !status && calibration_is_noisy(out); i++) {
        struct machine again = *m;
        struct calibration other;
        status = calibrate(&again, accelerator, options, &other, e);
        if (status || !calibration_replaces(&other, out)) continue;
        *m = again;
        *out = other;
    }
    return status;
}

// Calibrates that setting's threads and device, keeps the rates where engines look for them, and
// opens the reference.
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
    enum status status = devices_open(devices, &n, &o, e);
    if (!status) status = devices_describe(&m, devices, n, e);
    if (!status) status = calibrate_quietly(&m, devices[1], &c, &result, e);
    if (!status) {
        calibration_key_of(&key, devices, n, &o);
        status = calibration_store(&m, &result, b->folder, &key, e);
    }
    if (status) {
        devices_close(devices);
        return status;
    }
    b->is_noisy = calibration_is_noisy(&result);
    fprintf(stderr, "%s, %d threads: %s\n", s->device, s->n_threads, m.source);
    return reference_open(&b->reference, devices, &m, e);
}

// ---- Predicting ---------------------------------------------------------------------------------

// Predicts the time of n tokens after n_past others, in micro-batches that may overlap; share[d]
// gets the share of the time in which device d computes.
static double predict(const struct bench *b, int32_t n, int32_t n_past, double share[MAX_DEVICES]) {
    const struct plan *plan = engine_plan(b->engine);
    double us = 0, sum = 0;
    for (int d = 0; d < MAX_DEVICES; d++) share[d] = 0;
    for (int32_t done = 0; done < n;) {
        const int32_t left = n - done, ub = plan->workload.n_ubatch, now = left < ub ? left : ub;
        struct simulation sim;
        const struct pass pass = {now, done + now == n, n_past + done};
        plan_simulate(plan, engine_shape(b->engine), &pass, &sim);
        us += done + now < n ? sim.period_us : sim.total_us;
        for (int d = 0; d < MAX_DEVICES; d++) share[d] += sim.compute_us[d];
        for (int d = 0; d < MAX_DEVICES; d++) sum += sim.compute_us[d];
        done += now;
    }
    for (int d = 0; d < MAX_DEVICES; d++) share[d] /= sum;
    return us;
}

// ---- Looking at the machine again ---------------------------------------------------------------

// The most common type of the device's weights.
static enum weight_type main_type(const struct bench *b, int d) {
    const struct plan *plan = engine_plan(b->engine);
    const struct shape *shape = engine_shape(b->engine);
    uint64_t bytes[WEIGHT_COUNT] = {0};
    int most = 0;
    for (int u = 0; u < shape->n_units; u++) {
        const struct unit *unit = &shape->units[u];
        for (int i = 0; i < unit->n_tensors && plan->place.units[u].device == d; i++) {
            enum weight_type type;
            if (is_multiplied(&unit->tensors[i], &type)) bytes[type] += unit->tensors[i].size_bytes;
        }
    }
    for (int t = 0; t < WEIGHT_COUNT; t++)
        if (bytes[t] > bytes[most]) most = t;
    return (enum weight_type)most;
}

// Bytes of weights that a pass reads on a device.
static uint64_t working_set(const struct bench *b, int d) {
    const struct plan *plan = engine_plan(b->engine);
    uint64_t bytes = 0;
    for (int u = 0; u < plan->n_units; u++)
        if (plan->place.units[u].device == d) bytes += plan->unit_read_bytes[u];
    return bytes;
}

// Estimates how much slower passes of n tokens are now than predicted, by the kernel that takes
// most of the time on each device.
static enum status look_again(struct bench *b, int32_t n, const double share[MAX_DEVICES],
                              double *slower, struct err *e) {
    int low = 0;
    while (low + 1 < RATE_CLASSES && RATE_TOKENS[low + 1] <= n) low++;
    const int high = low + 1 < RATE_CLASSES && RATE_TOKENS[low] < n ? low + 1 : low;
    const struct plan *plan = engine_plan(b->engine);
    *slower = 0;
    for (int d = 0; d < MAX_DEVICES; d++) {
        const uint64_t bytes = working_set(b, d);
        const double cached =
            d == DEVICE_HOST ? cost_host_cached(&plan->machine, &plan->host_reads).experts : 0;
        for (int class = low; class <= high && share[d] > 0; class ++) {
            const struct reference_job job = {d, main_type(b, d), class, bytes, cached};
            double own;
            if (reference_time(&b->reference, &job, &own, e)) return e->status;
            *slower += share[d] * own / (high - low + 1);
        }
    }
    return OK;
}

// ---- Measuring ----------------------------------------------------------------------------------

static int32_t next_token(struct bench *b) {
    const int32_t n = engine_n_vocab(b->engine) - 1;
    b->n_tokens = (b->n_tokens + 1) % n;
    return 1 + (int32_t)((int64_t)b->n_tokens * 7919 % n);
}

static enum status eval(struct bench *b, int32_t n, double *us, struct err *e) {
    for (int32_t i = 0; i < n; i++)
        b->items[i] = (struct batch_item){b->session, next_token(b), i == n - 1};
    const uint64_t start_ns = clock_ns();
    if (engine_eval(b->engine, b->items, n, e)) return e->status;
    *us = (double)(clock_ns() - start_ns) * 1e-3;
    return OK;
}

// Measures the median of several evaluations of n tokens after n_past others, which the session has
// already.
static enum status measure(struct bench *b, int32_t n, int32_t n_past, double *out_us,
                           struct err *e) {
    double times[MAX_TIMES], sum_us = 0;
    int32_t count = 0;
    while (count < MAX_TIMES && (sum_us < BURST_US || count < LEAST_TIMES)) {
        if (count > 0 && sum_us > 4.0 * BURST_US) break;
        session_truncate(b->session, n_past);
        if (eval(b, n, &times[count], e)) return e->status;
        sum_us += times[count++];
    }
    *out_us = median_of(times, count);
    return OK;
}

// Measures again while other programs disturb it, a few times at most. The least disturbed one
// counts.
static enum status measure_alone(struct bench *b, int32_t n, int32_t n_past, struct round *r,
                                 struct err *e) {
    double least = (double)INFINITY;
    for (int i = 0; i < MEASUREMENTS && least > OTHERS_LIMIT; i++) {
        const uint64_t start_ns = clock_ns(), others_ns = meter_others_ns(NULL);
        double us = 0;
        if (measure(b, n, n_past, &us, e)) return e->status;
        const double ns = (double)meter_others_ns(NULL) - (double)others_ns;
        const double others = fmax(ns, 0) / (double)(clock_ns() - start_ns);
        if (others > OTHERS_LIMIT)
            fprintf(stderr, "  disturbed: other programs kept %.2f processors busy, %.3f ms\n",
                    others, us * 1e-3);
        if (others >= least) continue;
        least = others;
        r->measured_us = us;
    }
    r->disturbed = b->is_noisy || least > OTHERS_LIMIT;
    return OK;
}

static double load_now(void) {
    double load = 0;
    return getloadavg(&load, 1) == 1 ? load : 0;
}

// Predicts and measures n tokens after n_past others: one round of a row.
static enum status compare(struct bench *b, struct row *row, int32_t n, int32_t n_ubatch,
                           int32_t n_past, struct err *e) {
    struct round *r = &row->rounds[row->n];
    double share[MAX_DEVICES], before, after, us;
    r->predicted_us = predict(b, n, n_past, share);
    session_truncate(b->session, n_past);
    if (r->predicted_us < BURST_US && eval(b, n, &us, e)) return e->status; // touches its memory
    if (look_again(b, n < n_ubatch ? n : n_ubatch, share, &before, e) ||
        measure_alone(b, n, n_past, r, e) ||
        look_again(b, n < n_ubatch ? n : n_ubatch, share, &after, e))
        return e->status;
    r->off = fmax(fabs(before - 1), fabs(after - 1));
    r->load = load_now();
    row->n++;
    row->n_good += r->off <= b->limit && !r->disturbed;
    fprintf(stderr,
            "  %d tokens after %d: %.3f ms predicted, %.3f measured, %+.1f %%, reference "
            "%.2f and %.2f\n",
            n, n_past, r->predicted_us * 1e-3, r->measured_us * 1e-3, error_of(r), before, after);
    return OK;
}

// Computes prompts, so that plans expect as many different experts as these tokens choose: as in a
// second run of a model. Random weights choose more of them than those of a text.
static enum status count_experts(struct bench *b, const struct engine_options *o, struct err *e) {
    double us;
    enum status status = engine_open(&b->engine, o, e);
    if (!status && engine_shape(b->engine)->n_experts > 0) {
        status = session_new(&b->session, b->engine, e);
        for (int i = 0; i < COUNTED_TIMES && !status; i++) {
            session_truncate(b->session, 0);
            status = eval(b, COUNTED, &us, e);
        }
    }
    session_free(b->session);
    engine_close(b->engine);
    b->session = NULL;
    b->engine = NULL;
    return status;
}

static enum status run_setting(struct bench *b, int i, const char *model, struct err *e) {
    const struct setting *s = &SETTINGS[i];
    struct engine_options o;
    double us = 0;
    options_of(b, s, model, &o);
    if (s->kind == PLAN_EXPERTS && count_experts(b, &o, e)) return e->status;
    if (engine_open(&b->engine, &o, e) || session_new(&b->session, b->engine, e)) return e->status;
    if ((s->kind == PLAN_EXPERTS) != (engine_shape(b->engine)->n_experts > 0)) return OK;
    if (s->n_past > 0 && eval(b, s->n_past, &us, e)) return e->status;
    if (compare(b, &b->rows[i][0], s->n_prompt, s->n_ubatch, s->n_past, e)) return e->status;
    return compare(b, &b->rows[i][1], 1, 1, s->n_past + s->n_prompt, e);
}

// ---- Rounds and rows ----------------------------------------------------------------------------

static bool needs_round(const struct bench *b, int i) {
    if (b->device && strcmp(SETTINGS[i].device, SIM) != 0) return false;
    if (i % b->nth || (b->only >= 0 && (int32_t)SETTINGS[i].kind != b->only)) return false;
    for (int t = 0; t < TESTS; t++)
        if (b->rows[i][t].n_good < b->n_rounds) return true;
    return false;
}

static bool same_machine(const struct setting *a, const struct setting *b) {
    return !strcmp(a->device, b->device) && a->n_threads == b->n_threads;
}

// Keeps a lonely thread on the first processor: the last one simulates the accelerator, and systems
// may put both threads on one processor although another idles.
static void stay_apart(const struct bench *b, const struct setting *s) {
    int32_t first = 0;
    while (first < AFFINITY_CPUS - 1 && !(b->own.mask[first / 64] >> (first % 64) & 1)) first++;
    (void)(s->n_threads == 1 && !b->device ? affinity_set_cpu(first) : affinity_set(&b->own));
}

static enum status run_round(struct bench *b, const char *model, struct err *e) {
    const struct setting *calibrated = NULL;
    enum status status = OK;
    for (int i = 0; i < N_SETTINGS && !status; i++) {
        if (!needs_round(b, i)) continue;
        stay_apart(b, &SETTINGS[i]);
        if (!calibrated || !same_machine(calibrated, &SETTINGS[i])) {
            reference_close(&b->reference);
            status = calibrate_for(b, calibrated = &SETTINGS[i], e);
        }
        if (!status) status = run_setting(b, i, model, e);
        session_free(b->session);
        engine_close(b->engine);
        b->session = NULL;
        b->engine = NULL;
    }
    reference_close(&b->reference);
    return status;
}

// The middle one of sorted rounds, or the mean of two.
static struct round middle_of(const struct round *rounds, int32_t n) {
    const struct round *low = &rounds[(n - 1) / 2], *high = &rounds[n / 2];
    return (struct round){.predicted_us = (low->predicted_us + high->predicted_us) / 2,
                          .measured_us = (low->measured_us + high->measured_us) / 2,
                          .off = fmax(low->off, high->off),
                          .load = fmax(low->load, high->load)};
}

// Prints the round with the median error among those that count.
static void print_row(struct bench *b, const struct setting *s, int test, struct row *row,
                      const char *name) {
    int32_t n = row->n_good > 0 ? row->n_good : row->n;
    if (n > b->n_rounds) n = b->n_rounds;
    if (n == 0) return;
    qsort(row->rounds, (size_t)row->n, sizeof *row->rounds, by_disturbance);
    qsort(row->rounds, (size_t)n, sizeof *row->rounds, by_error);
    const struct round middle = middle_of(row->rounds, n), *r = &middle;
    fprintf(b->out,
            "%s\t%s\t%s\t%d\t%d\t%s\t%d\t%d\t%d\t%s\t%.3f\t%.3f\t%+.1f\t%d\t%d\t%.1f\t%.1f\n", name,
            KIND_NAMES[s->kind], b->device ? b->device : s->device, b->device ? 0 : s->n_threads,
            s->gpu_layers, test ? "decode" : "prefill", test ? 1 : s->n_prompt, s->n_ubatch,
            s->n_past + (test ? s->n_prompt : 0), dtype_name(s->kv_type), r->predicted_us * 1e-3,
            r->measured_us * 1e-3, error_of(r), row->n, row->n_good, 100 * r->off, r->load);
    if (b->n_errors[s->kind] < MAX_ROWS)
        b->errors[s->kind][b->n_errors[s->kind]++] = fabs(error_of(r));
    b->n_all += row->n;
    b->n_off += row->n - row->n_good;
}

static enum status run_model(struct bench *b, const char *model, struct err *e) {
    const char *slash = strrchr(model, '/'), *name = slash ? slash + 1 : model;
    memset(b->rows, 0, sizeof b->rows);
    enum status status = OK;
    const uint64_t start_ns = clock_ns();
    for (int32_t round = 0; round < MORE_ROUNDS * b->n_rounds && !status; round++)
        if (round == 0 || clock_ns() - start_ns < b->limit_ns) status = run_round(b, model, e);
    for (int i = 0; i < N_SETTINGS; i++)
        for (int t = 0; t < TESTS; t++) print_row(b, &SETTINGS[i], t, &b->rows[i][t], name);
    fflush(b->out);
    return status;
}

static void print_errors(const char *name, double *errors, int32_t n) {
    if (n == 0) return;
    qsort(errors, (size_t)n, sizeof *errors, order_f64);
    printf("%-8s %3d predictions: error median %.1f %%, 90th percentile %.1f %%, most %.1f %%\n",
           name, n, errors[n / 2], errors[nearest_rank(n, 90)], errors[n - 1]);
}

static void sum_up(struct bench *b) {
    double all[KINDS * MAX_ROWS];
    int32_t n = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        for (int32_t i = 0; i < b->n_errors[kind]; i++) all[n++] = b->errors[kind][i];
        print_errors(KIND_NAMES[kind], b->errors[kind], b->n_errors[kind]);
    }
    print_errors("all", all, n);
    printf("of %d rounds %d do not count because the machine had changed by more than %.0f %% or "
           "other programs kept more than %.1f processors busy\n",
           b->n_all, b->n_off, 100 * b->limit, OTHERS_LIMIT);
}

static int32_t find_kind(const char *name) {
    for (int32_t kind = 0; kind < KINDS; kind++)
        if (strcmp(name, KIND_NAMES[kind]) == 0) return kind;
    return KINDS;
}

static int run_all(struct bench *b, char *const *models, int n_models) {
    struct err e = {0};
    enum status status = OK;
    char text[1024];
    fprintf(b->out,
            "model\tkind\tdevice\tthreads\tngl\ttest\ttokens\tubatch\tpast\tkv\tpredicted_ms\t"
            "measured_ms\terror_percent\trounds\tcounting\treference_off_percent\tload\n");
    for (int i = 0; i < n_models && !status; i++) status = run_model(b, models[i], &e);
    if (status) fprintf(stderr, "bench_prediction: %s\n", err_text(&e, text, sizeof text));
    sum_up(b);
    return status ? 1 : 0;
}

int main(int argc, char **argv) {
    char folder[] = "/tmp/tandem-prediction-XXXXXX";
    struct bench *b = mem_alloc(1, sizeof *b);
    if (!b) return 1;
    b->out = stdout;
    b->n_rounds = 3;
    b->limit = 0.1;
    b->limit_ns = UINT64_MAX;
    b->nth = 1;
    b->only = -1;
    b->rates = RATES;
    bool good = affinity_get(&b->own);
    for (int flag; (flag = getopt(argc, argv, "c:d:o:r:x:k:m:s:w:")) != -1;) {
        switch (flag) {
        case 'c': b->cache_path = optarg; break;
        case 'd': b->device = optarg; break;
        case 's': b->rates = optarg; break;
        case 'o': good = good && (b->out = fopen(optarg, "w")); break;
        case 'r': b->n_rounds = atoi(optarg); break;
        case 'x': b->limit = atof(optarg) / 100; break;
        case 'k': b->nth = atoi(optarg); break;
        case 'w': good = good && (b->only = find_kind(optarg)) < KINDS; break;
        case 'm': b->limit_ns = (uint64_t)(atof(optarg) * 60e9); break;
        default: good = false;
        }
    }
    good = good && optind < argc && b->n_rounds >= 1 && b->n_rounds * MORE_ROUNDS <= MAX_ROUNDS &&
           b->limit > 0 && b->nth >= 1;
    if (!b->cache_path) b->cache_path = mkdtemp(folder);
    int code = 2;
    if (good && b->cache_path)
        code = run_all(b, argv + optind, argc - optind);
    else
        fprintf(stderr,
                "usage: %s [-c FOLDER] [-o FILE.tsv] [-r ROUNDS] [-x PERCENT] [-k NTH] "
                "[-w KIND] [-m MINUTES] [-d DEVICE] [-s SPECIFICATION] MODEL...\n",
                argv[0]);
    if (b->out && b->out != stdout) fclose(b->out);
    mem_free(b);
    return code;
}
