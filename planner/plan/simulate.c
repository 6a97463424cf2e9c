/* simulate.c: walks the step list on paper, as runtime/engine/pipeline.c does on streams.
 *
 * There is a clock for the calling thread, in which the CPU computes, and for each accelerator's
 * compute, copy-in, copy-out and fetch streams. Each step starts when its stream and what it waits
 * for are done: a fetch when its slot is free, what reads a slot when it is full. A slot is free
 * when what read it is done, or when what is new in a cache has been stored from it.
 *
 * The host's memory serves the CPU, the tables' copies and the fetches at once, so two stretches
 * take at least as long as the memory needs for the bytes of all: the start up to the CPU's first
 * send, with the tables; and, if anything is fetched, the whole pass, with the fetches (weights as
 * often as cost_feed_passes says, caches once) and stores.
 *
 * Passes that run ahead follow each other in period_us, the greatest of
 * - the CPU: its pass_us, its units, and sending the residual stream;
 * - the accelerator: its pass_us, the tables and the residual stream, which is copied when it has
 *   computed the pass before, and its units;
 * - the link, one way: everything copied to the accelerator; the other way: the stores;
 * - the host's memory, as above;
 * and never more than total_us. Nothing here depends on which step happens to be faster, only on
 * the order of steps, so a faster part never makes a slower pass.
 *
 * Owns nothing; any thread. Tested by tests/planner/test_planner.c and
 * tests/planner/test_simulate.c.
 */
#include "planner/plan/simulate.h"

#include "planner/plan/accounts.h"
#include "planner/plan/pair.h"

struct walk {
    const struct plan *plan;
    const struct shape *shape;
    const struct pass *pass;
    struct simulation *out;
    struct cost *parts;
    double compute[MAX_DEVICES], copy_in[MAX_DEVICES], copy_out[MAX_DEVICES]; // clocks
    double fetch, slot_full[MAX_SLOTS], slot_free[MAX_SLOTS];
    double cached[MAX_DEVICES]; // share of the weights that comes from the device's cache
    bool pinned, feed_pinned, timed;
    bool host_sent;
    double start_us, pass_us[MAX_DEVICES];
    double table_bytes, host_bytes, fetch_bytes; // that share the host's memory
    double inputs_us, to_us, fetch_us, store_us; // copies to the accelerator, and stores
    double covered_us, covered_until_us;         // while a device computes
};

static double max_us(double a, double b) { return a > b ? a : b; }
static double min_us(double a, double b) { return a < b ? a : b; }

static void start(struct walk *w, enum batch_class batch) {
    const struct plan *plan = w->plan;
    const struct machine *m = &plan->machine;
    uint64_t read_bytes[MAX_DEVICES] = {0};
    bool used[MAX_DEVICES] = {false};
    for (int u = 0; u < plan->n_units; u++) {
        read_bytes[plan->place.units[u].device] +=
            plan->unit_read_bytes[u] - plan->unit_cpu_bytes[u];
        read_bytes[HOST] += plan->unit_cpu_bytes[u];
    }
    for (int i = 0; i < plan->n_steps[batch]; i++) used[plan->steps[batch][i].device] = true;
    cost_cached_shares(m, read_bytes, w->cached);
    for (int d = 0; d < m->n_devices; d++) {
        if (w->timed && used[d]) w->pass_us[d] = m->devices[d].rates.pass_us;
        w->start_us += w->pass_us[d];
    }
    const uint64_t *host = plan->devices[HOST].bytes;
    w->host_sent =
        plan->place.units[0].device != HOST; // then the tables arrive before the CPU starts
    w->pinned = host[PLAN_STAGING] + host[PLAN_SCRATCH] <= m->pinned_bytes;
    w->feed_pinned = plan_pinned_bytes(plan) <= m->pinned_bytes;
    for (int d = 0; d < m->n_devices; d++)
        w->compute[d] = w->copy_in[d] = w->copy_out[d] = w->start_us;
    w->fetch = w->covered_until_us = w->start_us;
}

// ---- Steps --------------------------------------------------------------------------------------

struct unit_part plan_part(const struct plan *plan, const struct step *step) {
    const int32_t cpu_parts = plan->place.units[step->unit].cpu_parts;
    const bool both = step->phase == PHASE_ALL; // streamed
    return (struct unit_part){.phase = step->phase,
                              .cpu_parts = cpu_parts,
                              .first = both || step->device != HOST,
                              .last = both || step->device == HOST};
}

