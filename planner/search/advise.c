/* advise.c: tries changes that would make the plan faster, each as a whole new plan.
 *
 * Every variant is solved from the start with the same constraints; the planner chooses the
 * micro-batch again unless it was asked for, since memory that a variant frees may allow a larger
 * one. Variants of a plan
 * with cold weights may have cold weights too. Owns its copies while it runs; any thread. Tested by
 * tests/planner/test_planner.c and tests/cli/cli_paging.sh.
 */
#include "planner/search/advise.h"

#include "base/mem.h"
#include "planner/plan/paging.h"
#include "planner/search/paged.h"
#include "planner/search/solver.h"
#include "planner/search/variant.h"

// Solves a variant; with cold weights only where they do not fit.
static enum status solve_variant(struct plan *out, const struct variant *v, bool may_page,
                                 struct err *e) {
    const enum status status =
        planner_solve(out, v->shape, &v->machine, &v->workload, &v->constraints, e);
    if (status != ERR_MEMORY || !may_page) return status;
    return planner_solve_paged(out, v->shape, &v->machine, &v->workload, &v->constraints, e);
}

enum status planner_advise(const struct plan *plan, const struct shape *shape,
                           const struct constraints *constraints, int32_t n_ubatch,
                           struct advice_result out[ADVICES], struct err *e) {
    struct trial {
        struct plan plan;
        struct shape smaller;
        struct variant v;
    } *t = mem_alloc(1, sizeof *t);
    const bool may_page = paging_cold_bytes(plan) > 0;
    enum status status = t ? OK : err_memory(e, sizeof *t, "advice");
    for (int i = 0; i < ADVICES && !status; i++) {
        struct variant *v = &t->v;
        struct err refused;
        *v = (struct variant){shape, plan->machine, plan->workload, *constraints};
        v->workload.n_ubatch = n_ubatch;
        out[i] = (struct advice_result){0};
        out[i].exists = variant_make(v, (enum advice)i, plan, &t->smaller, out[i].text);
        if (!out[i].exists) continue;
        status = solve_variant(&t->plan, v, may_page, &refused);
        if (status == OK) {
            plan_predict_after(&t->plan, v->shape, t->plan.workload.n_past, &out[i].prediction);
            for (int u = 0; u < t->plan.n_units; u++)
                out[i].units_on_gpu += t->plan.place.units[u].device != DEVICE_HOST;
        } else if (status == ERR_MEMORY) {
            status = OK; // the variant would not fit
        } else {
            *e = refused;
        }
    }
    mem_free(t);
    return status;
}
