/* planner.h: the planner's interface to the runtime: machine, shape and workload in, a plan out.
 *
 * Includes the headers of planner/'s rooms that callers need. machine/ and shape/ use no other
 * room, blocks/ uses shape/, plan/ uses these three, search/ uses all. Owns nothing; any thread.
 */
#ifndef TANDEM_PLANNER_PLANNER_H
#define TANDEM_PLANNER_PLANNER_H

#include "planner/blocks/blocks.h"
#include "planner/machine/machine.h"
#include "planner/machine/machine_scale.h"
#include "planner/plan/accounts.h"
#include "planner/plan/cost.h"
#include "planner/plan/footprint.h"
#include "planner/plan/paging.h"
#include "planner/plan/part.h"
#include "planner/plan/placement.h"
#include "planner/plan/plan.h"
#include "planner/plan/plan_file.h"
#include "planner/plan/plan_print.h"
#include "planner/plan/predict.h"
#include "planner/plan/request.h"
#include "planner/plan/simulate.h"
#include "planner/search/advise.h"
#include "planner/search/paged.h"
#include "planner/search/patterns.h"
#include "planner/search/replay.h"
#include "planner/search/solver.h"
#include "planner/shape/shape.h"

#endif
