/* test_solver.c: the solver on invented machines and models: evaluations are what finished plans
 * predict, plans of small models nearly as fast as the best of all placements, none over a limit,
 * none slower than the splits that people know, none slower with more.
 *
 *   test_solver [TEST]   one test alone
 */
#include "tests/lib/pair.h"
#include "planner/plan/schedule.h"
#include "planner/planner.h"
#include "planner/search/evaluate.h"
#include "planner/search/search.h"

#include "base/mem.h"
#include "tests/lib/invent.h"
#include "tests/lib/slow.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum {
    SLOWER = SLOW ? 50 : 1, // so many times fewer rounds
    SMALL = 14,             // units of models that all placements are tried for
    N_PRICED = 300 / SLOWER,
    N_EXHAUSTIVE = 300 / SLOWER,
    N_ALL_WAYS = 100 / SLOWER,
    N_STRATEGIES = 50 / SLOWER,
    N_LADDERS = 100 / SLOWER,
    N_LIMITS = 1000 / SLOWER,
    CHAIN = 4, // machines, each better than the one before, that a model is planned for
    N_CHAINS = 2500 / SLOWER,
    N_PAIRS = CHAIN * N_CHAINS,
    N_EARN = 400 / SLOWER,
};

struct fixture {
    struct shape shape;
    struct plan plan, other;
    struct machine machine, priced; // priced: with the search's margins
    struct workload workload;
    struct constraints constraints;
    struct dice dice;
};

static void invent(struct fixture *f, uint64_t seed, int32_t max_units) {
    f->dice = (struct dice){seed};
    memset(&f->constraints, 0, sizeof f->constraints);
    f->constraints.gpu_layers = GPU_LAYERS_AUTO;
    invent_small_shape(&f->shape, &f->dice, max_units);
    invent_machine(&f->machine, &f->dice, &f->shape);
    invent_workload(&f->workload, &f->dice, &f->shape);
}

// The time by which the search compares the plan with others.
static double compared_us(struct plan *plan, const struct shape *shape) {
    const struct machine machine = plan->machine;
    struct prediction prediction;
    search_add_margins(&plan->machine);
    plan_predict_after(plan, shape, plan->workload.n_past, &prediction);
    plan->machine = machine;
    return prediction.total_us * search_margin(&plan->place, plan->n_units);
}

// INFINITY: nothing fits; NAN: another error. In any thread.
static double solved_us(struct fixture *f, struct plan *plan) {
    struct err e;
    const enum status status =
        planner_solve(plan, &f->shape, &f->machine, &f->workload, &f->constraints, &e);
    if (status) return status == ERR_MEMORY ? (double)INFINITY : (double)NAN;
    return compared_us(plan, &f->shape);
}

// OK or ERR_MEMORY.
static enum status solve(struct fixture *f, struct plan *plan, double *total_us) {
    *total_us = solved_us(f, plan);
    assert_true(*total_us == *total_us); // not NAN
    return *total_us < (double)INFINITY ? OK : ERR_MEMORY;
}

static bool close_to(double a, double b, double tolerance) {
    return fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b));
}

// ---- Evaluations are what the finished plan predicts --------------------------------------------

// The plan of one placement with each micro-batch.
static void check_evaluation(struct fixture *f, struct evaluator *ev,
                             const struct placement *ways) {
    struct evaluation evaluation;
    evaluate(ev, ways, (double)INFINITY, &evaluation);
    for (int i = 0; i < ev->n_choices; i++) {
        f->plan.workload = ev->choices[i].w;
        f->plan.place = *ways;
        plan_count_bytes(&f->plan, &f->shape);
        plan_schedule(&f->plan, &f->shape);
        struct prediction prediction;
        plan_predict_after(&f->plan, &f->shape, ev->choices[i].w.n_past, &prediction);
        assert_true(close_to(prediction.total_us, evaluation.us[i], 1e-9));
        assert_true(evaluation.least_us[i] <= evaluation.us[i] * (1 + 1e-9));
        for (int d = 0; d < MAX_DEVICES; d++)
            assert_int_equal(plan_device_bytes(&f->plan, d), evaluation.bytes[i][d]);
    }
}

