/* bench_ops.c: measures every op of ops.def on the CPU, at every instruction-set level but the
 * definition's, which has to be asked for.
 *
 *   bench_ops [--shape smollm2|1b|1b-down|8b|8b-down|experts] [--isa NAME] [--op NAME]
 *             [--type NAME] [--threads N] [--tokens N,N,...|all] [--keys N] [--cols N]
 *             [--pages 4k|2m]
 *
 * Measures one token and 512 tokens unless --tokens says otherwise; "all" stands for 1 to 8, 16, 64
 * and 512. Attention sees 1024 keys, or as many as --keys says, a multiple of 64, and leaves out
 * batches of more tokens. --cols gives the matrix of the matmul other columns than the shape has, a
 * multiple of 32, and leaves out types whose blocks do not divide it. Bytes and operations come
 * from op_cost.h. Data that a model reads once per token (weights, KV cache) comes from a pool
 * larger than the caches, from another place each time; the pool is mapped as a file is, in pages
 * of 4 KiB, unless --pages asks for 2 MiB, and weights begin in the middle of a cache line, as in
 * many GGUF files. The last column is the share of what limits an op: the
 * time of the best reader for its bytes, or that of its operations at the peak of multiply-adds or
 * of dots of bytes, whichever is longer. What stays in the caches may exceed the reader. Each
 * figure is the best of 24 short runs, since other programs disturb most long ones, and with one
 * thread its processor time. An op that is listed without a bench does not compile.
 */
#include "base/mem.h"
#include "bench/lib/limits.h"
#include "kernels/cpu/device/table.h"
#include "kernels/op_command.h"
#include "kernels/kv_page.h"
#include "kernels/op_cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// Weights take WEIGHT_BYTES of a pool and begin in the middle of a cache line: a GGUF file aligns
// tensors to 32 bytes, so many files have their F16, BF16 and F32 matrices there.
static const uint64_t POOL_BYTES = 512 << 20, WORK_BYTES = 256 << 20;
static const uint64_t WEIGHT_OFFSET = 32, WEIGHT_BYTES = POOL_BYTES - WEIGHT_OFFSET;
static const uint64_t RUN_NS = 3000000; // one run takes about that long, or a single call
enum {
    RUNS = 24,        // of which the best counts
    KEYS_MAX = 65536, // of attention
    COLS_MAX = 32768, // of the matmul
    PAGE_STEP = 1031, // between the pages of neighbouring keys; prime and more than their number
};

struct shape { // of a model's layer
    const char *name;
    int32_t n_embd, n_heads, n_kv_heads, head_dim, n_rows, n_cols, n_ff, n_vocab;
};

// n_rows and n_cols: the matrix of the matmul. It is the second of the FFN of SmolLM2-135M (whose
// other matrices have 576 columns, no multiple of 256), the first and the second of the FFN of a 1B
// and of an 8B model, and one with the bytes of the 8 experts of a token for the ops of experts.
static const struct shape SHAPES[] = {
    {"smollm2", 576, 9, 3, 64, 576, 1536, 1536, 49152},
    {"1b", 2048, 32, 8, 64, 8192, 2048, 8192, 128256},
    {"1b-down", 2048, 32, 8, 64, 2048, 8192, 8192, 128256},
    {"8b", 4096, 32, 8, 128, 14336, 4096, 14336, 128256},
    {"8b-down", 4096, 32, 8, 128, 4096, 14336, 14336, 128256},
    {"experts", 2048, 32, 4, 128, 6144, 2048, 768, 151936},
};

struct options {
    const struct shape *shape;
    enum cpu_isa isa; // ISA_AUTO: all
    const char *op;   // NULL: all
    int32_t n_threads;
    const char *tokens; // numbers with commas between
    int32_t n_keys;     // of attention
    int32_t n_cols;     // of the matmul; 0: the shape's
    int type;           // of weights; WEIGHT_COUNT: all
    bool huge_pages;
};

struct bench {
    struct options options;
    struct team *team;
    char *pool;       // POOL_BYTES of values that are finite in every type
    char *work;       // WORK_BYTES for activations, handed out from the start
    uint64_t used;    // of work
    double read_gbps; // rate at which all lanes read the pool
    struct limits_peak peak;
    const char *isa; // of the table
    struct cpu_table table;
};

// One op, ready to run: args for the nth call point into another part of the pool.
struct job {
    struct bench *b;
    enum weight_type type;
    union op_args args;
    void (*call)(const struct cpu_table *t, const struct lane *lane, enum weight_type type,
                 const union op_args *args);
    void (*move)(const struct job *job, union op_args *args, int64_t n); // NULL: always the same
    uint64_t stride_bytes;                                               // for move
    int64_t n_calls, n_done; // calls of the next run; calls of all runs before
};

