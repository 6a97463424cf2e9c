/* solver.c: makes a plan that fits a request, or a refusal that says what would fit.
 *
 * Constraints become a set of devices for each unit; search.c finds the fastest placement in it.
 * Without rates the accelerator is filled by bytes from the end of the model backwards (head, then
 * the last layer's units, ...), which keeps the number of crossings at two and is the meaning of
 * --gpu-layers in other programs. Owns nothing; any thread. Tested by tests/planner/test_planner.c,
 * tests/planner/test_solver.c.
 */
#include "planner/search/solver.h"

#include "kernels/ops.h"
#include "planner/plan/accounts.h"
#include "planner/plan/footprint.h"
#include "planner/plan/predict.h"
#include "planner/plan/schedule.h"
#include "planner/plan/ties.h"
#include "planner/search/search.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { BLIND_UBATCH = 512 };

static uint8_t only(int8_t d) { return (uint8_t)(1 << d); }

// ---- Placements by number -----------------------------------------------------------------------

// Places the last n units on the accelerator and all others on the CPU, if they are allowed there.
static void place_last(struct plan *plan, const struct search_request *r, int32_t n) {
    const int32_t n_units = r->shape->n_units;
    const int8_t accelerator = machine_accelerator(&plan->machine);
    for (int32_t u = 0; u < n_units; u++) {
        const int8_t d = unit_leader(r->shape, u) >= n_units - n ? accelerator : DEVICE_HOST;
        const int8_t at = r->allowed[u] & only(d) ? d : (int8_t)__builtin_ctz(r->allowed[u]);
        plan->place.units[u] = (struct unit_place){.device = at};
    }
    plan_count_bytes(plan, r->shape);
}

// Units of the last n layers, the head counted as one layer more; the embedding stays with the CPU.
static int32_t units_of_layers(const struct shape *shape, int32_t n_layers) {
    int32_t n = 0;
    for (int u = 1; u < shape->n_units; u++) {
        const struct unit *unit = &shape->units[u];
        const int32_t from_end = unit->kind == UNIT_HEAD ? 1 : shape->n_layers - unit->layer + 1;
        n += from_end <= n_layers;
    }
    return n;
}

// Places the most last units, or whole layers, that the accelerator holds, and returns their
// number. More units never need fewer bytes there, so it bisects.
static int32_t place_most(struct plan *plan, const struct search_request *r, bool whole_layers) {
    const int8_t accelerator = machine_accelerator(&plan->machine);
    int32_t low = 0, high = whole_layers ? r->shape->n_layers + 1 : r->shape->n_units;
    if (accelerator == DEVICE_HOST) high = 0;
    while (low < high) {
        const int32_t middle = low + (high - low + 1) / 2;
        place_last(plan, r, whole_layers ? units_of_layers(r->shape, middle) : middle);
        if (plan_holds(plan, accelerator))
            low = middle;
        else
            high = middle - 1;
    }
    place_last(plan, r, whole_layers ? units_of_layers(r->shape, low) : low);
    return low;
}

// ---- Constraints --------------------------------------------------------------------------------

// Devices that each unit may be on: a named device, then --n-cpu-moe, then -ngl, else any.
static enum status apply_constraints(uint8_t allowed[], const struct plan *plan,
                                     const struct shape *shape, const struct constraints *c,
                                     struct err *e) {
    const int32_t n_devices = plan->machine.n_devices;
    const int8_t accelerator = machine_accelerator(&plan->machine);
    if (accelerator == DEVICE_HOST && c->gpu_layers > 0) {
        err_set(e, ERR_USAGE, "-ngl asks for layers on a GPU, and there is none");
        return err_fix(e, "leave -ngl away, or name a GPU with --device");
    }
    const bool is_auto = c->gpu_layers == GPU_LAYERS_AUTO;
    const int32_t n_last = is_auto ? 0 : units_of_layers(shape, c->gpu_layers);
    for (int u = 0; u < shape->n_units; u++) {
        const struct unit *unit = &shape->units[u];
        const int8_t d = c->has_units ? c->place.units[u].device : DEVICE_ANY;
        if (d >= n_devices) {
            err_set(e, ERR_USAGE, "%s of layer %d is asked for device %d",
                    unit_kind_name(unit->kind), unit->layer, d);
            return err_expected(e, "a device below %d", n_devices);
        }
        if (d != DEVICE_ANY)
            allowed[u] = only(d);
        else if (unit->layer < c->cpu_experts && unit->kind == UNIT_EXPERTS)
            allowed[u] = only(DEVICE_HOST);
        else if (!is_auto)
            allowed[u] =
                only(unit_leader(shape, u) >= shape->n_units - n_last ? accelerator : DEVICE_HOST);
        else
            allowed[u] = only(DEVICE_HOST) | only(accelerator);
    }
    return ties_allow(shape, c->has_units ? &c->place : NULL, allowed, e);
}

