/* test_paging.c: which weights become cold when RAM is small, the time to read them, and plans with
 * them. */
#include "tests/lib/small_plan.h"

#include "planner/planner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { LAYERS = 200 };

static uint64_t fixed_bytes(const struct plan *plan) {
    return plan_needs(plan, DEVICE_HOST) - plan->devices[DEVICE_HOST].bytes[PLAN_WEIGHTS];
}

// Plans on the CPU alone, whose disk reads half a GB/s, with RAM for so many bytes of weights.
static enum status solve_for(struct small_plan *f, uint64_t weight_bytes, struct err *e) {
    struct constraints c = {.gpu_layers = GPU_LAYERS_AUTO};
    f->machine.n_devices = 1;
    f->machine.disk_gbps = 0.5;
    assert_int_equal(planner_solve(&f->plan, &f->shape, &f->machine, &f->workload, &c, e), OK);
    c.ram_bytes = fixed_bytes(&f->plan) + weight_bytes;
    return planner_solve_paged(&f->other, &f->shape, &f->machine, &f->workload, &c, e);
}

// The last units are cold, just enough that the others and what is read ahead fit.
static void test_just_enough_is_cold(void **state) {
    struct small_plan *f = *state;
    struct err e;
    small_model(f, LAYERS);
    given_ways(f);
    assert_int_equal(solve_for(f, UINT64_C(28) << 20, &e), OK);
    const struct plan *plan = &f->other;
    const uint64_t weights = plan->devices[DEVICE_HOST].bytes[PLAN_WEIGHTS];
    const uint64_t cold = paging_cold_bytes(plan), ffn = plan->unit_weight_bytes[2];
    const uint64_t room = UINT64_C(28) << 20, ahead = PAGING_AHEAD + ffn;
    assert_true(weights > room);
    assert_true(weights - cold + ahead <= room);
    assert_true(weights - cold + ahead + 3 * ffn > room);
    assert_int_equal(plan->unit_cold_bytes[0], 0);
    assert_int_equal(plan->unit_cold_bytes[1], 0);
    assert_int_equal(plan->unit_cold_bytes[2 * LAYERS], ffn);
    assert_false(plan->runs_ahead);
}

// The time of a pass grows by that of reading the cold bytes, at the disk's rate.
static void test_time(void **state) {
    struct small_plan *f = *state;
    struct err e;
    struct simulation in_ram, paged;
    const struct pass pass = {1, 1, 0};
    small_model(f, LAYERS);
    given_ways(f);
    assert_int_equal(solve_for(f, UINT64_C(28) << 20, &e), OK);
    plan_simulate(&f->plan, &f->shape, &pass, &in_ram);
    plan_simulate(&f->other, &f->shape, &pass, &paged);
    const double cold = (double)paging_cold_bytes(&f->other);
    assert_near(paged.total_us, in_ram.total_us + cold / 500);
    assert_near(paging_us(&f->plan, &f->shape, &pass), 0);
    // Without logits the disk has neither the last FFN nor the head to give.
    const uint64_t *tail = &f->other.unit_cold_bytes[2 * LAYERS];
    const struct pass unseen = {16, 0, 0};
    assert_true(tail[0] > 0);
    assert_near(paging_us(&f->other, &f->shape, &unseen),
                (cold - (double)(tail[0] + tail[1])) / 500);
    f->other.machine.disk_gbps = 0; // a disk that was not measured
    assert_near(paging_us(&f->other, &f->shape, &pass), cold / 1000);
    f->other.machine.rates = RATES_NONE;
    assert_near(paging_us(&f->other, &f->shape, &pass), 0);
}

// The disk is the bound of tokens whose weights it gives, with its own share of the time.
static void test_bound(void **state) {
    struct small_plan *f = *state;
    struct err e;
    struct prediction in_ram, paged;
    small_model(f, LAYERS);
    given_ways(f);
    assert_int_equal(solve_for(f, UINT64_C(28) << 20, &e), OK);
    f->other.machine.disk_gbps = 0.1;
    plan_predict(&f->plan, &f->shape, &in_ram);
    plan_predict(&f->other, &f->shape, &paged);
    assert_int_not_equal(in_ram.decode.bound, BOUND_DISK);
    assert_int_equal(paged.decode.bound, BOUND_DISK);
    assert_near(paged.decode.bound_share,
                (double)paging_cold_bytes(&f->other) / 100 / paged.decode_us);
    assert_string_equal(bound_name(BOUND_DISK), "reading the disk");
    assert_string_equal(bound_name(BOUND_OVERHEAD), "launch overhead");
}

// A model that fits is planned as without paging; all but the weights must fit.
static void test_limits(void **state) {
    struct small_plan *f = *state;
    struct err e;
    small_model(f, LAYERS);
    given_ways(f);
    assert_int_equal(solve_for(f, UINT64_C(64) << 20, &e), OK);
    assert_int_equal(paging_cold_bytes(&f->other), 0);
    assert_int_equal(solve_for(f, UINT64_C(16) << 20, &e), ERR_MEMORY);
    assert_true(e.what[0] != 0);
}

