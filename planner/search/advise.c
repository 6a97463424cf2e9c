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
        out[i].exists = variant_make(v, (enum advice)i, plan, smaller, out[i].text);
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
