/* calibrate.c: see calibrate.h. */
#include "runtime/host/calibrate.h"

#include "base/mem.h"
#include "runtime/host/calibrate_link.h"
#include "runtime/host/rig.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    PROBE_SIZE = 512,
    PROBE_POOL = 4 << 20,
    FIRST_WINDOW = 8 << 20,
    MOST_WINDOW = 32 << 20,
    MAX_WINDOWS = 12,
    LEAST_PASSES = 3, // so many passes over a window that were no faster end its measurement
    MAX_PASSES = 16,
    VISITS = 3,
    MAX_FIGURES = MAX_DEVICES * (5 + (WEIGHT_COUNT + KV_TYPES) * RATE_CLASSES),
};

static const double LEAST_RATE = 1e-5; // GB/s; ten times the lowest rate of a machine file
static const double LEAST_GAIN = 1.15; // a smaller gain does not count as a cache
static const uint64_t POOL_LEAST = 256 << 20, POOL_MOST = 1 << 30;

// Shares of the remaining time when a phase begins, without and with an accelerator.
static const double TEAMS_SHARE[] = {0.1, 0.05};
static const double CPU_SHARE[] = {1, 0.45};
static const double ACCELERATOR_SHARE = 0.75, LINK_SHARE = 0.85;

// The most common weight type of files; weights.def lists the others after it in the order in which
// they are measured.
static const enum weight_type MOST_USED = (enum weight_type)0;
// The order in which KV cache types are measured: the most common comes first.
static const enum kv_type KV_ORDER[KV_TYPES] = {KV_F16, KV_Q8_0, KV_Q4_0, KV_F32};
// The order in which classes are measured: the ends first, since those between can be estimated
// from them.
static const int CLASS_ORDER[RATE_CLASSES] = {0, 5, 4, 3, 1, 2};

struct calibrator {
    const struct calibration_options *options;
    struct stopwatch watch;
    struct machine machine; // filled step by step
    struct calibration *out;
    struct device *cpu;         // owned
    struct device *accelerator; // borrowed, or NULL
    void *pool;                 // of the CPU, owned
    uint64_t pool_bytes;
    struct rig rigs[MAX_DEVICES];
    int32_t n_scaled; // figures that were not measured
    // A figure that several visits measured has one: how much more its greatest value is than the
    // least.
    double spreads[MAX_FIGURES];
    int32_t n_spreads;
    uint64_t others_ns; // of the meter at the start
};

static double gbps_of(double bytes, double us) { return bytes / us * 1e-3; }

static double bits_of(enum weight_type type) {
    const struct dtype_info *info = dtype_find((uint32_t)weight_dtype(type));
    return 8.0 * info->block_bytes / info->block_elements;
}

// ---- One device's ops ---------------------------------------------------------------------------

// Estimates classes that were left out: each takes as much time per token as the next smaller
// measured class.
static void scale_classes(double gbps[RATE_CLASSES], int32_t *n_scaled) {
    for (int c = 1; c < RATE_CLASSES; c++) {
        if (gbps[c] > 0) continue;
        gbps[c] = gbps[c - 1] * RATE_TOKENS[c - 1] / RATE_TOKENS[c];
        if (gbps[c] < LEAST_RATE) gbps[c] = LEAST_RATE;
        ++*n_scaled;
    }
}

// *gbps gets the rate of reading weights without the time for activations, *us the whole time of
// the matmul.
static enum status measure_matmul(struct calibrator *c, int d, const struct job *job, double *gbps,
                                  double *us, struct err *e) {
    struct rig *rig = &c->rigs[d];
    if (rig_time(rig, &c->watch, job, us, e)) return e->status;
    const double vector_gbps = c->machine.devices[d].rates.vector_gbps;
    const double weights_us = *us - job_activation_bytes(rig, job) / (vector_gbps * 1e3);
    *gbps = gbps_of((double)job_weight_bytes(rig, job), fmax(weights_us, *us / 2));
    return OK;
}