// No placement with streamed units is faster than what is called hopeless without them.
static void check_hopeless(struct evaluator *ev, const struct placement *ways) {
    struct evaluation evaluation;
    struct placement other = *ways;
    double least = (double)INFINITY;
    evaluate(ev, ways, (double)INFINITY, &evaluation);
    for (int i = 0; i < ev->n_choices; i++) least = fmin(least, evaluation.us[i]);
    for (int u = 0; u < ev->shape->n_units; u++) other.units[u].streamed = false;
    evaluate(ev, &other, least * (1 + 1e-6), &evaluation);
    assert_false(evaluation.hopeless);
}

// Any placement, with any ways if ways_share > 0.
static void any_ways(struct fixture *f, double ways_share, struct placement *out) {
    const double share = dice_real(&f->dice, -0.2, 1.2);
    const double streamed = dice_real(&f->dice, -0.2, 1.2);
    *out = (struct placement){.ring = GPU,
                              .feed = (enum feed)dice_int(&f->dice, FEED_ARENA, FEED_STAGED)};
    for (int u = 0; u < f->shape.n_units; u++) {
        const struct unit *unit = &f->shape.units[u];
        out->units[u].device = dice_chance(&f->dice, share) ? GPU : HOST;
        if (out->units[u].device == GPU && unit_can_split(unit) &&
            dice_chance(&f->dice, ways_share))
            out->units[u].cpu_parts = (uint8_t)dice_int(&f->dice, 1, UNIT_PARTS - 1);
        const bool on_cpu = out->units[u].device == HOST || out->units[u].cpu_parts;
        out->units[u].streamed =
            on_cpu && ways_share > 0 && unit_can_stream(unit) && dice_chance(&f->dice, streamed);
    }
}

// Units of attention that are streamed whole, split, or both.
struct attention_ways {
    int n_streamed, n_split, n_both;
};
static void count_attention(const struct fixture *f, const struct placement *ways,
                            struct attention_ways *n) {
    for (int u = 0; u < f->shape.n_units; u++) {
        if (f->shape.units[u].kind != UNIT_ATTENTION) continue;
        n->n_streamed += ways->units[u].streamed && !ways->units[u].cpu_parts;
        n->n_split += !ways->units[u].streamed && ways->units[u].cpu_parts;
        n->n_both += ways->units[u].streamed && ways->units[u].cpu_parts;
    }
}

static void test_evaluations(void **state) {
    struct fixture *f = *state;
    struct placement ways;
    struct attention_ways n = {0};
    for (uint64_t seed = 0; seed < N_PRICED; seed++) {
        invent(f, seed, 32);
        struct err e;
        struct evaluator ev;
        for (int d = 0; d < MAX_DEVICES; d++) f->machine.devices[d].budget_bytes = UINT64_MAX / 4;
        assert_int_equal(workload_defaults(&f->workload, &f->shape, &e), OK);
        assert_int_equal(evaluator_open(&ev, &f->shape, &f->machine, UINT64_MAX, &f->workload, &e),
                         OK);
        memset(&f->plan, 0, sizeof f->plan);
        f->plan.machine = f->machine;
        f->plan.n_units = f->shape.n_units;
        for (int round = 0; round < 20; round++) {
            any_ways(f, round % 4 * 0.3, &ways);
            check_evaluation(f, &ev, &ways);
            check_hopeless(&ev, &ways);
            count_attention(f, &ways, &n);
        }
        evaluator_close(&ev);
    }
    print_message("attention: %d units streamed, %d split, %d both\n", n.n_streamed, n.n_split,
                  n.n_both);
    if (SLOWER == 1) assert_true(n.n_streamed > 0 && n.n_split > 0 && n.n_both > 0);
}

// ---- Against every placement --------------------------------------------------------------------

static void open_evaluator(struct fixture *f, struct evaluator *ev) {
    struct err e;
    struct workload w = f->workload;
    f->priced = f->machine;
    search_add_margins(&f->priced);
    assert_int_equal(workload_defaults(&w, &f->shape, &e), OK);
    assert_int_equal(evaluator_open(ev, &f->shape, &f->priced,
                                    f->machine.devices[DEVICE_HOST].budget_bytes, &w, &e),
                     OK);
}