static const char *const TYPE_NAMES[WEIGHT_COUNT] = {
#define WEIGHT(NAME, name, ...) #name,
#include "kernels/weights.def"
#undef WEIGHT
};

#define OP(name, ...)                                                           \
    static void call_##name(const struct cpu_table *t, const struct lane *lane, \
                            enum weight_type type, const union op_args *args) { \
        (void)type;                                                             \
        t->name(lane, &args->name);                                             \
    }
#define OP_W(name, ...)                                                         \
    static void call_##name(const struct cpu_table *t, const struct lane *lane, \
                            enum weight_type type, const union op_args *args) { \
        t->name[type](lane, &args->name);                                       \
    }
#include "kernels/ops.def"
#undef OP
#undef OP_W

// ---- Measuring ----------------------------------------------------------------------------------

// All calls of a job in one run of the team, as the CPU device does it.
static void run_calls(const struct lane *lane, void *context) {
    const struct job *job = context;
    union op_args args = job->args;
    for (int64_t n = 0; n < job->n_calls; n++) {
        if (job->move) job->move(job, &args, job->n_done + n);
        job->call(&job->b->table, lane, job->type, &args);
        lane_barrier(lane);
    }
}

static uint64_t elapsed_ns(struct job *job) {
    const uint64_t start_ns = limits_clock_ns(job->b->team);
    team_run(job->b->team, run_calls, job);
    job->n_done += job->n_calls;
    return limits_clock_ns(job->b->team) - start_ns + 1;
}

// The peak of the op's arithmetic, and its name.
static double peak_of(const struct job *job, enum op_id op, const char **name) {
    const struct limits_peak *peak = &job->b->peak;
    const bool products = op == OP_matmul || op == OP_matmul_experts;
    *name = "dot";
    if (products && dtype_find((uint32_t)weight_dtype(job->type))->block_elements > 1)
        return peak->blocks;
    *name = "pair";
    if (products && job->type == WEIGHT_BF16 && peak->pairs > 0) return peak->pairs;
    *name = "fma";
    return peak->floats;
}

// Writes what limits an op of that cost and the share of it that each_ns is.
static void describe_limit(const struct job *job, enum op_id op, struct op_cost cost,
                           double each_ns, char out[16]) {
    const struct bench *b = job->b;
    const char *name;
    const double peak = peak_of(job, op, &name);
    const double read_ns = op_cost_bytes(cost) / b->read_gbps;
    const double compute_ns = peak > 0 ? cost.flops / peak : 0;
    const double limit_ns = read_ns > compute_ns ? read_ns : compute_ns;
    if (read_ns > compute_ns) name = "read";
    snprintf(out, 16, "%.0f%% %s", 100 * limit_ns / each_ns, name);
}

// Measures a job, whose single call has that cost, and prints its line.
static void measure(struct job *job, enum op_id op, const char *label, int32_t n_tokens,
                    struct op_cost cost) {
    job->n_calls = 1;
    uint64_t ns = elapsed_ns(job);
    while ((ns = elapsed_ns(job)) < RUN_NS / 2) job->n_calls *= 2;
    // A call that takes long is not repeated for more than some ten times as long as the others.
    for (uint64_t i = 1, spent_ns = ns; i < RUNS && spent_ns < 10 * RUNS * RUN_NS; i++) {
        const uint64_t again_ns = elapsed_ns(job);
        spent_ns += again_ns;
        if (again_ns < ns) ns = again_ns;
    }
    double each_ns = (double)ns / (double)job->n_calls;
    char limit[16];
    describe_limit(job, op, cost, each_ns, limit);
    printf("%-15s %-8s %-8s %6d %10.4f %8.2f %9.2f %10s\n", op_name(op), label, job->b->isa,
           n_tokens, each_ns / 1e6, op_cost_bytes(cost) / each_ns, cost.flops / each_ns, limit);
    fflush(stdout);
}

// ---- The ops ------------------------------------------------------------------------------------

// Returns zeroed memory in the work area, which every op uses from its start.
static void *room(struct bench *b, uint64_t size_bytes) {
    void *start = b->work + b->used;
    b->used += round_up(size_bytes, 4096) + 64; // at varying offsets in a page
    ASSERT(b->used <= WORK_BYTES);
    memset(start, 0, size_bytes);
    return start;
}

