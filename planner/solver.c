/* solver.c: chooses a device for every unit. First version: fills the accelerator by bytes.
 *
 * Units go to the accelerator from the end of the model backwards (head, then FFN and attention of
 * the last layer, ...), which keeps the number of crossings at two and means what --gpu-layers
 * means elsewhere. Owns nothing; any thread. Tested by tests/test_planner.c.
 */
#include "planner/plan_internal.h"

#include <stddef.h>
#include <string.h>

enum { CPU = 0, GPU = 1 };

static const char *const OPTION[MAX_DEVICES] = {"--ram", "--vram"};

// Fills in every byte count of the plan for the placement in plan->unit_device.
static void count_bytes(struct plan *plan, const struct shape *shape) {
    footprint_tables(&plan->workload, &plan->tables);
    memset(plan->devices, 0, sizeof plan->devices);
    bool has[MAX_DEVICES][UNIT_KINDS] = {{false}};
    for (int u = 0; u < shape->n_units; u++) {
        const struct unit *unit = &shape->units[u];
        int d = plan->unit_device[u];
        const struct machine_device *device = &plan->machine.devices[d];
        has[d][unit->kind] = true;
        plan->unit_weight_bytes[u] =
            footprint_unit_weights(unit, device, plan->unit_device[0] == d);
        plan->unit_kv_bytes[u] =
            unit->kind == UNIT_ATTENTION ? footprint_unit_kv(shape, &plan->workload, device) : 0;
        plan->unit_read_bytes[u] = 0;
        // The embedding reads rows, not the table.
        for (int i = 0; i < unit->n_tensors && unit->kind != UNIT_EMBED; i++) {
            plan->unit_read_bytes[u] += unit->tensor_bytes[i];
        }
        plan->devices[d].bytes[PLAN_WEIGHTS] += plan->unit_weight_bytes[u];
        plan->devices[d].bytes[PLAN_KV] += plan->unit_kv_bytes[u];
    }
    for (int d = 0; d < plan->machine.n_devices; d++) {
        struct plan_device *out = &plan->devices[d];
        footprint_scratch(shape, &plan->workload, &plan->machine.devices[d], has[d], &out->scratch);
        out->bytes[PLAN_SCRATCH] = out->scratch.size_bytes;
    }
    plan->devices[CPU].bytes[PLAN_STAGING] = plan->tables.size_bytes;
}

static uint64_t device_total(const struct plan *plan, int d) {
    uint64_t total = 0;
    for (int p = 0; p < PLAN_PURPOSES; p++) total += plan->devices[d].bytes[p];
    return total;
}

static bool fits(const struct plan *plan, int d) {
    return device_total(plan, d) <= plan->machine.devices[d].budget_bytes;
}

// Places the last n units on the accelerator and all others on the CPU.
static void place_last(struct plan *plan, const struct shape *shape, int32_t n) {
    for (int u = 0; u < shape->n_units; u++)
        plan->unit_device[u] = u >= shape->n_units - n ? GPU : CPU;
    count_bytes(plan, shape);
}

// Units of the last n layers, the head counted as one layer more; the embedding stays with the CPU.
static int32_t units_of_layers(const struct shape *shape, int32_t n_layers) {
    if (n_layers <= 0) return 0;
    int64_t units = 1 + 2 * ((int64_t)n_layers - 1);
    return units < shape->n_units - 1 ? (int32_t)units : shape->n_units - 1;
}

// The largest number of last units that the accelerator holds: more units never need fewer bytes
// there, so bisect.
static int32_t most_units(struct plan *plan, const struct shape *shape) {
    int32_t low = 0, high = shape->n_units;
    while (low < high) {
        int32_t middle = low + (high - low + 1) / 2;
        place_last(plan, shape, middle);
        if (fits(plan, GPU))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static enum status refuse(struct plan *plan, const struct shape *shape, int d, struct err *e) {
    const struct plan_device *need = &plan->devices[d];
    const struct machine_device *device = &plan->machine.devices[d];
    err_set(e, ERR_MEMORY,
            "the plan does not fit on %s: weights %llu, kv %llu, scratch %llu, staging %llu bytes",
            device->name, (unsigned long long)need->bytes[PLAN_WEIGHTS],
            (unsigned long long)need->bytes[PLAN_KV], (unsigned long long)need->bytes[PLAN_SCRATCH],
            (unsigned long long)need->bytes[PLAN_STAGING]);
    err_expected(e, "at most %llu bytes", (unsigned long long)device->budget_bytes);
    err_actual(e, "%llu bytes", (unsigned long long)device_total(plan, d));
    if (d == CPU) {
        return err_fix(e,
                       "use a shorter context (-c), a smaller micro-batch (-ub) or a smaller "
                       "model, or raise %s",
                       OPTION[d]);
    }
    int32_t layers = most_units(plan, shape);
    layers = layers ? (layers - 1) / 2 + 1 : 0;
    return err_fix(
        e, "-ngl %d fits; or use a shorter context (-c), a smaller micro-batch (-ub), or -ngl auto",
        layers);
}

static enum status place(struct plan *plan, const struct shape *shape, const struct constraints *c,
                         struct err *e) {
    bool has_gpu = plan->machine.n_devices > 1;
    if (c->has_units) {
        for (int u = 0; u < shape->n_units; u++) {
            int8_t d = c->unit_device[u];
            if (d >= plan->machine.n_devices) {
                err_set(e, ERR_USAGE, "%s of layer %d is asked for device %d",
                        unit_kind_name(shape->units[u].kind), shape->units[u].layer, d);
                return err_expected(e, "a device below %d", plan->machine.n_devices);
            }
            plan->unit_device[u] = d == DEVICE_ANY ? CPU : d;
        }
        count_bytes(plan, shape);
        return OK;
    }
    if (!has_gpu && c->gpu_layers > 0) {
        err_set(e, ERR_USAGE, "-ngl asks for layers on an accelerator, and there is none");
        return err_fix(e, "leave -ngl away, or name one with --device");
    }
    int32_t n = 0;
    if (has_gpu)
        n = c->gpu_layers == GPU_LAYERS_AUTO ? most_units(plan, shape)
                                             : units_of_layers(shape, c->gpu_layers);
    place_last(plan, shape, n);
    return OK;
}

enum status planner_solve(struct plan *plan, const struct shape *shape,
                          const struct machine *machine, const struct workload *workload,
                          const struct constraints *constraints, struct err *e) {
    ASSERT(machine->n_devices >= 1 && machine->n_devices <= MAX_DEVICES);
    ASSERT(machine->devices[CPU].is_host);
    ASSERT(shape->n_units >= 2 && shape->n_units <= MAX_UNITS);
    memset(plan, 0, sizeof *plan);
    plan->machine = *machine;
    plan->workload = *workload;
    plan->n_units = shape->n_units;
    if (workload_defaults(&plan->workload, shape, e)) return e->status;
    const uint64_t limits[MAX_DEVICES] = {constraints->ram_bytes, constraints->vram_bytes};
    for (int d = 0; d < machine->n_devices; d++) {
        struct machine_device *device = &plan->machine.devices[d];
        // The user may lift the limit on RAM (mapped weights can be paged), never that of the
        // accelerator's memory.
        if (limits[d] && (d == CPU || limits[d] < device->budget_bytes))
            device->budget_bytes = limits[d];
    }
    if (place(plan, shape, constraints, e)) return e->status;
    for (int d = machine->n_devices - 1; d >= 0; d--) {
        if (!fits(plan, d)) return refuse(plan, shape, d, e);
    }
    plan_schedule(plan, shape);
    return OK;
}
