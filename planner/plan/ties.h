/* ties.h: what ties units to others besides the residual stream: caches that several units read,
 * and what the embedding makes for each layer.
 *
 * Attention that reads the cache of another unit is on that one's device (unit_leader). Pure
 * functions; nothing is owned. Any thread. Tested by tests/planner/test_ties.c and
 * tests/runtime/test_pipeline.c.
 */
#ifndef TANDEM_PLANNER_PLAN_TIES_H
#define TANDEM_PLANNER_PLAN_TIES_H

#include "planner/plan/plan.h"

// Places every unit that reads another's cache on the device of that one.
void ties_follow(const struct shape *shape, struct placement *place);

// Lets units that read a cache, and the unit that has it, be on the same devices alone. allowed:
// bit d of each unit's mask: it may be on device d. ERR_USAGE if asked, the devices that a user has
// asked for (DEVICE_ANY: none), or NULL, puts them on different ones.
enum status ties_allow(const struct shape *shape, const struct placement *asked, uint8_t allowed[],
                       struct err *e);

// ERR_USAGE if a placement that is given has such units apart, or one of them split or streamed.
enum status ties_check(const struct shape *shape, const struct placement *place, struct err *e);

// True if device d computes the end of a layer, which reads what the embedding makes for it, in
// passes of that class.
bool ties_read_inputs(const struct shape *shape, const struct placement *place,
                      enum batch_class batch, int8_t d);

#endif
