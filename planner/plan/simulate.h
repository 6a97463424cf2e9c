/* simulate.h: adds up the steps of a pass on paper.
 *
 * Owns nothing; any thread. Included through planner/planner.h. Tested by
 * tests/planner/test_simulate.c.
 */
#ifndef TANDEM_PLANNER_PLAN_SIMULATE_H
#define TANDEM_PLANNER_PLAN_SIMULATE_H

#include "planner/plan/clocks.h"
#include "planner/plan/cost.h"
#include "planner/plan/plan.h"

// The totals of a walk over the steps. Times are 0 with RATES_NONE.
struct simulation {
    uint64_t weight_bytes[MAX_DEVICES]; // weights read by one pass
    uint64_t copied_bytes;              // between devices
    int32_t n_copies, n_steps;
    double total_us;  // from the first step to the last
    double period_us; // between passes like this one in a row: total_us unless plan->runs_ahead
    double compute_us[MAX_DEVICES]; // time in which the device computes, and its causes
    struct cost cost[MAX_DEVICES];
    double copy_us;        // time in which copies run
    double hidden_copy_us; // of copy_us, while a device computed
    double disk_us;        // time in which cold weights are read, while nothing else happens
};
void plan_simulate(const struct plan *plan, const struct shape *shape, const struct pass *pass,
                   struct simulation *out);
// Start and end of every step of that pass, [n_steps of its class], in us from its start.
void plan_step_times(const struct plan *plan, const struct shape *shape, const struct pass *pass,
                     struct step_times *out);

// The work of a step that copies; none for a step that copies no byte.
struct step_work simulate_copy(const struct machine *m, enum feed feed, const struct step *step,
                               const struct pass *pass);

// The part that a compute step computes of a unit with so many parts on the CPU.
struct unit_part step_part(const struct step *step, int32_t cpu_parts);

#endif
