/* rig.c: see rig.h. */
#include "runtime/host/rig.h"

#include "base/mem.h"
#include "base/number.h"
#include "kernels/kv_page.h"
#include "kernels/op_cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    RUN_US = 1500,  // one run takes at least that long, if a call is shorter
    LEAST_RUNS = 3, // even if one was disturbed
    MIN_RUNS = 5,
    MAX_RUNS = 15,
    WARM_PASSES = 3,
    MAX_CALLS = 512, // of one run
    TINY_ROWS = 32,
    TINY_COLS = 256, // a whole block of every type
    TINY_OPS = 13,
    START_PARTS = 8, // of the rows of a matrix are read to measure starts
    CHUNK_BYTES = 1 << 20,
    STOPPED_NS = 150000000, // longer than a control group's quota pauses a program
    FEW_STOPS = 3,
    MAX_STOPS = 20,
};

// ---- Time ---------------------------------------------------------------------------------------

// Counts a stop, whose time is left out from here on.
static void lose(struct stopwatch *watch, uint64_t lost_ns) {
    watch->lost_ns += lost_ns;
    watch->n_stops++;
}

uint64_t stopwatch_now(struct stopwatch *watch) {
    const uint64_t now_ns = meter_now_ns(watch->meter), gone_ns = now_ns - watch->seen_ns;
    uint64_t own_ns = 0;
    const bool known = meter_own_ns(watch->meter, &own_ns) && watch->seen_ns;
    const uint64_t ran_ns = own_ns - watch->seen_own_ns;
    if (known && !watch->waits && ran_ns < gone_ns / 2 && gone_ns - ran_ns > STOPPED_NS)
        lose(watch, gone_ns);
    watch->seen_ns = now_ns;
    watch->seen_own_ns = own_ns;
    return now_ns - watch->lost_ns;
}

// True if the program was stopped so often, or so long again and again, that it hardly runs.
static bool hardly_runs(const struct stopwatch *watch) {
    return watch->n_stops > MAX_STOPS ||
           (watch->n_stops > FEW_STOPS && watch->lost_ns > watch->limit_ns);
}

bool stopwatch_too_long(struct stopwatch *watch, double us, double usual_us) {
    uint64_t own_ns;
    if (us * 1e3 < (double)STOPPED_NS || us < 4 * usual_us || hardly_runs(watch) ||
        !meter_own_ns(watch->meter, &own_ns))
        return false;
    lose(watch, (uint64_t)(us * 1e3));
    return true;
}

static double elapsed_us(struct stopwatch *watch, uint64_t start_ns) {
    return (double)(stopwatch_now(watch) - start_ns) * 1e-3;
}

static uint64_t share_until(struct stopwatch *watch, uint64_t end_ns, double share) {
    const uint64_t now_ns = stopwatch_now(watch);
    return now_ns < end_ns ? now_ns + (uint64_t)(share * (double)(end_ns - now_ns)) : end_ns;
}

void stopwatch_part(struct stopwatch *watch, double share) {
    watch->part_end_ns = share_until(watch, watch->start_ns + watch->limit_ns, share);
    watch->phase_end_ns = watch->part_end_ns;
    watch->figures_left = 1;
}

void stopwatch_phase(struct stopwatch *watch, double share, int32_t figures) {
    watch->phase_end_ns = share_until(watch, watch->part_end_ns, share);
    watch->figures_left = figures > 0 ? figures : 1;
}

static double phase_left_us(struct stopwatch *watch) {
    const uint64_t now_ns = stopwatch_now(watch);
    return now_ns < watch->phase_end_ns ? (double)(watch->phase_end_ns - now_ns) * 1e-3 : 0;
}

// The current figure's share of the phase's remaining time.
static double figure_us(struct stopwatch *watch) {
    return phase_left_us(watch) / watch->figures_left;
}

bool stopwatch_fits(struct stopwatch *watch, double us) { return us < phase_left_us(watch); }

