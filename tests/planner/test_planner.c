/* test_planner.c: footprint, placement, limits, step lists, costs and their simulation, on invented
 * machines and shapes. */
#include "tests/lib/pair.h"
#include "planner/plan/schedule.h"
#include "planner/planner.h"

#include "base/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t MIB = 1 << 20;

static void assert_near(double actual, double expected) {
    if (fabs(actual - expected) > 1e-9 * fabs(expected))
        fail_msg("%.12g is not %.12g", actual, expected);
}

static void invent_shape(struct shape *s, int32_t n_layers, bool tied) {
    memset(s, 0, sizeof *s);
    strcpy(s->name, "invented");
    strcpy(s->architecture, "llama");
    s->n_layers = n_layers;
    s->n_embd = 512;
    s->n_heads = 8;
    s->n_kv_heads = 2;
    s->head_dim = s->n_rot = s->n_local_rot = 64;
    s->n_ff = 1536;
    s->n_vocab = 1000;
    s->n_ctx_train = 2048;
    s->n_units = 2 * n_layers + 2;
    for (int u = 0; u < s->n_units; u++) {
        struct unit *unit = &s->units[u];
        unit->n_heads = 8;
        unit->n_kv_heads = 2;
        unit->head_dim_k = unit->head_dim_v = 64;
        unit->kind = u == 0                ? UNIT_EMBED
                     : u + 1 == s->n_units ? UNIT_HEAD
                     : u % 2               ? UNIT_ATTENTION
                                           : UNIT_FFN;
        unit->layer = u == 0 || u + 1 == s->n_units ? -1 : (u - 1) / 2;
        unit->n_tensors = unit->kind == UNIT_EMBED ? 1 : unit->kind == UNIT_FFN ? 4 : 2;
        unit->shares_embed = unit->kind == UNIT_HEAD && tied;
        for (int i = 0; i < unit->n_tensors; i++)
            unit->tensors[i].size_bytes = 1000001 + 1000u * (unsigned)u;
        if (unit->shares_embed) unit->tensors[0].size_bytes = s->units[0].tensors[0].size_bytes;
    }
}

// Half of each memory is taken by others.
static struct machine invent_machine(uint64_t ram, uint64_t vram) {
    struct machine m = {.rates = RATES_NONE, .n_devices = vram ? 2 : 1};
    m.devices[0] = (struct machine_device){.name = "a cpu",
                                           .kind = "cpu",
                                           .capacity_bytes = 2 * ram,
                                           .budget_bytes = ram,
                                           .align_bytes = 64,
                                           .n_lanes = 4,
                                           .is_host = true};
    m.devices[1] = (struct machine_device){.name = "a gpu",
                                           .kind = "sim",
                                           .capacity_bytes = 2 * vram,
                                           .budget_bytes = vram,
                                           .align_bytes = 256,
                                           .n_lanes = 1};
    return m;
}

struct fixture {
    struct shape shape;
    struct plan plan;
};

static int setup(void **state) {
    *state = mem_alloc(1, sizeof(struct fixture));
    return *state ? 0 : -1;
}

static int teardown(void **state) {
    mem_free(*state);
    return 0;
}

static enum status solve(struct fixture *f, const struct machine *m, int32_t gpu_layers,
                         struct err *e) {
    struct workload w = {
        .kv_type_k = DTYPE_F16, .kv_type_v = DTYPE_F16, .n_ctx = 512, .n_ubatch = 64};
    struct constraints c = {.gpu_layers = gpu_layers};
    return planner_solve(&f->plan, &f->shape, m, &w, &c, e);
}

static uint64_t total(const struct plan *p, int d) {
    uint64_t sum = 0;
    for (int i = 0; i < PLAN_PURPOSES; i++) sum += p->devices[d].bytes[i];
    return sum;
}

static void test_cpu_only(void **state) {
    struct fixture *f = *state;
    struct err e;
    invent_shape(&f->shape, 4, true);
    struct machine m = invent_machine(1000 * MIB, 0);
    assert_int_equal(solve(f, &m, GPU_LAYERS_AUTO, &e), OK);
    uint64_t weights = 0;
    for (int u = 0; u < f->shape.n_units; u++) {
        for (int i = 0; i < f->shape.units[u].n_tensors; i++)
            weights += round_up(f->shape.units[u].tensors[i].size_bytes, 64);
    }
    // The head shares the embedding.
    weights -= round_up(f->shape.units[0].tensors[0].size_bytes, 64);
    assert_int_equal(f->plan.devices[0].bytes[PLAN_WEIGHTS], weights);
    // 512 positions are 8 pages of 64; K and V of 2 heads of 64 halves; 4 layers.
    assert_int_equal(f->plan.devices[0].bytes[PLAN_KV], 4 * 2 * 512 * 128 * 2);
    assert_int_equal(f->plan.n_steps[BATCH_ONE], f->shape.n_units);
    assert_int_equal(plan_layers_on_gpu(&f->plan, &f->shape), 0);
    assert_int_equal(solve(f, &m, 2, &e), ERR_USAGE);
    assert_non_null(strstr(e.fix, "--device"));
}

// Every number of layers: the steps cross twice at most, the bytes are those of the units, the head
// counts as one.
static void test_gpu_layers(void **state) {
    struct fixture *f = *state;
    struct err e;
    invent_shape(&f->shape, 5, false);
    struct machine m = invent_machine(1000 * MIB, 1000 * MIB);
    for (int32_t n = 0; n <= 7; n++) {
        assert_int_equal(solve(f, &m, n, &e), OK);
        int32_t expected = n < 6 ? n : 6;
        assert_int_equal(plan_layers_on_gpu(&f->plan, &f->shape), expected);
        assert_int_equal(f->plan.place.units[0].device, 0);
        // Nothing of a unit is a multiple of the CPU's 64 or of the accelerator's 256 bytes.
        uint64_t weights[2] = {0};
        for (int u = 0; u < f->shape.n_units; u++) {
            const struct unit *unit = &f->shape.units[u];
            const int d = f->plan.place.units[u].device;
            for (int i = 0; i < unit->n_tensors; i++)
                weights[d] += round_up(unit->tensors[i].size_bytes, d ? 256 : 64);
        }
        for (int d = 0; d < 2; d++)
            assert_int_equal(f->plan.devices[d].bytes[PLAN_WEIGHTS], weights[d]);
        int sends = 0, waits = 0, computes = 0, logits = 0, inputs = 0;
        for (int i = 0; i < f->plan.n_steps[BATCH_PREFILL]; i++) {
            const struct step *s = &f->plan.steps[BATCH_PREFILL][i];
            sends += s->kind == STEP_SEND;
            waits += s->kind == STEP_WAIT;
            computes += s->kind == STEP_COMPUTE;
            logits += s->kind == STEP_LOGITS;
            inputs += s->kind == STEP_INPUTS;
        }
        assert_int_equal(computes, f->shape.n_units);
        assert_int_equal(sends, n > 0);
        assert_int_equal(waits, n > 0);
        assert_int_equal(logits, n > 0);
        assert_int_equal(inputs, n > 0);
        struct simulation sim;
        const struct pass pass = {3, 1, 0};
        plan_simulate(&f->plan, &f->shape, &pass, &sim);
        assert_int_equal(sim.copied_bytes,
                         n ? f->plan.tables.size_bytes + 3 * 512 * 4 + 1000 * 4 : 0);
        assert_int_equal(n == 0, total(&f->plan, 1) == 0);
    }
}

