/* test_simulate.c: what split and streamed units take, by hand on a small model, and what holds for
 * the times of any plan.
 */
#include "tests/lib/pair.h"
#include "planner/plan/schedule.h"
#include "planner/planner.h"

#include "tests/lib/small_plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

// ---- Parts of units -----------------------------------------------------------------------------

static double unit_part_us(const struct small_plan *f, int unit, int d, struct unit_part part,
                           const struct pass *pass) {
    const struct cost_place at = {&f->shape, &f->plan.machine.devices[d], &f->plan.workload, false};
    return cost_sum(cost_of_part(&at, &f->shape.units[unit], part, pass));
}

static double part_us(const struct small_plan *f, int d, struct unit_part part,
                      const struct pass *pass) {
    return unit_part_us(f, 2, d, part, pass);
}

static double read_bytes(const struct small_plan *f, int unit, struct unit_part part,
                         const struct pass *pass) {
    const struct cost_place at = {&f->shape, &f->plan.machine.devices[HOST], &f->plan.workload,
                                  false};
    return cost_of_part(&at, &f->shape.units[unit], part, pass).read_bytes;
}

// No unit of a model that is built in reads more than its weights, whatever its block does.
static void test_models_read_their_weights(void **state) {
    struct small_plan *f = *state;
    struct err e;
    for (int32_t i = 0; i < shape_builtin_count(); i++) {
        assert_int_equal(shape_builtin(&f->shape, i, &e), OK);
        for (int u = 0; u < f->shape.n_units; u++) {
            const struct unit *unit = &f->shape.units[u];
            char name[64];
            double all = 0;
            for (int t = 0; t < unit->n_tensors; t++) all += (double)unit->tensors[t].size_bytes;
            plan_unit_name(unit, name, sizeof name);
            for (int32_t n = 1; n <= 64; n *= 8) {
                const double part = read_bytes(f, u, WHOLE_UNIT, &(struct pass){n, 1, 0});
                if (part > 0 && part <= 1.000001 * all) continue;
                fail_msg("%s: %s reads %g of %g bytes for %d tokens", f->shape.name, name, part,
                         all, n);
            }
        }
    }
}

// One token on the CPU at 1000 bytes per us: 64 rows of gate and up, 2 * 8704 bytes, 8 bytes for
// each of 2 * (128 + 64) columns and rows, norm 12 * 128, swiglu 12 * 64, 4 ops; then 32 rows of
// down, 8704 bytes, 8 * (256 + 32) and the residual stream's 8 * 32, 1 op.
static void test_cost_of_parts(void **state) {
    struct small_plan *f = *state;
    ffns_apart(f, 1, 8, false);
    const struct unit_part in = {PHASE_IN, 8, false, true}, out = {PHASE_OUT, 8, false, true};
    struct pass pass = {1, 1, 0};
    assert_near(part_us(f, HOST, in, &pass),
                (2 * 8704 + 8 * 2 * 192 + 12 * 128 + 12 * 64) / 1e3 + 4);
    assert_near(part_us(f, HOST, out, &pass), (8704 + 8 * (256 + 32 + 32)) / 1e3 + 1);
    pass = (struct pass){10, 10, 0}; // which read the norm's 4 * 128 bytes once
    assert_near(part_us(f, HOST, in, &pass),
                (2 * 8704 + 10 * (8 * 2 * 192 + 8 * 128 + 12 * 64) + 512) / 1e3 + 4);
    // The accelerator, with all rows in two matmuls for each matrix, at 2000 bytes per us.
    const struct unit_part both = {PHASE_ALL, 8, true, true};
    assert_near(part_us(f, GPU, both, &pass),
                (3 * 34816 + 512 +
                 10 * (8 * (4 * 128 + 2 * 256 + 2 * 256 + 2 * 128) + 8 * 128 + 12 * 256)) /
                        2e3 +
                    8);
    assert_near(read_bytes(f, 2, in, &pass), 512 + 2 * 8704);
    assert_near(read_bytes(f, 2, out, &pass), 8704);
    assert_near(read_bytes(f, 2, both, &pass), 512 + 3 * 34816);
    struct simulation sim;
    plan_simulate(&f->plan, &f->shape, &pass, &sim);
    assert_int_equal(sim.weight_bytes[HOST], 512 + 3 * 8704 + 10 * 136); // rows of the embedding
}