static float *values(struct bench *b, int64_t count) {
    float *out = room(b, (uint64_t)count * sizeof *out);
    for (int64_t i = 0; i < count; i++) out[i] = (float)(i * 7919 % 2003) / 1000 - 1;
    return out;
}

static int32_t *numbers(struct bench *b, int64_t count, int32_t step, int32_t limit) {
    int32_t *out = room(b, (uint64_t)count * sizeof *out);
    for (int64_t i = 0; i < count; i++) out[i] = (int32_t)(i * step % limit);
    return out;
}

static void bench_embed(struct bench *b, enum weight_type type, int32_t n_tokens) {
    const struct shape *s = b->options.shape;
    int32_t n_cols = (s->n_embd + 255) / 256 * 256; // a multiple of every block
    uint64_t row_bytes = dtype_bytes(weight_dtype(type), (uint64_t)n_cols);
    int32_t n_rows = (int32_t)(WEIGHT_BYTES / row_bytes);
    if (n_rows > s->n_vocab) n_rows = s->n_vocab;
    struct job job = {.b = b, .type = type, .call = call_embed};
    job.args.embed = (struct embed_args){.out = values(b, (int64_t)n_tokens * n_cols),
                                         .table = b->pool + WEIGHT_OFFSET,
                                         .tokens = numbers(b, n_tokens, 7919, n_rows),
                                         .n_tokens = n_tokens,
                                         .n_cols = n_cols,
                                         .n_rows = n_rows,
                                         .scale = 1};
    measure(&job, OP_embed, TYPE_NAMES[type], n_tokens, op_cost_embed(type, &job.args.embed));
}

static void bench_rms_norm(struct bench *b, int32_t n_tokens) {
    int32_t n_cols = b->options.shape->n_embd;
    struct job job = {.b = b, .call = call_rms_norm};
    job.args.rms_norm = (struct rms_norm_args){.out = values(b, (int64_t)n_tokens * n_cols),
                                               .x = values(b, (int64_t)n_tokens * n_cols),
                                               .weight = values(b, n_cols),
                                               .n_rows = n_tokens,
                                               .n_cols = n_cols,
                                               .eps = 1e-5F};
    measure(&job, OP_rms_norm, "-", n_tokens, op_cost_rms_norm(&job.args.rms_norm, 0));
}

static void move_weight(const struct job *job, union op_args *args, int64_t n) {
    uint64_t copies = WEIGHT_BYTES / job->stride_bytes;
    const char *start = job->b->pool + WEIGHT_OFFSET;
    args->matmul.weight = start + (uint64_t)n % copies * job->stride_bytes;
}

static void bench_matmul(struct bench *b, enum weight_type type, int32_t n_tokens) {
    const struct shape *s = b->options.shape;
    const int32_t n_cols = b->options.n_cols ? b->options.n_cols : s->n_cols;
    if (dtype_bytes(weight_dtype(type), (uint64_t)n_cols) == 0) return; // broken blocks
    int32_t n_lanes = team_size(b->team);
    struct job job = {.b = b, .type = type, .call = call_matmul, .move = move_weight};
    job.stride_bytes =
        round_up(dtype_bytes(weight_dtype(type), (uint64_t)s->n_rows * (uint64_t)n_cols), 64);
    job.args.matmul = (struct matmul_args){
        .out = values(b, (int64_t)n_tokens * s->n_rows),
        .x = values(b, (int64_t)n_tokens * n_cols),
        .scratch = room(b, matmul_scratch_bytes(type, n_cols, n_tokens, n_lanes)),
        .n_tokens = n_tokens,
        .n_cols = n_cols,
        .row_count = s->n_rows,
        .out_stride = s->n_rows};
    measure(&job, OP_matmul, TYPE_NAMES[type], n_tokens, op_cost_matmul(type, &job.args.matmul));
}

static void bench_rope_table(struct bench *b, int32_t n_tokens) {
    int32_t n_rot = b->options.shape->head_dim;
    struct job job = {.b = b, .call = call_rope_table};
    job.args.rope_table = (struct rope_table_args){.out = values(b, (int64_t)n_tokens * n_rot),
                                                   .positions = numbers(b, n_tokens, 1, 1 << 20),
                                                   .n_tokens = n_tokens,
                                                   .n_rot = n_rot,
                                                   .base = 1e4F,
                                                   .scale = 1,
                                                   .magnitude = 1};
    measure(&job, OP_rope_table, "-", n_tokens, op_cost_rope_table(&job.args.rope_table, 0));
}