// Measures all classes of one type; *whole: none was left out.
static enum status measure_type(struct calibrator *c, int d, enum weight_type type,
                                double gbps[RATE_CLASSES], bool *whole, struct err *e) {
    struct rig *rig = &c->rigs[d];
    double one_us = 0, us;
    *whole = true;
    for (int i = 0; i < RATE_CLASSES; i++) {
        const int class = CLASS_ORDER[i];
        const int32_t n_tokens = RATE_TOKENS[class];
        // The measurement makes 2 calls at least; a call with many tokens takes less than n_tokens
        // calls with one.
        if (one_us > 0 && !stopwatch_fits(&c->watch, one_us * n_tokens)) {
            *whole = false;
            continue;
        }
        const struct job job = rig_matmul(rig, type, n_tokens, 0);
        if (measure_matmul(c, d, &job, &gbps[class], &us, e)) return e->status;
        if (n_tokens == 1) one_us = us + rig->op_us;
    }
    return OK;
}

// ---- What a cache keeps -------------------------------------------------------------------------

// Working sets, and the time per byte when each is read in turn; the last is the whole pool.
struct windows {
    double bytes[MAX_WINDOWS], us[MAX_WINDOWS]; // us: the median of all rounds
    double rounds[MAX_WINDOWS][VISITS];
    int32_t n_rounds[MAX_WINDOWS];
    int32_t n; // 0: too little memory, or too slow
};

static void choose_windows(struct windows *w, double pool_bytes) {
    *w = (struct windows){.n = 0};
    for (double bytes = FIRST_WINDOW; bytes <= pool_bytes / 2 && w->n < MAX_WINDOWS - 1; bytes *= 2)
        w->bytes[w->n++] = bytes;
    if (w->n > 0) w->bytes[w->n++] = pool_bytes;
}

// Times a window with the type that is read most. Reads whole passes, since a cache keeps only some
// parts of a window that is too large, and repeats them while they get faster: some caches take ten
// passes to settle. The median of the last ones counts, since others may take the cache again and
// again.
static enum status read_window(struct calibrator *c, struct rig *rig, double bytes, int32_t in_vain,
                               double *us, struct err *e) {
    struct job job = rig_matmul(rig, MOST_USED, 1, (uint64_t)bytes);
    job.rests = c->accelerator && job.warm;
    const double other_us = rig->pass_us + rig->op_us * (double)job.n_parts;
    const double all_bytes = (double)job.n_parts * (double)job_weight_bytes(rig, &job);
    double least_us = INFINITY, passes_us[MAX_PASSES];
    int32_t n = 0;
    for (int32_t vain = 0; n < MAX_PASSES && vain < in_vain; n++) {
        if (rig_pass(rig, &c->watch, &job, &passes_us[n], e)) return e->status;
        vain = passes_us[n] < 0.99 * least_us ? 0 : vain + 1;
        least_us = fmin(least_us, passes_us[n]);
    }
    const int32_t n_last = n < LEAST_PASSES ? n : LEAST_PASSES;
    const double pass_us = median_of(passes_us + n - n_last, n_last);
    *us = fmax(pass_us - other_us, pass_us / 4) / all_bytes;
    return stopwatch_step(&c->watch, e);
}

// Makes one round over all windows, the small ones first. The median of several rounds counts,
// since a disturbance hides the cache. If time ends in the first round, the cache stays unknown.
static enum status read_windows(struct calibrator *c, struct rig *rig, struct windows *w,
                                struct err *e) {
    stopwatch_phase(&c->watch, 0.25, w->n);
    for (int32_t i = 0; i < w->n; i++) {
        const int32_t in_vain = i < w->n - 1 ? LEAST_PASSES : 1; // no cache keeps the pool
        const double bytes = w->bytes[i] * (in_vain + 1) * (c->accelerator ? 2 : 1); // rests
        if (i > 0 && !stopwatch_fits(&c->watch, bytes * w->us[i - 1])) {
            if (w->n_rounds[i] == 0) w->n = 0;
            break;
        }
        double *rounds = w->rounds[i];
        if (read_window(c, rig, w->bytes[i], in_vain, &rounds[w->n_rounds[i]++], e))
            return e->status;
        w->us[i] = median_of(rounds, w->n_rounds[i]);
    }
    return OK;
}

// The working set of which the cache keeps that share, interpolated by logarithm between two
// windows.
static double window_of(const struct windows *w, const double share[], double level) {
    int32_t i = 1;
    while (i < w->n - 1 && share[i] > level) i++;
    const double part = (share[i - 1] - level) / (share[i - 1] - share[i]);
    return w->bytes[i - 1] * pow(w->bytes[i] / w->bytes[i - 1], part);
}