// Checks that the machine and the other constraints allow the strategy.
static enum status check_strategy(const struct machine *m, const struct constraints *c,
                                  struct err *e) {
    const char *name = strategy_name(c->strategy);
    ASSERT((unsigned)c->strategy < STRATEGIES && (unsigned)c->place.feed < FEEDS);
    if (c->strategy == STRATEGY_AUTO || c->strategy == STRATEGY_CPU) return OK;
    const int8_t accelerator = machine_accelerator(m);
    if (accelerator == DEVICE_HOST) {
        err_set(e, ERR_USAGE, "strategy %s needs a GPU, and there is none", name);
        return err_fix(e, "leave --strategy away, or name a GPU with --device");
    }
    if (c->strategy == STRATEGY_LAYERS) return OK;
    if (m->rates == RATES_NONE) {
        err_set(e, ERR_USAGE, "strategy %s needs to know how fast the machine is", name);
        return err_fix(e, "run tandem calibrate, or take --strategy layers");
    }
    if (c->strategy != STRATEGY_STREAMED || !m->devices[accelerator].unified) return OK;
    err_set(e, ERR_USAGE, "strategy %s makes no sense where both devices share their memory", name);
    return err_fix(e, "leave --strategy away");
}

// Restricts all units to the CPU; refuses units that are fixed elsewhere.
static enum status keep_to_cpu(uint8_t allowed[], const struct shape *shape, struct err *e) {
    for (int u = 0; u < shape->n_units; u++) {
        if (!(allowed[u] & only(DEVICE_HOST))) {
            char name[64];
            plan_unit_name(&shape->units[u], name, sizeof name);
            err_set(
                e, ERR_USAGE,
                "strategy cpu keeps all layers on the CPU, and another option puts %s on the GPU",
                name);
            return err_fix(e, "leave away --strategy, or -ngl and -ot");
        }
        allowed[u] = only(DEVICE_HOST);
    }
    return OK;
}

static void apply_limits(struct machine *m, const struct constraints *c) {
    for (int d = 0; d < m->n_devices; d++) {
        const uint64_t limit = d == DEVICE_HOST ? c->ram_bytes : c->vram_bytes;
        // The user may lift the limit on RAM (mapped weights can be paged), never that of the
        // accelerator's memory.
        if (limit && (d == DEVICE_HOST || limit < m->devices[d].budget_bytes))
            m->devices[d].budget_bytes = limit;
        if (limit && d == DEVICE_HOST)
            (void)snprintf(m->ram_limited_by, sizeof m->ram_limited_by, "--ram");
    }
}

// ---- Refusals -----------------------------------------------------------------------------------

enum { RAISED_CHARS = 192 };

// In whole MiB, rounded up.
static unsigned long long mib(uint64_t size_bytes) {
    return (size_bytes >> 20) + (size_bytes % (1 << 20) > 0);
}

// Writes what has to be raised for the plan to fit in RAM: what limits it, and --ram else, which is
// believed. Returns out.
static char *raised_ram(char out[RAISED_CHARS], const struct plan *plan) {
    const char *by = plan->machine.ram_limited_by;
    const bool of_process = strcmp(by, "RLIMIT_AS") == 0;
    const uint64_t budget_bytes = plan->machine.devices[DEVICE_HOST].budget_bytes,
                   lacking = plan_needs(plan, DEVICE_HOST) - budget_bytes;
    if (*by == '/' || of_process)
        (void)snprintf(out, RAISED_CHARS, "%s by %lluM", of_process ? "ulimit -v" : by,
                       mib(lacking));
    else
        (void)snprintf(out, RAISED_CHARS, "--ram to %lluM", mib(plan_needs(plan, DEVICE_HOST)));
    return out;
}

