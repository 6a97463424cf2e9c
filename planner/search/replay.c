/* replay.c: see replay.h. */
#include "planner/search/replay.h"

#include "planner/search/paged.h"
#include "planner/search/solver.h"

#include <inttypes.h>
#include <string.h>

static enum status check_devices(const struct plan_file *file, const struct machine *machine,
                                 struct err *e) {
    bool used = false;
    for (int32_t u = 0; u < MAX_UNITS; u++) used |= file->constraints.place.units[u].device == 1;
    const char *here = machine->n_devices > 1 ? machine->devices[1].kind : "none";
    if (!used || strcmp(here, file->kinds[1]) == 0) return OK;
    err_set(e, ERR_USAGE, "the plan puts layers on a GPU that this computer lacks");
    err_expected(e, "a device of kind %s", file->kinds[1]);
    err_actual(e, "%s", here);
    return err_fix(e, "name the device with --device, or make a plan for this machine");
}

static enum status check_bytes(const struct plan *plan, const struct plan_file *file,
                               struct err *e) {
    for (int32_t d = 0; d < plan->machine.n_devices; d++)
        for (int p = 0; p < PLAN_PURPOSES; p++) {
            if (plan->devices[d].bytes[p] == file->bytes[d][p]) continue;
            err_set(e, ERR_USAGE, "the plan no longer holds: %s on %s",
                    plan_purpose_name((enum plan_purpose)p), plan->machine.devices[d].kind);
            err_expected(e, "%" PRIu64 ", as the file says", file->bytes[d][p]);
            err_actual(e, "%" PRIu64, plan->devices[d].bytes[p]);
            return err_fix(e, "make the plan again: tandem plan ... --save FILE");
        }
    return OK;
}

// The constraints of the file, under the memory limits of limits.
static struct constraints limited(const struct plan_file *file, const struct constraints *limits) {
    struct constraints constraints = file->constraints;
    constraints.vram_bytes = limits->vram_bytes;
    constraints.ram_bytes = limits->ram_bytes;
    return constraints;
}

enum status plan_replay(struct plan *plan, const struct shape *shape, const struct machine *machine,
                        const struct plan_file *file, const struct constraints *limits,
                        struct err *e) {
    const struct constraints constraints = limited(file, limits);
    if (check_devices(file, machine, e) ||
        planner_solve(plan, shape, machine, &file->workload, &constraints, e))
        return e->status;
    return check_bytes(plan, file, e);
}

enum status plan_replay_paged(struct plan *plan, const struct shape *shape,
                              const struct machine *machine, const struct plan_file *file,
                              const struct constraints *limits, struct err *e) {
    const struct constraints constraints = limited(file, limits);
    if (check_devices(file, machine, e) ||
        planner_solve_paged(plan, shape, machine, &file->workload, &constraints, e))
        return e->status;
    return check_bytes(plan, file, e);
}