static void bench_rope(struct bench *b, int32_t n_tokens) {
    const struct shape *s = b->options.shape;
    for (int neox = 0; neox < 2; neox++) {
        struct job job = {.b = b, .call = call_rope};
        struct rope_args *a = &job.args.rope;
        *a = (struct rope_args){.q = values(b, (int64_t)n_tokens * s->n_heads * s->head_dim),
                                .k = values(b, (int64_t)n_tokens * s->n_kv_heads * s->head_dim),
                                .n_tokens = n_tokens,
                                .n_heads = s->n_heads,
                                .n_kv_heads = s->n_kv_heads,
                                .head_dim = s->head_dim,
                                .n_rot = s->head_dim,
                                .neox = neox};
        float *table = values(b, (int64_t)n_tokens * s->head_dim);
        for (int64_t i = 0; i < (int64_t)n_tokens * s->head_dim; i++) // repeated calls keep values
            table[i] = i & 1 ? 0.6F : 0.8F;
        a->table = table;
        measure(&job, OP_rope, neox ? "neox" : "norm", n_tokens, op_cost_rope(a, 0));
    }
}

static void bench_kv_store(struct bench *b, int32_t n_tokens) {
    int32_t n_cols = b->options.shape->n_kv_heads * b->options.shape->head_dim;
    for (int i = 0; i < KV_TYPES; i++) {
        const enum dtype type = kv_dtype((enum kv_type)i);
        const uint64_t n_rows = round_up((uint64_t)n_tokens, KV_PAGE);
        const uint64_t cache_bytes = dtype_bytes(type, n_rows * (uint64_t)n_cols);
        struct job job = {.b = b, .call = call_kv_store};
        job.args.kv_store = (struct kv_store_args){.k_cache = room(b, cache_bytes),
                                                   .v_cache = room(b, cache_bytes),
                                                   .k = values(b, (int64_t)n_tokens * n_cols),
                                                   .v = values(b, (int64_t)n_tokens * n_cols),
                                                   .cache_rows = numbers(b, n_tokens, 1, n_tokens),
                                                   .n_tokens = n_tokens,
                                                   .n_cols = n_cols,
                                                   .k_type = type,
                                                   .v_type = type,
                                                   .order = b->table.kv_order,
                                                   .head_dim = b->options.shape->head_dim};
        measure(&job, OP_kv_store, dtype_name(type), n_tokens,
                op_cost_kv_store(&job.args.kv_store, 0));
    }
}

static void move_cache(const struct job *job, union op_args *args, int64_t n) {
    uint64_t copies = POOL_BYTES / (2 * job->stride_bytes);
    const char *start = job->b->pool + (uint64_t)n % copies * 2 * job->stride_bytes;
    args->attention.k_cache = start;
    args->attention.v_cache = start + job->stride_bytes;
}

// Measures the last tokens of a sequence, whose pages do not lie in order.
static void bench_attention(struct bench *b, int32_t n_tokens) {
    const struct shape *s = b->options.shape;
    const int32_t n_keys = b->options.n_keys, n_pages = n_keys / KV_PAGE;
    if (n_tokens > n_keys) return;
    int64_t n_out = (int64_t)n_tokens * s->n_heads * s->head_dim;
    for (int i = 0; i < KV_TYPES; i++) {
        const enum dtype type = kv_dtype((enum kv_type)i);
        struct job job = {.b = b, .call = call_attention, .move = move_cache};
        job.stride_bytes =
            dtype_bytes(type, (uint64_t)n_keys * (uint64_t)(s->n_kv_heads * s->head_dim));
        struct attention_args *a = &job.args.attention;
        *a = (struct attention_args){.out = values(b, n_out),
                                     .q = values(b, n_out),
                                     .pages = numbers(b, n_pages, PAGE_STEP, n_pages),
                                     .sequences = numbers(b, n_tokens, 0, 1),
                                     .n_tokens = n_tokens,
                                     .n_heads = s->n_heads,
                                     .n_kv_heads = s->n_kv_heads,
                                     .head_dim = s->head_dim,
                                     .max_pages = n_pages,
                                     .k_type = type,
                                     .v_type = type,
                                     .order = b->table.kv_order,
                                     .scale = 0.125F};
        int32_t *positions = numbers(b, n_tokens, 1, n_keys);
        for (int32_t t = 0; t < n_tokens; t++) positions[t] += n_keys - n_tokens;
        a->positions = positions;
        measure(&job, OP_attention, dtype_name(type), n_tokens,
                op_cost_attention(a, n_keys - n_tokens / 2));
    }
}