// Sets the sizes of working sets of which the cache keeps three quarters and a quarter.
static void fit_cache(const struct windows *w, struct device_rates *rates) {
    const int32_t last = w->n - 1;
    const double *us = w->us;
    rates->cache_bytes = rates->cache_quarter_bytes = 0;
    if (w->n == 0) return;
    double share[MAX_WINDOWS] = {0}, least_us = INFINITY;
    for (int32_t i = 0; i <= last; i++) least_us = fmin(least_us, us[i]);
    if (!(us[last] > LEAST_GAIN * least_us)) return;
    for (int32_t i = last - 1; i >= 0; i--) {
        share[i] = (us[last] - us[i]) / (us[last] - least_us);
        if (share[i] < share[i + 1]) share[i] = share[i + 1];
    }
    rates->cache_bytes = (uint64_t)window_of(w, share, 0.75);
    rates->cache_quarter_bytes = (uint64_t)window_of(w, share, 0.25);
}

// ---- One device ---------------------------------------------------------------------------------

// Bytes that are read in turn to measure the speed of the cache. All sizes within it are equally
// fast, and a small one is loaded soon. 0: there is no cache.
static uint64_t cached_window(const struct device_rates *rates) {
    const uint64_t half = rates->cache_bytes / 2;
    return half < MOST_WINDOW ? half : MOST_WINDOW;
}

// Measures every type, in a visit after which n_more follow; with one token from the cache too, if
// there is one.
static enum status measure_weights(struct calibrator *c, int d, struct device_rates *rates,
                                   int n_more, struct err *e) {
    const uint64_t window = cached_window(rates);
    double factors[WEIGHT_COUNT];
    int32_t n_factors = 0;
    stopwatch_phase(&c->watch, 0.98, WEIGHT_COUNT * (RATE_CLASSES + (window > 0)) * (1 + n_more));
    for (int i = 0; i < WEIGHT_COUNT; i++) {
        const enum weight_type type = (enum weight_type)i;
        double *gbps = rates->weight_gbps[type], cached_gbps = 0, us;
        bool whole;
        if (i > 0 && !stopwatch_fits(&c->watch, 20e3)) break;
        if (measure_type(c, d, type, gbps, &whole, e)) return e->status;
        if (whole) c->out->measured[d] |= 1u << type;
        if (!window) continue;
        struct job job = rig_matmul(&c->rigs[d], type, 1, window);
        job.rests = c->accelerator;
        if (measure_matmul(c, d, &job, &cached_gbps, &us, e)) return e->status;
        factors[n_factors++] = cached_gbps / gbps[0];
    }
    if (n_factors) rates->cache_factor = median_of(factors, n_factors);
    return OK;
}

// Estimates types that were left out by the measured type with the nearest number of bits: few
// tokens wait for bytes, many for arithmetic, which is the same for each weight.
static void scale_types(struct calibrator *c, struct device_rates *rates) {
    bool known[WEIGHT_COUNT];
    for (int t = 0; t < WEIGHT_COUNT; t++) {
        known[t] = rates->weight_gbps[t][0] > 0;
        if (!known[t]) continue;
        scale_classes(rates->weight_gbps[t], &c->n_scaled);
    }
    for (int t = 0; t < WEIGHT_COUNT; t++) {
        if (known[t]) continue;
        int nearest = (int)MOST_USED;
        for (int k = 0; k < WEIGHT_COUNT; k++) {
            const double bits = bits_of((enum weight_type)t);
            const double best = bits_of((enum weight_type)nearest) - bits;
            const double here = bits_of((enum weight_type)k) - bits;
            if (known[k] && here * here < best * best) nearest = k;
        }
        const double ratio = bits_of((enum weight_type)t) / bits_of((enum weight_type)nearest);
        for (int k = 0; k < RATE_CLASSES; k++) {
            const double factor = RATE_TOKENS[k] >= 8 ? ratio : 1;
            rates->weight_gbps[t][k] = factor * rates->weight_gbps[nearest][k];
            c->n_scaled++;
        }
    }
}

// The time of attention without that of its queries, which cost.c adds on the CPU; at least half of
// it, so that a disturbed figure leaves a rate.
static double keys_us(const struct rig *rig, const struct device_rates *rates,
                      const struct job *job, double us) {
    if (!rig->device->info.is_host) return us;
    return fmax(us - job_query_bytes(job) / (rates->vector_gbps * 1e3), us / 2);
}

