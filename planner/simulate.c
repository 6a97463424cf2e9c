/* simulate.c: walks the step list on paper, as runtime/pipeline.c does on streams.
 *
 * There is a clock for the calling thread, in which the CPU computes, and for each accelerator's
 * compute, copy-in and copy-out streams. Each step starts when its stream and what it waits for are
 * done. While the tables are copied to an accelerator the CPU may compute the first units: both
 * read the host's memory, so that stretch takes at least as long as the memory needs for the bytes
 * of both. This depends on the order of steps alone and never on which of them happens to be
 * faster, so a faster part never makes a slower pass. Owns nothing; any thread. Tested by
 * tests/test_planner.c.
 */
#include "planner/plan_internal.h"

struct walk {
    const struct plan *plan;
    const struct shape *shape;
    const struct pass *pass;
    struct simulation *out;
    struct cost *parts;
    double compute[MAX_DEVICES], copy_in[MAX_DEVICES], copy_out[MAX_DEVICES]; // clocks
    bool cached[MAX_DEVICES], pinned, timed;
    bool host_sent;
    double start_us, table_bytes, host_bytes; // of the stretch that shares the host's memory
};

static double max_us(double a, double b) { return a > b ? a : b; }

static void start(struct walk *w) {
    const struct machine *m = &w->plan->machine;
    uint64_t read_bytes[MAX_DEVICES] = {0};
    bool used[MAX_DEVICES] = {false};
    for (int u = 0; u < w->plan->n_units; u++) {
        used[w->plan->unit_device[u]] = true;
        read_bytes[w->plan->unit_device[u]] += w->plan->unit_read_bytes[u];
    }
    for (int d = 0; d < m->n_devices; d++) {
        w->cached[d] = read_bytes[d] <= m->devices[d].rates.cache_bytes;
        if (w->timed && used[d]) w->start_us += m->devices[d].rates.pass_us;
    }
    const uint64_t *host = w->plan->devices[HOST].bytes;
    w->host_sent = w->plan->unit_device[0] != HOST; // then the tables arrive before the CPU starts
    w->pinned = host[PLAN_STAGING] + host[PLAN_SCRATCH] <= m->pinned_bytes;
    for (int d = 0; d < m->n_devices; d++)
        w->compute[d] = w->copy_in[d] = w->copy_out[d] = w->start_us;
}

static void compute(struct walk *w, const struct step *step) {
    const int d = step->device;
    const struct unit *unit = &w->shape->units[step->unit];
    const double read_bytes = cost_read_bytes(unit, w->pass);
    w->out->weight_bytes[d] += (uint64_t)read_bytes;
    if (!w->timed) return;
    const struct cost_place at = {w->shape, &w->plan->machine.devices[d], &w->plan->workload,
                                  w->cached[d]};
    const struct cost cost = cost_of_unit(&at, unit, w->pass);
    w->parts[d].memory_us += cost.memory_us;
    w->parts[d].compute_us += cost.compute_us;
    w->parts[d].overhead_us += cost.overhead_us;
    w->out->compute_us[d] += cost_sum(cost);
    w->compute[d] += cost_sum(cost);
    if (d == HOST && !w->cached[d]) w->host_bytes += read_bytes;
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
    const double us = cost_copy_us(&w->plan->machine.devices[d], (double)size_bytes,
                                   stream == &w->copy_in[d], w->pinned);
    w->out->copy_us += us;
    return *stream = max_us(*stream, ready_us) + us;
}

// Runs a step and returns its end; *first_us gets its start.
static double run(struct walk *w, const struct step *step, double *first_us) {
    const int d = step->device;
    const uint64_t rows =
        (uint64_t)(step->kind == STEP_LOGITS ? w->pass->n_logits : w->pass->n_tokens);
    const uint64_t size_bytes = step->bytes_fixed + step->bytes_per_row * rows;
    *first_us = w->compute[d];
    switch (step->kind) {
    case STEP_INPUTS:
        *first_us = w->copy_in[d];
        w->table_bytes += (double)size_bytes;
        return w->compute[d] = copy(w, d, &w->copy_in[d], w->start_us, size_bytes);
    case STEP_COMPUTE: compute(w, step); return w->compute[d];
    case STEP_SEND:
        if (d != HOST) {
            *first_us = max_us(w->compute[d], w->copy_out[d]);
            return copy(w, d, &w->copy_out[d], w->compute[d], size_bytes);
        }
        flush_host(w);
        *first_us = max_us(w->compute[HOST], w->copy_in[step->peer]);
        return copy(w, step->peer, &w->copy_in[step->peer], w->compute[HOST], size_bytes);
    case STEP_WAIT:
        return w->compute[d] =
                   max_us(w->compute[d], d == HOST ? w->copy_out[step->peer] : w->copy_in[d]);
    case STEP_LOGITS:
        *first_us = max_us(w->compute[d], w->copy_out[d]);
        return copy(w, d, &w->copy_out[d], w->compute[d], size_bytes);
    }
    ASSERT(false);
    return 0;
}

void plan_walk(const struct plan *plan, const struct shape *shape, const struct pass *pass,
               struct step_times *times, struct simulation *out, struct cost parts[MAX_DEVICES]) {
    struct walk w = {.plan = plan, .shape = shape, .pass = pass, .out = out, .parts = parts};
    w.timed = plan->machine.rates != RATES_NONE;
    *out = (struct simulation){0};
    for (int d = 0; d < MAX_DEVICES; d++) parts[d] = (struct cost){0};
    start(&w);
    // Everything is allocated before the first pass and nothing after it, so the peak is the sum.
    for (int d = 0; d < plan->machine.n_devices; d++)
        out->peak_bytes[d] = plan_device_bytes(plan, d);
    const enum batch_class batch = batch_class_of(pass->n_tokens);
    out->n_steps = plan->n_steps[batch];
    out->total_us = w.start_us;
    for (int i = 0; i < plan->n_steps[batch]; i++) {
        double first_us, last_us = run(&w, &plan->steps[batch][i], &first_us);
        out->total_us = max_us(out->total_us, last_us);
        if (times) times[i] = (struct step_times){first_us, last_us};
    }
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