// Returns what the step takes.
static double compute_us(struct walk *w, const struct step *step) {
    const int d = step->device;
    const struct unit *unit = &w->shape->units[step->unit];
    const struct unit_part part = plan_part(w->plan, step);
    const double read_bytes = cost_read_bytes(unit, part, w->pass);
    w->out->weight_bytes[d] += (uint64_t)read_bytes;
    if (!w->timed) return 0;
    const double cached = step->slot < 0 ? w->cached[d] : 0;
    const struct cost_place at = {w->shape, &w->plan->machine.devices[d], &w->plan->workload,
                                  cached};
    const struct cost cost = cost_of_part(&at, unit, part, w->pass);
    w->parts[d].memory_us += cost.memory_us;
    w->parts[d].compute_us += cost.compute_us;
    w->parts[d].overhead_us += cost.overhead_us;
    w->out->compute_us[d] += cost_sum(cost);
    if (d == HOST) w->host_bytes += (1 - cached) * read_bytes;
    return cost_sum(cost);
}

static double compute(struct walk *w, const struct step *step, double *first_us) {
    double *clock = &w->compute[step->device];
    if (step->slot >= 0) *clock = max_us(*clock, w->slot_full[step->slot]);
    *first_us = *clock;
    *clock += compute_us(w, step);
    if (step->slot >= 0) w->slot_free[step->slot] = *clock;
    w->covered_us += max_us(0, *clock - max_us(*first_us, w->covered_until_us));
    w->covered_until_us = max_us(w->covered_until_us, *clock);
    return *clock;
}

// Cached keys and values between the host and a slot. Returns what their copy takes.
static double cache_us(struct walk *w, int d, uint64_t size_bytes, bool to_device) {
    w->out->copied_bytes += size_bytes;
    w->out->n_copies += size_bytes > 0;
    if (!w->timed) return 0;
    const bool pinned = w->feed_pinned && w->plan->place.feed != FEED_PAGEABLE;
    const double us =
        cost_cache_us(&w->plan->machine.devices[d], (double)size_bytes, to_device, pinned);
    w->out->copy_us += us;
    w->fetch_bytes += (double)size_bytes;
    return us;
}

// The slot is full when the fetch stream has copied the weights and what is cached, after what was
// there before was used.
static double fetch(struct walk *w, const struct step *step, double *first_us) {
    const uint64_t past_bytes = step->bytes_per_past * (uint64_t)w->pass->n_past;
    const double size_bytes = (double)step->bytes_fixed;
    *first_us = max_us(w->fetch, w->slot_free[step->slot]);
    w->out->copied_bytes += step->bytes_fixed;
    w->out->n_copies++;
    const double past_us = cache_us(w, step->device, past_bytes, true);
    if (!w->timed) return *first_us;
    const double us = cost_feed_us(&w->plan->machine.devices[step->device], w->plan->place.feed,
                                   size_bytes, w->feed_pinned);
    w->out->copy_us += us;
    w->fetch_us += us + past_us;
    w->fetch_bytes += size_bytes * cost_feed_passes(w->plan->place.feed);
    return w->fetch = w->slot_full[step->slot] = *first_us + us + past_us;
}

static double store(struct walk *w, const struct step *step, double *first_us) {
    const int d = step->device;
    const uint64_t size_bytes = step->bytes_per_row * (uint64_t)w->pass->n_tokens;
    const double us = cache_us(w, d, size_bytes, false);
    *first_us = max_us(w->compute[d], w->copy_out[d]);
    w->store_us += us;
    return w->copy_out[d] = w->slot_free[step->slot] = *first_us + us;
}

// The CPU's work is done when it sends. Up to the first time it shared its memory with the copies
// of the tables.
static void flush_host(struct walk *w) {
    if (w->host_sent) return;
    w->host_sent = true;
    if (!(w->table_bytes > 0) || !(w->plan->machine.dram_gbps > 0)) return;
    const double us = (w->host_bytes + w->table_bytes) / (w->plan->machine.dram_gbps * 1e3);
    w->compute[HOST] = max_us(w->compute[HOST], w->start_us + us);
}

// One copy between the host and device d on *stream, not before ready_us. Returns its end.
static double copy(struct walk *w, int d, double *stream, double ready_us, uint64_t size_bytes) {
    w->out->copied_bytes += size_bytes;
    w->out->n_copies += size_bytes > 0;
    if (!w->timed || !size_bytes) return *stream = max_us(*stream, ready_us);
    const bool to_device = stream == &w->copy_in[d];
    const double us =
        cost_copy_us(&w->plan->machine.devices[d], (double)size_bytes, to_device, w->pinned);
    w->out->copy_us += us;
    if (to_device) w->to_us += us;
    return *stream = max_us(*stream, ready_us) + us;
}

