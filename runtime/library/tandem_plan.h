/* tandem_plan.h: the planner's plan as struct tandem_plan of tandem.h.
 *
 * The result owns copies of all its data. Must not decide anything. Any thread. Tested by
 * tests/runtime/test_library.c.
 */
#ifndef TANDEM_RUNTIME_LIBRARY_TANDEM_PLAN_H
#define TANDEM_RUNTIME_LIBRARY_TANDEM_PLAN_H

#include "planner/planner.h"
#include "runtime/tandem.h"

// On failure *out is NULL. Freed by tandem_plan_free.
enum status tandem_plan_make(struct tandem_plan **out, const struct plan *plan,
                             const struct shape *shape, struct err *e);

#endif