// Measures all classes of one type of KV cache. The first figure is always measured.
static enum status measure_kv_type(struct calibrator *c, struct rig *rig,
                                   struct device_rates *rates, enum kv_type row, struct err *e) {
    int32_t n_keys = rig->n_keys;
    double one_us = 0, us;
    while (n_keys > KV_PAGE &&
           rig_attention(rig, DTYPE_F32, 1, n_keys).stride_bytes > rig->pool.size_bytes)
        n_keys /= 2;
    for (int i = 0; i < RATE_CLASSES; i++) {
        const int class = CLASS_ORDER[i];
        const int32_t n = RATE_TOKENS[class] < n_keys ? RATE_TOKENS[class] : n_keys;
        const bool first = row == KV_F16 && i == 0;
        if (!first && !stopwatch_fits(&c->watch, one_us > 0 ? one_us * n : 2000)) continue;
        const struct job job = rig_attention(rig, kv_dtype(row), n, n_keys);
        if (rig_time(rig, &c->watch, &job, &us, e)) return e->status;
        if (i == 0) one_us = us + rig->op_us;
        rates->attention_gflops[row][class] =
            job_attention_flops(&job) / keys_us(rig, rates, &job, us) * 1e-3;
    }
    return OK;
}

static enum status measure_attention(struct calibrator *c, struct rig *rig,
                                     struct device_rates *rates, struct err *e) {
    for (int k = 0; k < KV_TYPES; k++)
        if (measure_kv_type(c, rig, rates, KV_ORDER[k], e)) return e->status;
    return OK;
}

// Estimates classes that were left out by the rate of the class before, or of the first type.
static void scale_attention(struct calibrator *c, struct device_rates *rates) {
    for (int k = 0; k < KV_TYPES; k++) {
        double *gflops = rates->attention_gflops[KV_ORDER[k]];
        for (int class = 0; class < RATE_CLASSES; class ++) {
            if (gflops[class] > 0) continue;
            gflops[class] = class ? gflops[class - 1] : rates->attention_gflops[KV_F16][0];
            c->n_scaled++;
        }
    }
}

static enum status measure_vectors(struct calibrator *c, struct rig *rig,
                                   struct device_rates *rates, struct err *e) {
    uint64_t bytes;
    double us = 0;
    for (int32_t n = RIG_TOKENS / 16; n <= RIG_TOKENS; n *= 16) {
        if (us > 0 && !stopwatch_fits(&c->watch, us * 48)) break;
        const struct job job = rig_vectors(rig, n, &bytes);
        if (rig_time(rig, &c->watch, &job, &us, e)) return e->status;
        rates->vector_gbps = gbps_of((double)bytes, us);
    }
    return OK;
}

static enum status measure_memory(struct calibrator *c, struct rig *rig, struct device_rates *rates,
                                  struct err *e) {
    const struct job job = rig_matmul(rig, WEIGHT_F32, 1, 0);
    double us;
    if (rig_time(rig, &c->watch, &job, &us, e)) return e->status;
    rates->memory_gbps = gbps_of((double)job_weight_bytes(rig, &job), us);
    for (int t = 0; t < WEIGHT_COUNT; t++)
        if (rates->weight_gbps[t][0] > rates->memory_gbps)
            rates->memory_gbps = rates->weight_gbps[t][0];
    return OK;
}

// Takes note of how much the sorted values of a figure differ.
static void note_spread(struct calibrator *c, const double *sorted, int32_t n) {
    if (n < 2) return;
    ASSERT(c->n_spreads < MAX_FIGURES);
    c->spreads[c->n_spreads++] = sorted[n - 1] / sorted[0] - 1;
}

// The median over the visits; 0 if no visit measured the figure.
static void merge_visits(struct calibrator *c, const struct device_rates visits[VISITS],
                         struct device_rates *out) {
    static const struct {
        size_t offset, n;
    } tables[] = {
        {offsetof(struct device_rates, op_us), 1},
        {offsetof(struct device_rates, pass_us), 1},
        {offsetof(struct device_rates, launch_us), 1},
        {offsetof(struct device_rates, start_us), 1},
        {offsetof(struct device_rates, vector_gbps), 1},
        {offsetof(struct device_rates, weight_gbps), WEIGHT_COUNT * RATE_CLASSES},
        {offsetof(struct device_rates, attention_gflops), KV_TYPES * RATE_CLASSES},
        {offsetof(struct device_rates, cache_factor), 1},
    };
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (size_t i = 0; i < tables[t].n; i++) {
            const size_t offset = tables[t].offset + i * sizeof(double);
            double values[VISITS];
            int32_t n = 0;
            for (int v = 0; v < VISITS; v++) {
                memcpy(&values[n], (const char *)&visits[v] + offset, sizeof(double));
                n += values[n] > 0;
            }
            const double median = n ? median_of(values, n) : 0;
            note_spread(c, values, n);
            memcpy((char *)out + offset, &median, sizeof median);
        }
    }
}