static void bench_swiglu(struct bench *b, int32_t n_tokens) {
    const int32_t n_ff = b->options.shape->n_ff;
    const int64_t count = (int64_t)n_tokens * n_ff;
    struct job job = {.b = b, .call = call_swiglu};
    job.args.swiglu = (struct swiglu_args){.out = values(b, count),
                                           .gate = values(b, count),
                                           .up = values(b, count),
                                           .n_rows = n_tokens,
                                           .n_cols = n_ff,
                                           .stride = n_ff,
                                           .up_stride = n_ff};
    measure(&job, OP_swiglu, "-", n_tokens, op_cost_swiglu(&job.args.swiglu, 0));
}

static void bench_gather_rows(struct bench *b, int32_t n_tokens) {
    int32_t n_cols = b->options.shape->n_embd;
    struct job job = {.b = b, .call = call_gather_rows};
    job.args.gather_rows = (struct gather_rows_args){.out = values(b, (int64_t)n_tokens * n_cols),
                                                     .x = values(b, (int64_t)n_tokens * n_cols),
                                                     .rows = numbers(b, n_tokens, 3, n_tokens),
                                                     .n_rows = n_tokens,
                                                     .n_cols = n_cols,
                                                     .n_x_rows = n_tokens};
    measure(&job, OP_gather_rows, "-", n_tokens, op_cost_gather_rows(&job.args.gather_rows, 0));
}

static void bench_cap_logits(struct bench *b, int32_t n_tokens) {
    const int32_t n_vocab = b->options.shape->n_rows;
    struct job job = {.b = b, .call = call_cap_logits};
    job.args.cap_logits =
        (struct cap_logits_args){values(b, (int64_t)n_tokens * n_vocab), n_tokens, n_vocab, 1, 30};
    measure(&job, OP_cap_logits, "-", n_tokens, op_cost_cap_logits(&job.args.cap_logits, 0));
}

// ---- The ops of experts: a layer of a model of 30B with 3B at work ------------------------------

enum { N_EXPERTS = 128, N_USED = 8, EXPERT_ROWS = 768, EXPERT_COLS = 2048 };

static struct route_args route_of(struct bench *b, int32_t n_tokens) {
    int64_t n_pairs = (int64_t)n_tokens * N_USED, n_logits = (int64_t)n_tokens * N_EXPERTS;
    return (struct route_args){.chosen = numbers(b, n_pairs, 0, 1),
                               .weights = values(b, n_pairs),
                               .starts = numbers(b, N_EXPERTS + 1, 0, 1),
                               .order = numbers(b, n_pairs, 0, 1),
                               .logits = values(b, n_logits),
                               .n_tokens = n_tokens,
                               .n_experts = N_EXPERTS,
                               .n_used = N_USED,
                               .gate = GATE_SOFTMAX,
                               .normalise = true,
                               .scale = 1};
}

static void bench_route(struct bench *b, int32_t n_tokens) {
    struct job job = {.b = b, .call = call_route};
    job.args.route = route_of(b, n_tokens);
    measure(&job, OP_route, "-", n_tokens, op_cost_route(&job.args.route, 0));
}

// Gives each call the weights of other experts: every expert's slot advances.
static void move_slots(const struct job *job, union op_args *args, int64_t n) {
    int64_t n_slots = (int64_t)(WEIGHT_BYTES / args->matmul_experts.slot_bytes);
    args->matmul_experts.slots = job->args.matmul_experts.slots + n * N_USED % n_slots;
}

static void bench_matmul_experts(struct bench *b, enum weight_type type, int32_t n_tokens) {
    int64_t n_pairs = (int64_t)n_tokens * N_USED;
    struct route_args route = route_of(b, n_tokens);
    struct job job = {.b = b, .type = type, .call = call_matmul_experts, .move = move_slots};
    uint64_t slot_bytes =
        round_up(dtype_bytes(weight_dtype(type), (uint64_t)EXPERT_ROWS * EXPERT_COLS), 64);
    int32_t n_slots = (int32_t)(WEIGHT_BYTES / slot_bytes);
    // The definition is slow, so a batch gets a part of the rows, at the same rates.
    bool is_slow = n_tokens > 1 && !strcmp(b->isa, cpu_isa_name(ISA_REF));
    cpu_route(&(struct lane){.count = 1}, &route);
    job.args.matmul_experts = (struct matmul_experts_args){
        .out = values(b, n_pairs * EXPERT_ROWS),
        .x = values(b, (int64_t)n_tokens * EXPERT_COLS),
        .weight = b->pool + WEIGHT_OFFSET,
        .slots = numbers(b, N_EXPERTS + n_slots, 1, n_slots),
        .starts = route.starts,
        .order = route.order,
        .scratch = room(b, matmul_scratch_bytes(type, EXPERT_COLS, n_tokens, team_size(b->team))),
        .slot_bytes = slot_bytes,
        .n_tokens = n_tokens,
        .n_used = N_USED,
        .n_experts = N_EXPERTS,
        .n_cols = EXPERT_COLS,
        .n_rows = EXPERT_ROWS,
        .row_count = is_slow ? EXPERT_ROWS / 16 : EXPERT_ROWS,
        .out_stride = EXPERT_ROWS};
    measure(&job, OP_matmul_experts, TYPE_NAMES[type], n_tokens,
            op_cost_matmul_experts(type, &job.args.matmul_experts));
}

