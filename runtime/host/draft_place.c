/* draft_place.c: see draft_place.h. */
#include "runtime/host/draft_place.h"

#include "base/mem.h"
#include "base/number.h"
#include "runtime/host/devices.h"
#include "runtime/host/plan_request.h"
#include "runtime/model/gguf_shape.h"

enum { DRAFT_PASSES = 3 }; // of the draft model for one of the target

// The second model's vocabulary and tables take that beside its plan.
static const uint64_t TABLE_BYTES = UINT64_C(32) << 20;

void draft_leave(struct engine_options *target, const struct machine *machine,
                 const struct plan *draft) {
    for (int32_t d = 0; d < machine->n_devices; d++) {
        const bool host = d == DEVICE_HOST;
        uint64_t *given = host ? &target->constraints.ram_bytes : &target->constraints.vram_bytes;
        const uint64_t budget = machine->devices[d].budget_bytes,
                       taken = plan_needs(draft, d) + (host ? TABLE_BYTES : 0);
        const uint64_t room = *given && (host || *given < budget) ? *given : budget;
        target->budget_bytes[d] = room > taken ? room - taken : BUDGET_NONE;
        if (*given) *given = target->budget_bytes[d];
    }
}

// ---- Choosing -----------------------------------------------------------------------------------

struct placing { // too big for the stack
    struct plan draft, target;
    struct engine_options draft_options;
    const struct engine_options *target_options; // borrowed
};

// A pass of one token in the middle of the context. 0: nobody knows how fast the machine is.
static double token_us(const struct plan *plan, const struct shape *shape) {
    struct prediction p;
    plan_predict_after(plan, shape, plan->workload.n_past, &p);
    return p.decode_us;
}

static enum status plan_draft(struct plan *out, const struct shape *shape,
                              const struct machine *machine, const struct engine_options *draft,
                              struct err *e) {
    const enum status status = plan_request_solve(out, shape, machine, draft, e);
    if (status == ERR_MEMORY) plan_request_without_draft(e);
    return status ? err_context(e, "the draft model") : OK;
}

// Plans both with that many layers of the draft model on the GPU; *us is the time of a token.
static enum status try_layers(struct placing *x, const struct draft_shapes *shapes,
                              const struct machine *machine, int32_t gpu_layers, double *us,
                              struct err *e) {
    struct engine_options rest = *x->target_options;
    rest.log = NULL; // the plans that are made later tell
    x->draft_options.constraints.gpu_layers = gpu_layers;
    if (plan_draft(&x->draft, shapes->draft, machine, &x->draft_options, e)) return e->status;
    draft_leave(&rest, machine, &x->draft);
    if (plan_request_solve(&x->target, shapes->target, machine, &rest, e)) return e->status;
    *us = token_us(&x->target, shapes->target) + DRAFT_PASSES * token_us(&x->draft, shapes->draft);
    return OK;
}

// The positions of the target's context, and its sessions.
static enum status sessions_of(const struct engine_options *target, const struct shape *shape,
                               int32_t *n_ctx, int32_t *n_sessions, struct err *e) {
    struct workload w = target->workload;
    if (target->plan_path) {
        struct plan_file file;
        if (plan_load(&file, shape, target->plan_path, e)) return e->status;
        w = file.workload;
    }
    if (w.n_ctx == N_CTX_OF_MODEL) w.n_ctx = shape->n_ctx_train;
    *n_ctx = workload_context(&w, shape);
    *n_sessions = w.n_sessions;
    return OK;
}

static enum status choose(struct placing *x, const struct draft_shapes *shapes,
                          const struct machine *machine, int32_t *gpu_layers, struct err *e) {
    struct err refused = {0};
    double us = 0, cpu_us = 0;
    const enum status status = try_layers(x, shapes, machine, *gpu_layers, &us, e);
    const bool free = *gpu_layers == GPU_LAYERS_AUTO && plan_n_devices_used(&x->draft) > 1;
    if ((status && status != ERR_MEMORY) || !free) return status;
    if (try_layers(x, shapes, machine, 0, &cpu_us, &refused)) return status;
    if (status || cpu_us < us) *gpu_layers = 0;
    *e = (struct err){0};
    return OK;
}

enum status draft_place(struct engine_options *draft, const struct engine_options *target,
                        const struct draft_shapes *shapes, const struct machine *machine,
                        struct err *e) {
    const int32_t trained = shapes->draft->n_ctx_train;
    int32_t n_ctx;
    if (sessions_of(target, shapes->target, &n_ctx, &draft->workload.n_sessions, e))
        return e->status;
    draft->workload.n_ctx = trained > 0 ? min_i32(n_ctx, trained) : n_ctx;
    struct placing *x = mem_alloc(1, sizeof *x);
    if (!x) return err_memory(e, sizeof *x, "two plans");
    x->draft_options = *draft;
    x->target_options = target;
    x->draft_options.log = NULL;
    const enum status status = choose(x, shapes, machine, &draft->constraints.gpu_layers, e);
    mem_free(x);
    return status;
}

enum status draft_plan(struct plan *out, struct engine_options *draft,
                       struct engine_options *target, const struct draft_shapes *shapes,
                       const struct machine *machine, struct err *e) {
    if (draft_place(draft, target, shapes, machine, e)) return e->status;
    if (plan_draft(out, shapes->draft, machine, draft, e)) return e->status;
    draft_leave(target, machine, out);
    return OK;
}

// ---- This machine -------------------------------------------------------------------------------

struct pair { // of models, too big for the stack
    struct shape target, draft;
    struct device *devices[MAX_DEVICES];
    int32_t n_devices;
};

enum status draft_place_here(struct engine_options *draft, const struct engine_options *target,
                             struct machine *machine, struct err *e) {
    struct pair *p = mem_alloc(1, sizeof *p);
    if (!p) return err_memory(e, sizeof *p, "the shapes of two models");
    const struct draft_shapes shapes = {&p->target, &p->draft};
    enum status status = OK;
    if (gguf_shape_of_file(&p->target, target->model_path, e) ||
        gguf_shape_of_file(&p->draft, draft->model_path, e) ||
        devices_open(p->devices, &p->n_devices, target, e) ||
        devices_machine(machine, p->devices, p->n_devices, target, e) ||
        draft_place(draft, target, &shapes, machine, e))
        status = e->status;
    devices_close(p->devices);
    mem_free(p);
    return status;
}