// The automatic plan takes as many units as fit, and one byte less of memory takes one unit less at
// most.
static void test_auto_fills(void **state) {
    struct fixture *f = *state;
    struct err e;
    invent_shape(&f->shape, 6, true);
    int32_t last = -1;
    for (uint64_t vram = 0x10000; vram < 64 * MIB; vram += 777777) {
        struct machine m = invent_machine(1000 * MIB, vram);
        assert_int_equal(solve(f, &m, GPU_LAYERS_AUTO, &e), OK);
        assert_true(total(&f->plan, 1) <= vram);
        int32_t units = 0;
        for (int u = 0; u < f->plan.n_units; u++) units += f->plan.place.units[u].device;
        assert_true(units >= last);
        last = units;
        if (!units || units == f->plan.n_units) continue;
        const uint64_t need = total(&f->plan, 1);
        m.devices[1].budget_bytes = need;
        assert_int_equal(solve(f, &m, GPU_LAYERS_AUTO, &e), OK);
        assert_int_equal(total(&f->plan, 1), need);
        m.devices[1].budget_bytes = need - 1;
        assert_int_equal(solve(f, &m, GPU_LAYERS_AUTO, &e), OK);
        assert_true(total(&f->plan, 1) < need);
    }
    assert_int_equal(last, f->shape.n_units);
}

// --vram lowers what the accelerator says is free and cannot raise it, --ram does both.
static void test_given_limits(void **state) {
    struct fixture *f = *state;
    struct err e;
    invent_shape(&f->shape, 6, true);
    const struct workload w = {.n_ctx = 512, .n_ubatch = 64};
    const uint64_t free_bytes = 12 * MIB;
    const uint64_t vram[] = {
        0,         free_bytes / 2, free_bytes, free_bytes + 1, 3 * free_bytes / 2, 2 * free_bytes,
        1000 * MIB};
    struct machine m = invent_machine(1000 * MIB, free_bytes);
    uint64_t used[7];
    for (int i = 0; i < 7; i++) {
        const struct constraints c = {.gpu_layers = GPU_LAYERS_AUTO, .vram_bytes = vram[i]};
        assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), OK);
        used[i] = total(&f->plan, 1);
    }
    assert_true(used[0] > free_bytes / 2 && used[0] <= free_bytes);
    assert_true(used[1] > 0 && used[1] <= free_bytes / 2);
    for (int i = 2; i < 7; i++) assert_int_equal(used[i], used[0]);
    m = invent_machine(4 * MIB, 0);
    const uint64_t ram[] = {0, 6 * MIB, 1000 * MIB};
    for (int i = 0; i < 3; i++) {
        const struct constraints c = {.ram_bytes = ram[i]};
        assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e),
                         i < 2 ? ERR_MEMORY : OK);
    }
}

static void test_refusals(void **state) {
    struct fixture *f = *state;
    struct err e;
    invent_shape(&f->shape, 6, false);
    struct machine m = invent_machine(1000 * MIB, 12 * MIB);
    assert_int_equal(solve(f, &m, GPU_LAYERS_ALL, &e), ERR_MEMORY);
    assert_non_null(strstr(e.what, "a gpu"));
    int fitting = -1;
    assert_int_equal(sscanf(e.fix, "-ngl %d fits", &fitting), 1);
    assert_non_null(strstr(e.fix, "-ngl auto"));
    assert_int_equal(solve(f, &m, GPU_LAYERS_AUTO, &e), OK);
    assert_int_equal(solve(f, &m, fitting, &e), OK);
    assert_int_equal(solve(f, &m, fitting + 1, &e), ERR_MEMORY);
    m = invent_machine(4 * MIB, 0);
    assert_int_equal(solve(f, &m, 0, &e), ERR_MEMORY);
    assert_non_null(strstr(e.what, "a cpu"));
    unsigned long long ram_mib = 0;
    const char *raise = strstr(e.fix, "--ram to ");
    assert_non_null(raise);
    assert_int_equal(sscanf(raise, "--ram to %lluM", &ram_mib), 1);
    m = invent_machine((ram_mib - 1) * MIB, 0);
    assert_int_equal(solve(f, &m, 0, &e), ERR_MEMORY);
    m = invent_machine(ram_mib * MIB, 0);
    assert_int_equal(solve(f, &m, 0, &e), OK);
    // Layers that leave an accelerator which is too small find no room on the CPU either, also
    // where the planner chooses them.
    m = invent_machine(4 * MIB, 2 * MIB);
    assert_int_equal(solve(f, &m, GPU_LAYERS_AUTO, &e), ERR_MEMORY);
    assert_int_equal(solve(f, &m, GPU_LAYERS_ALL, &e), ERR_MEMORY);
    assert_null(strstr(e.fix, "auto"));
    assert_int_equal(sscanf(e.fix, "-ngl %d fits if you raise --ram to %lluM", &fitting, &ram_mib),
                     2);
    assert_int_equal(solve(f, &m, fitting, &e), ERR_MEMORY);
    m = invent_machine(ram_mib * MIB, 2 * MIB);
    assert_int_equal(solve(f, &m, fitting, &e), OK);
}

// Layers that fit do so beside the units that -ot puts there; where these alone do not, no number
// of layers is named.
static void test_refusals_beside_patterns(void **state) {
    struct fixture *f = *state;
    struct err e;
    invent_shape(&f->shape, 6, false);
    const struct machine m = invent_machine(1000 * MIB, 12 * MIB);
    const struct workload w = {.n_ctx = 512, .n_ubatch = 64};
    for (int n_fixed = 2; n_fixed <= f->shape.n_units; n_fixed += f->shape.n_units - 2) {
        struct constraints c = {.gpu_layers = GPU_LAYERS_ALL, .has_units = true};
        for (int u = 0; u < f->shape.n_units; u++)
            c.place.units[u].device = u < n_fixed ? 1 : DEVICE_ANY;
        assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), ERR_MEMORY);
        const int found = sscanf(e.fix, "-ngl %d fits", &c.gpu_layers);
        assert_int_equal(found, n_fixed == 2);
        if (!found) continue;
        assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), OK);
        c.gpu_layers++;
        assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), ERR_MEMORY);
    }
}

