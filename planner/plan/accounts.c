/* accounts.c: see accounts.h. */
#include "planner/plan/accounts.h"

#include "planner/plan/cost.h"
#include "planner/plan/footprint.h"
#include "planner/plan/pair.h"

#include <string.h>

// Weights and cache of one unit, which may be on both devices. has: as in footprint_scratch, of all
// devices.
static void count_unit(struct plan *plan, const struct shape *shape, int u,
                       bool has[MAX_DEVICES][UNIT_KINDS]) {
    const struct unit *unit = &shape->units[u];
    const int d = plan->place.units[u].device, parts = plan->place.units[u].cpu_parts;
    const struct machine_device *device = &plan->machine.devices[d];
    ASSERT(!parts || (d == GPU && unit_can_split(unit)));
    has[d][unit->kind] = true;
    plan->unit_weight_bytes[u] =
        parts ? footprint_split_weights(unit, device, parts)
              : footprint_unit_weights(unit, device, plan->place.units[0].device == d);
    plan->unit_cpu_bytes[u] =
        parts ? footprint_split_weights(unit, &plan->machine.devices[HOST], parts) : 0;
    if (parts) has[HOST][unit->kind] = true;
    plan->unit_kv_bytes[u] = footprint_unit_kv(shape, unit, &plan->workload, device);
    plan->unit_read_bytes[u] = cost_all_read_bytes(unit);
    plan->devices[d].bytes[PLAN_WEIGHTS] += plan->unit_weight_bytes[u];
    plan->devices[d].bytes[PLAN_KV] += plan->unit_kv_bytes[u];
    plan->devices[HOST].bytes[PLAN_WEIGHTS] += plan->unit_cpu_bytes[u];
}

// The ring of slots, and the blocks before it. Without streamed units there is neither.
static void count_ring(struct plan *plan, const struct shape *shape,
                       bool has[MAX_DEVICES][UNIT_KINDS]) {
    uint64_t most = 0;
    plan->slot_bytes = 0;
    for (int u = 0; u < plan->n_units; u++) {
        if (!plan->place.units[u].streamed) continue;
        const struct unit *unit = &shape->units[u];
        const int32_t parts = plan->place.units[u].cpu_parts;
        ASSERT(unit_can_stream(unit) && (plan->place.units[u].device == HOST || parts > 0));
        has[GPU][unit->kind] = true;
        const uint64_t slot_bytes =
            footprint_slot(shape, unit, &plan->workload, &plan->machine.devices[GPU], parts);
        const uint64_t fetch_bytes = footprint_fetch(unit, parts);
        if (slot_bytes > plan->slot_bytes) plan->slot_bytes = slot_bytes;
        if (fetch_bytes > most) most = fetch_bytes;
    }
    if (!plan->slot_bytes) {
        plan->place.feed = FEED_NONE;
        plan->place.n_slots = 0;
    }
    ASSERT(!plan->slot_bytes || (plan->place.feed != FEED_NONE && plan->machine.n_devices > GPU));
    ASSERT(!plan->slot_bytes ||
           (plan->place.n_slots >= MIN_SLOTS && plan->place.n_slots <= MAX_SLOTS));
    footprint_blocks(plan->place.feed, most, &plan->n_blocks, &plan->block_bytes);
    plan->devices[GPU].bytes[PLAN_STAGING] = (uint64_t)plan->place.n_slots * plan->slot_bytes;
    plan->devices[HOST].bytes[PLAN_STAGING] = (uint64_t)plan->n_blocks * plan->block_bytes;
}

void plan_count_bytes(struct plan *plan, const struct shape *shape) {
    footprint_tables(&plan->workload, &plan->tables);
    memset(plan->devices, 0, sizeof plan->devices);
    bool has[MAX_DEVICES][UNIT_KINDS] = {{false}};
    for (int u = 0; u < shape->n_units; u++) count_unit(plan, shape, u, has);
    count_ring(plan, shape, has);
    for (int d = 0; d < plan->machine.n_devices; d++) {
        struct plan_device *out = &plan->devices[d];
        footprint_scratch(shape, &plan->workload, &plan->machine.devices[d], has[d], &out->scratch);
        out->bytes[PLAN_SCRATCH] = out->scratch.size_bytes;
    }
    plan->devices[HOST].bytes[PLAN_STAGING] += plan->tables.size_bytes;
}

uint64_t plan_device_bytes(const struct plan *plan, int d) {
    uint64_t total = 0;
    for (int p = 0; p < PLAN_PURPOSES; p++) total += plan->devices[d].bytes[p];
    return total;
}

int32_t plan_n_lanes(const struct plan *plan) {
    return plan->machine.n_devices > GPU && plan_device_bytes(plan, GPU) > 0 ? GPU + 1 : HOST + 1;
}

// Unified memory is the host's: both fill it.
static uint64_t needed_bytes(const struct machine *m, int d, const uint64_t bytes[MAX_DEVICES]) {
    const bool shared = d == HOST && m->n_devices > 1 && m->devices[GPU].unified;
    return bytes[d] + (shared ? bytes[GPU] : 0);
}

static bool device_holds(const struct machine *m, int d, const uint64_t bytes[MAX_DEVICES]) {
    return needed_bytes(m, d, bytes) <= m->devices[d].budget_bytes;
}

bool machine_holds(const struct machine *m, const uint64_t bytes[MAX_DEVICES]) {
    return device_holds(m, HOST, bytes) && (m->n_devices < 2 || device_holds(m, GPU, bytes));
}

uint64_t plan_needs(const struct plan *plan, int d) {
    const uint64_t bytes[MAX_DEVICES] = {plan_device_bytes(plan, HOST),
                                         plan_device_bytes(plan, GPU)};
    return needed_bytes(&plan->machine, d, bytes);
}

bool plan_holds(const struct plan *plan, int d) {
    return plan_needs(plan, d) <= plan->machine.devices[d].budget_bytes;
}

uint64_t plan_pinned_bytes(const struct plan *plan) {
    const uint64_t *host = plan->devices[HOST].bytes;
    uint64_t total = host[PLAN_STAGING] + host[PLAN_SCRATCH];
    for (int u = 0; u < plan->n_units; u++) {
        if (!plan->place.units[u].streamed) continue;
        const bool split = plan->place.units[u].cpu_parts > 0;
        if (plan->place.feed == FEED_ARENA)
            total += split ? plan->unit_cpu_bytes[u] : plan->unit_weight_bytes[u];
        if (plan->place.feed != FEED_PAGEABLE && !split) total += plan->unit_kv_bytes[u];
    }
    return total;
}