enum status stopwatch_step(struct stopwatch *watch, struct err *e) {
    if (watch->figures_left > 1) watch->figures_left--;
    if (hardly_runs(watch)) {
        err_set(e, ERR_LIMIT,
                "this program got too little processor time, and stood still %d time%s",
                watch->n_stops, watch->n_stops == 1 ? "" : "s");
        return err_fix(e, "close other programs, and measure again with 'tandem calibrate'");
    }
    const uint64_t done_ns = stopwatch_now(watch) - watch->start_ns, total_ns = watch->limit_ns;
    const uint64_t shown_ns = done_ns < total_ns ? done_ns : total_ns;
    if (progress_tell(&watch->progress, "calibrate", shown_ns / 1000000, total_ns / 1000000))
        return OK;
    return err_set(e, ERR_CANCELLED, "calibration was stopped");
}

double median_of(double *values, int32_t n) {
    ASSERT(n >= 1);
    qsort(values, (size_t)n, sizeof *values, order_f64);
    return values[n / 2];
}

// ---- Opening and closing ------------------------------------------------------------------------

// Fills memory with random words, in which the bits outside of random are those of given.
static void fill(void *memory, uint64_t size_bytes, uint64_t random, uint64_t given) {
    uint64_t state = 88172645463325252u, *words = memory;
    for (uint64_t i = 0; i < size_bytes / 8; i++) {
        if (i >= CHUNK_BYTES / 8) {
            words[i] = words[i - CHUNK_BYTES / 8];
            continue;
        }
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words[i] = (state & random) | given;
    }
}

// The upper bits 0010 keep halves within 0.008 and 0.12 and floats within 1e-19 and 1e-9.
void rig_fill(void *memory, uint64_t size_bytes) {
    fill(memory, size_bytes, 0x0f0f0f0f0f0f0f0fu, 0x2020202020202020u);
}

static uint64_t take(uint64_t *at, uint64_t size_bytes) {
    const uint64_t start = *at;
    *at = round_up(start + size_bytes, 256);
    return start;
}

// Copies the tables as one block of host memory: positions and cache rows 0, 1, ..., pages 0, 1,
// ..., sequence 0, rows 0, 1, ...
static enum status copy_tables(struct rig *rig, struct err *e) {
    const int32_t n = rig->n_keys + RIG_TOKENS;
    int32_t *numbers = mem_alloc((size_t)n, 2 * sizeof *numbers);
    if (!numbers) return err_memory(e, (size_t)n * 2 * sizeof *numbers, "tables to measure with");
    for (int32_t i = 0; i < n; i++) numbers[i] = i;
    const uint64_t size_bytes = (uint64_t)n * sizeof *numbers;
    stream_copy(rig->stream, rig->positions, numbers, size_bytes, COPY_TO_DEVICE);
    stream_copy(rig->stream, rig->sequences, numbers + n, size_bytes, COPY_TO_DEVICE);
    rig->cache_rows = rig->pages = rig->rows = rig->positions;
    const enum status status = stream_wait(rig->stream, e);
    mem_free(numbers);
    return status;
}

// Fills device memory from one chunk of the host's: the rest is copied within the device.
static enum status fill_device(struct rig *rig, const struct buffer *b, bool activations,
                               struct err *e) {
    const uint64_t chunk = b->size_bytes < CHUNK_BYTES ? b->size_bytes : CHUNK_BYTES;
    void *host = mem_alloc(CHUNK_BYTES, 1);
    if (!host) return err_memory(e, CHUNK_BYTES, "weights to measure with");
    if (activations)
        fill(host, CHUNK_BYTES, 0x007fffff007fffffu, 0x3f0000003f000000u); // floats in 0.5..1
    else
        rig_fill(host, CHUNK_BYTES);
    stream_copy(rig->stream, b->base, host, chunk, COPY_TO_DEVICE);
    char *base = b->base;
    for (uint64_t done = chunk; done < b->size_bytes; done *= 2) {
        const uint64_t left = b->size_bytes - done, n = done < left ? done : left;
        stream_copy(rig->stream, base + done, base, n, COPY_WITHIN);
    }
    const enum status status = stream_wait(rig->stream, e);
    mem_free(host);
    return status;
}

