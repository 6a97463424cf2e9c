/* schedule.h: turns a placement into the steps of one forward pass: the one order of steps.
 *
 * schedule_walk hands the steps to a function: plan_schedule writes them into a plan, the search
 * runs them on clocks. Owns nothing. Any thread. Tested by tests/planner/test_schedule.c.
 */
#ifndef TANDEM_PLANNER_PLAN_SCHEDULE_H
#define TANDEM_PLANNER_PLAN_SCHEDULE_H

#include "planner/plan/plan.h"

// Receives each step in order, with its bytes. step is valid during the call.
typedef void (*schedule_fn)(void *context, const struct step *step);

// The input of a walk; all borrowed during the call.
struct schedule {
    const struct shape *shape;
    const struct machine *machine;
    const struct workload *w;
    const struct placement *place;
    uint64_t tables_bytes; // of footprint_tables
    enum batch_class batch;
    schedule_fn take;
    void *context;
};

// Hands every step of the pass to take. Returns whether passes may run ahead: the residual stream
// goes to an accelerator at most once, and never back.
bool schedule_walk(const struct schedule *schedule);

// Hands the steps of one unit to take, with the residual stream on device at, and returns the
// device that has it afterwards. Streamed units get no fetch and slot 0.
int8_t schedule_unit(const struct schedule *schedule, int32_t unit, int8_t at);

// The fetch of a streamed unit into slot 0.
struct step schedule_fetch(const struct schedule *schedule, int16_t unit);

// The devices that work in a pass of that class.
void schedule_used(const struct placement *place, const struct shape *shape, enum batch_class batch,
                   bool used[MAX_DEVICES]);

// Fills plan->steps with their bytes, and plan->runs_ahead, from plan->place and plan->tables.
void plan_schedule(struct plan *plan, const struct shape *shape);

#endif
