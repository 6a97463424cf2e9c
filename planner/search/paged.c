/* paged.c: see paged.h. */
#include "planner/search/paged.h"

#include "base/mem.h"
#include "planner/plan/paging.h"
#include "planner/search/solver.h"

#include <string.h>

// GB/s of the disk of every search, slower than any disk: what the RAM cannot hold then outweighs
// all else. It is not the measured rate, which differs from one start to the next, and a plan that
// fitted once must fit again.
#define SEARCH_DISK_GBPS 0.01

// Slows a rate down to that of reading from the disk first.
static void read_first(double *gbps) {
    if (*gbps > 0) *gbps = 1 / (1 / *gbps + 1 / SEARCH_DISK_GBPS);
}

// Lets the CPU read every weight from a slow disk before it computes with it, or copies it to a
// slot.
static void slow_down(struct machine *m) {
    struct device_rates *rates = &m->devices[DEVICE_HOST].rates;
    for (int t = 0; t < WEIGHT_COUNT; t++)
        for (int c = 0; c < RATE_CLASSES; c++) read_first(&rates->weight_gbps[t][c]);
    for (int d = 0; d < m->n_devices; d++) read_first(&m->devices[d].link.staged_to_gbps);
    rates->cache_bytes = 0;
}

enum status planner_solve_paged(struct plan *plan, const struct shape *shape,
                                const struct machine *machine, const struct workload *workload,
                                const struct constraints *constraints, struct err *e) {
    struct constraints lifted = *constraints;
    const struct machine_device *host = &machine->devices[DEVICE_HOST];
    const uint64_t ram_bytes = constraints->ram_bytes ? constraints->ram_bytes : host->budget_bytes;
    // A file takes its whole size of an address space, whatever of it stays in RAM.
    if (!constraints->ram_bytes && strcmp(machine->ram_limited_by, "RLIMIT_AS") == 0)
        return planner_solve(plan, shape, machine, workload, constraints, e);
    struct machine *slow = mem_alloc(1, sizeof *slow);
    if (!slow) return err_memory(e, sizeof *slow, "the machine");
    *slow = *machine;
    slow_down(slow);
    lifted.ram_bytes = ram_bytes + shape_weight_bytes(shape);
    if (lifted.place.feed == FEED_NONE)
        lifted.place.feed = FEED_STAGED; // an arena never leaves RAM
    enum status status = planner_solve(plan, shape, slow, workload, &lifted, e);
    mem_free(slow);
    if (status) return status;
    for (int d = 0; d < machine->n_devices; d++)
        plan->machine.devices[d].link = machine->devices[d].link;
    plan->machine.devices[DEVICE_HOST] = *host;
    plan->machine.devices[DEVICE_HOST].budget_bytes = ram_bytes;
    return paging_choose(plan, shape, ram_bytes, e);
}