static void take_better(struct evaluator *ev, const struct placement *ways, double *best) {
    struct evaluation evaluation;
    const double margin = search_margin(ways, ev->shape->n_units);
    evaluate(ev, ways, fmin(*best / margin, DBL_MAX), &evaluation);
    for (int i = 0; i < ev->n_choices; i++)
        if (evaluation.fits[i]) *best = fmin(*best, evaluation.us[i] * margin);
}

static double best_of_all(struct fixture *f) {
    struct evaluator ev;
    struct placement ways = {.ring = GPU};
    open_evaluator(f, &ev);
    double best = (double)INFINITY;
    for (uint32_t subset = 0; subset < UINT32_C(1) << f->shape.n_units; subset++) {
        for (int u = 0; u < f->shape.n_units; u++)
            ways.units[u].device = subset >> u & 1 ? GPU : DEVICE_HOST;
        take_better(&ev, &ways, &best);
    }
    evaluator_close(&ev);
    return best;
}

// Ways of one unit: on the CPU, on the accelerator, streamed, split, and that streamed.
enum way { WAY_CPU, WAY_GPU, WAY_STREAMED, WAY_SPLIT, WAY_SPLIT_STREAMED, WAYS };

static bool set_way(struct placement *ways, const struct unit *unit, int u, enum way way,
                    int parts) {
    const bool split = way == WAY_SPLIT || way == WAY_SPLIT_STREAMED;
    ways->units[u].device = way == WAY_GPU || split ? GPU : HOST;
    ways->units[u].cpu_parts = split ? (uint8_t)parts : 0;
    ways->units[u].streamed = way == WAY_STREAMED || way == WAY_SPLIT_STREAMED;
    return (!split || unit_can_split(unit)) && (!ways->units[u].streamed || unit_can_stream(unit));
}

// Counts way on to the next combination; false after the last.
static bool next_ways(const struct fixture *f, struct placement *ways, int way[], int parts) {
    for (int u = 0; u < f->shape.n_units; u++) {
        const struct unit *unit = &f->shape.units[u];
        while (++way[u] < WAYS)
            if (set_way(ways, unit, u, (enum way)way[u], parts)) return true;
        way[u] = WAY_CPU;
        set_way(ways, unit, u, WAY_CPU, parts);
    }
    return false;
}

static void take_better_rings(const struct fixture *f, struct evaluator *ev, struct placement *ways,
                              double *best) {
    bool streams = false;
    for (int u = 0; u < f->shape.n_units; u++) streams = streams || ways->units[u].streamed;
    ways->ring = GPU;
    for (int feed = FEED_ARENA; feed < (streams ? FEEDS : FEED_ARENA + 1); feed++) {
        ways->feed = (enum feed)feed;
        take_better(ev, ways, best);
    }
}

// Whatever is streamed and split, all that is split in the same parts.
static double best_of_all_ways(struct fixture *f, double known) {
    static const int parts[] = {2, 5, 10, 16, 24};
    struct evaluator ev;
    open_evaluator(f, &ev);
    double best = known;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct placement ways = {0};
        int way[SMALL] = {0};
        do take_better_rings(f, &ev, &ways, &best);
        while (next_ways(f, &ways, way, parts[i]));
    }
    evaluator_close(&ev);
    return best;
}

struct ratios {
    double worst, sum;
    int n;
};
static void add_ratio(struct ratios *r, double us, double best) {
    assert_true((us == (double)INFINITY) == (best == (double)INFINITY));
    if (best == (double)INFINITY) return;
    r->worst = fmax(r->worst, us / best);
    r->sum += us / best;
    r->n++;
}

// Whole units against every placement of them; then with everything that a plan may do, which must
// be no worse.
static void test_exhaustive(void **state) {
    struct fixture *f = *state;
    struct ratios r = {.worst = 1};
    for (uint64_t seed = 0; seed < N_EXHAUSTIVE; seed++) {
        invent(f, 1000 + seed, SMALL);
        double us, us_auto;
        f->constraints.whole_units = true;
        solve(f, &f->plan, &us);
        f->constraints.whole_units = false;
        solve(f, &f->plan, &us_auto);
        assert_true(us_auto <= us);
        add_ratio(&r, us, best_of_all(f));
    }
    print_message("%d models: at worst %.6f of the best placement, on average %.6f\n", r.n, r.worst,
                  r.sum / r.n);
    assert_true(r.n > N_EXHAUSTIVE / 2);
    assert_true(r.worst <= 1.01);
    assert_true(r.sum / r.n <= 1.001);
}