static void bench_combine_experts(struct bench *b, int32_t n_tokens) {
    int64_t n_pairs = (int64_t)n_tokens * N_USED, n_out = (int64_t)n_tokens * EXPERT_COLS;
    struct job job = {.b = b, .call = call_combine_experts};
    job.args.combine_experts = (struct combine_experts_args){.out = values(b, n_out),
                                                             .x = values(b, n_pairs * EXPERT_COLS),
                                                             .weights = values(b, n_pairs),
                                                             .residual = values(b, n_out),
                                                             .n_tokens = n_tokens,
                                                             .n_cols = EXPERT_COLS,
                                                             .n_used = N_USED,
                                                             .n_experts = N_EXPERTS};
    measure(&job, OP_combine_experts, "-", n_tokens,
            op_cost_combine_experts(&job.args.combine_experts, 0));
}

// ---- The ops with a state: a layer of a hybrid model of 9B --------------------------------------

enum { DELTA_HEADS = 32, DELTA_KEY_HEADS = 16, DELTA_DIM = 128, DELTA_TAPS = 4, DELTA_STATES = 64 };
enum { DELTA_COLUMNS = (DELTA_HEADS + 2 * DELTA_KEY_HEADS) * DELTA_DIM };

// Steps of one sequence in place, whose state a call finds where the last one left it.
static const int32_t *steps_of(struct bench *b, int32_t n_tokens) {
    return numbers(b, 2 * (int64_t)n_tokens, 0, 1);
}

static void bench_split_rows(struct bench *b, int32_t n_tokens) {
    const int32_t n_heads = b->options.shape->n_heads, head_dim = b->options.shape->head_dim;
    const int64_t count = (int64_t)n_tokens * n_heads * head_dim;
    struct job job = {.b = b, .call = call_split_rows};
    job.args.split_rows =
        (struct split_rows_args){values(b, count),   values(b, count), values(b, 2 * count),
                                 n_tokens * n_heads, head_dim,         head_dim,
                                 head_dim,           head_dim};
    measure(&job, OP_split_rows, "-", n_tokens, op_cost_split_rows(&job.args.split_rows, 0));
}

static void bench_short_conv(struct bench *b, int32_t n_tokens) {
    const int64_t count = (int64_t)n_tokens * DELTA_COLUMNS;
    struct job job = {.b = b, .call = call_short_conv};
    job.args.short_conv =
        (struct short_conv_args){.out = values(b, count),
                                 .states = values(b, (DELTA_TAPS - 1) * DELTA_COLUMNS),
                                 .x = values(b, count),
                                 .weight = values(b, DELTA_TAPS * DELTA_COLUMNS),
                                 .steps = steps_of(b, n_tokens),
                                 .n_tokens = n_tokens,
                                 .n_cols = DELTA_COLUMNS,
                                 .x_stride = DELTA_COLUMNS,
                                 .n_taps = DELTA_TAPS};
    measure(&job, OP_short_conv, "-", n_tokens, op_cost_short_conv(&job.args.short_conv, 0));
}

// Gives each call another state, as layers do.
static void move_state(const struct job *job, union op_args *args, int64_t n) {
    args->delta_rule.states =
        job->args.delta_rule.states + n % DELTA_STATES * (int64_t)job->stride_bytes / 4;
}