// The CPU at 1000 bytes per us has 32 rows of queries and output, 4352 bytes each, and the norm;
// the accelerator at 2000 has 96 rows, 13056 bytes, and keys and values. In between: rope, 8 bytes
// for each of 256 columns and 4 * 64 of angles, storing, 6 bytes for each of 256 and the slot, and
// attention, for which reading 100 rows of 512 bytes takes longer than 51200 flops at 100000 per
// us.
static void test_cost_of_attention_parts(void **state) {
    struct small_plan *f = *state;
    attention_apart(f, 1, 8, false);
    const struct pass pass = {1, 1, 99};
    const struct unit_part host_in = {PHASE_IN, 8, false, true}, in = {PHASE_IN, 8, true, false},
                           mid = {PHASE_MID, 8, true, false}, out = {PHASE_OUT, 8, true, false},
                           host_out = {PHASE_OUT, 8, false, true}, all = {PHASE_ALL, 8, true, true};
    assert_near(unit_part_us(f, 1, HOST, host_in, &pass), (4352 + 8 * 160 + 1536) / 1e3 + 2);
    assert_near(unit_part_us(f, 1, HOST, host_out, &pass), (4352 + 8 * (160 + 32)) / 1e3 + 1);
    const double kv_bytes = 2 * (17408 + 8 * 256), middle_us = (2304 + 1540 + 51200) / 2e3 + 3;
    assert_near(unit_part_us(f, 1, GPU, in, &pass),
                (13056 + 8 * (128 + 96) + kv_bytes + 1536) / 2e3 + 4);
    assert_near(unit_part_us(f, 1, GPU, mid, &pass), middle_us);
    assert_near(unit_part_us(f, 1, GPU, out, &pass), (13056 + 8 * (128 + 96 + 96)) / 2e3 + 1);
    // Streamed: two matmuls for each matrix that is cut.
    assert_near(unit_part_us(f, 1, GPU, all, &pass),
                (2 * (17408 + 8 * (2 * 128 + 128)) + 8 * 128 + kv_bytes + 1536) / 2e3 + 7 +
                    middle_us);
    assert_near(read_bytes(f, 1, host_in, &pass), 512 + 4352);
    assert_near(read_bytes(f, 1, host_out, &pass), 4352);
    assert_near(read_bytes(f, 1, in, &pass), 512 + 13056 + 2 * 17408);
    assert_true(read_bytes(f, 1, mid, &pass) == 0);
    assert_near(read_bytes(f, 1, out, &pass), 13056);
    assert_near(read_bytes(f, 1, all, &pass), 512 + 4 * 17408);
}

static double last_step_us(const struct small_plan *f, const struct pass *pass, int from_end) {
    struct step_times times[MAX_STEPS];
    plan_step_times(&f->plan, &f->shape, pass, times);
    const struct step_times *t =
        &times[f->plan.n_steps[batch_class_of(pass->n_tokens)] - 1 - from_end];
    return t->last_us - t->first_us;
}

// Many layers whose copies take longer than they are computed: the link is never idle, and after it
// comes what is left of the last layer.
static void test_streaming_is_bound_by_the_link(void **state) {
    struct small_plan *f = *state;
    const struct pass pass = {UBATCH, 1, 0};
    ffns_apart(f, 24, 0, true);
    f->machine.devices[GPU].link.to_gbps = 0.1;
    solve_given(f);
    struct simulation sim;
    plan_simulate(&f->plan, &f->shape, &pass, &sim);
    const double fetch_us = 24 * (10 + 104960 / 1e2);
    assert_true(fetch_us > sim.compute_us[GPU]);
    const double rest_us =
        last_step_us(f, &pass, 0) + last_step_us(f, &pass, 1) + last_step_us(f, &pass, 2);
    assert_near(sim.total_us, 10 + fetch_us + rest_us);
    // Passes in a row: the tables and the residual stream go over the same link.
    const double others_us = 20 + (double)f->plan.tables.size_bytes / 1e2 + UBATCH * 512 / 1e2;
    assert_near(sim.period_us, fmin(sim.total_us, fetch_us + others_us));
}

