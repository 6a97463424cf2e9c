/* bench_device.c: measures the speed of every op on a device, as bytes and multiply-adds per
 * second.
 *
 *   bench_device [--device cpu|PREFIX:SPEC] [--op NAME] [--ms N] [--quick] [--json]
 *
 * Shapes are those of an 8B model, and of a layer with 128 experts for the ops of experts; --quick
 * takes small shapes and one run, to test the program. A matmul has the rows of gate and up, and
 * with three types those of keys, queries and the head too; attention has caches of several
 * lengths, types and numbers of KV heads. Weights are read from many copies in turn, so that no
 * cache holds them. Each line is the best of three runs of at least N ms (50): microseconds per
 * call, GB/s by op_cost's bytes and as a share of the rate of a copy within the device, and
 * GFLOP/s. "launch" is an op of one small row, so the time to start one: in lists that a backend
 * may replay, handed over one by one, and waited for one by one. "quantize" is a matmul of a few
 * rows whose activations change from call to call, since the other matmuls of a run find theirs
 * quantised. An op that is listed in ops.def without a benchmark does not compile.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "bench/lib/random_weights.h"
#include "kernels/cpu/device/cpu_device.h"
#include "kernels/drivers.h"
#include "kernels/op_command.h"
#include "kernels/op_cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_RUNS = 3, FEW_ROWS = 32 };

struct shape {
    int32_t embd, ff, heads, kv_heads, head_dim, batch, vocab;
    int32_t n_experts, n_used, expert_rows, expert_cols;
    uint64_t weight_bytes;      // all copies of a weight together
    int32_t n_keys, n_keys_max; // of attention: in most cases, and in the longest
};
static const struct shape SHAPE_8B = {4096, 14336, 32,  8,    128,        512,  128256,
                                      128,  8,     768, 2048, 512u << 20, 4096, 32768};
static const struct shape SHAPE_QUICK = {256, 512, 8,  2,   64,       16,  320,
                                         16,  4,   64, 256, 4u << 20, 256, 512};

struct keys { // what attention finds in the cache
    int32_t n_keys, kv_heads;
    enum dtype type;
};

enum waiting { LISTED, SINGLE, AWAITED }; // how calls of an op follow each other
static const char *const WAITING_NAMES[] = {"listed", "single", "awaited"};
enum { WAITINGS = 3 };

struct bench {
    struct device *device;
    struct stream *stream;
    struct shape shape;
    const char *op;
    uint64_t least_ns;
    int n_runs;
    bool json;
    double copy_rate; // bytes read and written per second by a copy within the device
    struct buffer weights, x, out, extra, scratch, cache, tables, routing;
    struct keys keys; // of the ops that see the cache
    int n_lines;
};

struct job { // the call that is repeated
    const char *op, *type;
    char shape[40]; // what tells it from lines with the same op and type; may be empty
    int32_t n_tokens;
    enum waiting waiting;
    struct op_cost cost;
    enum op_id id;
    enum weight_type weight;
    union op_args args;
    const void **moving;   // the pointer in args that goes from copy to copy, or NULL
    uint64_t stride_bytes; // from copy to copy
    uint64_t n_copies;
};

static void encode(struct bench *b, const struct job *job) {
    const struct op_table *ops = b->device->ops;
    switch (job->id) {
#define OP(name, ...)                          \
    case OP_##name:                            \
        ops->name(b->stream, &job->args.name); \
        break;
#define OP_W(name, ...)                                     \
    case OP_##name:                                         \
        ops->name(b->stream, job->weight, &job->args.name); \
        break;
#include "kernels/ops.def"
#undef OP
#undef OP_W
    case OP_COUNT: break;
    }
}

// Measures nanoseconds of n calls.
static enum status run_calls(struct bench *b, struct job *job, uint64_t n, uint64_t *out_ns,
                             struct err *e) {
    const uint64_t start = clock_ns();
    const char *first = job->moving ? *job->moving : NULL;
    for (uint64_t i = 0; i < n; i++) {
        if (job->moving) *job->moving = first + i % job->n_copies * job->stride_bytes;
        if (job->id == OP_COUNT)
            stream_copy(b->stream, b->weights.base,
                        (char *)b->weights.base + b->weights.size_bytes / 2,
                        b->weights.size_bytes / 2, COPY_WITHIN);
        else
            encode(b, job);
        if (job->waiting == SINGLE) stream_flush(b->stream);
        if (job->waiting == AWAITED && stream_wait(b->stream, e)) return e->status;
    }
    if (job->moving) *job->moving = first;
    const enum status status = stream_wait(b->stream, e);
    *out_ns = clock_ns() - start;
    return status;
}

static enum status measure(struct bench *b, struct job *job, double *out_ns, struct err *e) {
    uint64_t n = 1, ns = 0, best = UINT64_MAX;
    device_batch_hint(b->device, job->n_tokens > 0 ? job->n_tokens : 1);
    if (run_calls(b, job, 1, &ns, e)) return e->status; // not counted
    for (;;) {
        if (run_calls(b, job, n, &ns, e)) return e->status;
        if (ns >= b->least_ns || n >= 1 << 16) break;
        n *= 2;
    }
    for (int r = 0; r < b->n_runs; r++) {
        if (run_calls(b, job, n, &ns, e)) return e->status;
        if (ns < best) best = ns;
    }
    *out_ns = (double)best / (double)n;
    return OK;
}

static enum status report(struct bench *b, struct job *job, struct err *e) {
    double ns = 0;
    if (b->op && strcmp(b->op, job->op) != 0) return OK;
    if (measure(b, job, &ns, e)) return e->status;
    const double bytes = op_cost_bytes(job->cost);
    const double share = b->copy_rate > 0 ? 100 * bytes / ns / b->copy_rate : 100;
    if (b->json)
        printf("%s  {\"op\": \"%s\", \"type\": \"%s\", \"shape\": \"%s\", \"tokens\": %d, "
               "\"us\": %.2f, \"gb_per_second\": %.2f, \"percent_of_copy\": %.1f, "
               "\"gflops\": %.1f}",
               b->n_lines ? ",\n" : "", job->op, job->type, job->shape, job->n_tokens, ns * 1e-3,
               bytes / ns, share, job->cost.flops / ns);
    else
        printf("%-15s %-7s %-22s %5d tokens %12.2f us %10.2f GB/s %6.1f %% %12.1f GFLOP/s\n",
               job->op, job->type, job->shape, job->n_tokens, ns * 1e-3, bytes / ns, share,
               job->cost.flops / ns);
    fflush(stdout);
    b->n_lines++;
    if (job->id == OP_COUNT) b->copy_rate = bytes / ns;
    return OK;
}

// ---- One function per op ------------------------------------------------------------------------

static enum status fill_weights(struct bench *b, enum weight_type type, struct job *job,
                                uint64_t rows, uint64_t cols, struct err *e) {
    const uint64_t size_bytes = dtype_bytes(weight_dtype(type), rows * cols);
    const uint64_t stride = round_up(size_bytes, b->device->info.align_bytes);
    const uint64_t fits = b->weights.size_bytes / stride;
    uint64_t state = 88172645463325252u;
    char *host = mem_alloc(size_bytes, 1);
    if (!host) return err_memory(e, size_bytes, "a weight");
    random_weights(type, host, rows * cols, 0.02F, &state);
    for (uint64_t i = 0; i < fits; i++)
        stream_copy(b->stream, (char *)b->weights.base + i * stride, host, size_bytes,
                    COPY_TO_DEVICE);
    const enum status status = stream_wait(b->stream, e);
    mem_free(host);
    job->stride_bytes = stride;
    job->n_copies = fits;
    return status;
}

// Measures one shape for numbers of tokens that end with 0, which stands for the batch.
static enum status bench_rows(struct bench *b, struct job *job, int32_t n_rows,
                              const int32_t *tokens, struct err *e) {
    const struct shape *s = &b->shape;
    if (fill_weights(b, job->weight, job, (uint64_t)n_rows, (uint64_t)s->embd, e)) return e->status;
    if (job->n_copies == 0) return OK; // it does not fit
    (void)snprintf(job->shape, sizeof job->shape, "%d x %d", n_rows, s->embd);
    for (bool last = false; !last; tokens++) {
        last = *tokens == 0 || *tokens >= s->batch;
        job->n_tokens = last ? s->batch : *tokens;
        if ((uint64_t)job->n_tokens * (uint64_t)n_rows * sizeof(float) > b->out.size_bytes) break;
        job->args.matmul = (struct matmul_args){.out = b->out.base,
                                                .x = b->x.base,
                                                .weight = b->weights.base,
                                                .scratch = b->scratch.base,
                                                .n_tokens = job->n_tokens,
                                                .n_cols = s->embd,
                                                .row_count = n_rows,
                                                .out_stride = n_rows};
        job->cost = op_cost_matmul(job->weight, &job->args.matmul);
        if (report(b, job, e)) return e->status;
    }
    return OK;
}

static enum status bench_matmul(struct bench *b, enum weight_type type, struct err *e) {
    static const int32_t all[] = {1, 2, 4, 8, 16, 32, 64, 128, 0}, some[] = {1, 8, 16, 64, 128, 0};
    struct job job = {.op = "matmul", .type = dtype_name(weight_dtype(type)), .id = OP_matmul};
    if (b->op && strcmp(b->op, job.op) != 0) return OK;
    const struct shape *s = &b->shape;
    const int32_t others[] = {s->kv_heads * s->head_dim, s->embd, s->vocab};
    job.weight = type;
    job.moving = &job.args.matmul.weight;
    if (bench_rows(b, &job, s->ff, all, e)) return e->status;
    if (type != WEIGHT_Q4_K && type != WEIGHT_Q6_K && type != WEIGHT_Q8_0) return OK;
    for (int i = 0; i < 3; i++)
        if (bench_rows(b, &job, others[i], some, e)) return e->status;
    return OK;
}

// Each call finds other activations than the one before, so it quantises; beside that a few rows
// take little.
static enum status bench_quantize(struct bench *b, struct err *e) {
    const struct shape *s = &b->shape;
    struct job job = {.op = "quantize", .type = "q4_k", .id = OP_matmul, .weight = WEIGHT_Q4_K};
    if (b->op && strcmp(b->op, job.op) != 0) return OK;
    if (fill_weights(b, job.weight, &job, FEW_ROWS, (uint64_t)s->embd, e)) return e->status;
    (void)snprintf(job.shape, sizeof job.shape, "and %d x %d", FEW_ROWS, s->embd);
    const int32_t tokens[] = {1, 8, s->batch};
    for (int i = 0; i < 3; i++) {
        job.n_tokens = tokens[i];
        job.args.matmul = (struct matmul_args){.out = b->out.base,
                                               .x = b->x.base,
                                               .weight = b->weights.base,
                                               .scratch = b->scratch.base,
                                               .n_tokens = job.n_tokens,
                                               .n_cols = s->embd,
                                               .row_count = FEW_ROWS,
                                               .out_stride = FEW_ROWS};
        job.moving = (const void **)&job.args.matmul.x;
        job.stride_bytes = (uint64_t)s->batch * (uint64_t)s->embd * sizeof(float);
        job.n_copies = b->x.size_bytes / job.stride_bytes; // at least two: ff is the wider
        job.cost = op_cost_matmul(job.weight, &job.args.matmul);
        if (report(b, &job, e)) return e->status;
    }
    return OK;
}

static enum status bench_launch(struct bench *b, struct err *e) {
    struct job job = {.op = "launch", .id = OP_gather_rows, .n_tokens = 1};
    for (int w = 0; w < WAITINGS; w++) {
        job.waiting = (enum waiting)w;
        job.type = WAITING_NAMES[w];
        job.args.gather_rows =
            (struct gather_rows_args){b->out.base, b->x.base, b->tables.base, 1, FEW_ROWS, 1};
        job.cost = op_cost_gather_rows(&job.args.gather_rows, 0);
        if (report(b, &job, e)) return e->status;
    }
    return OK;
}

static enum status bench_embed(struct bench *b, enum weight_type type, struct err *e) {
    struct job job = {.op = "embed", .type = dtype_name(weight_dtype(type)), .id = OP_embed};
    if (b->op && strcmp(b->op, job.op) != 0) return OK;
    job.weight = type;
    if (fill_weights(b, type, &job, 64, (uint64_t)b->shape.embd, e)) return e->status;
    job.n_tokens = b->shape.batch;
    job.args.embed = (struct embed_args){.out = b->out.base,
                                         .table = b->weights.base,
                                         .tokens = b->tables.base, // positions: all below 64
                                         .n_tokens = job.n_tokens < 64 ? job.n_tokens : 64,
                                         .n_cols = b->shape.embd,
                                         .n_rows = 64,
                                         .scale = 1};
    job.n_tokens = job.args.embed.n_tokens;
    job.cost = op_cost_embed(type, &job.args.embed);
    return report(b, &job, e);
}

// Sets the places in the routing buffer: chosen, weights and order of a whole batch, starts, then
// slots.
static void place_route(struct bench *b, struct job *job) {
    const struct shape *s = &b->shape;
    const int64_t n_pairs = (int64_t)s->batch * s->n_used;
    int32_t *chosen = b->routing.base;
    job->args.route = (struct route_args){.chosen = chosen,
                                          .weights = (float *)(void *)(chosen + n_pairs),
                                          .order = chosen + 2 * n_pairs,
                                          .starts = chosen + 3 * n_pairs,
                                          .logits = b->x.base,
                                          .n_tokens = job->n_tokens,
                                          .n_experts = s->n_experts,
                                          .n_used = s->n_used,
                                          .gate = GATE_SOFTMAX,
                                          .normalise = true,
                                          .scale = 1};
}

static int32_t *slots_of(const struct bench *b) {
    return (int32_t *)b->routing.base + 3 * (int64_t)b->shape.batch * b->shape.n_used +
           b->shape.n_experts + 1;
}

// Sets the slots of experts. They lie in a window of at most half of the copies of a matrix, so
// some may share a copy; the window advances by the experts of one token.
static enum status place_window(struct bench *b, struct job *job, struct err *e) {
    int32_t slots[EXPERTS_MAX];
    const struct shape *s = &b->shape;
    const uint64_t half = job->n_copies / 2, n_experts = (uint64_t)s->n_experts;
    const uint64_t window = half < n_experts ? half : n_experts;
    for (uint64_t i = 0; i < n_experts; i++) slots[i] = (int32_t)(i % window);
    stream_copy(b->stream, slots_of(b), slots, n_experts * sizeof *slots, COPY_TO_DEVICE);
    job->n_copies = (job->n_copies - window) / (uint64_t)s->n_used + 1;
    job->stride_bytes *= (uint64_t)s->n_used;
    return stream_wait(b->stream, e);
}

static enum status bench_matmul_experts(struct bench *b, enum weight_type type, struct err *e) {
    static const int32_t tokens[] = {1, 2, 4, 8, 0};
    const char *name = dtype_name(weight_dtype(type));
    struct job job = {.op = "matmul_experts", .type = name, .id = OP_matmul_experts};
    if (b->op && strcmp(b->op, job.op) != 0) return OK;
    job.weight = type;
    const struct shape *s = &b->shape;
    const uint64_t rows = (uint64_t)s->expert_rows, cols = (uint64_t)s->expert_cols;
    if (fill_weights(b, type, &job, rows, cols, e)) return e->status;
    const uint64_t slot_bytes = job.stride_bytes;
    if (place_window(b, &job, e)) return e->status;
    for (int i = 0; i < 5; i++) {
        struct job route = {.n_tokens = tokens[i] ? tokens[i] : s->batch};
        place_route(b, &route);
        b->device->ops->route(b->stream, &route.args.route);
        job.n_tokens = route.n_tokens;
        job.args.matmul_experts = (struct matmul_experts_args){.out = b->out.base,
                                                               .x = b->x.base,
                                                               .weight = b->weights.base,
                                                               .slots = slots_of(b),
                                                               .starts = route.args.route.starts,
                                                               .order = route.args.route.order,
                                                               .scratch = b->scratch.base,
                                                               .slot_bytes = slot_bytes,
                                                               .n_tokens = job.n_tokens,
                                                               .n_used = s->n_used,
                                                               .n_experts = s->n_experts,
                                                               .n_cols = s->expert_cols,
                                                               .n_rows = s->expert_rows,
                                                               .row_count = s->expert_rows,
                                                               .out_stride = s->expert_rows};
        job.moving = &job.args.matmul_experts.weight;
        job.cost = op_cost_matmul_experts(type, &job.args.matmul_experts);
        if (report(b, &job, e)) return e->status;
    }
    return OK;
}

// All experts are on the device, so the numbers of the chosen ones do not matter.
static void place_combine_experts(struct bench *b, struct job *job) {
    job->args.combine_experts = (struct combine_experts_args){.out = b->out.base,
                                                              .x = b->extra.base,
                                                              .weights = b->x.base,
                                                              .chosen = b->tables.base,
                                                              .residual = b->x.base,
                                                              .n_tokens = job->n_tokens,
                                                              .n_cols = b->shape.expert_cols,
                                                              .n_used = b->shape.n_used,
                                                              .n_experts = b->shape.n_experts};
}

// The ops without a weight type, for one token and for a batch. The caller sets n_tokens.
static void place_rms_norm(struct bench *b, struct job *job) {
    job->args.rms_norm = (struct rms_norm_args){.out = b->out.base,
                                                .x = b->x.base,
                                                .weight = b->x.base,
                                                .n_rows = job->n_tokens,
                                                .n_cols = b->shape.embd,
                                                .eps = 1e-5F};
}

static void place_rope_table(struct bench *b, struct job *job) {
    job->args.rope_table = (struct rope_table_args){.out = b->out.base,
                                                    .positions = b->tables.base,
                                                    .n_tokens = job->n_tokens,
                                                    .n_rot = b->shape.head_dim,
                                                    .base = 5e5F,
                                                    .scale = 1,
                                                    .magnitude = 1};
}

static void place_rope(struct bench *b, struct job *job) {
    const struct shape *s = &b->shape;
    job->args.rope =
        (struct rope_args){b->out.base, b->extra.base, b->x.base,   job->n_tokens, s->heads,
                           s->kv_heads, s->head_dim,   s->head_dim, false};
}

static void place_kv_store(struct bench *b, struct job *job) {
    char *cache = b->cache.base;
    job->args.kv_store = (struct kv_store_args){.k_cache = cache,
                                                .v_cache = cache + b->cache.size_bytes / 2,
                                                .k = b->x.base,
                                                .v = b->x.base,
                                                .cache_rows = b->tables.base,
                                                .n_tokens = job->n_tokens,
                                                .n_cols = b->shape.kv_heads * b->shape.head_dim,
                                                .k_type = DTYPE_F16,
                                                .v_type = DTYPE_F16};
}

// The last of b->keys: tokens see n_keys of them or a few less.
static void place_attention(struct bench *b, struct job *job) {
    const struct shape *s = &b->shape;
    const struct keys *k = &b->keys;
    const int32_t *tables = b->tables.base;
    if (job->n_tokens > k->n_keys) job->n_tokens = k->n_keys;
    (void)snprintf(job->shape, sizeof job->shape, "%d keys %d/%d x %d", k->n_keys, s->heads,
                   k->kv_heads, s->head_dim);
    job->type = dtype_name(k->type);
    char *cache = b->cache.base;
    job->args.attention = (struct attention_args){
        .out = b->out.base,
        .q = b->x.base,
        .k_cache = cache,
        .v_cache = cache + b->cache.size_bytes / 2,
        .pages = tables + s->n_keys_max,
        .positions = tables + k->n_keys - job->n_tokens,
        .sequences = tables + s->n_keys_max + s->n_keys_max / KV_PAGE,
        .n_tokens = job->n_tokens,
        .n_heads = s->heads,
        .n_kv_heads = k->kv_heads,
        .head_dim = s->head_dim,
        .max_pages = k->n_keys / KV_PAGE,
        .k_type = k->type,
        .v_type = k->type,
        .scale = 0.1F,
    };
}

static void place_swiglu(struct bench *b, struct job *job) {
    job->args.swiglu = (struct swiglu_args){.out = b->out.base,
                                            .gate = b->out.base,
                                            .up = b->x.base,
                                            .n_rows = job->n_tokens,
                                            .n_cols = b->shape.ff,
                                            .stride = b->shape.ff,
                                            .up_stride = b->shape.ff};
}

static void place_gather_rows(struct bench *b, struct job *job) {
    job->args.gather_rows = (struct gather_rows_args){b->out.base,   b->x.base,     b->tables.base,
                                                      job->n_tokens, b->shape.embd, b->shape.batch};
}

static void place_cap_logits(struct bench *b, struct job *job) {
    job->args.cap_logits =
        (struct cap_logits_args){b->out.base, job->n_tokens, b->shape.embd, 1, 30};
}

static void place_split_rows(struct bench *b, struct job *job) {
    const struct shape *s = &b->shape;
    job->args.split_rows =
        (struct split_rows_args){b->out.base, b->extra.base, b->x.base,   job->n_tokens * s->heads,
                                 s->head_dim, s->head_dim,   s->head_dim, s->head_dim};
}

// The ops with a state, of one sequence in place.
static const int32_t *steps_of(const struct bench *b) {
    const int32_t *tables = b->tables.base;
    return tables + b->shape.n_keys_max + b->shape.n_keys_max / KV_PAGE;
}

static void place_short_conv(struct bench *b, struct job *job) {
    job->args.short_conv = (struct short_conv_args){.out = b->out.base,
                                                    .states = b->extra.base,
                                                    .x = b->x.base,
                                                    .weight = b->x.base,
                                                    .steps = steps_of(b),
                                                    .n_tokens = job->n_tokens,
                                                    .n_cols = b->shape.embd,
                                                    .x_stride = b->shape.embd,
                                                    .n_taps = 4};
}

static void place_delta_rule(struct bench *b, struct job *job) {
    job->args.delta_rule = (struct delta_rule_args){.out = b->out.base,
                                                    .states = b->extra.base,
                                                    .qkv = b->x.base,
                                                    .alpha = b->x.base,
                                                    .beta = b->x.base,
                                                    .a = b->x.base,
                                                    .dt_bias = b->x.base,
                                                    .steps = steps_of(b),
                                                    .n_tokens = job->n_tokens,
                                                    .n_heads = b->shape.kv_heads,
                                                    .n_key_heads = b->shape.kv_heads,
                                                    .head_dim = b->shape.head_dim,
                                                    .order = KEYS_TILED,
                                                    .eps = 1e-6F};
}

static void place_mamba_scan(struct bench *b, struct job *job) {
    job->args.mamba_scan = (struct mamba_scan_args){.out = b->out.base,
                                                    .states = b->extra.base,
                                                    .x = b->x.base,
                                                    .dt = b->x.base,
                                                    .a = b->x.base,
                                                    .d = b->x.base,
                                                    .dt_bias = b->x.base,
                                                    .steps = steps_of(b),
                                                    .n_tokens = job->n_tokens,
                                                    .n_heads = b->shape.kv_heads,
                                                    .n_groups = 1,
                                                    .head_dim = b->shape.head_dim,
                                                    .n_state = b->shape.head_dim,
                                                    .dt_stride = b->shape.kv_heads};
}

// Sets what is in the cache for the cases of an op, the first of which all ops have. False: there
// is no such case.
static bool choose_keys(struct bench *b, enum op_id op, int32_t i) {
    const struct shape *s = &b->shape;
    const struct keys cases[] = {
        {s->n_keys, s->kv_heads, DTYPE_F16},     {s->n_keys / 8, s->kv_heads, DTYPE_F16},
        {s->n_keys_max, s->kv_heads, DTYPE_F16}, {s->n_keys, s->kv_heads, DTYPE_Q8_0},
        {s->n_keys, s->heads, DTYPE_F16},        {s->n_keys, s->heads / 8, DTYPE_F16},
        {s->n_keys, s->kv_heads, DTYPE_F32},
    };
    if (i >= (op == OP_attention ? (int32_t)(sizeof cases / sizeof *cases) : 1)) return false;
    b->keys = cases[i];
    if (b->keys.n_keys < KV_PAGE) b->keys.n_keys = KV_PAGE;
    return true;
}

#define OP_W(name, ...)
#define OP(name, ...)                                                                        \
    static enum status bench_##name(struct bench *b, enum weight_type type, struct err *e) { \
        const int32_t tokens[] = {1, b->shape.batch};                                        \
        (void)type;                                                                          \
        for (int32_t i = 0; choose_keys(b, OP_##name, i / 2); i++) {                         \
            struct job job = {.op = #name, .type = "-", .id = OP_##name};                    \
            job.n_tokens = tokens[i % 2];                                                    \
            place_##name(b, &job);                                                           \
            job.cost = op_cost_##name(&job.args.name, b->keys.n_keys);                       \
            if (report(b, &job, e)) return e->status;                                        \
        }                                                                                    \
        return OK;                                                                           \
    }
#include "kernels/ops.def"
#undef OP
#undef OP_W

static enum status bench_copy(struct bench *b, struct err *e) {
    struct job job = {.op = "copy", .type = "-", .id = OP_COUNT};
    job.cost = (struct op_cost){.read_bytes = b->weights.size_bytes / 2,
                                .written_bytes = b->weights.size_bytes / 2};
    const char *asked = b->op;
    b->op = NULL; // all others are compared with it
    const enum status status = report(b, &job, e);
    b->op = asked;
    return status;
}

static enum status bench_all(struct bench *b, struct err *e) {
    if (bench_copy(b, e) || bench_launch(b, e) || bench_quantize(b, e)) return e->status;
#define OP(name, ...) \
    if (bench_##name(b, (enum weight_type)0, e)) return e->status;
#define OP_W(name, ...)                    \
    for (int w = 0; w < WEIGHT_COUNT; w++) \
        if (bench_##name(b, (enum weight_type)w, e)) return e->status;
#include "kernels/ops.def"
#undef OP
#undef OP_W
    return OK;
}

// ---- Opening and closing -----------------------------------------------------------------------

// Fills positions 0, 1, ..., which also serve as tokens, cache rows and rows; pages 0, 1, ...;
// sequence 0, and steps with state 0.
static enum status fill_tables(struct bench *b, struct err *e) {
    const struct shape *s = &b->shape;
    const int32_t n_keys = s->n_keys_max, n_pages = n_keys / KV_PAGE;
    const int32_t count = n_keys + n_pages + 2 * s->batch;
    int32_t *tables = mem_alloc((size_t)count, sizeof *tables);
    if (!tables) return err_memory(e, (size_t)count * sizeof *tables, "the tables");
    for (int32_t i = 0; i < n_keys + n_pages; i++) tables[i] = i < n_keys ? i : i - n_keys;
    stream_copy(b->stream, b->tables.base, tables, (uint64_t)count * sizeof *tables,
                COPY_TO_DEVICE);
    const enum status status = stream_wait(b->stream, e);
    mem_free(tables);
    return status;
}

static enum status fill_x(struct bench *b, struct err *e) {
    uint64_t state = 1234567;
    float *x = mem_alloc(b->x.size_bytes, 1);
    if (!x) return err_memory(e, b->x.size_bytes, "the activations");
    random_weights(WEIGHT_F32, x, b->x.size_bytes / sizeof *x, 1, &state);
    const struct buffer *targets[] = {&b->x, &b->out, &b->extra};
    for (int i = 0; i < 3; i++)
        stream_copy(b->stream, targets[i]->base, x, targets[i]->size_bytes, COPY_TO_DEVICE);
    random_weights(WEIGHT_F16, x, b->cache.size_bytes / 2, 1, &state);
    stream_copy(b->stream, b->cache.base, x, b->cache.size_bytes, COPY_TO_DEVICE);
    const enum status status = stream_wait(b->stream, e);
    mem_free(x);
    return status;
}

static enum status open_bench(struct bench *b, struct err *e) {
    const struct shape *s = &b->shape;
    struct device *d = b->device;
    const int32_t pair_cols = s->n_used * s->expert_cols,
                  widest = s->ff > pair_cols ? s->ff : pair_cols;
    const uint64_t wide = (uint64_t)s->batch * (uint64_t)widest * sizeof(float);
    const uint64_t routing = 3 * (uint64_t)(s->batch * s->n_used) + 2 * (uint64_t)s->n_experts + 1;
    const uint64_t all_heads = (uint64_t)s->n_keys * (uint64_t)s->heads;
    const uint64_t all_keys = (uint64_t)s->n_keys_max * (uint64_t)s->kv_heads;
    const uint64_t cache =
        4 * (all_heads > all_keys ? all_heads : all_keys) * (uint64_t)s->head_dim; // halves
    const uint64_t x = wide > cache ? wide : cache;
    const uint64_t scratch = matmul_scratch_bytes(WEIGHT_BF16, s->embd, s->batch, d->info.n_lanes);
    if (stream_new(d, STREAM_COMPUTE, &b->stream, e) ||
        buffer_new(d, s->weight_bytes, PURPOSE_WEIGHTS, &b->weights, e) ||
        buffer_new(d, x, PURPOSE_SCRATCH, &b->x, e) ||
        buffer_new(d, wide, PURPOSE_SCRATCH, &b->out, e) ||
        buffer_new(d, wide, PURPOSE_SCRATCH, &b->extra, e) ||
        buffer_new(d, scratch, PURPOSE_SCRATCH, &b->scratch, e) ||
        buffer_new(d, cache, PURPOSE_KV, &b->cache, e) ||
        buffer_new(d, 8 * (uint64_t)s->n_keys_max, PURPOSE_STAGING, &b->tables, e) ||
        buffer_new(d, routing * 4, PURPOSE_STAGING, &b->routing, e) || fill_tables(b, e))
        return e->status;
    return fill_x(b, e);
}

static void close_bench(struct bench *b) {
    struct buffer *buffers[] = {&b->weights, &b->x,     &b->out,    &b->extra,
                                &b->scratch, &b->cache, &b->tables, &b->routing};
    stream_free(b->stream);
    for (int i = 0; i < 8; i++) buffer_free(buffers[i]);
    device_close(b->device);
}

static enum status open_device(struct device **out, const char *name, struct err *e) {
    const struct cpu_options cpu = {.isa = ISA_AUTO};
    static const struct log log = {.level = LOG_QUIET};
    int n_drivers;
    const struct device_driver *drivers = device_drivers(&n_drivers);
    const size_t length = strcspn(name, ":");
    if (strcmp(name, "cpu") == 0) return device_open_cpu(out, &cpu, &log, e);
    for (int i = 0; i < n_drivers; i++)
        if (strlen(drivers[i].prefix) == length && !strncmp(drivers[i].prefix, name, length))
            return drivers[i].open(out, name + length + (name[length] == ':'), &cpu, &log, e);
    return err_set(e, ERR_USAGE, "no device %s is built into this program", name);
}

int main(int argc, char **argv) {
    struct bench b = {.shape = SHAPE_8B, .least_ns = 50000000, .n_runs = N_RUNS};
    const char *device = "cpu";
    bool good = true;
    for (int i = 1; i < argc && good; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            b.shape = SHAPE_QUICK, b.n_runs = 1;
        else if (strcmp(argv[i], "--json") == 0)
            b.json = true;
        else if (i + 1 < argc && strcmp(argv[i], "--device") == 0)
            device = argv[++i];
        else if (i + 1 < argc && strcmp(argv[i], "--op") == 0)
            b.op = argv[++i];
        else if (i + 1 < argc && strcmp(argv[i], "--ms") == 0)
            b.least_ns = strtoull(argv[++i], NULL, 10) * 1000000;
        else
            good = false;
    }
    if (!good) {
        fprintf(stderr, "bench_device [--device cpu|PREFIX:SPEC] [--op NAME] [--ms N] [--quick] "
                        "[--json]\n");
        return 2;
    }
    struct err e = {0};
    char text[1024];
    if (b.json) puts("[");
    const bool done = open_device(&b.device, device, &e) == OK && open_bench(&b, &e) == OK &&
                      bench_all(&b, &e) == OK;
    if (b.json) puts("\n]");
    if (!done) fprintf(stderr, "bench_device: %s\n", err_text(&e, text, sizeof text));
    close_bench(&b);
    return done ? 0 : 1;
}
