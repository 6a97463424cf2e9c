/* test_part.c: the ops that the planner lists and prices are those that the pipeline encodes: for a
 * dense model and one with experts, with units whole, split and streamed, each device's table is
 * replaced by one that also writes down what it gets.
 */
#include "runtime/engine/pipeline.h"

#include "base/mem.h"
#include "kernels/op_command.h"
#include "runtime/host/devices.h"
#include "runtime/model/model_read.h"
#include "tests/lib/tiny_model.h"
#include "tests/sim/sim_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { HOST, GPU, N_LAYERS = 3, N_CTX = 256, MAX_LISTED = 200 };

static const struct tiny_model MODELS[] = {
    {.n_layers = N_LAYERS, .biased = true, .seed = 3, .head_dim = 32},
    {.n_layers = N_LAYERS, .biased = true, .seed = 3, .head_dim = 32, .n_experts = 4},
    {.n_layers = N_LAYERS, .normed = true, .capped = true, .seed = 3, .head_dim = 32},
    {.architecture = "gpt-oss",
     .n_layers = N_LAYERS,
     .sinks = true,
     .biased = true,
     .n_experts = 4,
     .window = 50},
    {.architecture = "gemma3",
     .n_layers = N_LAYERS,
     .ends_with_norms = true,
     .normed = true,
     .window = 30},
    {.architecture = "qwen2moe", .n_layers = N_LAYERS, .n_experts = 4, .shared = true},
    {.architecture = "qwen35", .n_layers = N_LAYERS, .normed = true, .delta_period = 2},
    {.architecture = "lfm2",
     .n_layers = N_LAYERS,
     .normed = true,
     .delta_period = 2,
     .convolves = true},
    {.architecture = "granitehybrid", .n_layers = N_LAYERS, .delta_period = 2, .scans = true},
    {.architecture = "deepseek2", .n_layers = N_LAYERS, .latent_rank = 40, .low_queries = true},
    {.architecture = "gemma4",
     .n_layers = N_LAYERS,
     .ends_with_norms = true,
     .normed = true,
     .window = 30,
     .head_dim = 32,
     .local_head_dim = 16,
     .n_sharing = 1,
     .n_inputs = 16},
    {.architecture = "gemma4",
     .n_layers = N_LAYERS,
     .ends_with_norms = true,
     .normed = true,
     .window = 30,
     .n_experts = 4,
     .beside = true},
    {TINY_AFMOE, .n_layers = N_LAYERS, .n_experts = 4, .shared = true},
    {TINY_LAGUNA, .n_layers = N_LAYERS, .n_experts = 4, .shared = true, .window = 30},
    {.architecture = "olmo2",
     .n_layers = N_LAYERS,
     .no_norms = true,
     .ends_with_norms = true,
     .normed = true,
     .normed_whole = true,
     .window = 60},
    {.architecture = "phi2",
     .n_layers = N_LAYERS,
     .biased = true,
     .norm_biases = true,
     .ungated = true,
     .side_by_side = true},
};

struct listed {
    enum op_id op;
    struct op_cost cost; // of matmuls without the weights, which depend on the type
};

struct list {
    int32_t n;
    struct listed ops[MAX_LISTED];
};

// Writes down the ops of one device.
struct tape {
    struct op_table table; // first: the device points to it
    const struct op_table *real;
    struct list list;
};

static void add(struct list *list, enum op_id op, struct op_cost cost) {
    assert_true(list->n < MAX_LISTED);
    cost.weight_bytes = 0;
    list->ops[list->n++] = (struct listed){op, cost};
}

#define OP(name, ...)                                                             \
    static void record_##name(struct stream *s, const struct name##_args *args) { \
        struct tape *r = (struct tape *)(uintptr_t)s->device->ops;                \
        add(&r->list, OP_##name, op_cost_##name(args, 1));                        \
        r->real->name(s, args);                                                   \
    }
#define OP_W(name, ...)                                                \
    static void record_##name(struct stream *s, enum weight_type type, \
                              const struct name##_args *args) {        \
        struct tape *r = (struct tape *)(uintptr_t)s->device->ops;     \
        add(&r->list, OP_##name, op_cost_##name(type, args));          \
        r->real->name(s, type, args);                                  \
    }
#include "kernels/ops.def"
#undef OP
#undef OP_W