// Where a control group or the shell limits the memory, --ram cannot help: its limit is to be
// raised, by just enough.
static void test_limits_to_raise(void **state) {
    static const char *const limits[][2] = {
        {"/sys/fs/cgroup/box/memory.max", "raise /sys/fs/cgroup/box/memory.max by "},
        {"RLIMIT_AS", "raise ulimit -v by "},
    };
    struct fixture *f = *state;
    struct err e;
    invent_shape(&f->shape, 6, false);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        for (int n_layers = 0; n_layers < 2; n_layers++) { // on an accelerator without room
            struct machine m = invent_machine(4 * MIB, n_layers ? 1 * MIB : 0);
            (void)snprintf(m.ram_limited_by, sizeof m.ram_limited_by, "%s", limits[i][0]);
            assert_int_equal(solve(f, &m, n_layers, &e), ERR_MEMORY);
            const char *raise = strstr(e.fix, limits[i][1]);
            assert_true(raise && !strstr(e.fix, "--ram"));
            const uint64_t by_mib = strtoull(raise + strlen(limits[i][1]), NULL, 10);
            assert_true(by_mib > 0);
            m.devices[HOST].budget_bytes = (4 + by_mib - 1) * MIB;
            assert_int_equal(solve(f, &m, 0, &e), ERR_MEMORY);
            m.devices[HOST].budget_bytes = (4 + by_mib) * MIB;
            assert_int_equal(solve(f, &m, 0, &e), OK);
            // --ram takes the place of that limit.
            const struct constraints low = {.ram_bytes = 4 * MIB};
            assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &f->plan.workload, &low, &e),
                             ERR_MEMORY);
            assert_non_null(strstr(e.fix, "raise --ram to "));
        }
    }
}

static void test_workload_ranges(void **state) {
    struct fixture *f = *state;
    struct err e;
    invent_shape(&f->shape, 1, false);
    struct machine m = invent_machine(1000 * MIB, 0);
    struct constraints c = {0};
    const struct workload bad[] = {{.n_ctx = -1},
                                   {.n_ctx = 1 << 25},
                                   {.n_ubatch = -5},
                                   {.n_sessions = 1000},
                                   {.n_ctx = 1 << 24, .n_sessions = 128},
                                   {.n_ctx = 1 << 24, .n_sessions = 256, .n_ubatch = 64},
                                   {.max_logits = -1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &bad[i], &c, &e), ERR_USAGE);
        assert_true(e.what[0] && e.expected[0] && e.actual[0]);
    }
}

// Blocks of a cache are 34 or 18 bytes for 32 elements, and no head may share one with the next.
static void test_quantised_cache(void **state) {
    struct fixture *f = *state;
    struct err e;
    invent_shape(&f->shape, 4, true);
    struct machine m = invent_machine(1000 * MIB, 0);
    struct constraints c = {0};
    struct workload w = {.kv_type_k = DTYPE_Q8_0, .kv_type_v = DTYPE_F16, .n_ctx = 512};
    assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), OK);
    assert_int_equal(f->plan.devices[0].bytes[PLAN_KV], 4 * 512 * (128 / 32 * 34 + 128 * 2));
    w.kv_type_v = DTYPE_Q4_0;
    assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), OK);
    assert_int_equal(f->plan.devices[0].bytes[PLAN_KV], 4 * 512 * (128 / 32 * (34 + 18)));
    w.kv_type_v = DTYPE_F16;
    for (int u = 0; u < f->shape.n_units; u++) f->shape.units[u].head_dim_v = 80;
    assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), ERR_USAGE);
    assert_non_null(strstr(e.what, "-ctk"));
    assert_string_equal(e.expected, "a multiple of 32");
    w.kv_type_k = DTYPE_F16, w.kv_type_v = DTYPE_Q8_0;
    assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), ERR_USAGE);
    assert_non_null(strstr(e.what, "-ctv"));
    w.kv_type_v = DTYPE_Q4_1;
    assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), ERR_USAGE);
    assert_string_equal(e.actual, "Q4_1");
}

enum { TOKENS = 33, LOGITS = 3, EMBD = 512, KEYS = 128, FF = 1536, VOCAB = 1000 };
enum { ATTENTION = 1 << UNIT_ATTENTION, FFN = 1 << UNIT_FFN, EXPERTS = 1 << UNIT_EXPERTS };
enum { HEAD = 1 << UNIT_HEAD, ALL = (1 << UNIT_KINDS) - 1 };

// The size of each area in elements, and the kinds of units that it lives for.
struct expected_area {
    enum area area;
    unsigned kinds;
    uint64_t n_elements;
};
static const struct expected_area EXPECTED[] = {
    {AREA_RESIDUAL, ALL, TOKENS *EMBD},
    {AREA_NORMED, ATTENTION | FFN | EXPERTS, TOKENS *EMBD},
    {AREA_FREQS, ATTENTION, 64 / 2},
    {AREA_ANGLES, ATTENTION, TOKENS * 64},
    {AREA_Q, ATTENTION, TOKENS *EMBD},
    {AREA_ATTENDED, ATTENTION, TOKENS *EMBD},
    {AREA_K, ATTENTION, TOKENS *KEYS},
    {AREA_V, ATTENTION, TOKENS *KEYS},
    {AREA_GATE, FFN, TOKENS *FF},
    {AREA_UP, FFN, TOKENS *FF},
    {AREA_GATE, EXPERTS, TOKENS * 2 * 256},
    {AREA_UP, EXPERTS, TOKENS * 2 * 256},
    {AREA_EXPERT_OUT, EXPERTS, TOKENS * 2 * EMBD},
    {AREA_ROUTER_LOGITS, EXPERTS, TOKENS * 8},
    {AREA_CHOSEN, EXPERTS, TOKENS * 2},
    {AREA_CHOSEN_WEIGHTS, EXPERTS, TOKENS * 2},
    {AREA_PAIR_ORDER, EXPERTS, TOKENS * 2},
    {AREA_PAIR_STARTS, EXPERTS, 9},
    {AREA_GATHERED, HEAD, LOGITS *EMBD},
    {AREA_LOGITS, HEAD, LOGITS *VOCAB},
};
enum { N_EXPECTED = sizeof EXPECTED / sizeof *EXPECTED };

static bool keeps(enum area area) {
    return area == AREA_RESIDUAL || area == AREA_FREQS || area == AREA_ANGLES ||
           area == AREA_LOGITS;
}