static void test_all_ways(void **state) {
    struct fixture *f = *state;
    struct ratios r = {.worst = 1};
    int n_streamed = 0, n_split = 0;
    for (uint64_t seed = 0; seed < N_ALL_WAYS; seed++) {
        invent(f, 300000 + seed, 8);
        double us;
        if (f->machine.devices[GPU].unified || solve(f, &f->plan, &us)) continue;
        for (int u = 0; u < f->shape.n_units; u++) {
            n_streamed += f->plan.place.units[u].streamed;
            n_split += f->plan.place.units[u].cpu_parts > 0;
        }
        add_ratio(&r, us, best_of_all_ways(f, us));
    }
    print_message("%d models: at worst %.6f of the best ways, on average %.6f; %d units streamed, "
                  "%d split\n",
                  r.n, r.worst, r.sum / r.n, n_streamed, n_split);
    assert_true(SLOWER > 1 || r.n > N_ALL_WAYS / 2);
    assert_true(r.worst <= 1.01);
    assert_true(r.sum / r.n <= 1.001);
    if (SLOWER == 1) assert_true(n_streamed > 0 && n_split > 0);
}

// ---- Larger models: against the splits that people know -----------------------------------------

// The best of CPU only, the last n layers, and those with the experts on the CPU.
static double best_of_ladder(struct fixture *f) {
    double best = (double)INFINITY, us;
    for (int cpu_experts = 0; cpu_experts < 2; cpu_experts++) {
        for (int32_t n = 0; n <= f->shape.n_layers + 1; n++) {
            f->constraints.gpu_layers = n;
            f->constraints.cpu_experts = cpu_experts ? CPU_EXPERTS_ALL : 0;
            if (solve(f, &f->other, &us) == OK) best = fmin(best, us);
        }
    }
    f->constraints.gpu_layers = GPU_LAYERS_AUTO;
    f->constraints.cpu_experts = 0;
    return best;
}

static void test_ladder(void **state) {
    struct fixture *f = *state;
    double gain = 0;
    int n = 0;
    for (uint64_t seed = 0; seed < N_LADDERS; seed++) {
        invent(f, 5000 + seed, 40);
        double us;
        solve(f, &f->plan, &us);
        const double ladder = best_of_ladder(f);
        assert_true(us <= ladder * (1 + 1e-12));
        if (ladder == (double)INFINITY) continue;
        gain += ladder / us;
        n++;
    }
    print_message("%d models: %.3f times as fast as the best whole-layer split\n", n, gain / n);
}

// Without the padding, which need not be copied with a step.
static void assert_same_step(const struct step *a, const struct step *b) {
    assert_int_equal(a->kind, b->kind);
    assert_true(a->device == b->device && a->peer == b->peer && a->slot == b->slot);
    assert_true(a->phase == b->phase && a->data == b->data && a->tail == b->tail);
    assert_true(a->first_col == b->first_col && a->n_cols == b->n_cols && a->unit == b->unit);
    assert_true(a->bytes_per_row == b->bytes_per_row && a->bytes_fixed == b->bytes_fixed);
    assert_true(a->bytes_per_past == b->bytes_per_past && a->most_past == b->most_past);
}

