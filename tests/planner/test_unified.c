/* test_unified.c: plans where the GPU's memory is the CPU's: one rate for what both read, bytes
 * counted once, and rows split where that pays.
 */
#include "base/mem.h"
#include "planner/plan/predict.h"
#include "planner/plan/simulate.h"
#include "planner/search/solver.h"
#include "tests/lib/pair.h"
#include "tests/lib/small_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static double decode_us(const struct small_plan *f) {
    const struct pass pass = {.n_tokens = 1, .n_logits = 1};
    struct simulation simulation;
    plan_simulate(&f->plan, &f->shape, &pass, &simulation);
    return simulation.total_us;
}

// Half of each FFN's 104448 bytes takes the CPU 52.2 us at 1 GB/s, and the GPU, which begins 4.7 us
// earlier, 26.1. A memory of 1.5 GB/s takes 69.6 us for both, from when the GPU begins: 12.7 us
// more. One of 3 GB/s takes no longer than the CPU.
static void test_both_read_one_memory(void **state) {
    struct small_plan *f = *state;
    enum { LAYERS = 3 };
    ffns_apart(f, LAYERS, UNIT_PARTS / 2, false);
    struct machine *m = &f->plan.machine;
    const double apart_us = decode_us(f);
    m->dram_gbps = 1.5;
    assert_near(decode_us(f), apart_us); // the GPU has a memory of its own
    m->devices[GPU].unified = true;
    const double shared_us = decode_us(f);
    assert_in_range((uint64_t)(1000 * (shared_us - apart_us) / LAYERS), 12600, 12800);
    m->dram_gbps = 30;
    assert_near(decode_us(f), apart_us);
    m->dram_gbps = 0; // unknown
    assert_near(decode_us(f), apart_us);
}

static void take_builtin(struct small_plan *f, const char *machine, const char *model) {
    struct err e;
    int32_t m = 0, s = 0;
    while (strcmp(machine_builtin_name(m), machine) != 0) m++;
    while (strcmp(shape_builtin_name(s), model) != 0) s++;
    assert_int_equal(machine_builtin(&f->machine, m, &e), OK);
    assert_int_equal(shape_builtin(&f->shape, s, &e), OK);
    f->workload = (struct workload){
        .kv_type_k = DTYPE_F16, .kv_type_v = DTYPE_F16, .n_prompt = 16, .n_gen = 1024};
    f->c = (struct constraints){.gpu_layers = GPU_LAYERS_AUTO};
}

static int count_split(const struct small_plan *f) {
    int n = 0;
    for (int u = 0; u < f->shape.n_units; u++) n += f->plan.place.units[u].cpu_parts > 0;
    return n;
}

// With hand-overs of shared events, 180 us, an M2 leaves all to the GPU. With those of polling the
// CPU takes rows, and still no token is computed faster than the memory gives its weights.
static void test_rows_are_split_where_hand_overs_are_quick(void **state) {
    struct small_plan *f = *state;
    struct prediction slow, quick;
    take_builtin(f, "mac-m2-16g", "llama-3.1-8b");
    solve_given(f);
    plan_predict_after(&f->plan, &f->shape, f->plan.workload.n_past, &slow);
    assert_int_equal(count_split(f), 0);
    f->machine.devices[GPU].link.latency_us = 4;
    solve_given(f);
    plan_predict_after(&f->plan, &f->shape, f->plan.workload.n_past, &quick);
    assert_true(count_split(f) > 10);
    assert_true(quick.decode_us < slow.decode_us / 1.03);
    double read_bytes = 0;
    for (int u = 1; u < f->shape.n_units; u++) read_bytes += (double)f->plan.unit_read_bytes[u];
    assert_true(quick.decode_us > read_bytes / (f->machine.dram_gbps * 1e3));
}

// Nothing is streamed from a memory to itself.
static void test_nothing_is_streamed(void **state) {
    struct small_plan *f = *state;
    struct err e;
    take_builtin(f, "mac-m2-16g", "llama-3.1-8b");
    f->machine.devices[GPU].link.latency_us = 4;
    f->c.strategy = STRATEGY_STREAMED;
    assert_int_equal(planner_solve(&f->plan, &f->shape, &f->machine, &f->workload, &f->c, &e),
                     ERR_USAGE);
    f->c.strategy = STRATEGY_ROW_SPLIT;
    solve_given(f);
    assert_true(count_split(f) > 10);
    for (int u = 0; u < f->shape.n_units; u++) assert_false(f->plan.place.units[u].streamed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_read_one_memory),
        cmocka_unit_test(test_rows_are_split_where_hand_overs_are_quick),
        cmocka_unit_test(test_nothing_is_streamed),
    };
    return cmocka_run_group_tests(tests, open_small_plan, close_small_plan);
}