static void check_areas(const struct scratch_layout *s, unsigned kinds) {
    for (int i = 0; i < N_EXPECTED; i++) {
        const struct expected_area *one = &EXPECTED[i];
        const uint64_t end = s->at[one->area] + 4 * one->n_elements;
        if (!(one->kinds & kinds)) continue;
        assert_true(s->at[one->area] % 256 == 0 && end <= s->size_bytes);
        assert_true(keeps(one->area) || end <= s->at[AREA_MATMUL]);
        for (int j = 0; j < N_EXPECTED; j++) {
            const struct expected_area *other = &EXPECTED[j];
            if (other->area == one->area || !(other->kinds & kinds)) continue;
            if (!(one->kinds & other->kinds) && !keeps(one->area) && !keeps(other->area)) continue;
            const bool before = end <= s->at[other->area];
            const bool behind = s->at[other->area] + 4 * other->n_elements <= s->at[one->area];
            if (!before && !behind) fail_msg("areas %d and %d", one->area, other->area);
        }
    }
}

static const struct workload SCRATCH_WORKLOAD = {
    .n_ctx = 256, .n_ubatch = TOKENS, .n_sessions = 2, .max_logits = LOGITS};

// Areas that are in use at once never overlap, all lie inside, and others share bytes.
static void test_scratch_layout(void **state) {
    struct fixture *f = *state;
    invent_shape(&f->shape, 2, false);
    f->shape.n_experts = 8, f->shape.n_experts_used = 2, f->shape.n_ff_expert = 256;
    const struct machine m = invent_machine(1, 1);
    struct scratch_layout s, one;
    for (unsigned kinds = 0; kinds <= ALL; kinds++) {
        footprint_scratch(&f->shape, &SCRATCH_WORKLOAD, &m.devices[1], kinds, &s);
        if (!kinds) assert_int_equal(s.size_bytes, 0);
        check_areas(&s, kinds);
    }
    assert_int_equal(s.at[AREA_GATE], s.at[AREA_Q]); // of all kinds
    uint64_t sum = 0;
    for (int kind = 0; kind < UNIT_KINDS; kind++) {
        footprint_scratch(&f->shape, &SCRATCH_WORKLOAD, &m.devices[1], UINT32_C(1) << kind, &one);
        assert_true(one.size_bytes <= s.size_bytes);
        sum += one.size_bytes;
    }
    assert_true(s.size_bytes < sum);
}

// Scratch of the widest matmul of a model that has one unit of each kind.
static uint64_t product_bytes(const struct fixture *f, const struct machine_device *device) {
    struct scratch_layout s;
    footprint_scratch(&f->shape, &SCRATCH_WORKLOAD, device, ALL, &s);
    return s.size[AREA_MATMUL];
}

// Products with weights of BF16 may round activations to it, which takes more than bytes do.
static void test_scratch_of_bf16(void **state) {
    struct fixture *f = *state;
    const struct machine m = invent_machine(1, 1);
    const int32_t n_lanes = m.devices[1].n_lanes;
    invent_shape(&f->shape, 2, false);
    const uint64_t bytes = matmul_scratch_bytes(WEIGHT_Q8_0, FF, TOKENS, n_lanes);
    const uint64_t halves = matmul_scratch_bytes(WEIGHT_BF16, FF, TOKENS, n_lanes);
    assert_int_equal(halves, TOKENS * (2 * FF + 64));
    assert_int_equal(product_bytes(f, &m.devices[1]), bytes);
    struct unit *unit = &f->shape.units[2];
    assert_int_equal(unit->kind, UNIT_FFN);
    for (int i = 0; i < unit->n_tensors; i++) {
        struct unit_tensor *tensor = &unit->tensors[i];
        const bool multiplies = tensor->use == USE_MATRIX;
        const enum dtype type = tensor->type;
        tensor->type = DTYPE_BF16;
        assert_int_equal(product_bytes(f, &m.devices[1]), multiplies ? halves : bytes);
        tensor->type = type;
    }
}

// ---- Time ---------------------------------------------------------------------------------------

// A machine whose rates are round numbers: the CPU reads 10 GB/s and the accelerator 100 GB/s, with
// one token; 32 and 512 tokens take 2 and 16 times as long. The link carries 1 GB/s.
static struct machine round_machine(uint64_t ram, uint64_t vram) {
    struct machine m = invent_machine(ram, vram);
    m.rates = RATES_FILE;
    m.dram_gbps = 10;
    for (int d = 0; d < 2; d++) {
        struct device_rates *r = &m.devices[d].rates;
        const double gbps = d ? 100 : 10;
        for (int t = 0; t < WEIGHT_COUNT; t++) {
            for (int c = 0; c < RATE_CLASSES; c++)
                r->weight_gbps[t][c] = c < 4 ? gbps : c == 4 ? gbps / 2 : gbps / 16;
        }
        for (int t = 0; t < KV_TYPES; t++)
            for (int c = 0; c < RATE_CLASSES; c++) r->attention_gflops[t][c] = gbps;
        r->vector_gbps = r->memory_gbps = gbps;
        r->op_us = 1;
        r->pass_us = 5;
    }
    m.devices[1].link =
        (struct link_rates){.to_gbps = 1, .from_gbps = 2, .staged_to_gbps = 0.5, .latency_us = 10};
    return m;
}

static void set_tensor(struct unit *unit, int i, enum tensor_role role, int32_t n_cols,
                       int32_t n_rows) {
    struct unit_tensor *t = &unit->tensors[i];
    *t = (struct unit_tensor){.role = role, .n_cols = n_cols, .n_rows = n_rows, .n_matrices = 1};
    t->use = tensor_use_of(role);
    t->type = t->use == USE_VECTOR ? DTYPE_F32 : DTYPE_Q8_0;
    if (t->use == USE_EXPERTS) t->n_matrices = unit->n_experts;
    t->size_bytes =
        dtype_bytes(t->type, (uint64_t)n_cols * (uint64_t)n_rows) * (uint64_t)t->n_matrices;
    if (unit->n_tensors <= i) unit->n_tensors = i + 1;
}

// The invented shape with real tensors.
static void fill_shape(struct shape *s, int32_t n_layers, bool tied) {
    invent_shape(s, n_layers, tied);
    for (int u = 0; u < s->n_units; u++) {
        struct unit *unit = &s->units[u];
        unit->n_tensors = 0;
        if (unit->kind == UNIT_EMBED) set_tensor(unit, 0, ROLE_TOKEN_EMBED, 512, 1000);
        if (unit->kind == UNIT_HEAD) set_tensor(unit, 0, ROLE_OUTPUT, 512, 1000);
        if (unit->kind == UNIT_ATTENTION) {
            set_tensor(unit, 0, ROLE_ATTN_NORM, 512, 1);
            set_tensor(unit, 1, ROLE_ATTN_Q, 512, 512);
            set_tensor(unit, 2, ROLE_ATTN_K, 512, 128);
            set_tensor(unit, 3, ROLE_ATTN_V, 512, 128);
            set_tensor(unit, 4, ROLE_ATTN_OUTPUT, 512, 512);
        }
        if (unit->kind != UNIT_FFN) continue;
        set_tensor(unit, 0, ROLE_FFN_NORM, 512, 1);
        set_tensor(unit, 1, ROLE_FFN_GATE, 512, 1536);
        set_tensor(unit, 2, ROLE_FFN_UP, 512, 1536);
        set_tensor(unit, 3, ROLE_FFN_DOWN, 1536, 512);
    }
}

