/* advise.c: tries changes that would make the plan faster, each as a whole new plan.
 *
 * Every variant is solved from the start with the same constraints; the planner chooses the
 * micro-batch again, since memory that a variant frees may allow a larger one. Owns its copies
 * while it runs; any thread. Tested by tests/planner/test_planner.c.
 */
#include "planner/search/advise.h"

#include "base/mem.h"
#include "planner/search/solver.h"

#include <stdio.h>
#include <string.h>

static const uint64_t GIB = UINT64_C(1) << 30;
enum { LEAST_CONTEXT = 512 };

// A problem to solve; shape is borrowed.
struct variant {
    const struct shape *shape;
    struct machine machine;
    struct workload workload;
    struct constraints constraints;
};

// Makes the variant of an advice and its text; false if the advice does not apply. smaller: room
// for a shape.
static bool make_variant(struct variant *v, enum advice advice, struct shape *smaller,
                         char text[96]) {
    struct workload *w = &v->workload;
    const int8_t accelerator = machine_accelerator(&v->machine);
    struct machine_device *gpu = &v->machine.devices[accelerator];
    struct err ignored;
    switch (advice) {
    case ADVICE_VRAM:
        snprintf(text, 96, "1 GiB more of VRAM");
        if (accelerator == DEVICE_HOST) return false;
        gpu->budget_bytes += GIB;
        gpu->capacity_bytes += GIB;
        if (v->constraints.vram_bytes) v->constraints.vram_bytes += GIB;
        return true;
    case ADVICE_SMALLER_QUANT:
        snprintf(text, 96, "weights in the next smaller type");
        if (!shape_smaller_quant(v->shape, smaller)) return false;
        v->shape = smaller;
        return true;
    case ADVICE_SHORTER_CONTEXT:
        w->n_ctx /= 2;
        snprintf(text, 96, "a context of %d", w->n_ctx);
        if (w->n_prompt > w->n_ctx) w->n_prompt = w->n_ctx;
        if (w->n_gen > w->n_ctx) w->n_gen = w->n_ctx;
        return w->n_ctx >= LEAST_CONTEXT;
    case ADVICE_KV_Q8_0:
        snprintf(text, 96, "a cache of Q8_0");
        if (w->kv_type_k == DTYPE_Q8_0 && w->kv_type_v == DTYPE_Q8_0) return false;
        w->kv_type_k = w->kv_type_v = DTYPE_Q8_0;
        return workload_check_kv(DTYPE_Q8_0, v->shape, "", &ignored) == OK;
    case ADVICES: break;
    }
    ASSERT(false);
    return false;
}

enum status planner_advise(const struct plan *plan, const struct shape *shape,
                           const struct constraints *constraints, struct advice_result out[ADVICES],
                           struct err *e) {
    struct plan *solved = mem_alloc(1, sizeof *solved);
    struct shape *smaller = mem_alloc(1, sizeof *smaller);
    struct variant *v = mem_alloc(1, sizeof *v);
    enum status status = OK;
    if (!solved || !smaller || !v)
        status = err_memory(e, sizeof *solved + sizeof *smaller, "advice");
    for (int i = 0; i < ADVICES && !status; i++) {
        *v = (struct variant){shape, plan->machine, plan->workload, *constraints};
        v->workload.n_ubatch = 0;
        out[i] = (struct advice_result){0};
        out[i].exists = make_variant(v, (enum advice)i, smaller, out[i].text);
        if (!out[i].exists) continue;
        struct err refused;
        status =
            planner_solve(solved, v->shape, &v->machine, &v->workload, &v->constraints, &refused);
        if (status == OK) {
            plan_predict_after(solved, v->shape, solved->workload.n_past, &out[i].prediction);
            for (int u = 0; u < solved->n_units; u++)
                out[i].units_on_gpu += solved->place.units[u].device != DEVICE_HOST;
        } else if (status == ERR_MEMORY) {
            status = OK; // the variant would not fit
        } else {
            *e = refused;
        }
    }
    mem_free(solved);
    mem_free(smaller);
    mem_free(v);
    return status;
}
