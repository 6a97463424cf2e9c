/* simulate.c: the times of a plan's steps on paper; see simulate.h.
 *
 * cost.c gives the duration of each step, clocks.c its start.
 */
#include "planner/plan/simulate.h"

struct walk {
    const struct plan *plan;
    const struct shape *shape;
    const struct pass *pass;
    struct simulation *out;
    struct cost *parts;
    bool host_cached; // the CPU's cache keeps the weights that it reads
    bool timed;
};

static void start(struct walk *w) {
    const struct plan *plan = w->plan;
    uint64_t read_bytes = 0;
    for (int u = 0; u < plan->n_units; u++)
        read_bytes += plan->place.units[u].device == DEVICE_HOST ? plan->unit_read_bytes[u]
                                                                 : plan->unit_cpu_bytes[u];
    w->host_cached = cost_is_cached(&plan->machine, read_bytes);
}

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
    const bool cached = d == DEVICE_HOST && w->host_cached;
    const struct cost_place at = {w->shape, &w->plan->machine.devices[d], &w->plan->workload,
                                  cached};
    const struct cost cost = cost_of_part(&at, unit, part, w->pass);
    w->out->weight_bytes[d] += (uint64_t)cost.read_bytes;
    if (!w->timed) return (struct step_work){0};
    w->parts[d].memory_us += cost.memory_us;
    w->parts[d].compute_us += cost.compute_us;
    w->parts[d].overhead_us += cost.overhead_us;
    w->out->compute_us[d] += cost_sum(cost);
    return (struct step_work){cost_sum(cost), cached ? 0 : cost.read_bytes};
}

// Bytes that the step copies.
static uint64_t copied_bytes(const struct step *step, const struct pass *pass) {
    const int32_t n_rows = step->kind == STEP_LOGITS ? pass->n_logits : pass->n_tokens;
    return step->bytes_fixed + step->bytes_per_row * (uint64_t)n_rows +
           step_past_bytes(step, pass->n_past);
}

struct step_work simulate_copy(const struct machine *m, enum feed feed, const struct step *step,
                               const struct pass *pass) {
    const double size_bytes = (double)copied_bytes(step, pass);
    if (!(size_bytes > 0)) return (struct step_work){0};
    const struct link link = step_link(m, step);
    if (step->kind == STEP_STORE)
        return (struct step_work){cost_cache_us(link, size_bytes), size_bytes};
    if (step->kind != STEP_FETCH)
        return (struct step_work){cost_copy_us(link, size_bytes), size_bytes};
    const double weights = (double)step->bytes_fixed, cache = size_bytes - weights;
    return (struct step_work){cost_feed_us(link, feed, weights) + cost_cache_us(link, cache),
                              weights * cost_feed_passes(feed) + cache};
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

void plan_walk(const struct plan *plan, const struct shape *shape, const struct pass *pass,
               struct step_times *times, struct simulation *out, struct cost parts[MAX_DEVICES]) {
    struct walk w = {.plan = plan, .shape = shape, .pass = pass, .out = out, .parts = parts};
    const enum batch_class batch = batch_class_of(pass->n_tokens);
    struct clocks clocks;
    bool used[MAX_DEVICES] = {false};
    w.timed = plan->machine.rates != RATES_NONE;
    *out = (struct simulation){.n_steps = plan->n_steps[batch]};
    for (int d = 0; d < MAX_DEVICES; d++) parts[d] = (struct cost){0};
    start(&w);
    for (int i = 0; i < plan->n_steps[batch]; i++) used[plan->steps[batch][i].device] = true;
    clocks_start(&clocks, &plan->machine, used, plan->place.units[0].device);
    for (int i = 0; i < plan->n_steps[batch]; i++) {
        const struct step_work work = work_of(&w, &plan->steps[batch][i]);
        const struct step_times t = clocks_run(&clocks, &plan->steps[batch][i], &work);
        if (times) times[i] = t;
    }
    const bool ahead = batch == BATCH_PREFILL && plan->runs_ahead;
    out->total_us = clocks_total_us(&clocks);
    out->period_us = ahead ? clocks_period_us(&clocks) : out->total_us;
    out->copy_us = clocks.copy_us;
    out->hidden_copy_us = clocks_hidden_us(&clocks);
}

void plan_simulate(const struct plan *plan, const struct shape *shape, const struct pass *pass,
                   struct simulation *out) {
    struct cost parts[MAX_DEVICES];
    plan_walk(plan, shape, pass, NULL, out, parts);
}

void plan_step_times(const struct plan *plan, const struct shape *shape, const struct pass *pass,
                     struct step_times *out) {
    struct simulation sim;
    struct cost parts[MAX_DEVICES];
    plan_walk(plan, shape, pass, out, &sim, parts);
}
