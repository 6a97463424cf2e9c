/* advise_print.c: prints which changes would make a plan faster.
 *
 * Owns nothing; any thread. Tested by tests/planner/test_planner.c and tests/cli/cli_plan.sh.
 */
#include "planner/search/advise.h"

#include "planner/plan/plan_print.h"

bool advise_helps(const struct prediction *now, const struct prediction *then) {
    enum { LEAST_PERCENT = 101 };
    return then->decode_us > 0 && (now->decode_us * 100 >= then->decode_us * LEAST_PERCENT ||
                                   now->total_us * 100 >= then->total_us * LEAST_PERCENT);
}

// Fills order with those that help, the shortest time of the workload first. Returns how many.
static int sort_helpful(const struct advice_result advice[ADVICES], const struct prediction *now,
                        int order[ADVICES]) {
    int n = 0;
    for (int i = 0; i < ADVICES; i++) {
        if (!advice[i].exists || !advise_helps(now, &advice[i].prediction)) continue;
        int at = n++;
        for (; at > 0 && advice[order[at - 1]].prediction.total_us > advice[i].prediction.total_us;
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}

void plan_print_advice(const struct plan *plan, const struct shape *shape,
                       const struct advice_result advice[ADVICES], FILE *out) {
    struct prediction now;
    char speed[PLAN_NUMBER_CHARS], time[PLAN_NUMBER_CHARS];
    char factor[PLAN_NUMBER_CHARS], sooner[PLAN_NUMBER_CHARS];
    int order[ADVICES];
    if (plan->machine.rates == RATES_NONE) return;
    advise_now(plan, shape, &now);
    const int n = sort_helpful(advice, &now, order);
    if (n > 0 && plan->workload.n_past > 0)
        fprintf(out, "what would help (now %s tokens/s after %d token%s and a prompt of %d):\n",
                plan_figure(1e6 / now.decode_us, speed), plan->workload.n_past,
                plan->workload.n_past == 1 ? "" : "s", plan->workload.n_prompt);
    else if (n > 0)
        fprintf(out, "what would help:\n");
    for (int i = 0; i < n; i++) {
        const struct prediction *then = &advice[order[i]].prediction;
        fprintf(out, "  %-41s %5s tokens/s, x %s; first token after %s, x %s\n",
                advice[order[i]].text, plan_figure(1e6 / then->decode_us, speed),
                plan_figure(now.decode_us / then->decode_us, factor),
                plan_duration(then->prompt_us, time),
                plan_figure(now.prompt_us / then->prompt_us, sooner));
    }
    bool any = false;
    for (int i = 0; i < ADVICES; i++) {
        if (!advice[i].exists || advise_helps(&now, &advice[i].prediction)) continue;
        fprintf(out, "%s %s", any ? "," : "would not help:", advice[i].text);
        any = true;
    }
    if (any) fputc('\n', out);
}