static const struct workload HALVES = {.kv_type_k = DTYPE_F16, .kv_type_v = DTYPE_F16};

static double host_us(const struct fixture *f, const struct unit *unit, const struct machine *m,
                      struct pass pass) {
    const struct cost_place at = {&f->shape, &m->devices[HOST], &HALVES, false};
    return cost_sum(cost_of_part(&at, unit, WHOLE_UNIT, &pass));
}

// Two matrices of 34 bytes for 32 elements, by hand.
static void test_cost_by_hand(void **state) {
    struct fixture *f = *state;
    fill_shape(&f->shape, 1, false);
    struct machine m = round_machine(1000 * MIB, 0);
    const struct unit *attention = &f->shape.units[1], *ffn = &f->shape.units[2];
    // Three matrices of 512 * 1536 / 32 * 34 = 835,584 bytes at 10,000 bytes per us; 8 bytes for
    // each of 3 * (512 + 1536) columns and rows and of 512 of the residual stream; norm 8 * 512 and
    // once 4 * 512, swiglu 12 * 1536; 5 ops of 1 us.
    struct pass pass = {1, 1, 0};
    const double weights = 3 * 835584 / 1e4, ends = 8 * (3 * 2048 + 512) / 1e4,
                 others = (8 * 512 + 12 * 1536) / 1e4, norm = 4 * 512 / 1e4;
    assert_near(host_us(f, ffn, &m, pass), weights + ends + others + norm + 5);
    // 20 tokens lie in the middle of 8 and 32: 1.5 times the time per byte. 1024 take twice 512.
    pass = (struct pass){20, 20, 0};
    assert_near(host_us(f, ffn, &m, pass), 1.5 * weights + 20 * (ends + others) + norm + 5);
    pass = (struct pass){1024, 1024, 0};
    assert_near(host_us(f, ffn, &m, pass), 32 * weights + 1024 * (ends + others) + norm + 5);
    // One token after 99 sees 100 keys: 2 * 100 * 8 * 128 flops at 10,000 per us, more than the
    // cache's 100 rows of 2 * 128 halves, and ten passes over the 512 floats of its queries.
    pass = (struct pass){1, 1, 99};
    const double bytes = (512 * 512 * 2 + 512 * 128 * 2) / 32 * 34,
                 edges = 8 * (2 * (512 + 512) + 2 * (512 + 128) + 512),
                 rest = 12 * 512 + 8 * (512 + 128) + 4 * 64 + 2 * 128 * 6 + 4 + 10 * 4 * 512;
    assert_near(host_us(f, attention, &m, pass),
                (bytes + edges + rest + 2 * 100 * 8 * 128) / 1e4 + 8);
    f->shape.units[1].window = 50; // and 50 keys take half of that
    assert_near(host_us(f, attention, &m, pass),
                (bytes + edges + rest + 50 * 2 * 8 * 128) / 1e4 + 8);
    // Four matrices and the cache lie elsewhere in memory than what was read before them.
    const double adjacent_us = host_us(f, attention, &m, pass);
    m.devices[HOST].rates.start_us = 3;
    assert_near(host_us(f, attention, &m, pass), adjacent_us + 5 * 3);
}

// The last FFN and the head compute the tokens alone whose logits are wanted; other units all.
static void test_cost_of_tail(void **state) {
    struct fixture *f = *state;
    fill_shape(&f->shape, 2, false);
    const struct machine m = round_machine(1000 * MIB, 0);
    const struct unit *ffns[] = {&f->shape.units[2], &f->shape.units[4]};
    const struct unit *attention = &f->shape.units[3], *head = &f->shape.units[5];
    const struct pass all = {512, 512, 0}, some = {512, 20, 0}, none = {512, 0, 0};
    const struct pass twenty = {20, 20, 0};
    assert_near(host_us(f, ffns[0], &m, none), host_us(f, ffns[0], &m, all));
    assert_near(host_us(f, ffns[1], &m, all), host_us(f, ffns[0], &m, all));
    assert_near(host_us(f, ffns[1], &m, some), host_us(f, ffns[0], &m, twenty));
    assert_near(host_us(f, head, &m, some), host_us(f, head, &m, twenty));
    assert_near(host_us(f, attention, &m, none), host_us(f, attention, &m, some));
    assert_true(host_us(f, ffns[1], &m, none) == 0 && host_us(f, head, &m, none) == 0);
}

static double attention_us(const struct fixture *f, const struct machine *m, double cached) {
    const struct pass pass = {1, 1, 99};
    const struct cost_place at = {&f->shape, &m->devices[HOST], &HALVES, cached};
    return cost_sum(cost_of_part(&at, &f->shape.units[1], WHOLE_UNIT, &pass));
}

// The CPU computes six queries of a KV head together; fewer take more than their part. Rates are
// those of four.
static void test_cost_of_queries(void **state) {
    struct fixture *f = *state;
    fill_shape(&f->shape, 1, false);
    const struct machine m = round_machine(1000 * MIB, 100 * MIB);
    struct unit *attention = &f->shape.units[1];
    attention->n_heads = 0; // then 100 rows of the cache are read all the same
    const double none_us = attention_us(f, &m, false) - 100 * 512 / 1e4;
    static const double like[] = {0, 4.5, 4.8, 5.1, 5.4, 5.7, 6, 10.5, 10.8, 11.1};
    for (int32_t n = 1; n < 10; n++) {
        attention->n_heads = n * attention->n_kv_heads;
        const double floats = 1.0 * attention->n_heads * attention->head_dim_k;
        const double once = 8 * floats + 10 * 4 * floats; // rope, and tiles, sums and results
        assert_near(attention_us(f, &m, false),
                    none_us +
                        (once + 2 * 100 * 128 * attention->n_kv_heads * like[n] * 4 / 5.4) / 1e4);
    }
}

