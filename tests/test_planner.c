/* test_planner.c: footprint, placement, step lists and their simulation, on invented machines and
 * shapes. */
#include "planner/planner.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t MIB = 1 << 20;

static void invent_shape(struct shape *s, int32_t n_layers, bool tied) {
    memset(s, 0, sizeof *s);
    strcpy(s->name, "invented");
    strcpy(s->architecture, "llama");
    s->n_layers = n_layers;
    s->n_embd = 512;
    s->n_heads = 8;
    s->n_kv_heads = 2;
    s->head_dim = s->n_rot = 64;
    s->n_ff = 1536;
    s->n_vocab = 1000;
    s->n_ctx_train = 2048;
    s->n_units = 2 * n_layers + 2;
    for (int u = 0; u < s->n_units; u++) {
        struct unit *unit = &s->units[u];
        unit->kind = u == 0                ? UNIT_EMBED
                     : u + 1 == s->n_units ? UNIT_HEAD
                     : u % 2               ? UNIT_ATTENTION
                                           : UNIT_FFN;
        unit->layer = u == 0 || u + 1 == s->n_units ? -1 : (u - 1) / 2;
        unit->n_tensors = unit->kind == UNIT_EMBED ? 1 : unit->kind == UNIT_FFN ? 4 : 2;
        unit->shares_embed = unit->kind == UNIT_HEAD && tied;
        for (int i = 0; i < unit->n_tensors; i++)
            unit->tensor_bytes[i] = 1000001 + 1000u * (unsigned)u;
        if (unit->shares_embed) unit->tensor_bytes[0] = s->units[0].tensor_bytes[0];
    }
}

static struct machine invent_machine(uint64_t ram, uint64_t vram) {
    struct machine m = {.n_devices = vram ? 2 : 1};
    m.devices[0] = (struct machine_device){"a cpu", "cpu", ram, ram, 64, 4, true};
    m.devices[1] = (struct machine_device){"a gpu", "sim", vram, vram, 256, 1, false};
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
            weights += f->shape.units[u].tensor_bytes[i];
    }
    weights -= f->shape.units[0].tensor_bytes[0]; // the head shares the embedding
    assert_int_equal(f->plan.devices[0].bytes[PLAN_WEIGHTS], weights);
    // 512 positions are 8 pages of 64; K and V of 2 heads of 64 halves; 4 layers.
    assert_int_equal(f->plan.devices[0].bytes[PLAN_KV], 4 * 2 * 512 * 128 * 2);
    assert_int_equal(f->plan.n_steps[BATCH_ONE], f->shape.n_units);
    assert_int_equal(plan_layers_on_gpu(&f->plan), 0);
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
        assert_int_equal(plan_layers_on_gpu(&f->plan), expected);
        assert_int_equal(f->plan.unit_device[0], 0);
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
        plan_simulate(&f->plan, 3, 1, &sim);
        assert_int_equal(sim.copied_bytes,
                         n ? f->plan.tables.size_bytes + 3 * 512 * 4 + 1000 * 4 : 0);
        assert_int_equal(sim.peak_bytes[1], total(&f->plan, 1));
        assert_int_equal(n == 0, sim.peak_bytes[1] == 0);
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
        for (int u = 0; u < f->plan.n_units; u++) units += f->plan.unit_device[u];
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

static void test_refusals(void **state) {
    struct fixture *f = *state;
    struct err e;
    invent_shape(&f->shape, 6, false);
    struct machine m = invent_machine(1000 * MIB, 12 * MIB);
    assert_int_equal(solve(f, &m, GPU_LAYERS_ALL, &e), ERR_MEMORY);
    assert_non_null(strstr(e.what, "a gpu"));
    int fitting = -1;
    assert_int_equal(sscanf(e.fix, "-ngl %d fits", &fitting), 1);
    assert_int_equal(solve(f, &m, fitting, &e), OK);
    assert_int_equal(solve(f, &m, fitting + 1, &e), ERR_MEMORY);
    m = invent_machine(4 * MIB, 0);
    assert_int_equal(solve(f, &m, 0, &e), ERR_MEMORY);
    assert_non_null(strstr(e.what, "a cpu"));
    assert_non_null(strstr(e.fix, "--ram"));
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
                                   {.max_logits = -1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &bad[i], &c, &e), ERR_USAGE);
        assert_true(e.what[0] && e.expected[0] && e.actual[0]);
    }
}

// Blocks of a cache are 34 bytes for 32 elements, and no head may share one with the next.
static void test_quantised_cache(void **state) {
    struct fixture *f = *state;
    struct err e;
    invent_shape(&f->shape, 4, true);
    struct machine m = invent_machine(1000 * MIB, 0);
    struct constraints c = {0};
    struct workload w = {.kv_type_k = DTYPE_Q8_0, .kv_type_v = DTYPE_F16, .n_ctx = 512};
    assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), OK);
    assert_int_equal(f->plan.devices[0].bytes[PLAN_KV], 4 * 512 * (128 / 32 * 34 + 128 * 2));
    f->shape.head_dim = 80;
    assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), ERR_USAGE);
    assert_non_null(strstr(e.what, "-ctk"));
    assert_string_equal(e.expected, "a multiple of 32");
    w.kv_type_k = DTYPE_F16, w.kv_type_v = DTYPE_Q8_0;
    assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), ERR_USAGE);
    assert_non_null(strstr(e.what, "-ctv"));
    w.kv_type_v = DTYPE_Q4_0;
    assert_int_equal(planner_solve(&f->plan, &f->shape, &m, &w, &c, &e), ERR_USAGE);
    assert_string_equal(e.actual, "Q4_0");
}

// Parts of scratch never overlap when both live, and all lie inside.
static void test_scratch_layout(void **state) {
    struct fixture *f = *state;
    invent_shape(&f->shape, 2, false);
    struct workload w = {.n_ctx = 256, .n_ubatch = 33, .n_sessions = 2, .max_logits = 3};
    const struct machine m = invent_machine(1, 1);
    for (int mask = 0; mask < 16; mask++) {
        const bool has[UNIT_KINDS] = {mask & 1, mask & 2, mask & 4, mask & 8};
        struct scratch_layout s;
        footprint_scratch(&f->shape, &w, &m.devices[1], has, &s);
        if (!mask) assert_int_equal(s.size_bytes, 0);
        const uint64_t n = 33 * 4;
        if (has[UNIT_ATTENTION]) {
            assert_true(s.residual + n * 512 <= s.normed && s.normed + n * 512 <= s.freqs);
            assert_true(s.angles + n * 64 <= s.q && s.q + n * 512 <= s.attended);
            assert_true(s.attended + n * 512 <= s.k && s.k + n * 128 <= s.v &&
                        s.v + n * 128 <= s.matmul);
        }
        if (has[UNIT_FFN]) assert_true(s.gate + n * 1536 <= s.up && s.up + n * 1536 <= s.matmul);
        if (has[UNIT_HEAD]) {
            assert_true(s.gathered + 3 * 512 * 4 <= s.matmul);
            assert_true(s.logits + 3 * 1000 * 4 <= s.size_bytes);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_only),        cmocka_unit_test(test_gpu_layers),
        cmocka_unit_test(test_auto_fills),      cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_workload_ranges), cmocka_unit_test(test_scratch_layout),
        cmocka_unit_test(test_quantised_cache),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