static enum status open_work(struct rig *rig, struct err *e) {
    const uint64_t n = (uint64_t)rig->n_tokens, cols = (uint64_t)rig->n_cols;
    const uint64_t width = cols > RIG_HEADS * RIG_HEAD_DIM ? cols : RIG_HEADS * RIG_HEAD_DIM;
    const uint64_t tables = (uint64_t)(rig->n_keys + RIG_TOKENS) * sizeof(int32_t);
    uint64_t at = 0, x = take(&at, n * width * 4), out = take(&at, n * width * 4);
    uint64_t more = take(&at, n * width * 4);
    uint64_t scratch = take(&at, matmul_scratch_bytes(WEIGHT_BF16, rig->n_cols, rig->n_tokens,
                                                      rig->device->info.n_lanes));
    uint64_t positions = take(&at, tables), sequences = take(&at, tables);
    if (buffer_new(rig->device, at, PURPOSE_SCRATCH, &rig->work, e)) return e->status;
    if (fill_device(rig, &rig->work, true, e)) return e->status;
    char *base = rig->work.base;
    rig->x = (float *)(base + x);
    rig->out = (float *)(base + out);
    rig->more = (float *)(base + more);
    rig->scratch = base + scratch;
    rig->positions = (int32_t *)(base + positions);
    rig->sequences = (int32_t *)(base + sequences);
    return copy_tables(rig, e);
}

int32_t rig_size_for_lanes(int32_t n_lanes) {
    int32_t size = 1024;
    while (size < 4096 && (int64_t)size * size < (int64_t)n_lanes << 19) size *= 2;
    return size;
}

enum status rig_open(struct rig *rig, struct device *device, void *host_pool, uint64_t pool_bytes,
                     int32_t size, struct err *e) {
    ASSERT(size % TINY_COLS == 0 && size >= TINY_COLS);
    *rig = (struct rig){.device = device,
                        .n_cols = size,
                        .n_rows = size,
                        .n_tokens = RIG_TOKENS,
                        .n_keys = RIG_KEYS};
    if (stream_new(device, STREAM_COMPUTE, &rig->stream, e)) return e->status;
    if (host_pool) {
        buffer_map(device, host_pool, pool_bytes, PURPOSE_WEIGHTS, &rig->pool);
    } else if (buffer_new(device, pool_bytes, PURPOSE_WEIGHTS, &rig->pool, e) ||
               fill_device(rig, &rig->pool, false, e)) {
        return e->status;
    }
    return open_work(rig, e);
}

void rig_close(struct rig *rig) {
    stream_free(rig->stream);
    buffer_free(&rig->work);
    buffer_free(&rig->pool);
    *rig = (struct rig){0};
}

// ---- What is timed ------------------------------------------------------------------------------

static const char *part_of_pool(const struct rig *rig, const struct job *job, int64_t i) {
    const int64_t part = i * (job->step ? job->step : 1) % job->n_parts;
    return (const char *)rig->pool.base + (uint64_t)part * job->stride_bytes;
}

static void encode_matmul(struct rig *rig, const struct job *job, int64_t i) {
    rig->device->ops->matmul(rig->stream, job->type,
                             &(struct matmul_args){.out = rig->out,
                                                   .x = rig->x,
                                                   .weight = part_of_pool(rig, job, i),
                                                   .scratch = rig->scratch,
                                                   .n_tokens = job->n_tokens,
                                                   .n_cols = rig->n_cols,
                                                   .row_count = job->n_rows,
                                                   .out_stride = job->n_rows});
}

uint64_t job_weight_bytes(const struct rig *rig, const struct job *matmul) {
    return dtype_bytes(weight_dtype(matmul->type),
                       (uint64_t)matmul->n_rows * (uint64_t)rig->n_cols);
}

double job_activation_bytes(const struct rig *rig, const struct job *matmul) {
    const struct matmul_args args = {
        .n_tokens = matmul->n_tokens, .n_cols = rig->n_cols, .row_count = matmul->n_rows};
    return cost_activation_bytes(op_cost_matmul(matmul->type, &args));
}

// Returns the job with as many parts of the pool in turn as window_bytes hold.
static struct job in_window(const struct rig *rig, const struct job *job, uint64_t window_bytes) {
    struct job out = *job;
    out.warm = window_bytes < rig->pool.size_bytes;
    out.n_parts = (int64_t)((out.warm ? window_bytes : rig->pool.size_bytes) / out.stride_bytes);
    if (out.n_parts < 1) out.n_parts = 1;
    return out;
}