// Writes the fix for a full accelerator: the most layers that fit beside what else was asked for;
// constraints is NULL if the placement was given, by a plan file. Fewer layers there are more on
// the CPU, which may be too small for them, and then hardly holds what -ngl auto leaves to it.
static enum status fix_accelerator(struct plan *plan, const struct shape *shape,
                                   const struct constraints *constraints, struct err *e) {
    if (!constraints) return err_fix(e, "make a plan for less: tandem plan ... --save FILE");
    const int8_t accelerator = machine_accelerator(&plan->machine);
    struct constraints c = *constraints;
    uint8_t allowed[MAX_UNITS];
    struct err ignored;
    char raised[RAISED_CHARS];
    c.gpu_layers = GPU_LAYERS_AUTO;
    (void)apply_constraints(allowed, plan, shape, &c, &ignored); // allows more than it did before
    const struct search_request request = {.shape = shape, .allowed = allowed};
    const int32_t n_layers = place_most(plan, &request, true);
    if (plan_device_bytes(plan, accelerator) > 0 && !plan_holds(plan, accelerator))
        return err_fix(e, "put less there (-ot), or use a shorter context (-c) or a smaller "
                          "micro-batch (-ub)");
    const bool plain = c.strategy == STRATEGY_AUTO || c.strategy == STRATEGY_LAYERS;
    const char *how = plain ? "" : " without --strategy";
    if (plan_holds(plan, DEVICE_HOST))
        return err_fix(e,
                       "-ngl %d fits%s; or use a shorter context (-c), a smaller micro-batch "
                       "(-ub), or -ngl auto",
                       n_layers, how);
    return err_fix(e,
                   "-ngl %d fits%s if you raise %s; or use a shorter context (-c) or a smaller "
                   "micro-batch (-ub)",
                   n_layers, how, raised_ram(raised, plan));
}

static enum status refuse(struct plan *plan, const struct shape *shape,
                          const struct constraints *constraints, int d, struct err *e) {
    const struct plan_device *need = &plan->devices[d];
    const struct machine_device *device = &plan->machine.devices[d];
    const uint64_t needed = plan_needs(plan, d);
    char sizes[PLAN_PURPOSES][ERR_SIZE_CHARS], size[ERR_SIZE_CHARS], room[ERR_SIZE_CHARS];
    for (int p = 0; p < PLAN_PURPOSES; p++) err_size_needed(sizes[p], need->bytes[p]);
    err_set(
        e, ERR_MEMORY,
        "the layers on %s need %s of its memory%s (weights %s, KV cache %s, scratch %s, staging "
        "%s), and %s are free",
        device->name, err_size_needed(size, needed),
        needed == plan_device_bytes(plan, d) ? "" : " with those of the GPU, which shares it",
        sizes[PLAN_WEIGHTS], sizes[PLAN_KV], sizes[PLAN_SCRATCH], sizes[PLAN_STAGING],
        err_size_limit(room, device->budget_bytes));
    if (d != DEVICE_HOST) return fix_accelerator(plan, shape, constraints, e);
    char raised[RAISED_CHARS];
    return err_fix(e, "raise %s, or take a smaller model", raised_ram(raised, plan));
}

// The first device that does not hold its bytes of the plan, accelerators before the CPU; -1: none.
static int first_full(const struct plan *plan) {
    int d = plan->machine.n_devices - 1;
    while (d >= DEVICE_HOST && plan_holds(plan, d)) d--;
    return d;
}

// constraints: NULL if the placement was given.
static enum status complete(struct plan *plan, const struct shape *shape,
                            const struct constraints *constraints, struct err *e) {
    plan_count_bytes(plan, shape);
    const int full = first_full(plan);
    if (full >= DEVICE_HOST) return refuse(plan, shape, constraints, full, e);
    plan_schedule(plan, shape);
    return OK;
}

enum status planner_complete(struct plan *plan, const struct shape *shape, struct err *e) {
    return complete(plan, shape, NULL, e);
}

// ---- Placements that are given ------------------------------------------------------------------

static enum status refuse_way(const struct unit *unit, const char *way, const char *expected,
                              struct err *e) {
    char name[64];
    plan_unit_name(unit, name, sizeof name);
    err_set(e, ERR_USAGE, "%s cannot be %s", name, way);
    return err_expected(e, "%s", expected);
}

static enum status check_unit_place(const struct unit_place *place, const struct unit *unit,
                                    struct err *e) {
    static const char SPLIT[] = "a dense FFN or attention with a cache, each matrix with at least "
                                "64 rows, or experts with a router and no dense FFN beside them",
                      STREAMED[] = "an FFN, experts, or attention with a cache and without state "
                                   "and window, of which the CPU has something";
    const bool split = place->cpu_parts > 0, on_host = place->device == DEVICE_HOST;
    ASSERT(place->cpu_parts < UNIT_PARTS);
    if (split && !unit_can_split(unit)) return refuse_way(unit, "split", SPLIT, e);
    if (split && on_host)
        return refuse_way(unit, "split on the CPU", "a split layer on the GPU", e);
    const bool streams = unit_can_stream(unit) && (on_host || split);
    return place->streamed && !streams ? refuse_way(unit, "streamed", STREAMED, e) : OK;
}