static void bench_delta_rule(struct bench *b, int32_t n_tokens) {
    const int64_t n_gates = (int64_t)n_tokens * DELTA_HEADS;
    struct job job = {.b = b, .call = call_delta_rule, .move = move_state};
    job.stride_bytes = sizeof(float) * DELTA_HEADS * DELTA_DIM * DELTA_DIM;
    job.args.delta_rule = (struct delta_rule_args){
        .out = values(b, n_gates * DELTA_DIM),
        .states = values(b, DELTA_STATES * (int64_t)(job.stride_bytes / 4)),
        .qkv = values(b, (int64_t)n_tokens * DELTA_COLUMNS),
        .alpha = values(b, n_gates),
        .beta = values(b, n_gates),
        .a = values(b, DELTA_HEADS),
        .dt_bias = values(b, DELTA_HEADS),
        .steps = steps_of(b, n_tokens),
        .n_tokens = n_tokens,
        .n_heads = DELTA_HEADS,
        .n_key_heads = DELTA_KEY_HEADS,
        .head_dim = DELTA_DIM,
        .order = KEYS_TILED,
        .eps = 1e-6F};
    measure(&job, OP_delta_rule, "-", n_tokens, op_cost_delta_rule(&job.args.delta_rule, 0));
}

// A layer of a hybrid model of 7B: 48 heads of 64, of which all share B and C.
static void bench_mamba_scan(struct bench *b, int32_t n_tokens) {
    enum { HEADS = 48, DIM = 64, STATE = 128 };
    struct job job = {.b = b, .call = call_mamba_scan};
    job.args.mamba_scan =
        (struct mamba_scan_args){.out = values(b, (int64_t)n_tokens * HEADS * DIM),
                                 .states = values(b, HEADS * DIM * STATE),
                                 .x = values(b, (int64_t)n_tokens * (HEADS * DIM + 2 * STATE)),
                                 .dt = values(b, (int64_t)n_tokens * HEADS),
                                 .a = values(b, HEADS),
                                 .d = values(b, HEADS),
                                 .dt_bias = values(b, HEADS),
                                 .steps = steps_of(b, n_tokens),
                                 .n_tokens = n_tokens,
                                 .n_heads = HEADS,
                                 .n_groups = 1,
                                 .head_dim = DIM,
                                 .n_state = STATE,
                                 .dt_stride = HEADS};
    measure(&job, OP_mamba_scan, "-", n_tokens, op_cost_mamba_scan(&job.args.mamba_scan, 0));
}

// ---- The program --------------------------------------------------------------------------------

