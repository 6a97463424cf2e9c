/* plan_request.c: see plan_request.h. */
#include "runtime/host/plan_request.h"

#include "base/mem.h"
#include "base/number.h"
#include "runtime/host/expert_counts.h"

#include <stdio.h>
#include <string.h>

enum { LEAST_CONTEXT = 512 }; // a shorter one is not offered

// Places what -ot names. ERR_USAGE if a pattern wants a GPU where there is none.
static enum status place_tensors(struct constraints *c, const struct shape *shape,
                                 const struct machine *machine, const char *patterns,
                                 struct err *e) {
    if (constraints_add_patterns(c, shape, patterns, e)) return e->status;
    for (int32_t u = 0; u < shape->n_units; u++) {
        if (c->place.units[u].device < machine->n_devices) continue;
        err_set(e, ERR_USAGE, "-ot %.80s: no usable GPU was found", patterns);
        return err_fix(e, "see 'tandem devices', or leave out -ot to run on the CPU");
    }
    return OK;
}

// Attention is computed where its cache is. Units that a pattern names stay where it says.
static void keep_cache_on_cpu(struct constraints *c, const struct shape *shape) {
    for (int32_t u = 0; u < shape->n_units; u++) {
        const struct unit *unit = &shape->units[u];
        int8_t *device = &c->place.units[u].device;
        if (!c->has_units) *device = DEVICE_ANY;
        if (unit->kind == UNIT_ATTENTION && unit->n_kv_heads > 0 && *device == DEVICE_ANY)
            *device = DEVICE_HOST;
    }
    c->has_units = true;
}

enum status plan_request_constraints(struct constraints *out, const struct shape *shape,
                                     const struct machine *machine,
                                     const struct engine_options *options, struct err *e) {
    *out = options->constraints;
    const bool none = machine_accelerator(machine) == DEVICE_HOST;
    if (none && out->gpu_layers != 0 && !options->strict) out->gpu_layers = GPU_LAYERS_AUTO;
    if (out->cpu_experts && !shape->n_experts)
        log_line(options->log, LOG_WARN,
                 "this model has no experts that --cpu-moe or --n-cpu-moe could mean");
    if (options->tensor_overrides &&
        place_tensors(out, shape, machine, options->tensor_overrides, e))
        return e->status;
    if (options->cpu_cache) keep_cache_on_cpu(out, shape);
    return OK;
}

static void check_context(const struct workload *w, const struct shape *shape,
                          const struct engine_options *options) {
    if (shape->n_ctx_train > 0 && w->n_ctx > shape->n_ctx_train)
        log_line(options->log, LOG_WARN,
                 "-c %d: the model was trained on %d positions, and writes worse beyond them",
                 w->n_ctx, shape->n_ctx_train);
}

// Plans for the text that will come, as far as it fits in the context.
static void expect_text(struct workload *w, const struct shape *shape,
                        const struct engine_options *options) {
    const int32_t n_ctx = workload_context(w, shape);
    if (!w->n_prompt) w->n_prompt = min_i32(options->prompt_tokens, n_ctx);
    if (!w->n_gen) w->n_gen = min_i32(options->new_tokens, n_ctx);
}

// Plans with the experts that texts have chosen from this model so far.
static enum status expect_experts(struct workload *w, const struct shape *shape,
                                  const struct engine_options *options, struct err *e) {
    if (!options->model_path || !options->cache_path || !shape->n_experts) return OK;
    struct expert_counts *counts = mem_alloc(1, sizeof *counts);
    if (!counts) return err_memory(e, sizeof *counts, "counts of experts");
    expert_counts_init(counts, shape);
    expert_counts_load(counts, options->cache_path, shape);
    w->expert_exponent = expert_counts_exponent(counts);
    mem_free(counts);
    return OK;
}

// ---- More than fits in RAM ----------------------------------------------------------------------

// A request; all borrowed.
struct planned {
    const struct shape *shape;
    const struct machine *machine;
    const struct workload *workload;
    const struct constraints *constraints;
};

static double tokens_per_s(const struct plan *plan, const struct shape *shape) {
    struct prediction p;
    plan_predict(plan, shape, &p);
    return p.decode_us > 0 ? 1e6 / p.decode_us : 0;
}

typedef enum status solve_fn(struct plan *plan, const struct shape *shape,
                             const struct machine *machine, const struct workload *workload,
                             const struct constraints *constraints, struct err *e);

