/* bench_solver.c: measures the CPU time of the planner's search.
 *
 *   bench_solver [-r ROUNDS]
 *
 * Plans every model of configs/models, and one of 100 layers with 256 experts each, on every
 * machine of configs/machines with an accelerator; then invented models in which no two layers are
 * alike, on invented machines. The least of ROUNDS solves counts for each pair; a row has the
 * median and the maximum over the machines. Context and workload are those of `tandem plan` without
 * options, with memory for any model on the host.
 */
#include "base/mem.h"
#include "base/number.h"
#include "planner/machine/machine.h"
#include "planner/planner.h"
#include "tests/lib/invent.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_PAIRS = 64, N_INVENTED = 16 };

static const char LARGE[] = "{\"name\": \"100 layers x 256 experts\", \"architecture\": "
                            "\"qwen3moe\", \"quant\": \"Q4_K_M\", \"n_layers\": 100, "
                            "\"n_embd\": 4096, \"n_vocab\": 151936, \"n_ctx_train\": 40960, "
                            "\"tied\": false, \"attention\": {\"n_heads\": 64, \"n_kv_heads\": 4, "
                            "\"head_dim\": 128, \"qk_norm\": true}, \"experts\": {\"n_experts\": "
                            "256, \"n_experts_used\": 8, \"n_ff\": 1536}}";

struct bench {
    struct shape shape;
    struct machine machine;
    struct plan plan;
    int n_rounds, n_pairs;
    double ms[MAX_PAIRS];
    char slowest[sizeof((struct machine *)0)->name]; // the machine of the greatest time
};

// ---- One model ----------------------------------------------------------------------------------

static enum status solve(struct bench *b, struct err *e) {
    const struct constraints constraints = {.gpu_layers = GPU_LAYERS_AUTO};
    const struct workload workload = {.kv_type_k = DTYPE_F16, .kv_type_v = DTYPE_F16};
    double least = (double)INFINITY;
    b->machine.devices[0].budget_bytes = UINT64_MAX / 2;
    for (int i = 0; i < b->n_rounds; i++) {
        const clock_t start = clock();
        if (planner_solve(&b->plan, &b->shape, &b->machine, &workload, &constraints, e))
            return e->status;
        least = fmin(least, (double)(clock() - start) * 1e3 / CLOCKS_PER_SEC);
    }
    bool most = true;
    for (int i = 0; i < b->n_pairs; i++) most = most && b->ms[i] < least;
    if (most) memcpy(b->slowest, b->machine.name, sizeof b->slowest);
    ASSERT(b->n_pairs < MAX_PAIRS);
    b->ms[b->n_pairs++] = least;
    return OK;
}

static void print_row(struct bench *b, const char *name) {
    qsort(b->ms, (size_t)b->n_pairs, sizeof *b->ms, order_f64);
    printf("%-42s %5d %8d %8.1f %8.1f  %s\n", name, b->shape.n_units, b->n_pairs,
           b->ms[b->n_pairs / 2], b->ms[b->n_pairs - 1], b->slowest);
    b->n_pairs = 0;
}

// ---- All of them --------------------------------------------------------------------------------

static enum status on_every_machine(struct bench *b, struct err *e) {
    for (int32_t i = 0; i < machine_builtin_count(); i++) {
        if (machine_builtin(&b->machine, i, e)) return e->status;
        if (b->machine.n_devices > 1 && solve(b, e)) return e->status;
    }
    print_row(b, b->shape.name);
    return OK;
}

static enum status invented(struct bench *b, const char *name, enum invent_family family,
                            int32_t n_layers, struct err *e) {
    for (uint64_t seed = 0; seed < N_INVENTED; seed++) {
        struct dice dice = {seed};
        invent_shape(&b->shape, &dice, family, n_layers);
        invent_machine(&b->machine, &dice, &b->shape);
        if (solve(b, e)) return e->status;
    }
    print_row(b, name);
    return OK;
}

static enum status run(struct bench *b, struct err *e) {
    printf("%-42s %5s %8s %8s %8s\n", "model", "units", "machines", "median", "most ms");
    for (int32_t i = 0; i < shape_builtin_count(); i++)
        if (shape_builtin(&b->shape, i, e) || on_every_machine(b, e)) return e->status;
    if (shape_parse(&b->shape, LARGE, strlen(LARGE), e) || on_every_machine(b, e) ||
        invented(b, "32 layers, all different", INVENT_DENSE, 32, e) ||
        invented(b, "80 layers, all different", INVENT_DENSE, 80, e) ||
        invented(b, "48 layers with experts, all different", INVENT_EXPERTS, 48, e))
        return e->status;
    return invented(b, "100 layers, experts and a shared one, diff.", INVENT_BOTH, 100, e);
}

int main(int argc, char **argv) {
    struct bench *b = mem_alloc(1, sizeof *b);
    struct err e = {0};
    if (!b) return 1;
    b->n_rounds = 3;
    for (int option; (option = getopt(argc, argv, "r:")) != -1;) {
        if (option == 'r') b->n_rounds = atoi(optarg);
        if (option != 'r' || b->n_rounds < 1) {
            fprintf(stderr, "usage: bench_solver [-r ROUNDS]\n");
            mem_free(b);
            return 2;
        }
    }
    char text[1024];
    const enum status status = run(b, &e);
    if (status) fprintf(stderr, "bench_solver: %s\n", err_text(&e, text, sizeof text));
    mem_free(b);
    return status ? 1 : 0;
}
