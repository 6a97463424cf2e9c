/* plan_request.c: see plan_request.h. */
#include "runtime/host/plan_request.h"

#include <string.h>

// Takes what asks for a GPU out of the constraints of a machine without one. With strict, or for
// single tensors, it is refused.
static enum status check_gpu(struct constraints *c, const struct machine *machine,
                             const struct engine_options *options, struct err *e) {
    if (machine_accelerator(machine) != DEVICE_HOST) return OK;
    if (options->tensor_overrides && strstr(options->tensor_overrides, "=GPU")) {
        err_set(e, ERR_USAGE, "-ot %.80s: no usable GPU was found", options->tensor_overrides);
        return err_fix(e, "see 'tandem devices', or leave out -ot to run on the CPU");
    }
    if (c->gpu_layers != 0 && !options->strict) c->gpu_layers = GPU_LAYERS_AUTO;
    return OK;
}

enum status plan_request_constraints(struct constraints *out, const struct shape *shape,
                                     const struct machine *machine,
                                     const struct engine_options *options, struct err *e) {
    *out = options->constraints;
    if (check_gpu(out, machine, options, e)) return e->status;
    if (out->cpu_experts && !shape->n_experts)
        log_line(options->log, LOG_WARN,
                 "this model has no experts that --cpu-moe or --n-cpu-moe could mean");
    if (!options->tensor_overrides) return OK;
    return constraints_add_patterns(out, shape, options->tensor_overrides, e);
}

static void check_context(const struct workload *w, const struct shape *shape,
                          const struct engine_options *options) {
    if (shape->n_ctx_train > 0 && w->n_ctx > shape->n_ctx_train)
        log_line(options->log, LOG_WARN,
                 "-c %d: the model was trained on %d positions, and writes worse beyond them",
                 w->n_ctx, shape->n_ctx_train);
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
    struct workload workload = options->workload;
    if (workload.n_ctx == N_CTX_OF_MODEL) workload.n_ctx = shape->n_ctx_train;
    check_context(&workload, shape, options);
    if (plan_request_constraints(&constraints, shape, machine, options, e)) return e->status;
    if (constraints.gpu_layers != options->constraints.gpu_layers)
        log_line(options->log, LOG_WARN,
                 "-ngl: no usable GPU was found (see 'tandem devices'); all layers go to the CPU");
    return planner_solve(plan, shape, machine, &workload, &constraints, e);
}