static const struct op_table RECORD = {
#define OP(name, ...) .name = record_##name,
#define OP_W          OP
#include "kernels/ops.def"
#undef OP
#undef OP_W
};

// A pipeline whose devices are recorded.
struct rig {
    char path[64];
    struct gguf gguf;
    struct device *devices[MAX_DEVICES];
    struct model model;
    struct shape shape;
    struct plan plan;
    struct weights weights;
    struct pipeline pipeline;
    struct tape tapes[MAX_DEVICES];
    bool seen[OP_COUNT];
};

static void open_rig(struct rig *r, const struct constraints *c, const struct tiny_model *tiny) {
    struct engine_options o = {
        .device_spec = "sim:vram=16M",
        .drivers = &sim_driver,
        .n_drivers = 1,
        .cpu = {.isa = ISA_AUTO, .n_threads = 1},
        .workload = {.n_ctx = N_CTX, .n_ubatch = 64, .max_logits = 1, .n_sessions = 1},
        .constraints = *c,
    };
    struct err e;
    int32_t n_devices;
    snprintf(r->path, sizeof r->path, "/tmp/tandem_test_part.%d.gguf", (int)getpid());
    tiny_model_write(tiny, r->path);
    o.model_path = r->path;
    o.workload.kv_type_k = o.workload.kv_type_v = DTYPE_F16;
    assert_int_equal(gguf_open(&r->gguf, r->path, &e), OK);
    assert_int_equal(model_read(&r->model, &r->shape, &r->gguf, &e), OK);
    assert_int_equal(r->shape.n_units, (tiny->shared || tiny->beside ? 3 : 2) * N_LAYERS + 2);
    assert_int_equal(devices_open(r->devices, &n_devices, &o, &e), OK);
    assert_int_equal(devices_plan(&r->plan, &r->shape, r->devices, n_devices, &o, &e), OK);
    const struct placed_model placed = {&r->model, &r->shape, &r->plan, r->devices};
    assert_int_equal(weights_open(&r->weights, &placed, &e), OK);
    assert_int_equal(pipeline_open(&r->pipeline, &placed, &r->weights, NULL, &e), OK);
    assert_int_equal(weights_load(&r->weights, &placed, &o, &e), OK);
    for (int d = 0; d < n_devices; d++) {
        r->tapes[d] = (struct tape){.table = RECORD, .real = r->devices[d]->ops};
        r->devices[d]->ops = &r->tapes[d].table;
    }
}

static void close_rig(struct rig *r) {
    for (int d = 0; d < MAX_DEVICES; d++)
        if (r->devices[d]) r->devices[d]->ops = r->tapes[d].real;
    pipeline_close(&r->pipeline);
    weights_close(&r->weights);
    devices_close(r->devices);
    gguf_close(&r->gguf);
    unlink(r->path);
}

static void run_pass(struct rig *r, int32_t n_tokens) {
    const struct batch_tables t = pipeline_tables(&r->pipeline);
    const struct micro_batch batch = {.n_tokens = n_tokens, .n_logits = 1};
    struct err e;
    for (int32_t i = 0; i < n_tokens; i++) {
        t.tokens[i] = t.positions[i] = t.cache_rows[i] = i;
        t.sequences[i] = 0;
    }
    t.rows[0] = n_tokens - 1;
    for (int32_t i = 0; i < workload_pages(&r->plan.workload); i++) t.pages[i] = i;
    for (int d = 0; d < MAX_DEVICES; d++) r->tapes[d].list.n = 0;
    assert_int_equal(pipeline_run(&r->pipeline, &batch, &e), OK);
    assert_int_equal(pipeline_finish(&r->pipeline, &e), OK);
}

static void take(void *context, const struct op_call *call) {
    add(context, call->op, call->cost);
    assert_true(call->weight_bytes > 0 || !call->tensor);
}

// The ops in the plan's compute steps on device d.
static void list_steps(const struct rig *r, int d, const struct pass *pass, struct list *out) {
    const enum batch_class batch = batch_class_of(pass->n_tokens);
    out->n = 0;
    for (int32_t i = 0; i < r->plan.n_steps[batch]; i++) {
        const struct step *step = &r->plan.steps[batch][i];
        if (step->kind != STEP_COMPUTE || step->device != d) continue;
        part_walk(&(struct part_walk){
            &r->shape, &r->shape.units[step->unit], &r->plan.workload, pass,
            step_part(step, r->plan.place.units[step->unit].cpu_parts), take, out});
    }
}