// Measures everything once, if time allows. Attention gets a share of the time before the weight
// types.
static enum status visit_device(struct calibrator *c, int d, struct device_rates *rates,
                                struct windows *w, int n_more, struct err *e) {
    struct rig *rig = &c->rigs[d];
    stopwatch_phase(&c->watch, 0.07, 4);
    if (rig_overheads(rig, &c->watch, MOST_USED, e) || read_windows(c, rig, w, e)) return e->status;
    fit_cache(w, rates);
    rates->op_us = rig->op_us;
    rates->pass_us = rig->pass_us;
    rates->launch_us = rig->launch_us;
    rates->start_us = rig->start_us;
    stopwatch_phase(&c->watch, 0.25, (KV_TYPES * RATE_CLASSES + 2) * (1 + n_more));
    if (measure_vectors(c, rig, rates, e)) return e->status;
    c->machine.devices[d].rates.vector_gbps = rates->vector_gbps;
    if (measure_attention(c, rig, rates, e)) return e->status;
    return measure_weights(c, d, rates, n_more, e);
}

// Measures one device in several visits, so that a disturbance of a second does not decide a
// figure. A visit may take all remaining time: a slow device gets each figure once before any
// figure twice.
static enum status measure_device(struct calibrator *c, int d, double share, struct err *e) {
    struct device_rates *rates = &c->machine.devices[d].rates, visits[VISITS];
    struct windows w = {.n = 0}; // for the CPU only: caches of accelerators are not measured
    memset(visits, 0, sizeof visits);
    *rates = (struct device_rates){0};
    if (d == DEVICE_HOST) choose_windows(&w, (double)c->rigs[d].pool.size_bytes);
    stopwatch_part(&c->watch, share);
    for (int v = 0; v < VISITS && (v == 0 || stopwatch_fits(&c->watch, 20e3)); v++)
        if (visit_device(c, d, &visits[v], &w, VISITS - 1 - v, e)) return e->status;
    merge_visits(c, visits, rates);
    fit_cache(&w, rates);
    if (!(rates->cache_factor > 1)) rates->cache_bytes = 0;
    if (!rates->cache_bytes) rates->cache_factor = 0, rates->cache_quarter_bytes = 0;
    stopwatch_phase(&c->watch, 1, 1);
    scale_attention(c, rates);
    scale_types(c, rates);
    return measure_memory(c, &c->rigs[d], rates, e);
}

// ---- Opening devices ----------------------------------------------------------------------------

// Chooses rows and columns of the matrices: large enough to keep the device busy, small enough for
// the time limit.
static enum status choose_size(struct calibrator *c, struct device *device, void *pool,
                               uint64_t pool_bytes, int32_t *size, struct err *e) {
    struct rig rig = {0};
    const uint64_t probe_bytes = pool_bytes < PROBE_POOL ? pool_bytes : (uint64_t)PROBE_POOL;
    double us = 0;
    stopwatch_part(&c->watch, 0.02);
    enum status status = rig_open(&rig, device, pool, probe_bytes, PROBE_SIZE, e);
    if (!status) {
        const struct job job = rig_matmul(&rig, MOST_USED, 1, 0);
        status = rig_time(&rig, &c->watch, &job, &us, e);
    }
    rig_close(&rig);
    const bool is_host = device->info.is_host;
    *size = us > 10e3 ? PROBE_SIZE / 2 : PROBE_SIZE;
    if (us < 300 && pool_bytes >= 64 << 20) *size = is_host ? 1024 : 2048;
    if (us < 300 && pool_bytes >= POOL_LEAST && is_host)
        *size = rig_size_for_lanes(device->info.n_lanes);
    if (us < 8 && pool_bytes >= POOL_LEAST && !is_host) *size = 8192;
    return status;
}

static enum status open_rig(struct calibrator *c, int d, struct device *device, void *pool,
                            uint64_t pool_bytes, struct err *e) {
    int32_t size;
    if (choose_size(c, device, pool, pool_bytes, &size, e)) return e->status;
    return rig_open(&c->rigs[d], device, pool, pool_bytes, size, e);
}

