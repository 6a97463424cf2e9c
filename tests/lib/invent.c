/* invent.c: see invent.h. */
#include "tests/lib/invent.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

// ---- Dice ---------------------------------------------------------------------------------------

// splitmix64 (Steele, Lea and Flood 2014).
uint64_t dice_roll(struct dice *dice) {
    uint64_t z = dice->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double dice_real(struct dice *dice, double low, double high) {
    return low + (high - low) * (double)(dice_roll(dice) >> 11) * 0x1p-53;
}

double dice_scale(struct dice *dice, double low, double high) {
    return exp(dice_real(dice, log(low), log(high)));
}

int32_t dice_int(struct dice *dice, int32_t low, int32_t high) {
    return low + (int32_t)(dice_roll(dice) % (uint64_t)(high - low + 1));
}

bool dice_chance(struct dice *dice, double probability) {
    return dice_real(dice, 0, 1) < probability;
}

// ---- Models -------------------------------------------------------------------------------------

static enum dtype any_type(struct dice *dice) {
    static const enum dtype types[] = {DTYPE_Q4_K, DTYPE_Q4_K, DTYPE_Q6_K,   DTYPE_Q5_K, DTYPE_Q8_0,
                                       DTYPE_Q4_0, DTYPE_F16,  DTYPE_IQ4_XS, DTYPE_Q3_K};
    return types[dice_int(dice, 0, sizeof types / sizeof *types - 1)];
}

static void add_tensor(struct unit *unit, enum tensor_role role, enum dtype type, int32_t n_cols,
                       int32_t n_rows) {
    struct unit_tensor *t = &unit->tensors[unit->n_tensors++];
    const char *name = tensor_role_info(role)->name;
    t->role = role;
    t->use = tensor_use_of(role);
    t->type = type;
    t->n_cols = n_cols;
    t->n_rows = n_rows;
    t->n_matrices = t->use == USE_EXPERTS ? unit->n_experts : 1;
    t->size_bytes =
        dtype_bytes(type, (uint64_t)n_cols * (uint64_t)n_rows) * (uint64_t)t->n_matrices;
    if (unit->layer >= 0)
        snprintf(t->name, sizeof t->name, "blk.%d.%s", unit->layer, name);
    else
        snprintf(t->name, sizeof t->name, "%s", name);
}

static struct unit *add_unit(struct shape *s, enum unit_kind kind, int32_t layer) {
    struct unit *unit = &s->units[s->n_units++];
    *unit = (struct unit){.kind = kind, .layer = layer};
    return unit;
}

// True for layers whose attention and FFN end with a norm.
static bool ends_with_norm(int32_t layer) { return layer % 4 == 3; }

// True for layers whose shared expert and routed ones have one norm of their sum, in models that
// have such layers.
static bool joins_norms(const struct shape *s, int32_t layer) {
    return s->has_joint_norms && layer % 4 == 1;
}

static void add_attention(struct shape *s, struct dice *dice, int32_t layer) {
    struct unit *unit = add_unit(s, UNIT_ATTENTION, layer);
    unit->n_heads = s->n_heads;
    unit->n_kv_heads = s->n_kv_heads;
    unit->head_dim_k = unit->head_dim_v = s->head_dim;
    if (dice_chance(dice, 0.15)) unit->window = 1 << dice_int(dice, 7, 10);
    if (dice_chance(dice, 0.1)) {
        unit->n_kv_heads = 0;
        unit->state_bytes = (uint64_t)dice_int(dice, 1, 100) * 4096;
    }
    const int32_t q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    add_tensor(unit, ROLE_ATTN_NORM, DTYPE_F32, s->n_embd, 1);
    add_tensor(unit, ROLE_ATTN_Q, any_type(dice), s->n_embd, q);
    add_tensor(unit, ROLE_ATTN_K, any_type(dice), s->n_embd, kv);
    add_tensor(unit, ROLE_ATTN_V, any_type(dice), s->n_embd, kv);
    add_tensor(unit, ROLE_ATTN_OUTPUT, any_type(dice), q, s->n_embd);
    if (ends_with_norm(layer)) add_tensor(unit, ROLE_ATTN_POST_NORM, DTYPE_F32, s->n_embd, 1);
}

static void add_ffn(struct shape *s, struct dice *dice, int32_t layer, int32_t n_ff) {
    struct unit *unit = add_unit(s, UNIT_FFN, layer);
    const enum dtype type = any_type(dice);
    unit->joint_norm = joins_norms(s, layer);
    add_tensor(unit, ROLE_FFN_NORM, DTYPE_F32, s->n_embd, 1);
    add_tensor(unit, ROLE_FFN_GATE, type, s->n_embd, n_ff);
    add_tensor(unit, ROLE_FFN_UP, type, s->n_embd, n_ff);
    add_tensor(unit, ROLE_FFN_DOWN, any_type(dice), n_ff, s->n_embd);
    if (ends_with_norm(layer)) add_tensor(unit, ROLE_FFN_POST_NORM, DTYPE_F32, s->n_embd, 1);
}

static void add_experts(struct shape *s, struct dice *dice, int32_t layer) {
    struct unit *unit = add_unit(s, UNIT_EXPERTS, layer);
    unit->n_experts = s->n_experts;
    unit->n_experts_used = s->n_experts_used;
    unit->n_ff_expert = s->n_ff_expert;
    const enum dtype type = any_type(dice);
    unit->joint_norm = joins_norms(s, layer);
    if (unit->joint_norm || !unit_reads_normed(s, s->n_units - 1))
        add_tensor(unit, ROLE_FFN_NORM, DTYPE_F32, s->n_embd, 1);
    add_tensor(unit, ROLE_ROUTER, DTYPE_F32, s->n_embd, s->n_experts);
    add_tensor(unit, ROLE_EXPERT_GATE, type, s->n_embd, s->n_ff_expert);
    add_tensor(unit, ROLE_EXPERT_UP, type, s->n_embd, s->n_ff_expert);
    add_tensor(unit, ROLE_EXPERT_DOWN, any_type(dice), s->n_ff_expert, s->n_embd);
    if (unit->joint_norm) add_tensor(unit, ROLE_FFN_POST_NORM, DTYPE_F32, s->n_embd, 1);
}

static void invent_widths(struct shape *s, struct dice *dice, enum invent_family family) {
    s->head_dim = s->n_rot = s->n_local_rot = dice_chance(dice, 0.5) ? 64 : 128;
    s->n_embd = 256 * dice_int(dice, 2, 24);
    s->n_heads = s->n_embd / s->head_dim;
    s->n_kv_heads = s->n_heads / (dice_chance(dice, 0.3) ? 1 : 4);
    s->n_vocab = dice_int(dice, 8, 200) * 1000;
    s->n_ctx_train = 1 << dice_int(dice, 11, 17);
    if (family != INVENT_EXPERTS) s->n_ff = 256 * dice_int(dice, 4, 64);
    if (family == INVENT_DENSE) return;
    s->n_experts = 1 << dice_int(dice, 2, 8);
    s->n_experts_used = dice_int(dice, 1, s->n_experts < 8 ? s->n_experts : 8);
    s->n_ff_expert = 256 * dice_int(dice, 1, 16);
}

void invent_shape(struct shape *out, struct dice *dice, enum invent_family family,
                  int32_t n_layers) {
    struct shape *s = out;
    memset(s, 0, offsetof(struct shape, units)); // add_unit() clears each unit
    snprintf(s->name, sizeof s->name, "invented");
    snprintf(s->architecture, sizeof s->architecture, "llama");
    s->n_layers = n_layers;
    s->can_run = dice_chance(dice, 0.5);
    invent_widths(s, dice, family);
    struct dice copy = *dice; // so that no other number depends on this one
    s->has_joint_norms = family == INVENT_BOTH && n_layers > 1 && dice_chance(&copy, 0.5);
    struct unit *embed = add_unit(s, UNIT_EMBED, -1);
    const enum dtype type = any_type(dice);
    add_tensor(embed, ROLE_TOKEN_EMBED, type, s->n_embd, s->n_vocab);
    for (int32_t layer = 0; layer < n_layers; layer++) {
        add_attention(s, dice, layer);
        if (family != INVENT_EXPERTS) add_ffn(s, dice, layer, s->n_ff);
        if (family != INVENT_DENSE) add_experts(s, dice, layer);
    }
    struct unit *head = add_unit(s, UNIT_HEAD, -1);
    head->shares_embed = dice_chance(dice, 0.4);
    add_tensor(head, ROLE_OUTPUT, head->shares_embed ? type : any_type(dice), s->n_embd,
               s->n_vocab);
    add_tensor(head, ROLE_OUTPUT_NORM, DTYPE_F32, s->n_embd, 1);
}

void invent_small_shape(struct shape *out, struct dice *dice, int32_t max_units) {
    const enum invent_family family = (enum invent_family)dice_int(dice, 0, 2);
    const int32_t per_layer = family == INVENT_BOTH ? 3 : 2;
    invent_shape(out, dice, family, dice_int(dice, 1, (max_units - 2) / per_layer));
}

// ---- Machines -----------------------------------------------------------------------------------

// Rates of a device that reads memory_gbps and computes gflops on quantised weights.
static void invent_rates(struct device_rates *r, struct dice *dice, double memory_gbps,
                         double gflops) {
    r->memory_gbps = memory_gbps;
    r->vector_gbps = memory_gbps * dice_real(dice, 0.3, 0.9);
    r->op_us = dice_scale(dice, 0.5, 10);
    r->pass_us = dice_scale(dice, 1, 100);
    r->start_us = r->op_us / 2;
    // A type that is added to weights.def or kv_types.def changes no other number: it draws from a
    // copy.
    enum { FIRST_TYPES = 15, FIRST_KV_TYPES = 3 };
    struct dice copy = *dice;
    for (int t = 0; t < WEIGHT_COUNT; t++) {
        struct dice *drawn = t < FIRST_TYPES ? dice : &copy;
        const struct dtype_info *info = dtype_find((uint32_t)weight_dtype((enum weight_type)t));
        const double per_byte = (double)info->block_elements / info->block_bytes;
        const double read_gbps = memory_gbps * dice_real(drawn, 0.5, 0.95);
        const double type_gflops = gflops * dice_real(drawn, 0.5, 1);
        for (int c = 0; c < RATE_CLASSES; c++) {
            const double compute_gbps = type_gflops / (2 * RATE_TOKENS[c] * per_byte);
            r->weight_gbps[t][c] = 1 / (1 / read_gbps + 1 / compute_gbps);
        }
    }
    for (int t = 0; t < KV_TYPES; t++) {
        struct dice *drawn = t < FIRST_KV_TYPES ? dice : &copy;
        for (int c = 0; c < RATE_CLASSES; c++)
            r->attention_gflops[t][c] = gflops * dice_real(drawn, 0.02, 0.3);
    }
}

static uint64_t all_bytes(const struct shape *shape) {
    uint64_t sum = 0;
    for (int u = 0; u < shape->n_units; u++) {
        for (int i = 0; i < shape->units[u].n_tensors; i++)
            sum += shape->units[u].tensors[i].size_bytes;
    }
    return sum;
}

void invent_machine(struct machine *out, struct dice *dice, const struct shape *shape) {
    struct machine *m = out;
    memset(m, 0, sizeof *m);
    snprintf(m->name, sizeof m->name, "invented");
    m->rates = RATES_FILE;
    m->n_devices = 2;
    m->n_cores = m->n_threads = dice_int(dice, 2, 16);
    struct machine_device *cpu = &m->devices[0], *gpu = &m->devices[1];
    const double model_bytes = (double)all_bytes(shape);
    const double cpu_gbps = dice_scale(dice, 8, 120);
    snprintf(cpu->name, sizeof cpu->name, "a cpu");
    snprintf(cpu->kind, sizeof cpu->kind, "cpu");
    cpu->is_host = true;
    cpu->align_bytes = 64;
    cpu->n_lanes = m->n_cores;
    cpu->budget_bytes = (uint64_t)(model_bytes * dice_real(dice, 0.3, 2.5));
    cpu->capacity_bytes = 2 * cpu->budget_bytes;
    invent_rates(&cpu->rates, dice, cpu_gbps, dice_scale(dice, 50, 3000));
    if (dice_chance(dice, 0.4)) cpu->rates.cache_bytes = (uint64_t)dice_scale(dice, 1e6, 4e9);
    cpu->rates.cache_factor = dice_scale(dice, 1, 5);
    if (cpu->rates.cache_bytes % 4) // else all is kept or nothing
        cpu->rates.cache_quarter_bytes =
            (uint64_t)((double)cpu->rates.cache_bytes * cpu->rates.cache_factor);
    m->dram_gbps = cpu_gbps * dice_real(dice, 0.9, 1.3);
    snprintf(gpu->name, sizeof gpu->name, "a gpu");
    snprintf(gpu->kind, sizeof gpu->kind, "sim");
    gpu->align_bytes = 256;
    gpu->n_lanes = 1;
    gpu->unified = dice_chance(dice, 0.1);
    gpu->budget_bytes = (uint64_t)(model_bytes * dice_real(dice, 0.02, 1.4));
    gpu->capacity_bytes = 2 * gpu->budget_bytes;
    invent_rates(&gpu->rates, dice, dice_scale(dice, 20, 1000), dice_scale(dice, 200, 50000));
    gpu->rates.launch_us = gpu->rates.op_us / 3;
    gpu->link.to_gbps = dice_scale(dice, 0.5, 50);
    gpu->link.from_gbps = gpu->link.to_gbps * dice_real(dice, 0.8, 1.2);
    gpu->link.staged_to_gbps = gpu->link.to_gbps * dice_real(dice, 0.3, 1);
    gpu->link.latency_us = dice_scale(dice, 1, 100);
}

void invent_workload(struct workload *out, struct dice *dice, const struct shape *shape) {
    (void)shape;
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_Q8_0};
    *out = (struct workload){.n_ctx = 64 << dice_int(dice, 1, 9),
                             .n_sessions = dice_chance(dice, 0.8) ? 1 : dice_int(dice, 2, 4),
                             .max_logits = dice_chance(dice, 0.8) ? 1 : dice_int(dice, 2, 64),
                             .kv_type_k = types[dice_int(dice, 0, 2)],
                             .kv_type_v = types[dice_int(dice, 0, 2)]};
    if (dice_chance(dice, 0.3)) out->n_ubatch = 1 << dice_int(dice, 0, 10);
    out->n_prompt = dice_int(dice, 1, out->n_ctx / 2);
    out->n_gen = dice_int(dice, 1, out->n_ctx / 2 < 600 ? out->n_ctx / 2 : 600);
    if (out->n_prompt % 2) out->n_past = out->n_prompt / 2;
}