// The table of angles is encoded once per pass and device, and not priced; nor is the cap of
// logits, which the numbers of a model decide and not its shape.
static void compare(struct rig *r, int d, const struct list *listed, int32_t n_tokens) {
    const struct list *encoded = &r->tapes[d].list;
    int32_t n = 0;
    for (int32_t i = 0; i < encoded->n; i++) {
        const struct listed *a = &encoded->ops[i], *b = &listed->ops[n];
        r->seen[a->op] = true;
        const bool capped = n < listed->n && b->op == OP_cap_logits; // a router's, not the head's
        if (a->op == OP_rope_table || (a->op == OP_cap_logits && !capped)) continue;
        if (n >= listed->n) fail_msg("device %d: more ops are encoded than listed", d);
        if (a->op != b->op || a->cost.read_bytes != b->cost.read_bytes ||
            a->cost.written_bytes != b->cost.written_bytes || !(a->cost.flops == b->cost.flops))
            fail_msg("device %d, %d tokens, op %d: %s of %d bytes is listed as %s of %d", d,
                     n_tokens, i, op_name(a->op), (int)op_cost_bytes(a->cost), op_name(b->op),
                     (int)op_cost_bytes(b->cost));
        n++;
    }
    assert_int_equal(n, listed->n);
}

// Places attention or a dense FFN: split, streamed, or both.
static struct unit_place place_in(int layer, int cpu_parts, bool streams) {
    return (struct unit_place){.device = layer == 1 ? HOST : GPU,
                               .cpu_parts = (uint8_t)(layer == 1 ? 0 : cpu_parts),
                               .streamed = layer > 0 && streams};
}

// Units whole on both devices, split, streamed, and both; experts are behind a shared one or beside
// a dense FFN on the other device, there not split, attention with a window is not streamed,
// gated and latent attention not split, and recurrent layers are whole.
static struct constraints ways(const struct tiny_model *m) {
    struct constraints c = {.gpu_layers = GPU_LAYERS_AUTO,
                            .has_units = true,
                            .has_placement = true,
                            .place = {.feed = FEED_ARENA}};
    struct unit_place *next = &c.place.units[1];
    for (int layer = 0; layer < N_LAYERS; layer++) {
        const int8_t other = layer == 1 ? GPU : HOST, same = (int8_t)(1 - other);
        const bool delta = m->delta_period && (layer + 1) % m->delta_period;
        const bool whole = m->delta_period || m->latent_rank;
        const bool streams = !delta && !(whole && layer == 2); // the CPU has some of it
        const bool reader = layer >= N_LAYERS - m->n_sharing;  // of the first layer's cache
        if (reader)
            *next++ = (struct unit_place){.device = GPU};
        else
            *next++ = place_in(layer, whole ? 0 : 16, streams);
        if (!m->n_experts || m->shared || m->beside) *next++ = place_in(layer, 12, true);
        const int8_t experts = m->shared || m->beside ? other : same;
        const bool split = experts == GPU && !m->beside, on_cpu = experts == HOST || split;
        if (m->n_experts)
            *next++ = (struct unit_place){
                .device = experts, .cpu_parts = split ? 12 : 0, .streamed = on_cpu && layer == 2};
    }
    return c;
}

static void test_listed_is_encoded(void **state) {
    static const int32_t counts[] = {1, 2, 20, 64};
    struct rig *r = mem_alloc(1, sizeof *r);
    struct list *listed = mem_alloc(1, sizeof *listed);
    (void)state;
    assert_true(r && listed);
    for (size_t m = 0; m < sizeof MODELS / sizeof *MODELS; m++) {
        const struct constraints c = ways(&MODELS[m]);
        open_rig(r, &c, &MODELS[m]);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            const struct pass pass = {counts[i], 1, 0};
            run_pass(r, counts[i]);
            for (int d = 0; d < MAX_DEVICES; d++) {
                list_steps(r, d, &pass, listed);
                assert_true(listed->n > 0);
                compare(r, d, listed, counts[i]);
            }
        }
        close_rig(r);
    }
    for (int op = 0; op < OP_COUNT; op++)
        if (!r->seen[op]) fail_msg("no block encodes %s", op_name((enum op_id)op));
    mem_free(listed);
    mem_free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_listed_is_encoded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
