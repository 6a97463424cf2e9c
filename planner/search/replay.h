/* replay.h: makes the plan of a plan file on this machine, to the byte.
 *
 * Owns nothing that outlives a call. Any thread. Tested by
 * tests/planner/test_plan_file.c and tests/cli/cli_paging.sh.
 */
#ifndef TANDEM_PLANNER_SEARCH_REPLAY_H
#define TANDEM_PLANNER_SEARCH_REPLAY_H

#include "planner/plan/plan_file.h"

// Solves with the placement of a plan file on this machine, under the memory limits of limits. The
// plan has the same placement and bytes; otherwise ERR_USAGE (a device is missing, a purpose needs
// other bytes now) or ERR_MEMORY.
enum status plan_replay(struct plan *plan, const struct shape *shape, const struct machine *machine,
                        const struct plan_file *file, const struct constraints *limits,
                        struct err *e);

// As plan_replay, but the CPU's weights may be larger than its memory: the same placement and
// bytes, with weights that are cold (paging.h) for the RAM that there is now.
enum status plan_replay_paged(struct plan *plan, const struct shape *shape,
                              const struct machine *machine, const struct plan_file *file,
                              const struct constraints *limits, struct err *e);

#endif
