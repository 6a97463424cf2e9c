/* bench_plans.c: what the planner's plans are worth where reality differs from what was assumed.
 *
 *   bench_plans
 *
 * Plans every model of configs/models on every machine of configs/machines with an accelerator of
 * its own memory, by the rates of the machine file, and prints two tables of predictions. The first
 * keeps the plans and makes the machine worse: slower hand-overs, a slower CPU; decode is compared
 * with that of whole layers, planned and worsened alike; a plan may be slower there because it
 * gives memory to slots for prompts, so the table also says how many are slower in total, how many
 * were not slower as in the file, and how many of those that split something are. The second
 * compares the time of prompts of 512 tokens, a quarter and half of the context and 128 tokens, by
 * the plan that is made without a prompt, with that of a plan made for the prompt. Medians and the
 * 90 % are nearest ranks.
 */
#include "base/mem.h"
#include "base/number.h"
#include "bench/lib/ranks.h"
#include "planner/machine/machine.h"
#include "planner/planner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PAIRS = 4096, N_CONTEXTS = 2, N_DEPTHS = 3 };

struct reality {
    const char *name;
    double latency_us; // of a hand-over, 0: as in the file
    double cpu;        // the CPU's speed
};
static const struct reality REALITIES[] = {
    {"as in the file", 0, 1},   {"hand-overs of 15 us", 15, 1},
    {"25 us", 25, 1},           {"35 us", 35, 1},
    {"50 us", 50, 1},           {"CPU 20 % slower", 0, 0.8},
    {"CPU 40 % slower", 0, 0.6}};
enum { N_REALITIES = sizeof REALITIES / sizeof *REALITIES };
static const int32_t CONTEXTS[N_CONTEXTS] = {4096, 32768};

struct ratios {
    int32_t n;
    double ratio[MAX_PAIRS];
};

struct bench {
    struct shape shape;
    struct machine machine;
    struct plan plan, other;
    struct ratios gains[N_REALITIES];             // decode of whole layers / of the plan
    int32_t n_slower[N_REALITIES];                // plans whose prompt and answer take longer
    int32_t n_newly[N_REALITIES];                 // plans with slower decode only there
    int32_t n_split, n_split_slower[N_REALITIES]; // plans that split; those with slower decode
    struct ratios regrets[N_CONTEXTS][N_DEPTHS];  // time of the plan / of the depth's own
    struct ratios all_regrets;
    int32_t n_whole, n_whole_split; // pairs that fit the accelerator whole; plans that split them
    double least_gain;              // of the latter: time of the whole model there / of the plan
};

// ---- Realities ----------------------------------------------------------------------------------

static void worsen(struct machine *m, const struct reality *reality) {
    struct device_rates *cpu = &m->devices[DEVICE_HOST].rates;
    for (int d = 0; d < m->n_devices && reality->latency_us > 0; d++)
        m->devices[d].link.latency_us = reality->latency_us;
    cpu->memory_gbps *= reality->cpu;
    cpu->vector_gbps *= reality->cpu;
    for (int i = 0; i < RATE_CLASSES; i++) {
        for (int type = 0; type < WEIGHT_COUNT; type++) cpu->weight_gbps[type][i] *= reality->cpu;
        for (int type = 0; type < KV_TYPES; type++) cpu->attention_gflops[type][i] *= reality->cpu;
    }
}

static struct prediction predict(struct bench *b, struct plan *plan,
                                 const struct reality *reality) {
    struct prediction prediction;
    plan->machine = b->machine;
    worsen(&plan->machine, reality);
    plan_predict_after(plan, &b->shape, plan->workload.n_past, &prediction);
    return prediction;
}

static void add(struct ratios *list, double ratio) {
    ASSERT(list->n < MAX_PAIRS);
    list->ratio[list->n++] = ratio;
}

static bool splits(const struct plan *plan) {
    for (int32_t u = 0; u < plan->n_units; u++)
        if (plan->place.units[u].cpu_parts) return true;
    return false;
}

// Counts plans that split a model that the accelerator holds whole, and notes what that gains.
static void count_whole(struct bench *b) {
    const struct constraints whole = {.gpu_layers = GPU_LAYERS_ALL};
    const struct workload w = {.kv_type_k = DTYPE_F16, .kv_type_v = DTYPE_F16};
    struct err ignored;
    if (planner_solve(&b->other, &b->shape, &b->machine, &w, &whole, &ignored)) return;
    b->n_whole++;
    if (!splits(&b->plan)) return;
    b->n_whole_split++;
    const double gain = predict(b, &b->other, &REALITIES[0]).total_us /
                        predict(b, &b->plan, &REALITIES[0]).total_us;
    b->least_gain = fmin(b->least_gain, gain);
    printf("%s on %s fits whole; split it is %.1f %% faster\n", b->shape.name, b->machine.name,
           100 * (gain - 1));
}

static enum status try_realities(struct bench *b, struct err *e) {
    const struct workload w = {.kv_type_k = DTYPE_F16, .kv_type_v = DTYPE_F16};
    const struct constraints best = {.gpu_layers = GPU_LAYERS_AUTO},
                             layers = {.gpu_layers = GPU_LAYERS_AUTO, .strategy = STRATEGY_LAYERS};
    if (planner_solve(&b->plan, &b->shape, &b->machine, &w, &best, e)) return e->status;
    count_whole(b);
    if (planner_solve(&b->other, &b->shape, &b->machine, &w, &layers, e)) return e->status;
    bool was_slower = false;
    b->n_split += splits(&b->plan);
    for (int i = 0; i < N_REALITIES; i++) {
        const struct prediction plan = predict(b, &b->plan, &REALITIES[i]),
                                other = predict(b, &b->other, &REALITIES[i]);
        const bool is_slower = other.decode_us < 0.999 * plan.decode_us;
        was_slower = i == 0 ? is_slower : was_slower;
        add(&b->gains[i], other.decode_us / plan.decode_us);
        b->n_slower[i] += other.total_us < 0.999 * plan.total_us;
        b->n_newly[i] += is_slower && !was_slower;
        b->n_split_slower[i] += is_slower && splits(&b->plan);
    }
    return OK;
}