// Limits hold, bytes are the footprint's, and solving again (each fourth model, which is slow
// enough) gives the same to the last bit.
static void test_limits(void **state) {
    struct fixture *f = *state;
    int n_refused = 0;
    for (uint64_t seed = 0; seed < N_LIMITS; seed++) {
        invent(f, 20000 + seed, 16);
        if (dice_chance(&f->dice, 0.3))
            f->constraints.vram_bytes = f->machine.devices[GPU].budget_bytes / 2 + 1;
        if (dice_chance(&f->dice, 0.3))
            f->constraints.ram_bytes = f->machine.devices[HOST].budget_bytes / 2 + 1;
        f->constraints.cpu_experts = dice_chance(&f->dice, 0.3) ? dice_int(&f->dice, 1, 6) : 0;
        f->constraints.kv_auto = dice_chance(&f->dice, 0.3);
        struct err e;
        const enum status status =
            planner_solve(&f->plan, &f->shape, &f->machine, &f->workload, &f->constraints, &e);
        if (status) {
            assert_int_equal(status, ERR_MEMORY);
            assert_true(strstr(e.what, " need") && strstr(e.what, "iB") && e.fix[0]);
            n_refused++;
            continue;
        }
        const struct plan *p = &f->plan;
        uint64_t bytes[MAX_DEVICES], units[MAX_DEVICES] = {0};
        for (int d = 0; d < MAX_DEVICES; d++) bytes[d] = plan_device_bytes(p, d);
        assert_true(machine_holds(&p->machine, bytes));
        const uint64_t vram = f->constraints.vram_bytes, ram = f->constraints.ram_bytes;
        assert_true(bytes[GPU] <= f->machine.devices[GPU].budget_bytes);
        assert_true(!vram || bytes[GPU] <= vram);
        assert_true(bytes[HOST] <= (ram ? ram : f->machine.devices[HOST].budget_bytes));
        for (int u = 0; u < p->n_units; u++) {
            units[p->place.units[u].device] += p->unit_weight_bytes[u] + p->unit_kv_bytes[u];
            units[HOST] += p->unit_cpu_bytes[u];
            assert_false(f->shape.units[u].layer < f->constraints.cpu_experts &&
                         p->place.units[u].device == GPU && f->shape.units[u].kind == UNIT_EXPERTS);
        }
        units[HOST] += p->tables.size_bytes + (uint64_t)p->n_blocks * p->block_bytes;
        units[GPU] += RING_SLOTS * p->slot_bytes;
        for (int d = 0; d < MAX_DEVICES; d++)
            assert_int_equal(units[d] + p->devices[d].scratch.size_bytes, bytes[d]);
        // Memory that stays pinned for the feed fits the machine's memory, whatever --ram says.
        const uint64_t *host = p->devices[HOST].bytes;
        assert_true(p->pinned_bytes - host[PLAN_STAGING] - host[PLAN_SCRATCH] <=
                    f->machine.devices[HOST].budget_bytes);
        if (seed % 4) continue;
        assert_int_equal(
            planner_solve(&f->other, &f->shape, &f->machine, &f->workload, &f->constraints, &e),
            OK);
        assert_memory_equal(&f->plan, &f->other, offsetof(struct plan, steps));
        for (int b = 0; b < BATCH_CLASSES; b++)
            for (int32_t i = 0; i < f->plan.n_steps[b]; i++)
                assert_same_step(&f->plan.steps[b][i], &f->other.steps[b][i]);
    }
    print_message("%d of %d refused\n", n_refused, N_LIMITS);
    assert_true(n_refused < N_LIMITS / 2);
}

// ---- Strategies ---------------------------------------------------------------------------------

// Checks the placement that each strategy promises.
static void check_strategy(const struct fixture *f, enum strategy strategy) {
    const struct plan *p = &f->other;
    bool left_host = false;
    int n_idle = 0, n_streamed = 0; // of attention that can be streamed
    for (int u = 0; u < p->n_units; u++) {
        const struct unit *unit = &f->shape.units[u];
        const bool on_host = p->place.units[u].device == HOST,
                   split = p->place.units[u].cpu_parts > 0;
        const bool streams = unit_can_stream(unit) && (on_host || split);
        assert_true(strategy == STRATEGY_AUTO || strategy == STRATEGY_ROW_SPLIT || !split);
        if (strategy == STRATEGY_STREAMED && unit->kind == UNIT_FFN)
            assert_int_equal(p->place.units[u].streamed, streams);
        assert_true(strategy == STRATEGY_AUTO || strategy == STRATEGY_STREAMED ||
                    !p->place.units[u].streamed);
        n_idle += unit->kind == UNIT_ATTENTION && streams && !p->place.units[u].streamed;
        n_streamed += unit->kind == UNIT_ATTENTION && p->place.units[u].streamed;
        assert_true(strategy != STRATEGY_CPU || on_host);
        assert_true(strategy != STRATEGY_LAYERS || !on_host || !left_host);
        assert_true(strategy != STRATEGY_ROW_SPLIT || !on_host || unit->kind != UNIT_FFN ||
                    !unit_can_split(unit));
        left_host = left_host || !on_host;
    }
    assert_true(strategy != STRATEGY_STREAMED || n_idle == 0 || n_streamed == 0);
}

