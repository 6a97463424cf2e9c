/* bench_estimate.c: see bench_estimate.h. */
#include "runtime/measure/bench_estimate.h"

#include "kernels/ops.h"

#include <math.h>

struct limit {
    const struct plan *plan;
    const struct shape *shape;
    const struct pass *pass;
    enum batch_class batch;
    struct host_cached cached[MAX_DEVICES];   // what its cache keeps of the weights
    struct machine_device ideal[MAX_DEVICES]; // the devices with ops that start in no time
    double device_us[MAX_DEVICES];            // least time of each device
    double chain_us;                          // sum over units, which follow each other
};

static void look_at_device(struct limit *l, int d) {
    const struct plan *plan = l->plan;
    struct device_rates *r = &l->ideal[d].rates;
    struct host_reads reads = {0};
    l->ideal[d] = plan->machine.devices[d];
    r->op_us = 0;
    for (int u = 0; u < plan->n_units; u++)
        if (plan->place.units[u].device == d)
            cost_add_reads(&reads, &l->shape->units[u], plan->unit_read_bytes[u], 1);
    // Weights that stay in the cache from one pass to the next are not read from memory.
    if (d == DEVICE_HOST) l->cached[d] = cost_host_cached(&plan->machine, &reads);
}

// Bytes of unit u that one token reads: weights, of experts those of one token, the rows of the
// cache that are seen, and the state.
static double bytes_of(const struct limit *l, int32_t u) {
    const struct plan *plan = l->plan;
    const struct unit *unit = &l->shape->units[u];
    double rows = l->pass->n_past + l->pass->n_tokens;
    if (unit->window) rows = fmin(rows, unit->window);
    const double share = unit->n_experts > 0 ? (double)unit->n_experts_used / unit->n_experts : 1;
    return share * (double)plan->unit_read_bytes[u] + (double)unit->state_bytes +
           (double)footprint_kv_row(unit, &plan->workload) * rows;
}

// Time of device d for so many bytes of unit u by its best rate.
static double read_us(const struct limit *l, int32_t u, int d, double size_bytes) {
    const struct device_rates *r = &l->ideal[d].rates;
    const double us = cost_move_us(r->memory_gbps, size_bytes);
    return cost_cached_us(r, cost_share_cached(l->cached[d], &l->shape->units[u]), us, us);
}

// Least time of device d for the whole unit u.
static double unit_us(const struct limit *l, int32_t u, int d) {
    const struct plan *plan = l->plan;
    const struct cost_place at = {l->shape, &l->ideal[d], &plan->workload,
                                  cost_share_cached(l->cached[d], &l->shape->units[u])};
    if (l->pass->n_tokens <= 1) return read_us(l, u, d, bytes_of(l, u));
    return cost_sum(cost_of_part(&at, &l->shape->units[u], WHOLE_UNIT, l->pass));
}

// Adds unit u. In split attention the CPU has weights but no cache: it reads at least those.
static void add_unit(struct limit *l, int32_t u) {
    const struct plan *plan = l->plan;
    const int d = placement_device(&plan->place, l->batch, u);
    const bool streamed = l->batch == BATCH_PREFILL && plan->place.units[u].streamed;
    const double cpu_bytes = streamed ? 0 : (double)plan->unit_cpu_bytes[u];
    const double cpu_share = cpu_bytes > 0 ? cpu_bytes / (double)plan->unit_read_bytes[u] : 0;
    const double us = unit_us(l, u, d) * (1 - cpu_share);
    double cpu_us = read_us(l, u, DEVICE_HOST, cpu_bytes);
    if (cpu_share > 0 && l->shape->units[u].kind != UNIT_ATTENTION)
        cpu_us = unit_us(l, u, DEVICE_HOST) * cpu_share;
    l->device_us[d] += us;
    l->device_us[DEVICE_HOST] += cpu_us;
    l->chain_us += fmax(us, cpu_us);
}

double bench_limit_us(const struct plan *plan, const struct shape *shape, const struct pass *pass) {
    struct limit l = {plan, shape, pass, .batch = batch_class_of(pass->n_tokens)};
    double fetched_bytes = 0, hand_overs_us = 0, busiest_us = 0, link_us = 0;
    if (plan->machine.rates == RATES_NONE) return 0;
    for (int d = 0; d < plan->machine.n_devices; d++) look_at_device(&l, d);
    for (int32_t u = 0; u < plan->n_units; u++)
        if (pass_of_unit(pass, shape, &shape->units[u]).n_tokens > 0) add_unit(&l, u);
    for (int32_t i = 0; i < plan->n_steps[l.batch]; i++) {
        const struct step *step = &plan->steps[l.batch][i];
        const int accelerator = step->device == DEVICE_HOST ? step->peer : step->device;
        if (step->kind == STEP_FETCH && (!step->tail || pass->n_logits))
            fetched_bytes += (double)(step->bytes_fixed + step_past_bytes(step, pass->n_past));
        if (step->kind == STEP_SEND)
            hand_overs_us += plan->machine.devices[accelerator].link.latency_us;
    }
    for (int d = 0; d < plan->machine.n_devices; d++) {
        const double to_gbps = plan->machine.devices[d].link.to_gbps;
        busiest_us = fmax(busiest_us, l.device_us[d]);
        if (d != DEVICE_HOST && to_gbps > 0) link_us = fetched_bytes / (to_gbps * 1e3);
    }
    if (pass->n_tokens == 1) return fmax(l.chain_us + hand_overs_us, link_us);
    const bool overlaps = plan->runs_ahead && l.batch == BATCH_PREFILL;
    return fmax(overlaps ? busiest_us : l.chain_us, link_us);
}

// Adds count passes of one call. Each pass but the last may overlap with the next one.
static void add_passes(struct bench_estimate *out, const struct plan *plan,
                       const struct shape *shape, const struct pass *pass, int32_t count,
                       bool is_last) {
    struct simulation sim;
    plan_simulate(plan, shape, pass, &sim);
    const double us = is_last || !(sim.period_us > 0) ? sim.total_us : sim.period_us;
    out->planned_us += us * count;
    out->limit_us += bench_limit_us(plan, shape, pass) * count;
    for (int d = 0; d < plan->machine.n_devices; d++)
        out->read_bytes += (double)sim.weight_bytes[d] * count;
}

void bench_estimate(const struct plan *plan, const struct shape *shape,
                    const struct bench_test *test, int32_t n_batch, struct bench_estimate *out) {
    const int32_t n_ubatch = plan->workload.n_ubatch;
    *out = (struct bench_estimate){0};
    for (int32_t done = 0, n; done < test->n_prompt; done += n) {
        const int32_t in_call = done % n_batch, left = test->n_prompt - done;
        const int32_t room = n_batch - in_call < n_ubatch ? n_batch - in_call : n_ubatch;
        n = left < room ? left : room;
        const bool is_last = n == left || in_call + n == n_batch;
        const struct pass pass = {n, is_last, test->n_depth + done};
        add_passes(out, plan, shape, &pass, 1, is_last);
    }
    if (!test->n_gen) return;
    // Time is linear in the number of past positions, so the middle token stands for all.
    const struct pass pass = {1, 1, test->n_depth + test->n_prompt + (test->n_gen - 1) / 2};
    add_passes(out, plan, shape, &pass, test->n_gen, true);
}
