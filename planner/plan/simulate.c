/* simulate.c: the times of a plan's steps on paper; see simulate.h. cost.c gives the duration of
 * each step, clocks.c its start. */
#include "planner/plan/simulate.h"

#include "planner/plan/paging.h"

struct walk {
    const struct plan *plan;
    const struct shape *shape;
    const struct pass *pass;
    struct simulation *out;
    struct host_cached host_cached; // what the CPU's cache keeps of the weights
    bool timed;
};

struct unit_part step_part(const struct step *step, int32_t cpu_parts) {
    const bool both = step->phase == PHASE_ALL; // streamed
    return (struct unit_part){.phase = step->phase,
                              .cpu_parts = cpu_parts,
                              .first = both || step->device != DEVICE_HOST,
                              .last = both || step->device == DEVICE_HOST};
}

// ---- What each step takes -----------------------------------------------------------------------

static struct step_work compute_work(struct walk *w, const struct step *step) {
    const int d = step->device;
    const struct unit *unit = &w->shape->units[step->unit];
    const struct unit_part part = step_part(step, w->plan->place.units[step->unit].cpu_parts);
    const double cached = d == DEVICE_HOST ? cost_share_cached(w->host_cached, unit) : 0;
    const struct cost_place at = {w->shape, &w->plan->machine.devices[d], &w->plan->workload,
                                  cached};
    const struct cost cost = cost_of_part(&at, unit, part, w->pass);
    w->out->weight_bytes[d] += (uint64_t)cost.read_bytes;
    if (!w->timed) return (struct step_work){0};
    w->out->cost[d].memory_us += cost.memory_us;
    w->out->cost[d].compute_us += cost.compute_us;
    w->out->cost[d].overhead_us += cost.overhead_us;
    w->out->compute_us[d] += cost_sum(cost);
    return (struct step_work){cost_sum(cost), (1 - cached) * cost.read_bytes, cost.launch_us};
}

// Bytes that the step copies. Nothing is fetched for the tail if no logits are wanted.
static uint64_t copied_bytes(const struct step *step, const struct pass *pass) {
    const bool of_logits = step->kind == STEP_LOGITS || step->tail;
    const int32_t n_rows = of_logits ? pass->n_logits : pass->n_tokens;
    if (step->tail && n_rows == 0) return 0;
    return step->bytes_fixed + step->bytes_per_row * (uint64_t)n_rows +
           step_past_bytes(step, pass->n_past);
}

struct step_work simulate_copy(const struct machine *m, enum feed feed, const struct step *step,
                               const struct pass *pass) {
    const double size_bytes = (double)copied_bytes(step, pass);
    if (!(size_bytes > 0)) return (struct step_work){0};
    const struct link link = step_link(m, step);
    const bool fetches = step->kind == STEP_FETCH;
    const double weights = fetches ? (double)step->bytes_fixed : 0, rest = size_bytes - weights;
    struct step_work work = {0};
    if (weights > 0) { // a staged byte is copied into a block and out again
        const bool staged = feed == FEED_STAGED;
        work.us = link.latency_us + cost_move_us(staged ? link.staged_gbps : link.gbps, weights);
        work.dram_bytes = weights * (staged ? 3 : 1);
    }
    if (rest > 0) { // keys and values of a cache are copied apart
        const int n_copies = fetches || step->kind == STEP_STORE ? 2 : 1;
        work.us += n_copies * link.latency_us + cost_move_us(link.gbps, rest);
        work.dram_bytes += rest;
    }
    return work;
}

static struct step_work work_of(struct walk *w, const struct step *step) {
    if (step->kind == STEP_COMPUTE) return compute_work(w, step);
    const uint64_t size_bytes = copied_bytes(step, w->pass);
    w->out->copied_bytes += size_bytes;
    w->out->n_copies += (size_bytes > 0) + (step_past_bytes(step, w->pass->n_past) > 0);
    if (!w->timed) return (struct step_work){0};
    return simulate_copy(&w->plan->machine, w->plan->place.feed, step, w->pass);
}

// ---- A pass -------------------------------------------------------------------------------------

// Walks the steps. times may be NULL.
static void walk(const struct plan *plan, const struct shape *shape, const struct pass *pass,
                 struct step_times *times, struct simulation *out) {
    struct walk w = {.plan = plan, .shape = shape, .pass = pass, .out = out};
    const enum batch_class batch = batch_class_of(pass->n_tokens);
    struct clocks clocks;
    bool used[MAX_DEVICES] = {false};
    w.timed = plan->machine.rates != RATES_NONE;
    w.host_cached = cost_host_cached(&plan->machine, &plan->host_reads);
    *out = (struct simulation){.n_steps = plan->n_steps[batch]};
    for (int i = 0; i < plan->n_steps[batch]; i++) used[plan->steps[batch][i].device] = true;
    clocks_start(&clocks, &plan->machine, used, plan->place.units[0].device);
    for (int i = 0; i < plan->n_steps[batch]; i++) {
        const struct step_work work = work_of(&w, &plan->steps[batch][i]);
        const struct step_times t = clocks_run(&clocks, &plan->steps[batch][i], &work);
        if (times) times[i] = t;
    }
    const bool ahead = batch == BATCH_PREFILL && plan->runs_ahead;
    out->disk_us = paging_us(plan, shape, pass);
    out->total_us = clocks_total_us(&clocks) + out->disk_us;
    out->period_us = ahead ? clocks_period_us(&clocks) : out->total_us;
    out->copy_us = clocks.copy_us;
    out->hidden_copy_us = clocks_hidden_us(&clocks);
}

void plan_simulate(const struct plan *plan, const struct shape *shape, const struct pass *pass,
                   struct simulation *out) {
    walk(plan, shape, pass, NULL, out);
}

void plan_step_times(const struct plan *plan, const struct shape *shape, const struct pass *pass,
                     struct step_times *out) {
    struct simulation sim;
    walk(plan, shape, pass, out, &sim);
}
