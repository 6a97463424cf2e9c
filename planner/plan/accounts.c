/* accounts.c: see accounts.h. */
#include "planner/plan/accounts.h"

#include "base/number.h"
#include "planner/plan/cost.h"
#include "planner/plan/footprint.h"

#include <string.h>

// ---- Units --------------------------------------------------------------------------------------

void unit_bytes_of(const struct unit_context *context, const struct unit *unit,
                   const struct unit_place *place, bool embed_is_here, struct unit_bytes *out) {
    const struct workload *w = context->w;
    const struct machine_device *devices = context->machine->devices;
    const struct machine_device *device = &devices[place->device];
    const int32_t parts = place->cpu_parts;
    *out = (struct unit_bytes){.kv = footprint_unit_kv(unit, w, device)};
    out->weights = parts ? footprint_split_weights(unit, device, parts)
                         : footprint_unit_weights(unit, device, embed_is_here);
    if (parts) {
        ASSERT(place->device != DEVICE_HOST);
        ASSERT(unit_can_split(unit));
        out->cpu_weights = footprint_split_weights(unit, &devices[DEVICE_HOST], parts);
    }
    if (!place->streamed) return;
    ASSERT(unit_can_stream(unit));
    ASSERT(place->device == DEVICE_HOST || parts > 0);
    out->slot = footprint_slot(unit, w, &devices[context->ring], parts);
    out->fetch = footprint_fetch(unit, parts, 1);
}

void accounts_add(struct accounts *a, const struct unit *unit, const struct unit_place *place,
                  int8_t ring, const struct unit_bytes *bytes, uint64_t n) {
    const bool splits_experts = place->cpu_parts && unit->kind == UNIT_EXPERTS;
    const uint32_t kind = UINT32_C(1) << unit->kind | (splits_experts ? SPLIT_EXPERTS : 0);
    a->bytes[place->device][PLAN_WEIGHTS] += n * bytes->weights;
    a->bytes[place->device][PLAN_KV] += n * bytes->kv;
    a->bytes[DEVICE_HOST][PLAN_WEIGHTS] += n * bytes->cpu_weights;
    a->kinds[place->device] |= kind;
    if (place->cpu_parts) a->kinds[DEVICE_HOST] |= kind;
    if (!place->streamed) return;
    a->kinds[ring] |= kind;
    a->slot_bytes = max_u64(a->slot_bytes, bytes->slot);
    a->fetch_bytes = max_u64(a->fetch_bytes, bytes->fetch);
    a->arena_bytes += n * (place->cpu_parts ? bytes->cpu_weights : bytes->weights);
    if (!place->cpu_parts) a->streamed_kv_bytes += n * bytes->kv;
}

void accounts_finish(struct accounts *a, const struct placement *place, uint64_t tables_bytes,
                     const uint64_t scratch_bytes[MAX_DEVICES]) {
    const bool streams = a->slot_bytes > 0;
    footprint_blocks(streams ? place->feed : FEED_NONE, a->fetch_bytes, &a->n_blocks,
                     &a->block_bytes);
    if (streams) a->bytes[place->ring][PLAN_STAGING] += RING_SLOTS * a->slot_bytes;
    a->bytes[DEVICE_HOST][PLAN_STAGING] += (uint64_t)a->n_blocks * a->block_bytes + tables_bytes;
    for (int d = 0; d < MAX_DEVICES; d++) a->bytes[d][PLAN_SCRATCH] += scratch_bytes[d];
}

uint64_t accounts_pinned_bytes(const struct accounts *a, enum feed feed) {
    const uint64_t *host = a->bytes[DEVICE_HOST];
    return host[PLAN_STAGING] + host[PLAN_SCRATCH] + a->streamed_kv_bytes +
           (feed == FEED_ARENA ? a->arena_bytes : 0);
}

// ---- Limits -------------------------------------------------------------------------------------