struct job rig_matmul(const struct rig *rig, enum weight_type type, int32_t n_tokens,
                      uint64_t window_bytes) {
    struct job job = {encode_matmul, .type = type, .n_tokens = n_tokens, .n_rows = rig->n_rows};
    if (window_bytes == 0 || window_bytes > rig->pool.size_bytes)
        window_bytes = rig->pool.size_bytes;
    // A small window is read by smaller matrices.
    while (job.n_rows > TINY_ROWS && job_weight_bytes(rig, &job) > window_bytes / 2)
        job.n_rows /= 2;
    job.stride_bytes = round_up(job_weight_bytes(rig, &job), rig->device->info.align_bytes);
    return in_window(rig, &job, window_bytes);
}

static void encode_attention(struct rig *rig, const struct job *job, int64_t i) {
    const char *cache = part_of_pool(rig, job, i);
    rig->device->ops->attention(
        rig->stream,
        &(struct attention_args){.out = rig->out,
                                 .q = rig->x,
                                 .k_cache = cache,
                                 .v_cache = cache + job->stride_bytes / 2,
                                 .pages = rig->pages,
                                 .positions = rig->positions + job->n_keys - job->n_tokens,
                                 .sequences = rig->sequences,
                                 .n_tokens = job->n_tokens,
                                 .n_heads = RIG_HEADS,
                                 .n_kv_heads = RIG_KV_HEADS,
                                 .head_dim = RIG_HEAD_DIM,
                                 .max_pages = job->n_keys / KV_PAGE,
                                 .k_type = job->kv_type,
                                 .v_type = job->kv_type,
                                 .order = rig->device->info.kv_order,
                                 .scale = 0.125F});
}

struct job rig_attention(const struct rig *rig, enum dtype kv_type, int32_t n_tokens,
                         int32_t n_keys) {
    ASSERT(n_keys <= rig->n_keys && n_keys % KV_PAGE == 0 && n_tokens <= n_keys);
    const uint64_t cache = dtype_bytes(kv_type, (uint64_t)n_keys * RIG_KV_HEADS * RIG_HEAD_DIM);
    struct job job = {encode_attention, .kv_type = kv_type, .n_tokens = n_tokens, .n_keys = n_keys};
    job.stride_bytes = 2 * round_up(cache, rig->device->info.align_bytes);
    return in_window(rig, &job, rig->pool.size_bytes);
}

double job_attention_flops(const struct job *attention) {
    const double n = attention->n_tokens, keys = attention->n_keys;
    return 4.0 * RIG_HEADS * RIG_HEAD_DIM * n * (keys - (n - 1) / 2);
}

double job_query_bytes(const struct job *attention) {
    const struct attention_args args = {.n_tokens = attention->n_tokens,
                                        .n_heads = RIG_HEADS,
                                        .n_kv_heads = RIG_KV_HEADS,
                                        .head_dim = RIG_HEAD_DIM};
    return cost_query_bytes(op_cost_attention(&args, 0));
}

// rms_norm reads x and writes more, swiglu and rope work in place, as in a layer.
static void encode_vectors(struct rig *rig, const struct job *job, int64_t i) {
    const struct op_table *ops = rig->device->ops;
    const int32_t n = job->n_tokens, heads = rig->n_cols / RIG_HEAD_DIM;
    const float *weight = (const float *)rig->pool.base;
    (void)i;
    ops->rms_norm(rig->stream, &(struct rms_norm_args){.out = rig->more,
                                                       .x = rig->x,
                                                       .weight = weight,
                                                       .n_rows = n,
                                                       .n_cols = rig->n_cols,
                                                       .eps = 1e-5F});
    ops->rope(rig->stream, &(struct rope_args){rig->more, rig->out, rig->x, n, heads - 1, 1,
                                               RIG_HEAD_DIM, RIG_HEAD_DIM, false});
    ops->swiglu(rig->stream, &(struct swiglu_args){.out = rig->out,
                                                   .gate = rig->x,
                                                   .up = rig->more,
                                                   .n_rows = n,
                                                   .n_cols = rig->n_cols,
                                                   .stride = rig->n_cols,
                                                   .up_stride = rig->n_cols});
}

