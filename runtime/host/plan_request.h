/* plan_request.h: turns options into a request to the planner, and returns its plan.
 *
 * Owns nothing. Used by devices.c for this machine and by `tandem plan` for any. Must not open
 * devices. Any thread. Tested by tests/cli/cli_plan.sh.
 */
#ifndef TANDEM_RUNTIME_HOST_PLAN_REQUEST_H
#define TANDEM_RUNTIME_HOST_PLAN_REQUEST_H

#include "runtime/options.h"

// Makes the constraints of the options, with the overrides of tensors (-ot) as units of that model.
// On a machine without a GPU, layers that are wanted there are left to the planner, but with
// strict. ERR_USAGE for patterns that are wrong or name a GPU that is not there.
enum status plan_request_constraints(struct constraints *out, const struct shape *shape,
                                     const struct machine *machine,
                                     const struct engine_options *options, struct err *e);

// Makes the plan that the options ask for: solved, or replayed from options->plan_path.
enum status plan_request_solve(struct plan *plan, const struct shape *shape,
                               const struct machine *machine, const struct engine_options *options,
                               struct err *e);

// Puts the way out for two models that do not fit together in place of that for one. Returns
// e->status.
enum status plan_request_without_draft(struct err *e);

// *gain: how many times as fast the prompt and answer that the plan was made for would be with a KV
// cache of Q8_0 instead of its own, under the options' constraints; 1 where there is no GPU with a
// memory of its own, where nothing was measured, or the cache cannot be Q8_0. Takes as long as
// planning. ERR_MEMORY.
enum status plan_request_smaller_cache(const struct plan *plan, const struct shape *shape,
                                       const struct engine_options *options, double *gain,
                                       struct err *e);

#endif