// ---- Depths -------------------------------------------------------------------------------------

static double total_us(struct bench *b, struct plan *plan, int32_t n_prompt) {
    struct prediction prediction;
    plan->workload.n_prompt = n_prompt;
    plan_predict(plan, &b->shape, &prediction);
    return prediction.total_us;
}

static enum status try_depths(struct bench *b, int context, struct err *e) {
    const int32_t n_ctx = CONTEXTS[context];
    const int32_t depths[N_DEPTHS] = {512, n_ctx / 4, n_ctx / 2};
    const struct constraints best = {.gpu_layers = GPU_LAYERS_AUTO};
    struct workload w = {.n_ctx = n_ctx, .kv_type_k = DTYPE_F16, .kv_type_v = DTYPE_F16};
    if (n_ctx > b->shape.n_ctx_train) return OK;
    if (planner_solve(&b->plan, &b->shape, &b->machine, &w, &best, e)) return e->status;
    for (int i = 0; i < N_DEPTHS; i++) {
        w.n_prompt = depths[i];
        if (planner_solve(&b->other, &b->shape, &b->machine, &w, &best, e)) return e->status;
        const double regret = total_us(b, &b->plan, depths[i]) / total_us(b, &b->other, depths[i]);
        add(&b->regrets[context][i], regret);
        add(&b->all_regrets, regret);
    }
    return OK;
}

// ---- Tables -------------------------------------------------------------------------------------

// Sorts the ratios and returns the nearest rank of that percentage; of 0, the least.
static double percentile(struct ratios *list, int32_t percent) {
    if (list->n == 0) return NAN;
    qsort(list->ratio, (size_t)list->n, sizeof *list->ratio, order_f64);
    return list->ratio[percent > 0 ? nearest_rank(list->n, percent) : 0];
}

static void print_regrets(const char *name, struct ratios *list) {
    printf("%-24s %8d %8.3f %8.3f %8.3f\n", name, list->n, percentile(list, 50),
           percentile(list, 90), percentile(list, 100));
}

static void print_tables(struct bench *b) {
    printf("%d pairs, %d fit whole, %d of these are split; %d plans split something\n",
           b->gains[0].n, b->n_whole, b->n_whole_split, b->n_split);
    if (b->n_whole_split > 0)
        printf("least gain of a split where all fits: %.1f %%\n", 100 * (b->least_gain - 1));
    putchar('\n');
    printf("%-24s %14s %8s %8s %10s %10s %16s\n", "decode beside layers", "median gain", "least",
           "slower", "only here", "of splits", "slower in total");
    for (int i = 0; i < N_REALITIES; i++) {
        int n_slower = 0;
        for (int k = 0; k < b->gains[i].n; k++) n_slower += b->gains[i].ratio[k] < 0.999;
        printf("%-24s %+12.1f %% %+6.1f %% %8d %10d %10d %16d\n", REALITIES[i].name,
               100 * (percentile(&b->gains[i], 50) - 1), 100 * (percentile(&b->gains[i], 0) - 1),
               n_slower, b->n_newly[i], b->n_split_slower[i], b->n_slower[i]);
    }
    printf("\n%-24s %8s %8s %8s %8s\n", "time beside the best", "pairs", "median", "90 %", "most");
    for (int c = 0; c < N_CONTEXTS; c++) {
        const int32_t depths[N_DEPTHS] = {512, CONTEXTS[c] / 4, CONTEXTS[c] / 2};
        for (int i = 0; i < N_DEPTHS; i++) {
            char name[32];
            snprintf(name, sizeof name, "%6d of %d", depths[i], CONTEXTS[c]);
            print_regrets(name, &b->regrets[c][i]);
        }
    }
    print_regrets("   all", &b->all_regrets);
}

static enum status run(struct bench *b, struct err *e) {
    for (int32_t s = 0; s < shape_builtin_count(); s++) {
        if (shape_builtin(&b->shape, s, e)) return e->status;
        for (int32_t i = 0; i < machine_builtin_count(); i++) {
            if (machine_builtin(&b->machine, i, e)) return e->status;
            const int8_t accelerator = machine_accelerator(&b->machine);
            if (accelerator == DEVICE_HOST || b->machine.devices[accelerator].unified) continue;
            b->machine.devices[DEVICE_HOST].budget_bytes = UINT64_MAX / 2;
            if (try_realities(b, e)) return e->status;
            for (int c = 0; c < N_CONTEXTS; c++)
                if (try_depths(b, c, e)) return e->status;
        }
    }
    return OK;
}

int main(void) {
    struct bench *b = mem_alloc(1, sizeof *b);
    struct err e = {0};
    if (!b) return 1;
    b->least_gain = INFINITY;
    char text[1024];
    const enum status status = run(b, &e);
    if (status)
        fprintf(stderr, "bench_plans: %s\n", err_text(&e, text, sizeof text));
    else
        print_tables(b);
    mem_free(b);
    return status ? 1 : 0;
}
