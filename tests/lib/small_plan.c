/* small_plan.c: see small_plan.h. */
#include "tests/lib/small_plan.h"

#include "base/mem.h"
#include "tests/lib/pair.h"
#include "planner/plan/schedule.h"
#include "planner/planner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

int open_small_plan(void **state) {
    *state = mem_alloc(1, sizeof(struct small_plan));
    return *state ? 0 : -1;
}

int close_small_plan(void **state) {
    mem_free(*state);
    return 0;
}

void assert_near(double actual, double expected) {
    if (fabs(actual - expected) > 1e-9 * fabs(expected))
        fail_msg("%.12g is not %.12g", actual, expected);
}

static struct unit *add_unit(struct shape *s, enum unit_kind kind, int32_t layer) {
    struct unit *unit = &s->units[s->n_units++];
    *unit = (struct unit){.kind = kind, .layer = layer};
    return unit;
}

static void add_tensor(struct unit *unit, enum tensor_role role, int32_t n_cols, int32_t n_rows) {
    struct unit_tensor *t = &unit->tensors[unit->n_tensors++];
    *t = (struct unit_tensor){.role = role, .n_cols = n_cols, .n_rows = n_rows, .n_matrices = 1};
    t->use = tensor_use_of(role);
    t->type = t->use == USE_VECTOR ? DTYPE_F32 : DTYPE_Q8_0;
    t->size_bytes = dtype_bytes(t->type, (uint64_t)n_cols * (uint64_t)n_rows);
}

void small_model(struct small_plan *f, int32_t n_layers) {
    struct shape *s = &f->shape;
    memset(s, 0, sizeof *s);
    s->n_layers = n_layers;
    s->n_embd = EMBD;
    s->n_heads = s->n_kv_heads = 2;
    s->head_dim = s->n_rot = s->n_local_rot = 64;
    s->n_ff = FF;
    s->n_vocab = VOCAB;
    s->n_ctx_train = 2048;
    add_tensor(add_unit(s, UNIT_EMBED, -1), ROLE_TOKEN_EMBED, EMBD, VOCAB);
    for (int32_t layer = 0; layer < n_layers; layer++) {
        struct unit *attention = add_unit(s, UNIT_ATTENTION, layer);
        attention->n_heads = attention->n_kv_heads = 2;
        attention->head_dim_k = attention->head_dim_v = 64;
        add_tensor(attention, ROLE_ATTN_NORM, EMBD, 1);
        add_tensor(attention, ROLE_ATTN_Q, EMBD, EMBD);
        add_tensor(attention, ROLE_ATTN_K, EMBD, EMBD);
        add_tensor(attention, ROLE_ATTN_V, EMBD, EMBD);
        add_tensor(attention, ROLE_ATTN_OUTPUT, EMBD, EMBD);
        struct unit *ffn = add_unit(s, UNIT_FFN, layer);
        add_tensor(ffn, ROLE_FFN_NORM, EMBD, 1);
        add_tensor(ffn, ROLE_FFN_GATE, EMBD, FF);
        add_tensor(ffn, ROLE_FFN_UP, EMBD, FF);
        add_tensor(ffn, ROLE_FFN_DOWN, FF, EMBD);
    }
    add_tensor(add_unit(s, UNIT_HEAD, -1), ROLE_OUTPUT, EMBD, VOCAB);
    f->workload = (struct workload){.n_ctx = 1024,
                                    .n_ubatch = UBATCH,
                                    .kv_type_k = DTYPE_F16,
                                    .kv_type_v = DTYPE_F16,
                                    .n_prompt = 4 * UBATCH,
                                    .n_gen = 16};
}

static void round_machine(struct small_plan *f) {
    struct machine *m = &f->machine;
    *m = (struct machine){.rates = RATES_FILE, .n_devices = 2, .dram_gbps = 1000};
    for (int d = 0; d < MAX_DEVICES; d++) {
        struct machine_device *device = &m->devices[d];
        *device = (struct machine_device){.capacity_bytes = 1 << 30,
                                          .budget_bytes = 1 << 30,
                                          .align_bytes = d ? 1024 : 64,
                                          .n_lanes = 1,
                                          .is_host = d == 0};
        snprintf(device->name, sizeof device->name, "device %d", d);
        snprintf(device->kind, sizeof device->kind, d ? "sim" : "cpu");
        struct device_rates *r = &device->rates;
        for (int t = 0; t < WEIGHT_COUNT; t++)
            for (int c = 0; c < RATE_CLASSES; c++) r->weight_gbps[t][c] = d ? 2 : 1;
        for (int t = 0; t < KV_TYPES; t++)
            for (int c = 0; c < RATE_CLASSES; c++) r->attention_gflops[t][c] = 100;
        r->vector_gbps = r->memory_gbps = d ? 2 : 1;
        r->op_us = 1;
        r->pass_us = 5;
    }
    m->devices[GPU].link =
        (struct link_rates){.to_gbps = 1, .from_gbps = 2, .staged_to_gbps = 0.8, .latency_us = 10};
}

void given_ways(struct small_plan *f) {
    round_machine(f);
    f->c = (struct constraints){.gpu_layers = GPU_LAYERS_AUTO,
                                .has_units = true,
                                .has_placement = true,
                                .place = {.feed = FEED_ARENA}};
}

void solve_given(struct small_plan *f) {
    struct err e;
    char text[512];
    if (planner_solve(&f->plan, &f->shape, &f->machine, &f->workload, &f->c, &e))
        fail_msg("%s", err_text(&e, text, sizeof text));
}

static void apart(struct small_plan *f, enum unit_kind kind, int32_t n_layers, int cpu_parts,
                  bool streamed) {
    small_model(f, n_layers);
    given_ways(f);
    for (int u = 1; u < f->shape.n_units; u++) {
        const bool is = f->shape.units[u].kind == kind;
        f->c.place.units[u].device = !is || cpu_parts ? GPU : HOST;
        f->c.place.units[u].cpu_parts = (uint8_t)(is ? cpu_parts : 0);
        f->c.place.units[u].streamed = is && streamed;
    }
    solve_given(f);
}

void ffns_apart(struct small_plan *f, int32_t n_layers, int cpu_parts, bool streamed) {
    apart(f, UNIT_FFN, n_layers, cpu_parts, streamed);
}

void attention_apart(struct small_plan *f, int32_t n_layers, int cpu_parts, bool streamed) {
    apart(f, UNIT_ATTENTION, n_layers, cpu_parts, streamed);
}

bool invent_given(struct small_plan *f, uint64_t seed, int32_t max_units) {
    struct err e;
    f->dice = (struct dice){seed};
    invent_small_shape(&f->shape, &f->dice, max_units);
    invent_machine(&f->machine, &f->dice, &f->shape);
    invent_workload(&f->workload, &f->dice, &f->shape);
    invent_ways(&f->c, &f->dice, &f->shape);
    for (int d = 0; d < MAX_DEVICES; d++) f->machine.devices[d].budget_bytes = UINT64_C(1) << 50;
    return planner_solve(&f->plan, &f->shape, &f->machine, &f->workload, &f->c, &e) == OK;
}
