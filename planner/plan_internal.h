/* plan_internal.h: what the planner's files share and nobody else sees. Same rules as planner.h. */
#ifndef TANDEM_PLANNER_PLAN_INTERNAL_H
#define TANDEM_PLANNER_PLAN_INTERNAL_H

#include "planner/planner.h"

// Fills plan->steps from plan->unit_device and plan->tables.
void plan_schedule(struct plan *plan, const struct shape *shape);

#endif