// ---- Ways ---------------------------------------------------------------------------------------

void invent_ways(struct constraints *out, struct dice *dice, const struct shape *shape) {
    const double stays = dice_real(dice, 0.3, 1), splits = dice_real(dice, -0.3, 1),
                 streams = dice_real(dice, -0.3, 1);
    *out = (struct constraints){
        .gpu_layers = GPU_LAYERS_AUTO, .has_units = true, .has_placement = true};
    out->place.feed = (enum feed)dice_int(dice, FEED_ARENA, FEED_STAGED);
    int8_t device = (int8_t)dice_int(dice, 0, 1);
    for (int u = 0; u < shape->n_units; u++) {
        const struct unit *unit = &shape->units[u];
        if (!dice_chance(dice, stays)) device = (int8_t)(1 - device);
        out->place.units[u].device = device;
        if (unit_can_split(unit) && dice_chance(dice, splits)) {
            out->place.units[u].device = 1;
            out->place.units[u].cpu_parts = (uint8_t)dice_int(dice, 1, UNIT_PARTS - 1);
        }
        const bool on_cpu = out->place.units[u].device == 0 || out->place.units[u].cpu_parts;
        out->place.units[u].streamed =
            unit_can_stream(unit) && on_cpu && dice_chance(dice, streams);
    }
}