// Where an arena cannot be pinned, the search takes blocks, and a plan as fast as with blocks
// alone.
static void test_feeds(void **state) {
    struct fixture *f = *state;
    const uint64_t plenty = UINT64_C(1) << 40;
    int n_staged = 0;
    for (uint64_t seed = 0; seed < N_STRATEGIES; seed++) {
        invent(f, 500000 + seed, 20);
        f->machine.devices[GPU].unified = false;
        f->machine.devices[HOST].budget_bytes = plenty;
        f->constraints.strategy = STRATEGY_STREAMED;
        double us, us_staged;
        if (solve(f, &f->plan, &us) || f->plan.place.feed != FEED_ARENA) continue;
        f->constraints.ram_bytes = plenty;
        f->machine.devices[HOST].budget_bytes = f->plan.pinned_bytes - 1;
        if (solve(f, &f->plan, &us) == OK)
            assert_true(f->plan.pinned_bytes <= f->machine.devices[HOST].budget_bytes);
        n_staged += us < (double)INFINITY && f->plan.place.feed == FEED_STAGED;
        f->constraints.place.feed = FEED_STAGED;
        solve(f, &f->other, &us_staged);
        assert_true(us <= us_staged);
    }
    assert_true(SLOWER > 1 || n_staged > 0);
}

static void test_strategies(void **state) {
    struct fixture *f = *state;
    int n[STRATEGIES] = {0};
    for (uint64_t seed = 0; seed < N_STRATEGIES; seed++) {
        invent(f, 400000 + seed, 20);
        f->machine.devices[GPU].unified = false;
        double us, us_auto;
        solve(f, &f->plan, &us_auto);
        for (int s = 0; s < STRATEGIES; s++) {
            f->constraints.strategy = (enum strategy)s;
            if (solve(f, &f->other, &us)) continue;
            check_strategy(f, f->constraints.strategy);
            assert_true(us_auto <= us * 1.05);
            n[s]++;
        }
    }
    for (int s = 0; s < STRATEGIES; s++) {
        enum strategy parsed;
        assert_true(strategy_parse(strategy_name((enum strategy)s), &parsed));
        assert_int_equal(parsed, s);
        assert_true(SLOWER > 1 || n[s] > 0);
    }
    struct err e;
    f->machine.n_devices = 1;
    f->constraints.strategy = STRATEGY_STREAMED;
    assert_int_equal(
        planner_solve(&f->plan, &f->shape, &f->machine, &f->workload, &f->constraints, &e),
        ERR_USAGE);
}

// ---- Splits earn their margin -------------------------------------------------------------------

static bool splits(const struct plan *plan) {
    for (int32_t u = 0; u < plan->n_units; u++)
        if (plan->place.units[u].cpu_parts) return true;
    return false;
}

// The predicted time, with or without the margins of hand-overs.
static double predicted_us(struct fixture *f, struct plan *plan, bool margins) {
    const struct machine machine = plan->machine;
    struct prediction prediction;
    if (margins) search_add_margins(&plan->machine);
    plan_predict_after(plan, &f->shape, plan->workload.n_past, &prediction);
    plan->machine = machine;
    return prediction.total_us;
}