struct job rig_vectors(const struct rig *rig, int32_t n_tokens, uint64_t *bytes) {
    const int32_t n = n_tokens, heads = rig->n_cols / RIG_HEAD_DIM;
    const struct rms_norm_args norm = {
        .weight = (const float *)rig->pool.base, .n_rows = n, .n_cols = rig->n_cols};
    const struct rope_args rope = {.n_tokens = n,
                                   .n_heads = heads - 1,
                                   .n_kv_heads = 1,
                                   .head_dim = RIG_HEAD_DIM,
                                   .n_rot = RIG_HEAD_DIM};
    const struct swiglu_args swiglu = {.n_rows = n, .n_cols = rig->n_cols};
    const struct op_cost costs[] = {op_cost_rms_norm(&norm, 0), op_cost_rope(&rope, 0),
                                    op_cost_swiglu(&swiglu, 0)};
    *bytes = 0;
    for (int i = 0; i < 3; i++) *bytes += (uint64_t)op_cost_bytes(costs[i]);
    return (struct job){.encode = encode_vectors, .n_tokens = n, .n_parts = 1};
}

// The product of a tiny matrix.
static void encode_tiny(struct rig *rig, const struct job *job, float *out, const float *x) {
    rig->device->ops->matmul(rig->stream, job->type,
                             &(struct matmul_args){.out = out,
                                                   .x = x,
                                                   .weight = rig->pool.base,
                                                   .scratch = rig->scratch,
                                                   .n_tokens = 1,
                                                   .n_cols = TINY_COLS,
                                                   .row_count = TINY_ROWS,
                                                   .out_stride = TINY_ROWS});
}

static void encode_tiny_norm(struct rig *rig, float *out) {
    rig->device->ops->rms_norm(rig->stream,
                               &(struct rms_norm_args){.out = out,
                                                       .x = rig->x,
                                                       .weight = (const float *)rig->pool.base,
                                                       .n_rows = 1,
                                                       .n_cols = TINY_COLS,
                                                       .eps = 1e-5F});
}

static void encode_tiny_attention(struct rig *rig, float *out, float *q, float *k, const float *v) {
    const struct op_table *ops = rig->device->ops;
    char *cache = (char *)(rig->more + TINY_COLS); // any memory can serve as the cache
    ops->rope(rig->stream,
              &(struct rope_args){q, k, rig->x, 1, 3, 1, RIG_HEAD_DIM, RIG_HEAD_DIM, false});
    ops->kv_store(rig->stream, &(struct kv_store_args){.k_cache = cache,
                                                       .v_cache = cache + (1 << 14),
                                                       .k = k,
                                                       .v = v,
                                                       .cache_rows = rig->cache_rows,
                                                       .n_tokens = 1,
                                                       .n_cols = RIG_HEAD_DIM,
                                                       .k_type = DTYPE_F16,
                                                       .v_type = DTYPE_F16,
                                                       .order = rig->device->info.kv_order,
                                                       .head_dim = RIG_HEAD_DIM});
    ops->attention(rig->stream, &(struct attention_args){.out = out,
                                                         .q = q,
                                                         .k_cache = cache,
                                                         .v_cache = cache,
                                                         .pages = rig->pages,
                                                         .positions = rig->positions, // 0: one key
                                                         .sequences = rig->sequences,
                                                         .n_tokens = 1,
                                                         .n_heads = 1,
                                                         .n_kv_heads = 1,
                                                         .head_dim = RIG_HEAD_DIM,
                                                         .max_pages = 1,
                                                         .k_type = DTYPE_F16,
                                                         .v_type = DTYPE_F16,
                                                         .order = rig->device->info.kv_order,
                                                         .scale = 0.125F});
}

// Encodes the ops of a layer with one token and tiny matrices, each of what those before it make: a
// device may compute neighbours at once.
static void encode_tiny_layer(struct rig *rig, const struct job *job, int64_t i) {
    float *normed = rig->more, *slots[5]; // of what an op makes
    (void)i;
    for (int slot = 0; slot < 5; slot++) slots[slot] = rig->out + slot * TINY_COLS;
    encode_tiny_norm(rig, normed);
    for (int product = 0; product < 3; product++) encode_tiny(rig, job, slots[product], normed);
    encode_tiny_attention(rig, slots[3], slots[0], slots[1], slots[2]);
    encode_tiny(rig, job, slots[4], slots[3]);
    encode_tiny_norm(rig, normed);
    for (int product = 0; product < 2; product++) encode_tiny(rig, job, slots[product], normed);
    rig->device->ops->swiglu(rig->stream, &(struct swiglu_args){.out = slots[0],
                                                                .gate = slots[0],
                                                                .up = slots[1],
                                                                .n_rows = 1,
                                                                .n_cols = TINY_COLS,
                                                                .stride = TINY_COLS,
                                                                .up_stride = TINY_COLS});
    encode_tiny(rig, job, slots[4], slots[0]);
}

