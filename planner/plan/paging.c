/* paging.c: see paging.h. */
#include "planner/plan/paging.h"

#include "base/number.h"
#include "kernels/op_cost.h"
#include "planner/plan/accounts.h"

double paging_disk_gbps(const struct machine *m) {
    return m->disk_gbps > 0 ? m->disk_gbps : DISK_GBPS_UNKNOWN;
}

// Weights of the unit that the CPU has.
static uint64_t host_bytes(const struct plan *plan, int32_t u) {
    return plan->place.units[u].device == DEVICE_HOST ? plan->unit_weight_bytes[u]
                                                      : plan->unit_cpu_bytes[u];
}

// True if the CPU's weights of the unit are in the arena, which is pinned, so they stay.
static bool in_arena(const struct plan *plan, int32_t u) {
    return plan->place.units[u].streamed && plan->place.feed == FEED_ARENA;
}

// The order in which units become cold. The table of embeddings never does: a token reads a row of
// it, and a head that shares it all.
static bool cools_at(const struct unit *unit, int round) {
    if (round == 0) return unit->kind == UNIT_EXPERTS;
    return unit->kind == UNIT_ATTENTION || unit->kind == UNIT_FFN ||
           (unit->kind == UNIT_HEAD && !unit->shares_embed);
}

enum status paging_choose(struct plan *plan, const struct shape *shape, uint64_t ram_bytes,
                          struct err *e) {
    const uint64_t *bytes = plan->devices[DEVICE_HOST].bytes;
    uint64_t weights = 0, largest = 0, cold[MAX_UNITS] = {0};
    for (int32_t u = 0; u < plan->n_units; u++) {
        weights += host_bytes(plan, u);
        if (shape->units[u].kind != UNIT_EMBED && !in_arena(plan, u))
            largest = max_u64(largest, host_bytes(plan, u));
    }
    ASSERT(weights <= bytes[PLAN_WEIGHTS]);
    const uint64_t fixed = plan_needs(plan, DEVICE_HOST) - weights;
    uint64_t all = fixed + weights;
    // One is computed with while others are read.
    if (all > ram_bytes) all += largest + max_u64(largest, PAGING_AHEAD);
    for (int round = 0; round < 2; round++)
        for (int32_t u = plan->n_units - 1; u >= 0 && all > ram_bytes; u--) {
            if (!cools_at(&shape->units[u], round) || in_arena(plan, u)) continue;
            cold[u] = host_bytes(plan, u);
            all -= cold[u];
        }
    if (all > ram_bytes) {
        char size[ERR_SIZE_CHARS];
        err_set(e, ERR_MEMORY, "the KV cache and what is read at once do not fit");
        err_expected(e, "at most %s", err_size_limit(size, ram_bytes));
        return err_actual(e, "%s", err_size_needed(size, all));
    }
    for (int32_t u = 0; u < plan->n_units; u++) {
        plan->unit_cold_bytes[u] = cold[u];
        plan->runs_ahead &= !cold[u]; // micro-batches in a row would wait for the disk alike
    }
    return OK;
}

uint64_t paging_cold_bytes(const struct plan *plan) {
    uint64_t sum = 0;
    for (int32_t u = 0; u < plan->n_units; u++) sum += plan->unit_cold_bytes[u];
    return sum;
}

double paging_us(const struct plan *plan, const struct shape *shape, const struct pass *pass) {
    double read_bytes = 0;
    if (plan->machine.rates == RATES_NONE) return 0;
    for (int32_t u = 0; u < plan->n_units; u++) {
        const struct unit *unit = &shape->units[u];
        const struct pass own = pass_of_unit(pass, shape, unit);
        double part = 1;
        if (!plan->unit_cold_bytes[u] || own.n_tokens == 0) continue;
        if (unit->kind == UNIT_EXPERTS)
            part = op_cost_distinct_experts(pass_expert_tokens(&own, &plan->workload),
                                            unit->n_experts, unit->n_experts_used) /
                   unit->n_experts;
        read_bytes += part * (double)plan->unit_cold_bytes[u];
    }
    return read_bytes / (paging_disk_gbps(&plan->machine) * 1e3);
}