static double inputs(struct walk *w, const struct step *step, double *first_us) {
    const int d = step->device;
    *first_us = w->copy_in[d];
    w->table_bytes += (double)step->bytes_fixed;
    w->compute[d] = copy(w, d, &w->copy_in[d], w->start_us, step->bytes_fixed);
    w->inputs_us += w->compute[d] - *first_us;
    return w->compute[d];
}

// Runs a step and returns its end; *first_us gets its start.
static double run(struct walk *w, const struct step *step, double *first_us) {
    const int d = step->device;
    const uint64_t rows =
        (uint64_t)(step->kind == STEP_LOGITS ? w->pass->n_logits : w->pass->n_tokens);
    const uint64_t size_bytes = step->bytes_per_row * rows;
    *first_us = w->compute[d];
    switch (step->kind) {
    case STEP_INPUTS: return inputs(w, step, first_us);
    case STEP_FETCH: return fetch(w, step, first_us);
    case STEP_COMPUTE: return compute(w, step, first_us);
    case STEP_SEND:
        if (d == HOST) {
            flush_host(w);
            *first_us = max_us(w->compute[HOST], w->copy_in[step->peer]);
            return copy(w, step->peer, &w->copy_in[step->peer], w->compute[HOST], size_bytes);
        }
        // fall through
    case STEP_LOGITS:
        *first_us = max_us(w->compute[d], w->copy_out[d]);
        return copy(w, d, &w->copy_out[d], w->compute[d], size_bytes);
    case STEP_WAIT:
        return w->compute[d] =
                   max_us(w->compute[d], d == HOST ? w->copy_out[step->peer] : w->copy_in[d]);
    case STEP_STORE: return store(w, step, first_us);
    }
    ASSERT(false);
    return 0;
}

// ---- What they add up to ------------------------------------------------------------------------

// The host's memory, if anything is fetched.
static double memory_us(const struct walk *w) {
    const double gbps = w->plan->machine.dram_gbps;
    return w->fetch_bytes > 0 && gbps > 0 ? (w->host_bytes + w->fetch_bytes) / (gbps * 1e3) : 0;
}

static double period_us(const struct walk *w, enum batch_class batch) {
    if (batch != BATCH_PREFILL || !w->plan->runs_ahead) return w->out->total_us;
    const double *busy = w->out->compute_us;
    const double host = w->pass_us[HOST] + busy[HOST] + w->to_us - w->inputs_us;
    const double accelerator = w->pass_us[GPU] + w->to_us + busy[GPU];
    const double link = max_us(w->fetch_us + w->to_us, w->store_us);
    return min_us(w->out->total_us, max_us(max_us(host, accelerator), max_us(link, memory_us(w))));
}

void plan_walk(const struct plan *plan, const struct shape *shape, const struct pass *pass,
               struct step_times *times, struct simulation *out, struct cost parts[MAX_DEVICES]) {
    struct walk w = {.plan = plan, .shape = shape, .pass = pass, .out = out, .parts = parts};
    const enum batch_class batch = batch_class_of(pass->n_tokens);
    w.timed = plan->machine.rates != RATES_NONE;
    *out = (struct simulation){.n_steps = plan->n_steps[batch]};
    for (int d = 0; d < MAX_DEVICES; d++) parts[d] = (struct cost){0};
    start(&w, batch);
    // Everything is allocated before the first pass and nothing after it, so the peak is the sum.
    for (int d = 0; d < plan->machine.n_devices; d++)
        out->peak_bytes[d] = plan_device_bytes(plan, d);
    out->total_us = w.start_us;
    for (int i = 0; i < plan->n_steps[batch]; i++) {
        double first_us, last_us = run(&w, &plan->steps[batch][i], &first_us);
        out->total_us = max_us(out->total_us, last_us);
        if (times) times[i] = (struct step_times){first_us, last_us};
    }
    out->total_us = max_us(out->total_us, w.start_us + memory_us(&w));
    out->period_us = period_us(&w, batch);
    // Whenever no device computes, a copy is waited for.
    const double waited_us = out->total_us - w.start_us - w.covered_us;
    out->hidden_copy_us = max_us(0, out->copy_us - max_us(0, waited_us));
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