// Finds the longest context of half, a quarter, ... for which solve finds a plan; 0: none of use.
static int32_t fitting_context(struct plan *plan, const struct planned *r, int32_t n_ctx,
                               solve_fn *solve) {
    struct err ignored;
    struct workload w = *r->workload;
    for (w.n_ctx = n_ctx / 2; w.n_ctx >= LEAST_CONTEXT; w.n_ctx /= 2)
        if (solve(plan, r->shape, r->machine, &w, r->constraints, &ignored) == OK) return w.n_ctx;
    return 0;
}

enum { PAGING_CHARS = 96 };

// Says what a model needs that fits only with paging, and writes the way out that this is to
// paging. plan is the one with paging.
static void refuse_ram(const struct plan *plan, const struct planned *r, char paging[PAGING_CHARS],
                       struct err *e) {
    const uint64_t needed = plan_needs(plan, DEVICE_HOST),
                   room = plan->machine.devices[DEVICE_HOST].budget_bytes;
    const double speed = tokens_per_s(plan, r->shape);
    const bool beside = r->machine->n_devices > 1 && !r->machine->devices[1].unified;
    char need[ERR_SIZE_CHARS], have[ERR_SIZE_CHARS], at[32] = "";
    if (speed > 0) (void)snprintf(at, sizeof at, ", at about %.2g tokens/s", speed);
    (void)snprintf(paging, PAGING_CHARS, "--allow-paging reads the rest from the disk%s", at);
    err_set(e, ERR_MEMORY, "%s needs %s of RAM%s, and there are %s for it", r->shape->name,
            err_size_needed(need, needed), beside ? " beside the GPU" : "",
            err_size_limit(have, room));
}

// Refuses a model that fits only with paging, with the two best ways out. plan is the one with
// paging.
static enum status refuse_paging(struct plan *plan, const struct planned *r, struct err *e) {
    char paging[PAGING_CHARS];
    refuse_ram(plan, r, paging, e);
    const int32_t n_ctx = fitting_context(plan, r, plan->workload.n_ctx, planner_solve);
    if (n_ctx) return err_fix(e, "-c %d fits; or %s", n_ctx, paging);
    return err_fix(e, "take a smaller quantization; or %s", paging);
}

// Says how much of the plan is read from the disk, and how fast it is with that.
static void tell_paging(const struct plan *plan, const struct planned *r, const struct log *log) {
    char cold[ERR_SIZE_CHARS];
    log_line(log, LOG_NOTE,
             "%s of weights do not fit in RAM and are read from the disk for every token: about "
             "%.2g tokens/s at %.2g GB/s",
             err_size_needed(cold, paging_cold_bytes(plan)), tokens_per_s(plan, r->shape),
             paging_disk_gbps(r->machine));
}

// Adds a context that fits, with paging if need be, to a refusal that paging alone cannot help.
static enum status add_context(struct plan *plan, const struct planned *r, struct err *e) {
    const int32_t asked = plan->workload.n_ctx;
    const char *paged = "";
    int32_t n_ctx = fitting_context(plan, r, asked, planner_solve);
    if (!n_ctx) {
        n_ctx = fitting_context(plan, r, asked, planner_solve_paged);
        paged = " with --allow-paging";
    }
    char fix[sizeof e->fix];
    memcpy(fix, e->fix, sizeof fix);
    return n_ctx ? err_fix(e, "-c %d fits%s; or %s", n_ctx, paged, fix) : e->status;
}

// Plans what was refused with weights that do not stay in RAM, and takes that plan if the options
// allow it. *e is the refusal so far, and stays if even this does not fit.
static enum status solve_paged(struct plan *plan, const struct planned *r,
                               const struct engine_options *options, struct err *e) {
    struct err refused;
    const int8_t gpu = machine_accelerator(&plan->machine);
    const bool ram_is_full = gpu == DEVICE_HOST || plan_holds(plan, gpu);
    if (planner_solve_paged(plan, r->shape, r->machine, r->workload, r->constraints, &refused))
        return ram_is_full ? add_context(plan, r, e) : e->status;
    if (!options->allow_paging) return refuse_paging(plan, r, e);
    tell_paging(plan, r, options->log);
    *e = (struct err){0};
    return OK;
}

// Replays the plan file of the options, with weights that do not stay in RAM if the options allow
// it.
static enum status replay(struct plan *plan, const struct shape *shape,
                          const struct machine *machine, const struct engine_options *options,
                          struct err *e) {
    struct plan_file file;
    struct err refused;
    char paging[PAGING_CHARS];
    const struct constraints *limits = &options->constraints;
    const struct planned r = {shape, machine, &file.workload, limits};
    if (plan_load(&file, shape, options->plan_path, e)) return e->status;
    if (plan_replay(plan, shape, machine, &file, limits, e) == OK) return OK;
    if (e->status == ERR_MEMORY &&
        plan_replay_paged(plan, shape, machine, &file, limits, &refused) == OK) {
        if (options->allow_paging) {
            tell_paging(plan, &r, options->log);
            *e = (struct err){0};
            return OK;
        }
        refuse_ram(plan, &r, paging, e);
        err_fix(e, "make a plan for less: tandem plan ... --save FILE; or %s", paging);
    }
    return err_context(e, "%s", options->plan_path);
}