// Bytes that device d must hold; unified memory counts for the host too.
static uint64_t needed_bytes(const struct machine *m, int d, const uint64_t bytes[MAX_DEVICES]) {
    uint64_t total = bytes[d];
    for (int other = 0; other < m->n_devices && d == DEVICE_HOST; other++)
        if (other != d && m->devices[other].unified) total += bytes[other];
    return total;
}

bool machine_holds(const struct machine *m, const uint64_t bytes[MAX_DEVICES]) {
    for (int d = 0; d < m->n_devices; d++)
        if (needed_bytes(m, d, bytes) > m->devices[d].budget_bytes) return false;
    return true;
}

// ---- Plans --------------------------------------------------------------------------------------

void plan_count_bytes(struct plan *plan, const struct shape *shape) {
    struct accounts a = {0};
    struct placement *place = &plan->place;
    const struct unit_context context = {&plan->workload, &plan->machine, place->ring};
    uint64_t scratch_bytes[MAX_DEVICES] = {0};
    plan->host_reads = (struct host_reads){0};
    for (int u = 0; u < shape->n_units; u++) {
        const struct unit *unit = &shape->units[u];
        const bool embed_is_here = place->units[0].device == place->units[u].device;
        struct unit_bytes bytes;
        unit_bytes_of(&context, unit, &place->units[u], embed_is_here, &bytes);
        accounts_add(&a, unit, &place->units[u], place->ring, &bytes, 1);
        plan->unit_weight_bytes[u] = bytes.weights;
        plan->unit_cpu_bytes[u] = bytes.cpu_weights;
        plan->unit_kv_bytes[u] = bytes.kv;
        plan->unit_read_bytes[u] = cost_all_read_bytes(unit);
        cost_add_reads(&plan->host_reads, unit,
                       place->units[u].device == DEVICE_HOST ? plan->unit_read_bytes[u]
                                                             : bytes.cpu_weights,
                       1);
    }
    if (!a.slot_bytes) place->feed = FEED_NONE;
    ASSERT(!a.slot_bytes || place->feed != FEED_NONE);
    memset(plan->devices, 0, sizeof plan->devices);
    footprint_tables(shape, &plan->workload, &plan->tables);
    for (int d = 0; d < plan->machine.n_devices; d++) {
        struct scratch_layout *out = &plan->devices[d].scratch;
        footprint_scratch(shape, &plan->workload, &plan->machine.devices[d], a.kinds[d], out);
        scratch_bytes[d] = out->size_bytes;
    }
    accounts_finish(&a, place, plan->tables.size_bytes, scratch_bytes);
    for (int d = 0; d < MAX_DEVICES; d++)
        memcpy(plan->devices[d].bytes, a.bytes[d], sizeof a.bytes[d]);
    plan->slot_bytes = a.slot_bytes;
    plan->n_blocks = a.n_blocks;
    plan->block_bytes = a.block_bytes;
    plan->pinned_bytes = accounts_pinned_bytes(&a, place->feed);
}

uint64_t plan_device_bytes(const struct plan *plan, int d) {
    uint64_t total = 0;
    for (int p = 0; p < PLAN_PURPOSES; p++) total += plan->devices[d].bytes[p];
    return total;
}

int32_t plan_n_devices_used(const struct plan *plan) {
    int32_t n = plan->machine.n_devices;
    while (n > DEVICE_HOST + 1 && !plan_device_bytes(plan, n - 1)) n--;
    return n;
}

uint64_t plan_needs(const struct plan *plan, int d) {
    uint64_t bytes[MAX_DEVICES];
    for (int i = 0; i < MAX_DEVICES; i++) bytes[i] = plan_device_bytes(plan, i);
    return needed_bytes(&plan->machine, d, bytes);
}

bool plan_holds(const struct plan *plan, int d) {
    return plan_needs(plan, d) <= plan->machine.devices[d].budget_bytes;
}