// Copies faster than computing: nothing waits for them but the start, and they are hidden.
static void test_streaming_is_bound_by_computing(void **state) {
    struct small_plan *f = *state;
    const struct pass pass = {UBATCH, 1, 0};
    ffns_apart(f, 24, 0, true);
    f->machine.devices[GPU].link.to_gbps = 50;
    solve_given(f);
    struct simulation sim;
    struct step_times times[MAX_STEPS];
    plan_simulate(&f->plan, &f->shape, &pass, &sim);
    plan_step_times(&f->plan, &f->shape, &pass, times);
    assert_int_equal(f->plan.steps[BATCH_PREFILL][6].unit, 1); // the first of the accelerator
    assert_near(sim.total_us, times[6].first_us + sim.compute_us[GPU] + last_step_us(f, &pass, 0));
    assert_true(sim.hidden_copy_us >= 0.85 * sim.copy_us && sim.hidden_copy_us <= sim.copy_us);
    // In a row: the accelerator computes, after it got its tables and the residual stream.
    const double in_us = 20 + (double)f->plan.tables.size_bytes / 5e4 + UBATCH * 512 / 5e4;
    assert_near(sim.period_us, 5 + in_us + sim.compute_us[GPU]);
    assert_true(sim.period_us < sim.total_us);
    struct prediction p;
    plan_predict(&f->plan, &f->shape, &p);
    double expected = 0;
    for (int i = 0; i < 4; i++) {
        plan_simulate(&f->plan, &f->shape, &(struct pass){UBATCH, i == 3, i * UBATCH}, &sim);
        expected += i < 3 ? sim.period_us : sim.total_us;
    }
    assert_near(p.prompt_us, expected);
}

static void test_feeds(void **state) {
    struct small_plan *f = *state;
    const struct pass pass = {UBATCH, 0, 0};
    ffns_apart(f, 4, 0, true);
    const double gbps[FEEDS] = {0, 1, 0.8};
    for (int feed = FEED_ARENA; feed < FEEDS; feed++) {
        f->c.place.feed = (enum feed)feed;
        solve_given(f);
        struct step_times times[MAX_STEPS];
        plan_step_times(&f->plan, &f->shape, &pass, times);
        assert_near(times[1].last_us - times[1].first_us, 10 + 104960 / gbps[feed] / 1e3);
    }
    // Memory that is slower than the rest: its bytes decide, three times those that are staged,
    // and those of the embedding. Without logits the last FFN is not fetched.
    const double rows = UBATCH * 136;
    for (int feed = FEED_ARENA; feed < FEEDS; feed++) {
        f->machine.dram_gbps = 0.01;
        f->c.place.feed = (enum feed)feed;
        solve_given(f);
        struct simulation sim;
        plan_simulate(&f->plan, &f->shape, &pass, &sim);
        assert_near(sim.total_us, 10 + ((feed == FEED_ARENA ? 1 : 3) * 3 * 104960 + rows) / 1e1);
    }
}

// The KV cache follows the weights, in two copies at the rate of pinned memory with any feed; its
// new rows go back, and only then is the slot free.
static void test_caches_move(void **state) {
    struct small_plan *f = *state;
    const struct pass pass = {UBATCH, 0, 200};
    attention_apart(f, 3, 0, true);
    const double weights = 512 + 4 * 17408, past = 200 * 512, added = UBATCH * 512,
                 rows = UBATCH * 136;
    const double gbps[FEEDS] = {0, 1, 0.8};
    struct step_times times[MAX_STEPS];
    struct simulation sim;
    for (int feed = FEED_ARENA; feed < FEEDS; feed++) {
        f->c.place.feed = (enum feed)feed;
        solve_given(f);
        const double weights_us = 10 + weights / (gbps[feed] * 1e3);
        plan_step_times(&f->plan, &f->shape, &pass, times);
        assert_near(times[1].last_us - times[1].first_us, weights_us + 20 + past / 1e3);
        assert_near(times[7].last_us - times[7].first_us, 20 + added / 2e3);
        assert_int_equal(f->plan.steps[BATCH_PREFILL][7].kind, STEP_STORE);
        assert_near(times[7].first_us, times[6].last_us);
        assert_near(times[8].first_us, fmax(times[7].last_us, times[2].last_us));
        plan_step_times(&f->plan, &f->shape, &(struct pass){UBATCH, 0, 0}, times);
        assert_near(times[1].last_us - times[1].first_us, weights_us); // nothing is cached yet
        // The host's memory is read or written once for each byte of a cache.
        f->plan.machine.dram_gbps = 0.01;
        plan_simulate(&f->plan, &f->shape, &pass, &sim);
        assert_near(sim.total_us,
                    10 +
                        (3 * (weights * (feed == FEED_ARENA ? 1 : 3) + past + added) + rows) / 1e1);
        assert_int_equal(sim.n_copies, 1 + 1 + 3 * 3);
        assert_int_equal(sim.copied_bytes, f->plan.tables.size_bytes + UBATCH * EMBD * 4 +
                                               3 * (uint64_t)(weights + past + added));
    }
}