// From the cache, what waits for memory passes in a fourth of its time: weights, keys and values.
static void test_cost_of_cached(void **state) {
    struct fixture *f = *state;
    fill_shape(&f->shape, 1, false);
    struct machine m = round_machine(1000 * MIB, 100 * MIB);
    struct device_rates *r = &m.devices[0].rates;
    r->memory_gbps = 20; // reads of weights wait for it half of their time
    r->cache_bytes = 100 * 512;
    const double plain_us = attention_us(f, &m, false);
    const double factors[] = {0, 0.5, 1};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        r->cache_factor = factors[i];
        assert_near(attention_us(f, &m, true), plain_us);
    }
    r->cache_factor = 4;
    double bytes = 100 * 512; // of the cache, less than its flops take
    for (int i = 0; i < f->shape.units[1].n_tensors; i++) {
        const struct unit_tensor *t = &f->shape.units[1].tensors[i];
        if (t->use == USE_MATRIX) bytes += (double)t->size_bytes;
    }
    assert_near(attention_us(f, &m, false), plain_us);
    assert_near(attention_us(f, &m, true), plain_us - 0.75 * bytes / 2e4);
    r->memory_gbps = 1; // then the cache's rows take all the time
    const double slow_us = attention_us(f, &m, false);
    assert_near(slow_us - attention_us(f, &m, true),
                0.75 * ((bytes - 100 * 512) / 1e4 + 100 * 512 / 1e3));
    r->cache_bytes--; // all keys and values do not fit: weights alone come from there
    assert_near(slow_us - attention_us(f, &m, true), 0.75 * (bytes - 100 * 512) / 1e4);
    assert_near(slow_us - attention_us(f, &m, 0.2), 0.2 * 0.75 * (bytes - 100 * 512) / 1e4);
    r->cache_bytes = 50 * 512; // of keys and values half are kept
    r->cache_quarter_bytes = 200 * 512;
    assert_near(slow_us - attention_us(f, &m, 0.2),
                0.2 * 0.75 * ((bytes - 100 * 512) / 1e4 + 0.5 * 100 * 512 / 1e3));
}

// Between the two measured sizes, and beyond them, the share falls with the logarithm of the size.
static void test_what_a_cache_keeps(void **state) {
    (void)state;
    struct device_rates r = {.cache_bytes = 1000, .cache_quarter_bytes = 4000};
    assert_near(cost_kept(&r, 1000), 0.75);
    assert_near(cost_kept(&r, 2000), 0.5);
    assert_near(cost_kept(&r, 4000), 0.25);
    assert_true(cost_kept(&r, 0) == 1 && cost_kept(&r, 499) == 1 && cost_kept(&r, 501) < 1);
    assert_true(cost_kept(&r, 7999) > 0 && cost_kept(&r, 8001) == 0);
    const uint64_t steps[] = {0, 1000};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        r.cache_quarter_bytes = steps[i];
        assert_true(cost_kept(&r, 1000) == 1 && cost_kept(&r, 1001) == 0);
    }
    r.cache_bytes = 0;
    assert_true(cost_kept(&r, 0) == 0);
}

// Passes read from the cache what they read on the CPU, if all of that fits.
static void test_cached_passes(void **state) {
    struct fixture *f = *state;
    struct err e;
    fill_shape(&f->shape, 2, false);
    struct machine m = round_machine(1000 * MIB, 100 * MIB);
    m.devices[0].rates.cache_factor = 2;
    m.devices[1].rates.cache_bytes = 100 * MIB; // counts for nothing
    m.devices[1].rates.cache_factor = 2;
    assert_true(cost_host_cached(&m, &(struct host_reads){0}).shared == 0); // it has no such cache
    assert_int_equal(solve(f, &m, 2, &e), OK);
    const struct pass pass = {1, 1, 0};
    struct simulation plain, cached;
    plan_simulate(&f->plan, &f->shape, &pass, &plain);
    uint64_t read_bytes = 0;
    for (int u = 0; u < f->shape.n_units; u++)
        if (f->plan.place.units[u].device == 0) read_bytes += f->plan.unit_read_bytes[u];
    assert_in_range(read_bytes, 1, plain.weight_bytes[0] + plain.weight_bytes[1] - 1);
    struct device_rates *r = &f->plan.machine.devices[0].rates;
    for (int more = 0; more < 2; more++) {
        r->cache_bytes = read_bytes - 1 + (uint64_t)more;
        assert_int_equal(cost_host_cached(&f->plan.machine, &f->plan.host_reads).experts, more);
        plan_simulate(&f->plan, &f->shape, &pass, &cached);
        assert_true(more ? cached.compute_us[0] < plain.compute_us[0]
                         : cached.compute_us[0] == plain.compute_us[0]);
        assert_true(cached.compute_us[1] == plain.compute_us[1]);
    }
    struct simulation half;
    r->cache_quarter_bytes = 4 * (r->cache_bytes = read_bytes / 2);
    plan_simulate(&f->plan, &f->shape, &pass, &half);
    assert_near(2 * half.compute_us[0], cached.compute_us[0] + plain.compute_us[0]);
}

// One token each of four sessions: the weights are read once, each session's 100 keys by itself.
// The prompts follow each other.
static void test_cost_of_sessions(void **state) {
    struct fixture *f = *state;
    fill_shape(&f->shape, 2, false);
    struct machine m = round_machine(1000 * MIB, 0);
    const struct unit *attention = &f->shape.units[1];
    const struct pass one = {1, 1, 99}, four = {4, 4, 99}, of_one = {4, 1, 99};
    const double ends = 8 * (2 * (512 + 512) + 2 * (512 + 128) + 512) + 12 * 512 - 4 * 512 +
                        8 * (512 + 128) + 4 * 64 + 2 * 128 * 6 + 4 + 10 * 4 * 512,
                 keys = 2 * 100 * 8 * 128;
    assert_near(host_us(f, attention, &m, four) - host_us(f, attention, &m, one),
                3 * (ends + keys) / 1e4);
    struct plan *p = &f->plan;
    struct workload w = {.n_sessions = 4, .max_logits = 4, .n_ctx = 256, .n_prompt = 8, .n_gen = 9};
    const struct constraints none = {0};
    struct err e;
    assert_int_equal(planner_solve(p, &f->shape, &m, &w, &none, &e), OK);
    struct sample samples[MAX_SAMPLES];
    assert_int_equal(workload_samples(&p->workload, &f->shape, 0, samples), 2);
    assert_true(samples[0].weight == 4 && samples[1].weight == 8);
    assert_int_equal(samples[1].pass.n_tokens, 4);
    struct prediction together, alone;
    plan_predict(p, &f->shape, &together);
    p->workload.max_logits = 1; // each call decodes one token
    plan_predict(p, &f->shape, &alone);
    assert_near(together.total_us, 4 * together.prompt_us + 8 * together.decode_us);
    assert_near(alone.prompt_us, together.prompt_us);
    assert_true(alone.decode_us > 1.5 * together.decode_us);
    m.devices[HOST].rates.memory_gbps = 0.1; // four times 100 keys of 512 bytes beside 101.5
    assert_near(host_us(f, attention, &m, four) - host_us(f, attention, &m, of_one),
                (4 * 100 - 101.5) * 512 / 100);
}