// Copies the placement that is given.
static enum status apply_placement(struct plan *plan, const struct shape *shape,
                                   const struct constraints *c, struct err *e) {
    ASSERT(c->has_units);
    bool streams = false;
    if (ties_check(shape, &c->place, e)) return e->status;
    for (int u = 0; u < shape->n_units; u++) {
        ASSERT(c->place.units[u].device != DEVICE_ANY);
        if (check_unit_place(&c->place.units[u], &shape->units[u], e)) return e->status;
        streams = streams || c->place.units[u].streamed;
    }
    plan->place = c->place;
    plan->place.ring = machine_accelerator(&plan->machine);
    if (plan->place.feed == FEED_NONE) plan->place.feed = FEED_ARENA;
    if (!streams || plan->place.ring != DEVICE_HOST) return OK;
    return err_set(e, ERR_USAGE, "the plan streams layers to a GPU, and there is none");
}

// Chooses the fastest micro-batch that fits a given placement, the smallest if none fits; without
// rates the largest up to BLIND_UBATCH.
static void choose_ubatch(struct plan *plan, const struct shape *shape) {
    int32_t ubatches[MAX_CHOICES];
    const int32_t n = workload_ubatches(&plan->workload, ubatches);
    const bool blind = plan->machine.rates == RATES_NONE;
    double least = (double)INFINITY;
    int32_t best = ubatches[0];
    for (int i = 0; i < n; i++) {
        struct prediction prediction = {.total_us = -ubatches[i]};
        plan->workload.n_ubatch = ubatches[i];
        plan_count_bytes(plan, shape);
        if (first_full(plan) >= 0 || (blind && i > 0 && ubatches[i] > BLIND_UBATCH)) continue;
        plan_schedule(plan, shape);
        if (!blind) plan_predict_after(plan, shape, plan->workload.n_past, &prediction);
        if (prediction.total_us >= least) continue;
        least = prediction.total_us;
        best = ubatches[i];
    }
    plan->workload.n_ubatch = best;
}

// ---- Solving ------------------------------------------------------------------------------------

// Refuses if no requested placement fits: with the bytes of the smallest micro-batch and as many
// units on the accelerator as it holds, or the strategy asks for more than the model needs.
static enum status refuse_all(struct plan *plan, const struct search_request *r, struct err *e) {
    int32_t ubatches[MAX_CHOICES];
    (void)workload_ubatches(&plan->workload, ubatches);
    plan->workload.n_ubatch = ubatches[0];
    (void)place_most(plan, r, false);
    if (complete(plan, r->shape, r->constraints, e)) return e->status;
    err_set(e, ERR_MEMORY, "no plan of strategy %s fits", strategy_name(r->constraints->strategy));
    return err_fix(e, "leave --strategy and --feed away, or use a shorter context (-c)");
}

// Solves without rates: by bytes, from the end of the model.
static enum status solve_blind(struct plan *plan, const struct search_request *r, struct err *e) {
    int32_t ubatches[MAX_CHOICES];
    const int32_t n = workload_ubatches(&plan->workload, ubatches);
    for (int i = 0; i < n && (i == 0 || ubatches[i] <= BLIND_UBATCH); i++)
        plan->workload.n_ubatch = ubatches[i];
    (void)place_most(plan, r, r->constraints->strategy == STRATEGY_LAYERS);
    return complete(plan, r->shape, r->constraints, e);
}

enum status planner_solve(struct plan *plan, const struct shape *shape,
                          const struct machine *machine, const struct workload *workload,
                          const struct constraints *constraints, struct err *e) {
    ASSERT(machine->n_devices >= 1 && machine->n_devices <= MAX_DEVICES);
    ASSERT(machine->devices[DEVICE_HOST].is_host);
    ASSERT(shape->n_units >= 2 && shape->n_units <= MAX_UNITS);
    memset(plan, 0, offsetof(struct plan, steps)); // nobody looks at steps beyond their number
    plan->machine = *machine;
    plan->workload = *workload;
    plan->n_units = shape->n_units;
    uint8_t allowed[MAX_UNITS];
    if (workload_defaults(&plan->workload, shape, e) || check_strategy(machine, constraints, e) ||
        apply_constraints(allowed, plan, shape, constraints, e))
        return e->status;
    if (constraints->strategy == STRATEGY_CPU && keep_to_cpu(allowed, shape, e)) return e->status;
    apply_limits(&plan->machine, constraints);
    if (constraints->has_placement) {
        if (apply_placement(plan, shape, constraints, e)) return e->status;
        choose_ubatch(plan, shape);
        return planner_complete(plan, shape, e);
    }
    const uint64_t own_bytes = machine->devices[DEVICE_HOST].budget_bytes;
    const struct search_request request = {shape, allowed, constraints, own_bytes};
    if (machine->rates == RATES_NONE) return solve_blind(plan, &request, e);
    bool found;
    if (search_placement(plan, &request, &found, e)) return e->status;
    return found ? complete(plan, shape, constraints, e) : refuse_all(plan, &request, e);
}
