/* advise.c: tries changes that would make the plan faster, each as a whole new plan.
 *
 * Every variant is solved from the start with the same constraints; the planner chooses the
 * micro-batch again, since memory that a variant frees may allow a larger one. Owns its copies
 * while it runs; any thread. Tested by tests/planner/test_planner.c.
 */
#include "planner/search/advise.h"

#include "base/mem.h"
#include "planner/search/solver.h"
#include "planner/search/variant.h"

enum status planner_advise(const struct plan *plan, const struct shape *shape,
                           const struct constraints *constraints, struct advice_result out[ADVICES],
                           struct err *e) {
    struct trial {
        struct plan plan;
        struct shape smaller;
        struct variant v;
    } *t = mem_alloc(1, sizeof *t);
    enum status status = t ? OK : err_memory(e, sizeof *t, "advice");
    for (int i = 0; i < ADVICES && !status; i++) {
        struct variant *v = &t->v;
        struct err refused;
        *v = (struct variant){shape, plan->machine, plan->workload, *constraints};
        v->workload.n_ubatch = 0;
        out[i] = (struct advice_result){0};
        out[i].exists = variant_make(v, (enum advice)i, plan, &t->smaller, out[i].text);
        if (!out[i].exists) continue;
        status =
            planner_solve(&t->plan, v->shape, &v->machine, &v->workload, &v->constraints, &refused);
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