// An address space has to hold the whole file, whatever stays in RAM: paging gains nothing there,
// but --ram asks for less than it has.
static void test_address_space(void **state) {
    struct small_plan *f = *state;
    struct err e;
    struct constraints c = {.gpu_layers = GPU_LAYERS_AUTO};
    small_model(f, LAYERS);
    given_ways(f);
    assert_int_equal(solve_for(f, UINT64_C(28) << 20, &e), OK);
    const uint64_t ram_bytes = f->other.machine.devices[DEVICE_HOST].budget_bytes;
    f->machine.devices[DEVICE_HOST].budget_bytes = ram_bytes;
    for (int i = 0; i < 2; i++) {
        const char *by = i ? "RLIMIT_AS" : "MemAvailable";
        (void)snprintf(f->machine.ram_limited_by, sizeof f->machine.ram_limited_by, "%s", by);
        assert_int_equal(
            planner_solve_paged(&f->other, &f->shape, &f->machine, &f->workload, &c, &e),
            i ? ERR_MEMORY : OK);
    }
    c.ram_bytes = ram_bytes;
    assert_int_equal(planner_solve_paged(&f->other, &f->shape, &f->machine, &f->workload, &c, &e),
                     OK);
    assert_true(paging_cold_bytes(&f->other) > 0);
}

// An accelerator gets all that it holds, since every byte there is none that the disk has to give.
static void test_accelerator_is_filled(void **state) {
    struct small_plan *f = *state;
    struct err e;
    struct constraints c = {.gpu_layers = GPU_LAYERS_AUTO, .whole_units = true};
    small_model(f, LAYERS);
    given_ways(f);
    f->machine.disk_gbps = 0.01;
    f->machine.devices[1].budget_bytes = 12 << 20;
    f->machine.devices[1].rates = f->machine.devices[0].rates; // no faster than the CPU
    c.ram_bytes = UINT64_C(120) << 20;
    if (planner_solve_paged(&f->other, &f->shape, &f->machine, &f->workload, &c, &e))
        fail_msg("%s %s %s", e.what, e.expected, e.actual);
    assert_true(f->other.devices[1].bytes[PLAN_WEIGHTS] > 6 << 20);
    assert_true(f->other.machine.devices[0].rates.weight_gbps[0][0] == 1);
}

// Plans on the CPU with the FFNs of the last half of the layers streamed through that feed, and RAM
// for so many bytes of weights.
static enum status solve_streamed(struct small_plan *f, enum feed feed, uint64_t weight_bytes) {
    struct err e;
    struct constraints c;
    small_model(f, LAYERS);
    given_ways(f);
    c = f->c;
    c.place.feed = feed;
    for (int32_t u = LAYERS; u < f->shape.n_units; u++)
        c.place.units[u].streamed = f->shape.units[u].kind == UNIT_FFN;
    assert_int_equal(planner_solve(&f->plan, &f->shape, &f->machine, &f->workload, &c, &e), OK);
    c.ram_bytes = fixed_bytes(&f->plan) + weight_bytes;
    return planner_solve_paged(&f->other, &f->shape, &f->machine, &f->workload, &c, &e);
}

// Weights in a pinned arena stay in RAM, so others are cold, or the plan is refused.
static void test_arena_stays(void **state) {
    struct small_plan *f = *state;
    const uint64_t room = UINT64_C(32) << 20;
    assert_int_equal(solve_streamed(f, FEED_ARENA, room), OK);
    const struct plan *plan = &f->other;
    const uint64_t weights = plan->devices[DEVICE_HOST].bytes[PLAN_WEIGHTS];
    const uint64_t ahead = PAGING_AHEAD + plan->unit_weight_bytes[2];
    assert_int_equal(plan->place.feed, FEED_ARENA);
    assert_true(weights > room && weights - paging_cold_bytes(plan) + ahead <= room);
    for (int32_t u = 0; u < plan->n_units; u++)
        if (plan->place.units[u].streamed) assert_int_equal(plan->unit_cold_bytes[u], 0);
    assert_int_equal(solve_streamed(f, FEED_ARENA, UINT64_C(24) << 20), ERR_MEMORY);
    assert_int_equal(solve_streamed(f, FEED_STAGED, UINT64_C(24) << 20), OK);
    assert_true(f->other.place.units[2 * LAYERS].streamed &&
                f->other.unit_cold_bytes[2 * LAYERS] > 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_small_plan, close_small_plan)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_just_enough_is_cold),
        TEST(test_time),
        TEST(test_bound),
        TEST(test_limits),
        TEST(test_address_space),
        TEST(test_accelerator_is_filled),
        TEST(test_arena_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