// ---- Timing -------------------------------------------------------------------------------------

// Makes n calls with rests between; *out_us gets the time of the calls, with one pass_us as if they
// were one pass.
static enum status run_resting(struct rig *rig, struct stopwatch *watch, const struct job *job,
                               int64_t n, double *out_us, struct err *e) {
    *out_us = rig->pass_us;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t start_ns = stopwatch_now(watch);
        job->encode(rig, job, rig->n_calls++);
        if (stream_wait(rig->stream, e)) return e->status;
        const double us = elapsed_us(watch, start_ns);
        *out_us += fmax(us - rig->pass_us, us / 4);
        while (elapsed_us(watch, start_ns) < 2 * us) continue;
    }
    return OK;
}

// Makes n calls without rests.
static enum status run_through(struct rig *rig, struct stopwatch *watch, const struct job *job,
                               int64_t n, double *out_us, struct err *e) {
    const uint64_t start_ns = stopwatch_now(watch);
    for (int64_t i = 0; i < n; i++) job->encode(rig, job, rig->n_calls + i);
    rig->n_calls += n;
    watch->waits = !rig->device->info.is_host;
    const enum status status = stream_wait(rig->stream, e);
    *out_us = elapsed_us(watch, start_ns) + 1e-3;
    return status;
}

// Makes n calls, again if the program was stopped meanwhile.
static enum status run(struct rig *rig, struct stopwatch *watch, const struct job *job, int64_t n,
                       double *out_us, struct err *e) {
    const bool waits = watch->waits, is_host = rig->device->info.is_host;
    int32_t n_stops;
    enum status status;
    do {
        n_stops = watch->n_stops;
        status = job->rests ? run_resting(rig, watch, job, n, out_us, e)
                            : run_through(rig, watch, job, n, out_us, e);
        watch->waits = waits;
        if (!is_host && rig->usual_us > 0) (void)stopwatch_too_long(watch, *out_us, rig->usual_us);
    } while (!status && watch->n_stops > n_stops && !hardly_runs(watch));
    return status;
}

enum status rig_pass(struct rig *rig, struct stopwatch *watch, const struct job *job,
                     double *out_us, struct err *e) {
    device_batch_hint(rig->device, job->n_tokens);
    return run(rig, watch, job, job->n_parts, out_us, e);
}

// True if the middle half of the runs lies within 2 %.
static bool stable(double *runs, int32_t n) {
    if (n < MIN_RUNS) return false;
    (void)median_of(runs, n); // sorts
    return runs[n * 3 / 4] <= 1.02 * runs[n / 4];
}

// Finds the number of calls in a run from two single calls, of which the first also warms up.
static enum status calls_of_run(struct rig *rig, struct stopwatch *watch, const struct job *job,
                                int64_t *n, double *call_us, struct err *e) {
    double again_us;
    const double slice_us = figure_us(watch);
    rig->usual_us = 0;
    if (run(rig, watch, job, 1, call_us, e)) return e->status;
    if (*call_us < slice_us || *call_us * 1e3 > (double)STOPPED_NS) {
        rig->usual_us = *call_us;
        if (run(rig, watch, job, 1, &again_us, e)) return e->status;
        if (!rig->device->info.is_host) (void)stopwatch_too_long(watch, *call_us, again_us);
        if (again_us < *call_us) *call_us = again_us;
    }
    *n = *call_us < RUN_US ? (int64_t)(RUN_US / *call_us) + 1 : 1;
    if (*n > MAX_CALLS) *n = MAX_CALLS;
    return OK;
}

double rig_net_us(const struct rig *rig, double run_us, int64_t n) {
    const double all_us = fmax(run_us - rig->pass_us, run_us / 4), each_us = all_us / (double)n;
    return fmax(fmax(each_us - rig->op_us, each_us / 4), 1e-3);
}

