/* demote.c: what an accelerator that has less memory than it said gives up first.
 *
 * A unit that is there goes whole to the CPU, a split one too; or nothing is streamed any more and
 * the ring goes. Each step frees bytes on the accelerator, so there is an end. Owns nothing; any
 * thread. Tested by tests/planner/test_schedule.c and, by the whole
 * program, tests/runtime/test_engine.c.
 */
#include "planner/search/demote.h"

#include "planner/plan/accounts.h"
#include "planner/plan/pair.h"
#include "planner/plan/predict.h"
#include "planner/plan/schedule.h"

#include <math.h>
#include <string.h>

// What is given up, and what it was before.
struct step_down {
    int32_t unit; // or DEMOTED_RING
    uint8_t cpu_parts;
    bool streamed[MAX_UNITS];
    enum feed feed;
    int32_t n_slots;
};

static void step_down(struct plan *plan, struct step_down *s) {
    memcpy(s->streamed, plan->unit_streamed, sizeof s->streamed);
    s->feed = plan->feed;
    s->n_slots = plan->n_slots;
    if (s->unit == DEMOTED_RING) {
        memset(plan->unit_streamed, 0, sizeof plan->unit_streamed);
        return;
    }
    s->cpu_parts = plan->unit_cpu_parts[s->unit];
    plan->unit_device[s->unit] = HOST;
    plan->unit_cpu_parts[s->unit] = 0;
    plan->unit_streamed[s->unit] = false;
}

static void step_up(struct plan *plan, const struct step_down *s) {
    memcpy(plan->unit_streamed, s->streamed, sizeof s->streamed);
    plan->feed = s->feed;
    plan->n_slots = s->n_slots;
    if (s->unit == DEMOTED_RING) return;
    plan->unit_device[s->unit] = GPU;
    plan->unit_cpu_parts[s->unit] = s->cpu_parts;
}

// Bytes that the plan has on the accelerator, and the time it takes, after the step.
static double after(struct plan *plan, const struct shape *shape, uint64_t *bytes, bool *fits) {
    struct prediction prediction = {0};
    plan_count_bytes(plan, shape);
    *bytes = plan_device_bytes(plan, GPU);
    *fits = plan_holds(plan, HOST);
    if (*fits && plan->machine.rates != RATES_NONE) {
        plan_schedule(plan, shape);
        plan_predict(plan, shape, &prediction);
    }
    return prediction.total_us;
}

static bool can_step(const struct plan *plan, int32_t unit) {
    return unit == DEMOTED_RING ? plan->n_slots > 0 : plan->unit_device[unit] == GPU;
}

bool planner_demote(struct plan *plan, const struct shape *shape, int32_t *unit) {
    if (plan->machine.n_devices < 2) return false;
    struct step_down s;
    struct prediction now;
    plan_predict(plan, shape, &now);
    plan_count_bytes(plan, shape);
    const uint64_t now_bytes = plan_device_bytes(plan, GPU);
    double least = (double)INFINITY;
    int32_t best = 0;
    for (s.unit = DEMOTED_RING; s.unit < plan->n_units; s.unit++) {
        if (!can_step(plan, s.unit)) continue;
        uint64_t bytes;
        bool fits;
        step_down(plan, &s);
        const double us = after(plan, shape, &bytes, &fits);
        step_up(plan, &s);
        if (!fits || bytes >= now_bytes) continue;
        const double loss = (us - now.total_us) / (double)(now_bytes - bytes);
        if (loss >= least) continue;
        least = loss;
        best = s.unit;
    }
    const bool found = least < (double)INFINITY;
    s.unit = best;
    if (found) step_down(plan, &s);
    plan_count_bytes(plan, shape);
    plan_schedule(plan, shape);
    if (found) *unit = best;
    return found;
}
