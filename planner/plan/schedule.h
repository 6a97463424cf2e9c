/* schedule.h: from a placement to the steps of one forward pass.
 *
 * Fills the step lists inside a struct plan; owns nothing. Any thread. Tested by
 * tests/planner/test_schedule.c.
 */
#ifndef TANDEM_PLANNER_PLAN_SCHEDULE_H
#define TANDEM_PLANNER_PLAN_SCHEDULE_H

#include "planner/plan/plan.h"

// Fills plan->steps from plan->place and plan->tables.
void plan_schedule(struct plan *plan, const struct shape *shape);

#endif