enum status rig_time(struct rig *rig, struct stopwatch *watch, const struct job *job,
                     double *out_us, struct err *e) {
    double runs[MAX_RUNS], us;
    const uint64_t start_ns = stopwatch_now(watch);
    const double slice_us = figure_us(watch);
    int64_t n = 1;
    int32_t count = 0;
    device_batch_hint(rig->device, job->n_tokens);
    // Caches keep only data that is read again, so one pass is not enough.
    for (int pass = 0; pass < WARM_PASSES && job->warm; pass++)
        if (run(rig, watch, job, job->n_parts, &us, e)) return e->status;
    if (calls_of_run(rig, watch, job, &n, &us, e)) return e->status;
    us *= (double)n;
    rig->usual_us = us;
    if (us >= slice_us && n == 1) runs[count++] = us;
    while (count == 0 || (count < MAX_RUNS && !stable(runs, count) &&
                          (elapsed_us(watch, start_ns) + us < slice_us ||
                           (count < LEAST_RUNS && stopwatch_fits(watch, 4 * us)))))
        if (run(rig, watch, job, n, &runs[count++], e)) return e->status;
    rig->usual_us = 0;
    *out_us = rig_net_us(rig, median_of(runs, count), n);
    return stopwatch_step(watch, e);
}

// Measures how long this thread encodes and submits an op of such layers, until it is free again.
static enum status measure_launches(struct rig *rig, struct stopwatch *watch,
                                    const struct job *layer, struct err *e) {
    enum { LAYERS = 8 };
    double runs[MAX_RUNS];
    rig->launch_us = 0;
    if (rig->device->info.is_host) return OK;
    for (int i = 0; i < MAX_RUNS; i++) {
        const uint64_t start_ns = stopwatch_now(watch);
        for (int64_t n = 0; n < LAYERS; n++) layer->encode(rig, layer, n);
        stream_flush(rig->stream);
        runs[i] = elapsed_us(watch, start_ns);
        if (stream_wait(rig->stream, e)) return e->status;
    }
    rig->launch_us = fmin(median_of(runs, MAX_RUNS) / (LAYERS * TINY_OPS), rig->op_us);
    return OK;
}

// Measures how much longer a small matrix takes that lies elsewhere than the one before it, as
// those of a model do. A larger one is read while what follows it is prefetched.
static enum status measure_starts(struct rig *rig, struct stopwatch *watch, enum weight_type type,
                                  struct err *e) {
    struct job job = rig_matmul(rig, type, 1, 0);
    double next_us, elsewhere_us;
    if (job.n_rows >= START_PARTS * TINY_ROWS) job.n_rows /= START_PARTS;
    job.stride_bytes = round_up(job_weight_bytes(rig, &job), rig->device->info.align_bytes);
    job = in_window(rig, &job, rig->pool.size_bytes);
    if (rig_time(rig, watch, &job, &next_us, e)) return e->status;
    job.step = job.n_parts / 3 + 1;
    if (rig_time(rig, watch, &job, &elsewhere_us, e)) return e->status;
    rig->start_us = fmax(elsewhere_us - next_us, 0);
    return OK;
}

enum status rig_overheads(struct rig *rig, struct stopwatch *watch, enum weight_type type,
                          struct err *e) {
    const struct job layer = {encode_tiny_layer, .type = type, .n_tokens = 1, .n_parts = 1};
    struct job one = {encode_matmul, .type = type, .n_tokens = 1, .n_rows = TINY_ROWS};
    one.n_parts = 1;
    double runs[MAX_RUNS], layer_us;
    rig->op_us = rig->pass_us = rig->start_us = 0;
    if (rig_time(rig, watch, &layer, &layer_us, e)) return e->status;
    rig->op_us = layer_us / TINY_OPS;
    if (measure_launches(rig, watch, &layer, e)) return e->status;
    for (int i = 0; i < MAX_RUNS; i++)
        if (run(rig, watch, &one, 1, &runs[i], e)) return e->status;
    rig->pass_us = median_of(runs, MAX_RUNS) - rig->op_us;
    if (rig->pass_us < 0.1) rig->pass_us = 0.1;
    if (stopwatch_step(watch, e)) return e->status;
    return measure_starts(rig, watch, type, e);
}
