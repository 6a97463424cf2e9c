/* draft_place.h: shares a machine between a model and a smaller one that makes drafts for it.
 *
 * Both are planned as always, the draft model first, and the model for what that leaves. Where the
 * draft model may be on either device, both places are tried. Owns nothing, allocates plans for the
 * time of a call. One thread. Tested by tests/runtime/test_draft_model.c.
 */
#ifndef TANDEM_RUNTIME_HOST_DRAFT_PLACE_H
#define TANDEM_RUNTIME_HOST_DRAFT_PLACE_H

#include "runtime/options.h"

struct draft_shapes { // borrowed
    const struct shape *target, *draft;
};

// Gives the draft model the target's sessions and context, as far as it was trained for it, and,
// where its constraints.gpu_layers is GPU_LAYERS_AUTO, decides whether it goes to the GPU as far as
// it fits or stays on the CPU (0): whichever makes the mean token faster, if each costs a pass of
// the target and three of the draft model. ERR_MEMORY if the target does not fit beside the draft
// model in any place, ERR_USAGE, ERR_FILE and ERR_FORMAT as of plan_request_solve.
enum status draft_place(struct engine_options *draft, const struct engine_options *target,
                        const struct draft_shapes *shapes, const struct machine *machine,
                        struct err *e);

// The same with the files of both models and this machine, which *machine then describes. Errors as
// of gguf_shape and devices_open too.
enum status draft_place_here(struct engine_options *draft, const struct engine_options *target,
                             struct machine *machine, struct err *e);

// Places the draft model on that machine, plans it, and leaves the target the rest.
enum status draft_plan(struct plan *out, struct engine_options *draft,
                       struct engine_options *target, const struct draft_shapes *shapes,
                       const struct machine *machine, struct err *e);

// Leaves the target what the plan of the draft model leaves of the machine, and lowers the limits
// that the user gave by what it takes. Called once for the options of a target.
void draft_leave(struct engine_options *target, const struct machine *machine,
                 const struct plan *draft);

#endif