// Stores and fetches go opposite ways: of passes in a row, the slower way decides.
static void test_stores_bind(void **state) {
    struct small_plan *f = *state;
    attention_apart(f, 6, 0, true);
    assert_true(f->plan.runs_ahead);
    const struct pass pass = {UBATCH, 0, 200};
    struct link_rates *link = &f->plan.machine.devices[GPU].link;
    struct simulation sim;
    link->to_gbps = 0.1;
    plan_simulate(&f->plan, &f->shape, &pass, &sim);
    const double to_us = 20 + (double)f->plan.tables.size_bytes / 1e2 + UBATCH * EMBD * 4 / 1e2;
    assert_near(sim.period_us, to_us + 6 * (30 + (512 + 4 * 17408 + 200 * 512) / 1e2));
    link->from_gbps = 0.01;
    plan_simulate(&f->plan, &f->shape, &pass, &sim);
    assert_near(sim.period_us, 6 * (20 + UBATCH * 512 / 1e1));
    assert_true(sim.period_us < sim.total_us);
}

// From when both have the residual stream, phases and joins are the greater of two lanes.
static void test_lanes_of_a_split_unit(void **state) {
    struct small_plan *f = *state;
    for (int parts = 1; parts < UNIT_PARTS; parts++) {
        ffns_apart(f, 1, parts, false);
        const struct pass pass = {UBATCH, UBATCH, 0};
        struct step_times t[MAX_STEPS];
        plan_step_times(&f->plan, &f->shape, &pass, t);
        const struct step *steps = f->plan.steps[BATCH_PREFILL];
        assert_true(steps[7].phase == PHASE_IN && steps[14].phase == PHASE_OUT);
        const struct unit_part first[2] = {{PHASE_IN, parts, true, false},
                                           {PHASE_OUT, parts, true, false}},
                               last[2] = {{PHASE_IN, parts, false, true},
                                          {PHASE_OUT, parts, false, true}};
        const double r_ff = footprint_split_row(FF, parts), r = footprint_split_row(EMBD, parts);
        const double start_us = t[5].first_us, have_us = t[6].last_us; // residual sent; arrived
        const double gpu_in = start_us + part_us(f, GPU, first[0], &pass),
                     cpu_in = have_us + part_us(f, HOST, last[0], &pass);
        const double to_cpu = fmax(gpu_in, have_us) + 10 + UBATCH * 4 * r_ff / 2e3,
                     to_gpu = cpu_in + 10 + UBATCH * 4 * (FF - r_ff) / 1e3;
        const double gpu_out = fmax(gpu_in, to_gpu) + part_us(f, GPU, first[1], &pass),
                     cpu_out = fmax(cpu_in, to_cpu) + part_us(f, HOST, last[1], &pass);
        const double joined = fmax(gpu_out, cpu_out + 10 + UBATCH * 4 * (EMBD - r) / 1e3);
        assert_int_equal(steps[16].kind, STEP_WAIT);
        assert_near(t[16].last_us, joined);
    }
}

// The CPU begins its phases later by the time in which this thread encodes the accelerator's: norm,
// gate, up and swiglu of the first, down of the last.
static void test_launches_delay_the_cpu(void **state) {
    struct small_plan *f = *state;
    const struct pass pass = {1, 1, 0};
    struct step_times before[MAX_STEPS], after[MAX_STEPS];
    double late_us[PHASE_OUT + 1] = {0};
    ffns_apart(f, 1, 8, false);
    plan_step_times(&f->plan, &f->shape, &pass, before);
    f->plan.machine.devices[GPU].rates.launch_us = 0.5;
    plan_step_times(&f->plan, &f->shape, &pass, after);
    for (int i = 0; i < f->plan.n_steps[BATCH_ONE]; i++) {
        const struct step *step = &f->plan.steps[BATCH_ONE][i];
        if (step->kind != STEP_COMPUTE || step->device != HOST || step->phase == PHASE_ALL)
            continue;
        late_us[step->phase] = after[i].first_us - before[i].first_us;
    }
    assert_near(late_us[PHASE_IN], 0.5 * 4);
    assert_near(late_us[PHASE_OUT], 0.5); // it waited for the first phase of both
}

