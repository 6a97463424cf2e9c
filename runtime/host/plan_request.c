/* plan_request.c: see plan_request.h. */
#include "runtime/host/plan_request.h"

enum status plan_request_constraints(struct constraints *out, const struct shape *shape,
                                     const struct engine_options *options, struct err *e) {
    *out = options->constraints;
    if (out->cpu_experts && !shape->n_experts)
        log_line(options->log, LOG_WARN,
                 "this model has no experts that --cpu-moe or --n-cpu-moe could mean");
    if (!options->tensor_overrides) return OK;
    return constraints_add_patterns(out, shape, options->tensor_overrides, e);
}

enum status plan_request_solve(struct plan *plan, const struct shape *shape,
                               const struct machine *machine, const struct engine_options *options,
                               struct err *e) {
    if (options->plan_path) {
        struct plan_file file;
        if (plan_load(&file, shape, options->plan_path, e)) return e->status;
        if (plan_replay(plan, shape, machine, &file, &options->constraints, e))
            return err_context(e, "%s", options->plan_path);
        return OK;
    }
    struct constraints constraints;
    if (plan_request_constraints(&constraints, shape, options, e)) return e->status;
    return planner_solve(plan, shape, machine, &options->workload, &constraints, e);
}