static enum status open_pool(struct calibrator *c, struct err *e) {
    const uint64_t asked = c->options->memory_bytes,
                   room = c->machine.devices[DEVICE_HOST].budget_bytes;
    uint64_t size = 3 * c->machine.cache_bytes;
    size = size < POOL_LEAST ? POOL_LEAST : size > POOL_MOST ? POOL_MOST : size;
    if (size > room / 4) size = room / 4;
    if (asked && size > asked) size = asked;
    c->pool_bytes = size = round_up(size, 1 << 20);
    c->pool = mem_map_pages(size);
    // Weights are read from a mapped file, which has small pages.
    if (c->pool) mem_use_small_pages(c->pool, size);
    if (!c->pool || !mem_populate(c->pool, size))
        return err_memory(e, size, "weights to measure with");
    rig_fill(c->pool, size);
    return OK;
}

static enum status open_cpu(struct calibrator *c, int32_t decode, int32_t prefill, struct err *e) {
    struct cpu_options options = c->options->cpu;
    options.n_threads = decode;
    options.n_threads_batch = prefill;
    return device_open_cpu(&c->cpu, &options, NULL, e);
}

// ---- Phases -------------------------------------------------------------------------------------

// Measures the rate of reading weights for one token by that many threads.
static enum status measure_team(struct calibrator *c, int32_t n, int32_t prefill, struct err *e) {
    struct machine *m = &c->machine;
    struct rig rig = {0};
    double us;
    if (open_cpu(c, n, prefill, e)) return e->status;
    int32_t size = c->pool_bytes >= POOL_LEAST ? rig_size_for_lanes(n) : 0;
    if (size < PROBE_SIZE * 4) size = PROBE_SIZE * 4;
    enum status status = rig_open(&rig, c->cpu, c->pool, c->pool_bytes, size, e);
    if (!status) {
        const struct job job = rig_matmul(&rig, MOST_USED, 1, 0);
        status = rig_time(&rig, &c->watch, &job, &us, e);
        m->team_size[m->n_team_sizes] = n;
        m->team_gbps[m->n_team_sizes++] = gbps_of((double)job_weight_bytes(&rig, &job), us);
    }
    rig_close(&rig);
    device_close(c->cpu);
    c->cpu = NULL;
    return status;
}

// Measures teams of 1, 2, 4, ... and all threads, or the team of the options; then opens the CPU
// with the team that is enough for one token.
static enum status measure_teams(struct calibrator *c, struct err *e) {
    const int32_t asked = c->options->cpu.n_threads;
    if (open_cpu(c, asked, 0, e)) return e->status;
    const int32_t most = c->cpu->info.n_lanes;
    const int32_t prefill =
        c->options->cpu.n_threads_batch ? c->options->cpu.n_threads_batch : most;
    device_close(c->cpu);
    c->cpu = NULL;
    c->machine.n_team_sizes = 0;
    for (int32_t n = asked ? asked : 1; n <= most; n = n < most && 2 * n > most ? most : 2 * n) {
        stopwatch_part(&c->watch, TEAMS_SHARE[c->accelerator != NULL]);
        if (measure_team(c, n, prefill, e)) return e->status;
        if (c->machine.n_team_sizes == MAX_TEAM_SIZES) break;
    }
    const int32_t team = machine_decode_team(&c->machine);
    c->out->decode_team = team > 0 ? team : most;
    return open_cpu(c, c->out->decode_team, prefill, e);
}

static enum status measure_link(struct calibrator *c, struct err *e) {
    struct link_bench bench = {0};
    struct machine_device *device = &c->machine.devices[1];
    stopwatch_part(&c->watch, LINK_SHARE);
    stopwatch_phase(&c->watch, 1, 2 * LINK_BLOCKS + 2);
    enum status status = link_open(&bench, &c->rigs[1], &c->watch, e);
    if (!status) status = link_measure(&bench, &device->link, c->out->blocks, e);
    if (!status) {
        stopwatch_part(&c->watch, 1);
        status = link_measure_beside(&bench, &c->rigs[DEVICE_HOST], MOST_USED, device->link.to_gbps,
                                     c->out, e);
    }
    link_close(&bench);
    if (status) return status;
    // The memory's rate is at least that of the CPU alone, even if copies take processor time as
    // well.
    const double both = c->out->cpu_beside_gbps + c->out->copy_beside_gbps;
    const double alone = c->machine.devices[DEVICE_HOST].rates.memory_gbps;
    c->machine.dram_gbps = both > alone ? both : alone;
    return OK;
}