// The same with three phases: the CPU's queries go to the accelerator, which attends, and what it
// attended to comes back.
static void test_lanes_of_split_attention(void **state) {
    struct small_plan *f = *state;
    for (int parts = 1; parts < UNIT_PARTS; parts++) {
        attention_apart(f, 1, parts, false);
        const struct pass pass = {UBATCH, 1, 100};
        struct step_times t[MAX_STEPS];
        plan_step_times(&f->plan, &f->shape, &pass, t);
        const struct step *steps = f->plan.steps[BATCH_PREFILL];
        assert_true(steps[4].phase == PHASE_IN && steps[8].phase == PHASE_MID);
        double gpu_us[PHASE_OUT + 1], cpu_us[PHASE_OUT + 1];
        for (int phase = PHASE_IN; phase <= PHASE_OUT; phase++) {
            const struct unit_part first = {(enum step_phase)phase, parts, true, false},
                                   last = {(enum step_phase)phase, parts, false, true};
            gpu_us[phase] = unit_part_us(f, 1, GPU, first, &pass);
            cpu_us[phase] = unit_part_us(f, 1, HOST, last, &pass);
        }
        const double n = UBATCH * 4 * (EMBD - footprint_split_row(EMBD, parts));
        const double queries = t[2].first_us + cpu_us[PHASE_IN]; // since it sent the residual
        const double start_us = t[3].last_us;                    // the accelerator has it
        const double to_gpu = fmax(t[2].last_us, queries) + 10 + n / 1e3;
        const double attended = fmax(start_us + gpu_us[PHASE_IN], to_gpu) + gpu_us[PHASE_MID];
        const double to_cpu = attended + 10 + UBATCH * 4 * EMBD / 2e3;
        const double joined =
            fmax(attended + gpu_us[PHASE_OUT], to_cpu + cpu_us[PHASE_OUT] + 10 + n / 1e3);
        assert_int_equal(steps[14].kind, STEP_WAIT);
        assert_near(t[14].last_us, joined);
    }
}

// A faster link, more bandwidth of any memory, or a faster device never makes a slower pass.
static void test_faster_parts_never_slow_down(void **state) {
    struct small_plan *f = *state;
    for (uint64_t seed = 0; seed < N_RANDOM; seed++) {
        if (!invent_given(f, 7000 + seed, 40)) continue;
        const int32_t n_ubatch = f->plan.workload.n_ubatch, past = f->plan.workload.n_ctx / 2;
        const struct pass passes[] = {
            {1, 1, 100}, {20, 0, 0}, {n_ubatch, 0, 0}, {n_ubatch, 0, past}};
        f->other = f->plan;
        struct machine *m = &f->other.machine;
        const double factor = dice_real(&f->dice, 1, 3);
        switch (seed % 5) {
        case 0: m->dram_gbps *= factor; break;
        case 1:
            m->devices[GPU].link.to_gbps *= factor;
            m->devices[GPU].link.from_gbps *= factor;
            m->devices[GPU].link.staged_to_gbps *= factor;
            break;
        case 2: m->devices[GPU].link.latency_us /= factor; break;
        default:
            for (int t = 0; t < WEIGHT_COUNT; t++)
                for (int c = 0; c < RATE_CLASSES; c++)
                    m->devices[seed % 2].rates.weight_gbps[t][c] *= factor;
            for (int t = 0; t < KV_TYPES; t++)
                for (int c = 0; c < RATE_CLASSES; c++)
                    m->devices[seed % 2].rates.attention_gflops[t][c] *= factor;
            m->devices[seed % 2].rates.vector_gbps *= factor;
        }
        for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
            struct simulation before, after;
            plan_simulate(&f->plan, &f->shape, &passes[i], &before);
            plan_simulate(&f->other, &f->shape, &passes[i], &after);
            assert_true(after.total_us <= before.total_us * (1 + 1e-12));
            assert_true(after.period_us <= before.period_us * (1 + 1e-12));
            assert_true(before.period_us <= before.total_us);
            assert_true(before.hidden_copy_us >= 0 && before.hidden_copy_us <= before.copy_us);
            assert_true(before.total_us >= before.compute_us[HOST]);
            assert_true(before.total_us >= before.compute_us[GPU]);
        }
        struct prediction before, after;
        plan_predict(&f->plan, &f->shape, &before);
        plan_predict(&f->other, &f->shape, &after);
        assert_true(after.total_us <= before.total_us * (1 + 1e-12));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cost_of_parts),
        cmocka_unit_test(test_models_read_their_weights),
        cmocka_unit_test(test_cost_of_attention_parts),
        cmocka_unit_test(test_streaming_is_bound_by_the_link),
        cmocka_unit_test(test_streaming_is_bound_by_computing),
        cmocka_unit_test(test_feeds),
        cmocka_unit_test(test_caches_move),
        cmocka_unit_test(test_stores_bind),
        cmocka_unit_test(test_lanes_of_a_split_unit),
        cmocka_unit_test(test_lanes_of_split_attention),
        cmocka_unit_test(test_launches_delay_the_cpu),
        cmocka_unit_test(test_faster_parts_never_slow_down),
    };
    return cmocka_run_group_tests(tests, open_small_plan, close_small_plan);
}
