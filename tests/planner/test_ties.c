/* test_ties.c: attention that reads the cache of an earlier unit is placed with it in every plan,
 * and what the embedding makes for each layer crosses once, to the device that needs it.
 */
#include "tests/lib/small_plan.h"

#include "planner/plan/footprint.h"
#include "planner/plan/ties.h"
#include "planner/search/patterns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void take_shape(struct small_plan *f, const char *name) {
    struct err e;
    int32_t i = 0;
    while (strcmp(shape_builtin_name(i), name) != 0) i++;
    assert_int_equal(shape_builtin(&f->shape, i, &e), OK);
}

static void take_machine(struct small_plan *f, double vram_gb, double ram_gb) {
    struct err e;
    int32_t i = 0;
    while (strcmp(machine_builtin_name(i), "gtx-1060-6g-ddr4") != 0) i++;
    assert_int_equal(machine_builtin(&f->machine, i, &e), OK);
    f->machine.devices[DEVICE_HOST].budget_bytes = (uint64_t)(ram_gb * 1e9);
    f->machine.devices[1].budget_bytes = (uint64_t)(vram_gb * 1e9);
}

static void expect_together(const struct small_plan *f) {
    int n_shared = 0;
    for (int32_t u = 0; u < f->shape.n_units; u++) {
        const struct unit_place *mine = &f->plan.place.units[u];
        const int32_t leader = unit_leader(&f->shape, u);
        if (leader == u) continue;
        n_shared++;
        assert_int_equal(mine->device, f->plan.place.units[leader].device);
        assert_int_equal(mine->cpu_parts, 0);
        assert_false(mine->streamed || f->plan.place.units[leader].streamed);
        assert_int_equal(f->plan.unit_kv_bytes[u], 0);
    }
    assert_int_equal(n_shared, 20);
}

// Sends of the layers' inputs in a class, all behind the embedding.
static int count_inputs(const struct plan *plan, enum batch_class batch) {
    int n = 0;
    for (int32_t i = 0; i < plan->n_steps[batch]; i++)
        n += plan->steps[batch][i].kind == STEP_SEND &&
             plan->steps[batch][i].data == DATA_LAYER_INPUTS;
    return n;
}

static void test_every_size(void **state) {
    struct small_plan *f = *state;
    struct err e;
    take_shape(f, "gemma-4-e2b");
    for (int vram = 1; vram <= 6; vram++) {
        take_machine(f, 0.6 * vram, 16);
        memset(&f->c, 0, sizeof f->c);
        f->c.gpu_layers = GPU_LAYERS_AUTO;
        f->workload = (struct workload){.n_ctx = 8192};
        assert_int_equal(planner_solve(&f->plan, &f->shape, &f->machine, &f->workload, &f->c, &e),
                         OK);
        expect_together(f);
        const int8_t other = f->plan.place.units[0].device == DEVICE_HOST;
        const bool needed = ties_read_inputs(&f->shape, &f->plan.place, BATCH_PREFILL, other);
        assert_int_equal(count_inputs(&f->plan, BATCH_PREFILL), needed);
    }
}

// -ngl and -ot place attention with the cache that it reads, or say that they cannot.
static void test_what_is_asked_for(void **state) {
    struct small_plan *f = *state;
    struct err e;
    take_shape(f, "gemma-4-e2b");
    take_machine(f, 6, 16);
    memset(&f->c, 0, sizeof f->c);
    f->workload = (struct workload){.n_ctx = 8192};
    for (f->c.gpu_layers = 0; f->c.gpu_layers < 30; f->c.gpu_layers += 7) {
        assert_int_equal(planner_solve(&f->plan, &f->shape, &f->machine, &f->workload, &f->c, &e),
                         OK);
        expect_together(f);
        assert_int_equal(f->plan.place.units[f->shape.n_units - 1].device, f->c.gpu_layers > 0);
    }
    f->c.gpu_layers = GPU_LAYERS_AUTO;
    assert_int_equal(constraints_add_patterns(&f->c, &f->shape, "blk\\.20\\.attn=CPU", &e), OK);
    assert_int_equal(planner_solve(&f->plan, &f->shape, &f->machine, &f->workload, &f->c, &e), OK);
    expect_together(f);
    assert_int_equal(f->plan.place.units[1 + 2 * 13].device, DEVICE_HOST);
    assert_int_equal(constraints_add_patterns(&f->c, &f->shape, "blk\\.21\\.attn=GPU", &e), OK);
    assert_int_equal(planner_solve(&f->plan, &f->shape, &f->machine, &f->workload, &f->c, &e),
                     ERR_USAGE);
    assert_non_null(strstr(e.what, "reads the cache of blk.13.attention"));
}

static void test_given_apart(void **state) {
    struct small_plan *f = *state;
    struct err e;
    take_shape(f, "gemma-4-e2b");
    take_machine(f, 6, 16);
    memset(&f->c, 0, sizeof f->c);
    f->c.gpu_layers = GPU_LAYERS_AUTO;
    f->c.has_units = f->c.has_placement = true;
    f->workload = (struct workload){.n_ctx = 8192};
    assert_int_equal(planner_solve(&f->plan, &f->shape, &f->machine, &f->workload, &f->c, &e), OK);
    f->c.place.units[1 + 2 * 14].device = 1;
    assert_int_equal(planner_solve(&f->plan, &f->shape, &f->machine, &f->workload, &f->c, &e),
                     ERR_USAGE);
    assert_non_null(strstr(e.what, "blk.19.attention reads the cache of blk.14.attention"));
    ties_follow(&f->shape, &f->c.place);
    assert_int_equal(planner_solve(&f->plan, &f->shape, &f->machine, &f->workload, &f->c, &e), OK);
    expect_together(f);
}

// The caches are those of the first 15 layers, 12 with a window and 3 that grow.
static void test_cache_bytes(void **state) {
    struct small_plan *f = *state;
    take_shape(f, "gemma-4-e2b");
    const struct workload w = {.kv_type_k = DTYPE_F16, .kv_type_v = DTYPE_F16};
    uint64_t row_bytes = 0;
    for (int32_t u = 0; u < f->shape.n_units; u++)
        row_bytes += footprint_kv_row(&f->shape.units[u], &w);
    assert_int_equal(row_bytes, 2 * 2 * (12 * 256 + 3 * 512));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_size, open_small_plan, close_small_plan),
        cmocka_unit_test_setup_teardown(test_what_is_asked_for, open_small_plan, close_small_plan),
        cmocka_unit_test_setup_teardown(test_given_apart, open_small_plan, close_small_plan),
        cmocka_unit_test_setup_teardown(test_cache_bytes, open_small_plan, close_small_plan),
    };
    return cmocka_run_group_tests_name("ties", tests, NULL, NULL);
}