static void bench_batch(struct bench *b, int32_t n_tokens) {
    const char *op = b->options.op;
#define OP(name, ...)                \
    if (!op || !strcmp(op, #name)) { \
        b->used = 0;                 \
        bench_##name(b, n_tokens);   \
    }
#define OP_W(name, ...)                                                        \
    for (int w = 0; (!op || !strcmp(op, #name)) && w < WEIGHT_COUNT; w++) {    \
        if (b->options.type != WEIGHT_COUNT && b->options.type != w) continue; \
        b->used = 0;                                                           \
        bench_##name(b, (enum weight_type)w, n_tokens);                        \
    }
#include "kernels/ops.def"
#undef OP
#undef OP_W
}

static void bench_level(struct bench *b, enum cpu_isa isa) {
    cpu_table_init(&b->table, isa);
    b->isa = cpu_isa_name(isa);
    b->peak = limits_peak(b->team, isa);
    printf("# %s: peaks of %.1f GFLOP/s (multiply-adds of floats), %.1f (pairs of BF16; 0: none) "
           "and %.1f (dots of bytes, scaled)\n",
           b->isa, b->peak.floats, b->peak.pairs, b->peak.blocks);
    printf("%-15s %-8s %-8s %6s %10s %8s %9s %10s\n", "# op", "type", "isa", "tokens", "ms", "GB/s",
           "GFLOP/s", "of limit");
    const char *next = b->options.tokens;
    for (char *end; *next; next = *end ? end + 1 : end) {
        bench_batch(b, (int32_t)strtol(next, &end, 10));
    }
}

static void bench_levels(struct bench *b) {
    const enum cpu_isa wanted = b->options.isa;
    printf("# %s, %d thread%s, best reader in sequence: %.2f GB/s in pages of %s\n",
           b->options.shape->name, team_size(b->team), team_size(b->team) == 1 ? "" : "s",
           b->read_gbps, b->options.huge_pages ? "2 MiB" : "4 KiB");
    for (int isa = 0; isa < ISA_AUTO; isa++) {
        if (!cpu_has_isa((enum cpu_isa)isa)) continue;
        if (wanted == ISA_AUTO ? isa != ISA_REF : (int)wanted == isa)
            bench_level(b, (enum cpu_isa)isa);
    }
}

static bool parse_count(const char *text, int32_t *out) {
    char *end;
    long value = strtol(text, &end, 10);
    *out = (int32_t)value;
    return *text && !*end && value >= 1 && value <= 1024;
}

static bool parse_keys(const char *text, int32_t *out) {
    char *end;
    long value = strtol(text, &end, 10);
    *out = (int32_t)value;
    return *text && !*end && value >= KV_PAGE && value <= KEYS_MAX && value % KV_PAGE == 0;
}

static bool parse_cols(const char *text, int32_t *out) {
    char *end;
    long value = strtol(text, &end, 10);
    *out = (int32_t)value;
    return *text && !*end && value >= 32 && value <= COLS_MAX && value % 32 == 0;
}

static bool are_counts(const char *text) {
    for (;;) {
        char *end;
        long value = strtol(text, &end, 10);
        if (end == text || value < 1 || value > 1024 || (*end && *end != ',')) return false;
        if (!*end) return true;
        text = end + 1;
    }
}

static bool parse_type(const char *name, int *out) {
    for (*out = 0; *out < WEIGHT_COUNT; ++*out)
        if (!strcasecmp(name, TYPE_NAMES[*out])) return true;
    return false;
}

static bool parse_pages(const char *text, bool *huge) {
    *huge = !strcmp(text, "2m");
    return *huge || !strcmp(text, "4k");
}

static bool parse_tokens(const char *text, const char **out) {
    *out = strcmp(text, "all") ? text : "1,2,3,4,5,6,7,8,16,64,512";
    return are_counts(*out);
}

static bool parse_option(struct options *o, const char *name, const char *value) {
    if (!strcmp(name, "--op")) return o->op = value, true;
    if (!strcmp(name, "--isa")) return cpu_isa_parse(value, &o->isa) && cpu_has_isa(o->isa);
    if (!strcmp(name, "--threads")) return parse_count(value, &o->n_threads);
    if (!strcmp(name, "--tokens")) return parse_tokens(value, &o->tokens);
    if (!strcmp(name, "--keys")) return parse_keys(value, &o->n_keys);
    if (!strcmp(name, "--cols")) return parse_cols(value, &o->n_cols);
    if (!strcmp(name, "--type")) return parse_type(value, &o->type);
    if (!strcmp(name, "--pages")) return parse_pages(value, &o->huge_pages);
    if (strcmp(name, "--shape")) return false;
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++)
        if (!strcmp(value, SHAPES[i].name)) return o->shape = &SHAPES[i], true;
    return false;
}

// Opens a pool of those pages and measures its reader. The bytes are small finite numbers in every
// type: halves and floats of 0x2c..
static bool open_pool(struct bench *b, bool huge_pages) {
    b->pool = limits_map(POOL_BYTES, huge_pages);
    if (!b->pool) return false;
    memset(b->pool, 0x2c, POOL_BYTES);
    b->read_gbps = limits_read_gbps(b->team, b->pool, POOL_BYTES);
    return true;
}

static bool open_bench(struct bench *b) {
    struct err e;
    char text[512];
    if (team_open(&b->team, b->options.n_threads, true, &e) != OK) {
        fprintf(stderr, "bench_ops: %s\n", err_text(&e, text, sizeof text));
        return false;
    }
    b->work = mem_map_pages(WORK_BYTES);
    if (b->work && open_pool(b, b->options.huge_pages)) return true;
    fprintf(stderr, "bench_ops: no memory for %d MiB\n", (int)((POOL_BYTES + WORK_BYTES) >> 20));
    return false;
}

int main(int argc, char **argv) {
    struct bench b = {.options = {.shape = &SHAPES[0],
                                  .isa = ISA_AUTO,
                                  .tokens = "1,512",
                                  .n_keys = 1024,
                                  .type = WEIGHT_COUNT}};
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && parse_option(&b.options, argv[i], argv[i + 1])) continue;
        fprintf(
            stderr,
            "bench_ops: %s %s cannot be understood; use\n"
            "bench_ops [--shape smollm2|1b|1b-down|8b|8b-down|experts] [--isa NAME] [--op NAME] "
            "[--type NAME] [--threads N] [--tokens N,N,...|all] [--keys N] [--cols N] "
            "[--pages 4k|2m]\n",
            argv[i], i + 1 < argc ? argv[i + 1] : "without a value");
        return 2;
    }
    bool opened = open_bench(&b);
    if (opened) bench_levels(&b);
    limits_unmap(b.pool, POOL_BYTES);
    if (b.work) mem_unmap_pages(b.work, WORK_BYTES);
    team_close(b.team);
    return opened ? 0 : 1;
}