// Makes the plan for a machine and limits beside which there is nothing else.
static enum status solve_alone(struct plan *plan, const struct shape *shape,
                               const struct machine *machine, const struct engine_options *options,
                               struct err *e) {
    if (options->plan_path) return replay(plan, shape, machine, options, e);
    struct constraints constraints;
    struct workload workload = options->workload;
    if (workload.n_ctx == N_CTX_OF_MODEL) workload.n_ctx = shape->n_ctx_train;
    check_context(&workload, shape, options);
    expect_text(&workload, shape, options);
    if (expect_experts(&workload, shape, options, e) ||
        plan_request_constraints(&constraints, shape, machine, options, e))
        return e->status;
    if (constraints.gpu_layers != options->constraints.gpu_layers)
        log_line(options->log, LOG_WARN,
                 "-ngl: no usable GPU was found (see 'tandem devices'); all layers go to the CPU");
    if (planner_solve(plan, shape, machine, &workload, &constraints, e) != ERR_MEMORY)
        return e->status;
    return solve_paged(plan, &(struct planned){shape, machine, &workload, &constraints}, options,
                       e);
}

enum status plan_request_without_draft(struct err *e) {
    return err_fix(e, "leave out the draft model (-md), take a smaller one or a shorter context "
                      "(-c)");
}

// True if a draft model has a part of the machine.
static bool shares_machine(const struct engine_options *options) {
    uint64_t bytes = 0;
    for (int32_t d = 0; d < MAX_DEVICES; d++) bytes |= options->budget_bytes[d];
    return bytes > 0;
}

// Lowers the budgets of the machine to what the draft model leaves.
static void take_budgets(struct machine *machine, const struct engine_options *options) {
    for (int32_t d = 0; d < machine->n_devices; d++) {
        uint64_t *budget = &machine->devices[d].budget_bytes;
        const uint64_t most = options->budget_bytes[d];
        if (most) *budget = min_u64(*budget, most);
    }
}

enum status plan_request_solve(struct plan *plan, const struct shape *shape,
                               const struct machine *machine, const struct engine_options *options,
                               struct err *e) {
    if (!shares_machine(options)) return solve_alone(plan, shape, machine, options, e);
    if (options->budget_bytes[DEVICE_HOST] == BUDGET_NONE) {
        err_set(e, ERR_MEMORY, "the draft model leaves no RAM to %s", shape->name);
        return plan_request_without_draft(e);
    }
    struct machine *rest = mem_alloc(1, sizeof *rest);
    if (!rest) return err_memory(e, sizeof *rest, "the machine");
    *rest = *machine;
    take_budgets(rest, options);
    const enum status status = solve_alone(plan, shape, rest, options, e);
    mem_free(rest);
    return status == ERR_MEMORY ? plan_request_without_draft(e) : status;
}

enum status plan_request_smaller_cache(const struct plan *plan, const struct shape *shape,
                                       const struct engine_options *options, double *gain,
                                       struct err *e) {
    struct err refused;
    struct constraints constraints;
    struct engine_options silent = *options;
    struct workload w = plan->workload;
    const struct machine *machine = &plan->machine;
    const int8_t gpu = machine_accelerator(machine);
    *gain = 1;
    silent.log = NULL; // the same was said before
    w.n_ubatch = options->workload.n_ubatch;
    if (gpu == DEVICE_HOST || machine->devices[gpu].unified || machine->rates == RATES_NONE ||
        options->plan_path || !footprint_shrink_kv(&w, shape))
        return OK;
    if (plan_request_constraints(&constraints, shape, machine, &silent, e)) return e->status;
    struct plan *other = mem_alloc(1, sizeof *other);
    if (!other) return err_memory(e, sizeof *other, "planning");
    if (planner_solve(other, shape, machine, &w, &constraints, &refused) == OK) {
        struct prediction now, then;
        plan_predict_after(plan, shape, plan->workload.n_past, &now);
        plan_predict_after(other, shape, other->workload.n_past, &then);
        if (then.total_us > 0) *gain = now.total_us / then.total_us;
    }
    mem_free(other);
    return OK;
}
