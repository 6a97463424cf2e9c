/* clocks.c: see clocks.h. */
#include "planner/plan/clocks.h"

#include "base/number.h"

static double dram_us(const struct clocks *c, double size_bytes) {
    const double gbps = c->machine->dram_gbps;
    return gbps > 0 ? size_bytes / (gbps * 1e3) : 0;
}

void clocks_start(struct clocks *c, const struct machine *machine, const bool used[MAX_DEVICES],
                  int first_device) {
    const bool timed = machine->rates != RATES_NONE;
    *c = (struct clocks){.machine = machine, .host_sent = first_device != DEVICE_HOST};
    c->shares_memory = machine->devices[machine_accelerator(machine)].unified;
    for (int d = 0; d < machine->n_devices; d++) {
        if (timed && used[d]) c->pass_us[d] = machine->devices[d].rates.pass_us;
        c->start_us += c->pass_us[d];
    }
    for (int d = 0; d < MAX_DEVICES; d++)
        c->compute[d] = c->copy_in[d] = c->copy_out[d] = c->fetch[d] = c->start_us;
    c->last_us = c->covered_until_us = c->start_us;
}

// ---- Steps --------------------------------------------------------------------------------------

// Adds work to a stream, which may begin at ready_us.
static struct step_times advance(double *stream, double ready_us, double us) {
    const double first_us = max_us(*stream, ready_us);
    return (struct step_times){first_us, *stream = first_us + us};
}

static struct step_times compute(struct clocks *c, const struct step *step,
                                 const struct step_work *work) {
    const int d = step->device;
    const double full_us = step->slot >= 0 ? c->slot_full[step->slot] : 0;
    struct step_times t = advance(&c->compute[d], full_us, work->us);
    if (c->shares_memory) {
        c->memory_us = max_us(c->memory_us, t.first_us) + dram_us(c, work->dram_bytes);
        t.last_us = c->compute[d] = max_us(t.last_us, c->memory_us);
    }
    if (step->slot >= 0) c->slot_free[step->slot] = t.last_us;
    c->busy_us[d] += work->us;
    c->compute[DEVICE_HOST] += work->launch_us; // the CPU computes in the calling thread too
    c->busy_us[DEVICE_HOST] += work->launch_us;
    if (d == DEVICE_HOST) c->host_bytes += work->dram_bytes;
    c->covered_us += max_us(0, t.last_us - max_us(t.first_us, c->covered_until_us));
    c->covered_until_us = max_us(c->covered_until_us, t.last_us);
    return t;
}

static struct step_times copy_inputs(struct clocks *c, const struct step *step,
                                     const struct step_work *work) {
    const int d = step->device;
    const struct step_times t = advance(&c->copy_in[d], c->start_us, work->us);
    c->compute[d] = t.last_us;
    c->table_bytes += work->dram_bytes;
    c->inputs_us[d] += work->us;
    c->to_us[d] += work->us;
    return t;
}

static struct step_times fetch(struct clocks *c, const struct step *step,
                               const struct step_work *work) {
    const int d = step->device;
    const struct step_times t = advance(&c->fetch[d], c->slot_free[step->slot], work->us);
    c->slot_full[step->slot] = t.last_us;
    c->fetch_us[d] += work->us;
    c->fetch_bytes += work->dram_bytes;
    return t;
}

static struct step_times store(struct clocks *c, const struct step *step,
                               const struct step_work *work) {
    const int d = step->device;
    const struct step_times t = advance(&c->copy_out[d], c->compute[d], work->us);
    c->slot_free[step->slot] = t.last_us;
    c->store_us[d] += work->us;
    c->fetch_bytes += work->dram_bytes;
    return t;
}

// Ends the CPU's work before it sends. Until its first send the CPU shares its memory with the
// copies of the tables.
static void flush_host(struct clocks *c) {
    if (c->host_sent) return;
    c->host_sent = true;
    if (!(c->table_bytes > 0)) return;
    const double until_us = c->start_us + dram_us(c, c->host_bytes + c->table_bytes);
    c->compute[DEVICE_HOST] = max_us(c->compute[DEVICE_HOST], until_us);
}

static struct step_times send(struct clocks *c, const struct step *step,
                              const struct step_work *work) {
    const int d = step->device;
    if (d != DEVICE_HOST) return advance(&c->copy_out[d], c->compute[d], work->us);
    flush_host(c);
    c->to_us[step->peer] += work->us;
    return advance(&c->copy_in[step->peer], c->compute[DEVICE_HOST], work->us);
}

static struct step_times wait_for(struct clocks *c, const struct step *step) {
    const int d = step->device;
    const double until_us = d == DEVICE_HOST ? c->copy_out[step->peer] : c->copy_in[d];
    const double first_us = c->compute[d];
    return (struct step_times){first_us, c->compute[d] = max_us(first_us, until_us)};
}

static struct step_times run(struct clocks *c, const struct step *step,
                             const struct step_work *work) {
    switch (step->kind) {
    case STEP_INPUTS: return copy_inputs(c, step, work);
    case STEP_FETCH: return fetch(c, step, work);
    case STEP_COMPUTE: return compute(c, step, work);
    case STEP_SEND:
    case STEP_LOGITS: return send(c, step, work);
    case STEP_WAIT: return wait_for(c, step);
    case STEP_STORE: return store(c, step, work);
    }
    ASSERT(false);
    return (struct step_times){0};
}

struct step_times clocks_run(struct clocks *c, const struct step *step,
                             const struct step_work *work) {
    const struct step_times t = run(c, step, work);
    if (step->kind != STEP_COMPUTE) c->copy_us += work->us;
    c->last_us = max_us(c->last_us, t.last_us);
    return t;
}

// ---- Passes -------------------------------------------------------------------------------------

// Time of the host's memory for all bytes of the pass, if anything is fetched.
static double memory_us(const struct clocks *c) {
    return c->fetch_bytes > 0 ? dram_us(c, c->host_bytes + c->fetch_bytes) : 0;
}

double clocks_total_us(const struct clocks *c) {
    return max_us(c->last_us, c->start_us + memory_us(c));
}

double clocks_period_us(const struct clocks *c) {
    double host_us = c->pass_us[DEVICE_HOST] + c->busy_us[DEVICE_HOST];
    double most_us = memory_us(c);
    for (int d = 0; d < c->machine->n_devices; d++) {
        if (d == DEVICE_HOST) continue;
        host_us += c->to_us[d] - c->inputs_us[d];
        most_us = max_us(most_us, c->pass_us[d] + c->to_us[d] + c->busy_us[d]);
        most_us = max_us(most_us, max_us(c->fetch_us[d] + c->to_us[d], c->store_us[d]));
    }
    return min_us(clocks_total_us(c), max_us(most_us, host_us));
}

double clocks_hidden_us(const struct clocks *c) {
    // Whenever no device computes, the pass waits for a copy.
    const double waited_us = clocks_total_us(c) - c->start_us - c->covered_us;
    return max_us(0, c->copy_us - max_us(0, waited_us));
}