// Two tokens with 2 of 4 experts each choose 4 * (1 - 1/4) = 3 of them if they are independent.
static void test_cost_of_experts(void **state) {
    struct fixture *f = *state;
    fill_shape(&f->shape, 2, false);
    struct machine m = round_machine(1000 * MIB, 0);
    struct unit unit = {
        .kind = UNIT_EXPERTS, .n_experts = 4, .n_experts_used = 2, .n_ff_expert = 256};
    set_tensor(&unit, 0, ROLE_EXPERT_GATE, 512, 256);
    struct pass pass = {2, 1, 0};
    const double matrix = 512 * 256 / 32 * 34, pairs = 4;
    // Its experts' slots, starts and order lie beside x; route writes experts, weights, order and
    // starts, and combine reads experts and weights.
    const double ends = 2 * (4 * 2 * 512 + 4 * (4 + 5 + pairs) + 4 * pairs * 256),
                 route = 4 * 2 * 4 + 4 * (3 * pairs + 5), swiglu = 12 * pairs * 256,
                 combine = (pairs + 4) * 2048 + 8 * pairs;
    const double us = (3 * matrix + ends + route + swiglu + combine) / 1e4;
    struct workload w = HALVES;
    w.expert_exponent = 1;
    const struct cost_place at = {&f->shape, &m.devices[HOST], &w, false};
    assert_near(cost_sum(cost_of_part(&at, &unit, WHOLE_UNIT, &pass)), us + 4);
    // With the exponent 0.5 two count as 1.41. Those of two sequences are independent.
    w.expert_exponent = 0.5;
    const double fewer = 3 - 4 * (1 - pow(0.5, sqrt(2)));
    const double fewer_us = us - fewer * matrix / 1e4 + 4; // weights count in whole bytes
    assert_true(fabs(cost_sum(cost_of_part(&at, &unit, WHOLE_UNIT, &pass)) - fewer_us) < 1e-3);
    pass.n_logits = 2;
    assert_near(host_us(f, &unit, &m, pass), us + 4);
    // Without a shared expert before it there is a norm.
    set_tensor(&unit, 1, ROLE_FFN_NORM, 512, 1);
    const double all_us = us + 5 + 5 * 2048 / 1e4;
    assert_near(host_us(f, &unit, &m, pass), all_us);
    // Each of the three matrices begins elsewhere in memory than the one before it.
    m.devices[HOST].rates.start_us = 3;
    assert_near(host_us(f, &unit, &m, pass), all_us + 3 * 3);
}

// Steps follow each other as the streams do; a slower link takes longer.
static void test_walk(void **state) {
    struct fixture *f = *state;
    struct err e;
    fill_shape(&f->shape, 4, false);
    struct machine m = round_machine(1000 * MIB, 1000 * MIB);
    assert_int_equal(solve(f, &m, 2, &e), OK);
    const struct pass pass = {3, 1, 0};
    struct simulation sim;
    plan_simulate(&f->plan, &f->shape, &pass, &sim);
    struct step_times times[64];
    plan_step_times(&f->plan, &f->shape, &pass, times);
    double last_us = 0, in_us = 0;
    for (int i = 0; i < sim.n_steps; i++) {
        const struct step *step = &f->plan.steps[BATCH_SMALL][i];
        assert_true(times[i].last_us >= times[i].first_us);
        if (step->kind == STEP_INPUTS)
            in_us = times[i].last_us;
        else if (step->kind != STEP_WAIT) // waits begin when there is nothing else to do
            assert_true(times[i].first_us >= last_us - 1e-9);
        if (step->kind == STEP_SEND)
            assert_near(times[i].last_us - times[i].first_us, 10 + 3 * 2048 / 1e3);
        if (step->kind == STEP_LOGITS)
            assert_near(times[i].last_us - times[i].first_us, 10 + 4000 / 2e3);
        if (step->kind != STEP_INPUTS) last_us = times[i].last_us;
    }
    // Two devices start; the tables are copied meanwhile.
    assert_near(times[0].first_us, 10);
    assert_near(in_us, 20 + (double)f->plan.tables.size_bytes / 1e3);
    assert_near(sim.total_us, last_us);
    f->plan.machine.devices[1].link.to_gbps /= 2;
    struct simulation slower;
    plan_simulate(&f->plan, &f->shape, &pass, &slower);
    assert_true(slower.total_us > sim.total_us);
    struct prediction p;
    plan_predict(&f->plan, &f->shape, &p);
    assert_true(p.prompt_us > 0 && p.decode_us > 0);
    assert_near(p.total_us, p.prompt_us + (f->plan.workload.n_gen - 1) * p.decode_us);
    assert_true(p.decode.devices[0] > 0 && p.decode.devices[1] > 0 && p.decode.copies > 0);
    assert_true(p.decode.devices[0] + p.decode.devices[1] < 1);
}

// Fixed units stay in their place; the planner places the others.
static void test_constraints(void **state) {
    struct fixture *f = *state;
    struct err e;
    fill_shape(&f->shape, 4, false);
    f->shape.can_run = false;
    for (int u = 2; u < 9; u += 2) {
        struct unit *unit = &f->shape.units[u];
        *unit = (struct unit){.kind = UNIT_EXPERTS,
                              .layer = unit->layer,
                              .n_experts = 8,
                              .n_experts_used = 2,
                              .n_ff_expert = 256};
        set_tensor(unit, 0, ROLE_EXPERT_GATE, 512, 512);
        set_tensor(unit, 1, ROLE_EXPERT_UP, 512, 512);
        set_tensor(unit, 2, ROLE_EXPERT_DOWN, 256, 512);
    }
    f->shape.n_experts = 8, f->shape.n_experts_used = 2, f->shape.n_ff_expert = 256;
    const struct machine m = round_machine(1000 * MIB, 1000 * MIB);
    struct workload w = {.kv_type_k = DTYPE_F16, .kv_type_v = DTYPE_F16, .n_ctx = 512};
    struct constraints c = {
        .gpu_layers = GPU_LAYERS_AUTO, .cpu_experts = CPU_EXPERTS_ALL, .kv_auto = true};
    assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), OK);
    for (int u = 2; u < 9; u += 2) assert_int_equal(f->plan.place.units[u].device, 0);
    assert_int_equal(f->plan.place.units[9].device, 1);
    c.cpu_experts = 3; // of the first layers; there is room for all others
    assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), OK);
    for (int u = 2; u < 9; u += 2) assert_int_equal(f->plan.place.units[u].device, u / 2 > 3);
    assert_true(f->plan.workload.n_ubatch >= 64 && f->plan.workload.n_ubatch <= 512);
    c.has_units = true;
    for (int u = 0; u < f->shape.n_units; u++)
        c.place.units[u].device = (int8_t)(u % 3 ? DEVICE_ANY : u / 3 % 2);
    assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), OK);
    for (int u = 0; u < f->shape.n_units; u += 3)
        assert_int_equal(f->plan.place.units[u].device, u / 3 % 2);
    c.place.units[0].device = 2;
    assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), ERR_USAGE);
}

