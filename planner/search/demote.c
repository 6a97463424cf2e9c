/* demote.c: chooses the unit that an accelerator with less memory than reported gives up first.
 *
 * A unit on the accelerator, whole or split, goes whole to the CPU; or streaming ends and the ring
 * is freed. Each step frees bytes on the accelerator, so there is an end. Owns nothing; any thread.
 * Tested by tests/planner/test_schedule.c and, by the whole program, tests/runtime/test_engine.c.
 */
#include "planner/search/demote.h"

#include "planner/plan/accounts.h"
#include "planner/plan/predict.h"
#include "planner/plan/schedule.h"

#include <math.h>

// Gives up a unit, or with DEMOTED_RING everything that is streamed.
static void step_down(struct placement *place, int32_t n_units, int32_t unit) {
    for (int32_t u = 0; u < n_units && unit == DEMOTED_RING; u++) place->units[u].streamed = false;
    if (unit != DEMOTED_RING) place->units[unit] = (struct unit_place){.device = DEVICE_HOST};
}

// The plan's bytes on the accelerator and its time after the step.
static double after(struct plan *plan, const struct shape *shape, uint64_t *bytes, bool *fits) {
    struct prediction prediction = {0};
    plan_count_bytes(plan, shape);
    *bytes = plan_device_bytes(plan, machine_accelerator(&plan->machine));
    *fits = plan_holds(plan, DEVICE_HOST);
    if (*fits && plan->machine.rates != RATES_NONE) {
        plan_schedule(plan, shape);
        plan_predict(plan, shape, &prediction);
    }
    return prediction.total_us;
}

static bool can_step(const struct plan *plan, int32_t unit) {
    return unit == DEMOTED_RING ? plan->slot_bytes > 0
                                : plan->place.units[unit].device != DEVICE_HOST;
}

bool planner_demote(struct plan *plan, const struct shape *shape, int32_t *unit) {
    const int8_t accelerator = machine_accelerator(&plan->machine);
    if (accelerator == DEVICE_HOST) return false;
    struct prediction now;
    plan_predict(plan, shape, &now);
    plan_count_bytes(plan, shape);
    const uint64_t now_bytes = plan_device_bytes(plan, accelerator);
    double least = (double)INFINITY;
    const struct placement before = plan->place;
    for (int32_t u = DEMOTED_RING; u < plan->n_units; u++) {
        if (!can_step(plan, u)) continue;
        uint64_t bytes;
        bool fits;
        step_down(&plan->place, plan->n_units, u);
        const double us = after(plan, shape, &bytes, &fits);
        plan->place = before;
        if (!fits || bytes >= now_bytes) continue;
        const double loss = (us - now.total_us) / (double)(now_bytes - bytes);
        if (loss >= least) continue;
        least = loss;
        *unit = u;
    }
    const bool found = least < (double)INFINITY;
    if (found) step_down(&plan->place, plan->n_units, *unit);
    plan_count_bytes(plan, shape);
    plan_schedule(plan, shape);
    return found;
}
