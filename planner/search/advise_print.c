/* advise_print.c: prints which changes would make a plan faster.
 *
 * Owns nothing; any thread. Tested by tests/planner/test_planner.c and tests/cli/cli_plan.sh.
 */
#include "planner/search/advise.h"

#include "planner/plan/plan_print.h"

static bool helps(const struct prediction *now, const struct prediction *then) {
    enum { LEAST_PERCENT = 101 };
    return then->decode_us > 0 && (now->decode_us * 100 >= then->decode_us * LEAST_PERCENT ||
                                   now->total_us * 100 >= then->total_us * LEAST_PERCENT);
}

void plan_print_advice(const struct plan *plan, const struct shape *shape,
                       const struct advice_result advice[ADVICES], FILE *out) {
    struct prediction now;
    char speed[PLAN_NUMBER_CHARS], time[PLAN_NUMBER_CHARS], factor[PLAN_NUMBER_CHARS];
    if (plan->machine.rates == RATES_NONE) return;
    plan_predict_after(plan, shape, plan->workload.n_past, &now);
    bool any = false;
    for (int i = 0; i < ADVICES; i++) {
        const struct prediction *then = &advice[i].prediction;
        if (!advice[i].exists || !helps(&now, then)) continue;
        fprintf(out, "%s  %-36s %5s tokens/s, x %s; first token after %s\n",
                any ? "" : "what would help:\n", advice[i].text,
                plan_figure(1e6 / then->decode_us, speed),
                plan_figure(now.decode_us / then->decode_us, factor),
                plan_duration(then->prompt_us, time));
        any = true;
    }
    any = false;
    for (int i = 0; i < ADVICES; i++) {
        if (!advice[i].exists || helps(&now, &advice[i].prediction)) continue;
        fprintf(out, "%s %s", any ? "," : "would not help:", advice[i].text);
        any = true;
    }
    if (any) fputc('\n', out);
}