// Rows of a window and a micro-batch, and the state of a recurrent block.
static void test_windows(void **state) {
    struct fixture *f = *state;
    fill_shape(&f->shape, 1, false);
    const struct machine m = invent_machine(1, 1);
    struct workload w = {.kv_type_k = DTYPE_F16,
                         .kv_type_v = DTYPE_F16,
                         .n_ctx = 4096,
                         .n_ubatch = 64,
                         .n_sessions = 2,
                         .window = 128};
    struct unit *unit = &f->shape.units[1];
    assert_int_equal(footprint_unit_kv(unit, &w, &m.devices[0]), 2 * 8192 * 256);
    unit->window = 128;
    assert_int_equal(footprint_unit_kv(unit, &w, &m.devices[0]), 2 * 2 * 192 * 256);
    w.full_windows = true;
    assert_int_equal(footprint_unit_kv(unit, &w, &m.devices[0]), 2 * 8192 * 256);
    w.full_windows = false;
    w.n_ctx = 150;
    assert_int_equal(footprint_unit_kv(unit, &w, &m.devices[0]), 2 * 2 * 192 * 256);
    w.n_ctx = 128;
    assert_int_equal(footprint_unit_kv(unit, &w, &m.devices[0]), 2 * 2 * 128 * 256);
    unit->n_kv_heads = 0;
    unit->state_bytes = 1000;
    assert_int_equal(footprint_unit_kv(unit, &w, &m.devices[0]),
                     round_up(2 * STATE_SLOTS * 1000, 64));
    assert_int_equal(footprint_unit_kv(&f->shape.units[0], &w, &m.devices[0]), 0);
}

static void test_advice(void **state) {
    struct fixture *f = *state;
    struct err e;
    fill_shape(&f->shape, 4, false);
    const struct machine m = round_machine(1000 * MIB, 6 * MIB);
    const struct workload w = {.kv_type_k = DTYPE_F16, .kv_type_v = DTYPE_F16, .n_ctx = 2048};
    const struct constraints c = {.gpu_layers = GPU_LAYERS_AUTO};
    assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), OK);
    struct prediction now;
    plan_predict(&f->plan, &f->shape, &now);
    struct advice_result advice[ADVICES];
    assert_int_equal(planner_advise(&f->plan, &f->shape, &c, 0, advice, &e), OK);
    for (int i = 0; i < ADVICES; i++) {
        // There is RAM to spare, and no -ngl.
        assert_int_equal(advice[i].exists, i != ADVICE_RAM && i != ADVICE_LAYERS_AUTO);
        if (!advice[i].exists) continue;
        assert_true(advice[i].text[0]);
        assert_true(advice[i].prediction.total_us <= now.total_us);
    }
    assert_int_equal(advice[ADVICE_VRAM].units_on_gpu, f->shape.n_units);
    assert_true(advice[ADVICE_VRAM].prediction.total_us < now.total_us);
}

// Nearly all of the RAM that --ram allows is in use, and -ngl keeps the accelerator empty.
static void test_advice_on_limits(void **state) {
    struct fixture *f = *state;
    struct err e;
    fill_shape(&f->shape, 4, false);
    const struct machine m = round_machine(1000 * MIB, 1000 * MIB);
    const struct workload w = {.kv_type_k = DTYPE_F16, .kv_type_v = DTYPE_F16, .n_ctx = 2048};
    struct constraints c = {.gpu_layers = 0};
    assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), OK);
    for (int p = 0; p < PLAN_PURPOSES; p++) c.ram_bytes += f->plan.devices[DEVICE_HOST].bytes[p];
    assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), OK);
    struct advice_result advice[ADVICES];
    assert_int_equal(planner_advise(&f->plan, &f->shape, &c, 0, advice, &e), OK);
    assert_true(advice[ADVICE_RAM].exists && advice[ADVICE_LAYERS_AUTO].exists);
    assert_int_equal(advice[ADVICE_RAM].units_on_gpu, 0);
    assert_int_equal(advice[ADVICE_LAYERS_AUTO].units_on_gpu, f->shape.n_units);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    plan_print_advice(&f->plan, &f->shape, advice, out);
    fclose(out);
    const char *first = strstr(text, "):\n  -ngl auto ");
    if (!first || strncmp(text, "what would help (now ", 21) != 0 ||
        !strstr(first, "tokens/s, x ") || !strstr(first, "; first token after "))
        fail_msg("%s", text);
    free(text);
}

// The bound of a phase comes with its own share of the time, also where it is the start of ops,
// which is time of a device.
static void test_bounds(void **state) {
    struct fixture *f = *state;
    struct err e;
    fill_shape(&f->shape, 4, false);
    struct machine m = round_machine(1000 * MIB, 1000 * MIB);
    const struct workload w = {.kv_type_k = DTYPE_F16, .kv_type_v = DTYPE_F16, .n_ctx = 2048};
    const struct constraints c = {.gpu_layers = GPU_LAYERS_ALL};
    m.devices[0].rates.op_us = m.devices[1].rates.op_us = 1e4;
    assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), OK);
    struct prediction p;
    plan_predict(&f->plan, &f->shape, &p);
    assert_int_equal(p.decode.bound, BOUND_OVERHEAD);
    assert_true(p.decode.bound_share > 0.9 && p.decode.bound_share <= 1);
    assert_true(p.prompt.bound_share > 0 && p.prompt.bound_share <= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_only),
        cmocka_unit_test(test_gpu_layers),
        cmocka_unit_test(test_auto_fills),
        cmocka_unit_test(test_given_limits),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refusals_beside_patterns),
        cmocka_unit_test(test_limits_to_raise),
        cmocka_unit_test(test_workload_ranges),
        cmocka_unit_test(test_scratch_layout),
        cmocka_unit_test(test_scratch_of_bf16),
        cmocka_unit_test(test_quantised_cache),
        cmocka_unit_test(test_cost_by_hand),
        cmocka_unit_test(test_cost_of_tail),
        cmocka_unit_test(test_cost_of_queries),
        cmocka_unit_test(test_cost_of_cached),
        cmocka_unit_test(test_what_a_cache_keeps),
        cmocka_unit_test(test_cached_passes),
        cmocka_unit_test(test_cost_of_experts),
        cmocka_unit_test(test_walk),
        cmocka_unit_test(test_constraints),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_advice),
        cmocka_unit_test(test_advice_on_limits),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_cost_of_sessions),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