static enum status measure_accelerator(struct calibrator *c, struct err *e) {
    const struct machine_device *device = &c->machine.devices[1];
    const uint64_t asked = c->options->memory_bytes, room = c->accelerator->info.free_bytes;
    uint64_t size = room / 4 < POOL_MOST / 2 ? room / 4 : POOL_MOST / 2;
    if (asked && size > asked) size = asked;
    if (size < 1 << 20) {
        err_set(e, ERR_MEMORY, "%s has too little memory to be measured", device->name);
        err_expected(e, "at least 4 MiB");
        return err_actual(e, "%llu bytes", (unsigned long long)room);
    }
    if (open_rig(c, 1, c->accelerator, NULL, size, e)) return e->status;
    if (measure_device(c, 1, ACCELERATOR_SHARE, e)) return e->status;
    return measure_link(c, e);
}

static enum status measure_all(struct calibrator *c, struct err *e) {
    c->machine.dram_gbps = 0;
    if (open_pool(c, e) || measure_teams(c, e) ||
        open_rig(c, DEVICE_HOST, c->cpu, c->pool, c->pool_bytes, e) ||
        measure_device(c, DEVICE_HOST, CPU_SHARE[c->accelerator != NULL], e))
        return e->status;
    c->machine.devices[DEVICE_HOST].link = (struct link_rates){0};
    return c->accelerator ? measure_accelerator(c, e) : OK;
}

// Says how quiet the computer was.
static void judge(struct calibrator *c) {
    struct calibration *out = c->out;
    const struct meter *meter = c->watch.meter;
    const double ns = (double)(meter_now_ns(meter) - c->watch.start_ns);
    const uint64_t others_ns = meter_others_ns(meter);
    out->seconds = ns * 1e-9;
    out->made_at = (int64_t)time(NULL);
    // Its own time and that of all programs are read one after the other, in different units.
    if (others_ns > c->others_ns && ns > 0)
        out->busy_others = (double)(others_ns - c->others_ns) / ns;
    const int32_t n = c->n_spreads;
    if (n == 0) return;
    (void)median_of(c->spreads, n); // sorts
    out->spread = c->spreads[n - 1 - n / 4];
}

static void describe(struct calibrator *c) {
    struct machine *m = &c->machine;
    char reason[120];
    m->rates = RATES_MEASURED;
    m->rates_name[0] = 0;
    int used = snprintf(m->source, sizeof m->source, "measured on this computer in %.1f s",
                        c->out->seconds);
    if (c->n_scaled > 0)
        used += snprintf(m->source + used, sizeof m->source - (size_t)used,
                         "; %d speed%s that the time did not allow %s scaled from others",
                         c->n_scaled, c->n_scaled == 1 ? "" : "s", c->n_scaled == 1 ? "is" : "are");
    if (calibration_is_noisy(c->out))
        snprintf(m->source + used, sizeof m->source - (size_t)used, "; noisy: %s",
                 calibration_reason(c->out, reason, sizeof reason));
}

enum status calibrate(struct machine *m, struct device *accelerator,
                      const struct calibration_options *options, struct calibration *out,
                      struct err *e) {
    ASSERT(m->n_devices == (accelerator ? 2 : 1));
    ASSERT(!accelerator || !accelerator->sealed);
    struct calibrator c = {.options = options,
                           .machine = *m,
                           .out = out,
                           .accelerator = accelerator,
                           .others_ns = meter_others_ns(options->meter),
                           .watch = {.start_ns = meter_now_ns(options->meter),
                                     .limit_ns = options->limit_ns,
                                     .progress = options->progress,
                                     .meter = options->meter}};
    if (!c.watch.limit_ns) c.watch.limit_ns = (accelerator ? 9000 : 7000) * UINT64_C(1000000);
    *out = (struct calibration){0};
    enum status status = measure_all(&c, e);
    for (int d = MAX_DEVICES - 1; d >= 0; d--) rig_close(&c.rigs[d]);
    device_close(c.cpu);
    if (c.pool) mem_unmap_pages(c.pool, c.pool_bytes);
    if (status) return err_context(e, "calibration");
    judge(&c);
    describe(&c);
    status = machine_check(&c.machine, e);
    if (!status) *m = c.machine;
    return status;
}