// Where the accelerator holds all of the model, a plan that splits is at least 8 % faster than
// the whole model there, even if hand-overs take longer than was measured.
static void test_splits_earn(void **state) {
    struct fixture *f = *state;
    const struct constraints whole = {.gpu_layers = GPU_LAYERS_ALL};
    int n = 0, n_split = 0;
    for (uint64_t seed = 0; seed < N_EARN; seed++) {
        double us;
        struct err e;
        invent(f, 600000 + seed, 20);
        f->machine.devices[GPU].unified = false;
        f->machine.devices[GPU].budget_bytes = f->machine.devices[HOST].budget_bytes = UINT64_C(1)
                                                                                       << 40;
        if (solve(f, &f->plan, &us)) continue;
        if (planner_solve(&f->other, &f->shape, &f->machine, &f->workload, &whole, &e)) continue;
        n++;
        if (!splits(&f->plan)) continue;
        n_split++;
        for (int margins = 0; margins < 2; margins++)
            assert_true(predicted_us(f, &f->other, margins) >=
                        1.08 * predicted_us(f, &f->plan, margins));
    }
    print_message("%d models that fit whole, %d of them split\n", n, n_split);
    if (SLOWER == 1) assert_true(n_split > 0 && n_split < n);
}

// ---- More is never slower -----------------------------------------------------------------------

// Makes one part of the machine larger or faster.
static void improve(struct fixture *f) {
    struct machine_device *cpu = &f->machine.devices[HOST], *gpu = &f->machine.devices[GPU];
    const double factor = dice_scale(&f->dice, 1.0001, 4);
    switch (dice_int(&f->dice, 0, 5)) {
    case 0: gpu->budget_bytes = (uint64_t)((double)gpu->budget_bytes * factor); break;
    case 1: gpu->budget_bytes += (uint64_t)dice_int(&f->dice, 1, 1 << 22); break;
    case 2: cpu->budget_bytes = (uint64_t)((double)cpu->budget_bytes * factor); break;
    case 3: gpu->link.to_gbps *= factor; break;
    case 4: gpu->link.from_gbps *= factor; break;
    case 5:
        gpu->link.to_gbps *= factor;
        gpu->link.staged_to_gbps *= factor;
        gpu->link.latency_us /= factor;
        break;
    }
}

// Mostly tiny models, so that there is time for many; every twentieth has some layers. us: the time
// on the machine as invented and after each of CHAIN improvements, see solved_us.
static void plan_chain(struct fixture *f, uint64_t seed, double us[CHAIN + 1]) {
    invent(f, 100000 + seed, seed % 20 ? 8 : 20);
    f->constraints.kv_auto = seed % 16 == 0;
    for (int i = 0; i <= CHAIN; i++) {
        if (i > 0) improve(f);
        us[i] = solved_us(f, &f->plan);
    }
}

// As many at once as there are CPUs: any thread may plan.
static void test_monotone(void **state) {
    (void)state;
    static double us[N_CHAINS][CHAIN + 1];
    int n_faster = 0, n_equal = 0, n_fits_now = 0;
#pragma omp parallel
    {
        struct fixture *f = mem_alloc(1, sizeof *f);
#pragma omp for schedule(dynamic, 4)
        for (int i = 0; i < N_CHAINS; i++) {
            us[i][0] = (double)NAN;
            if (f) plan_chain(f, (uint64_t)i, us[i]);
        }
        mem_free(f);
    }
    for (int i = 0; i < N_PAIRS; i++) {
        const double before = us[i / CHAIN][i % CHAIN], after = us[i / CHAIN][i % CHAIN + 1];
        assert_true(after == before || after <= before * (1 + 1e-9));
        n_faster += after < before * (1 - 1e-9) && before < (double)INFINITY;
        n_equal += after == before;
        n_fits_now += after < (double)INFINITY && before == (double)INFINITY;
    }
    print_message("%d pairs: %d faster, %d equal, %d fit at last, none slower\n", N_PAIRS, n_faster,
                  n_equal, n_fits_now);
    assert_true(n_faster > N_PAIRS / 20);
}

static int setup(void **state) {
    *state = mem_alloc(1, sizeof(struct fixture));
    return *state ? 0 : -1;
}

static int teardown(void **state) {
    mem_free(*state);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_evaluations), cmocka_unit_test(test_exhaustive),
        cmocka_unit_test(test_all_ways),    cmocka_unit_test(test_ladder),
        cmocka_unit_test(test_limits),      cmocka_unit_test(test_feeds),
        cmocka_unit_test(test_strategies),  cmocka_unit_test(test_splits_earn),
        cmocka_unit_test(test_monotone),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
