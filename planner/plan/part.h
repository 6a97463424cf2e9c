/* part.h: the part of a unit that a device computes in one step, and the ops of it.
 *
 * part_walk lets the unit's block (planner/blocks/) encode with an op table that hands each call
 * on as data: the planner has no second list of what units are made of. Owns nothing. Any thread.
 * Included through planner/planner.h. Tested by tests/runtime/test_part.c.
 */
#ifndef TANDEM_PLANNER_PLAN_PART_H
#define TANDEM_PLANNER_PLAN_PART_H

#include "kernels/op_command.h"
#include "kernels/op_cost.h"
#include "planner/plan/plan.h"

// The part of a unit that a device computes in one step: a phase, with the rows or experts of a
// split unit on the accelerator (first), those on the CPU (last), or both in two matmuls each.
// cpu_parts 0: all of them, whatever first and last say.
struct unit_part {
    enum step_phase phase;
    int32_t cpu_parts;
    bool first, last;
};
#define WHOLE_UNIT ((struct unit_part){PHASE_ALL, 0, true, false})

// An op as a block encodes it.
struct op_call {
    enum op_id op;
    struct op_cost cost; // with weights as if they were F32, and one key for attention
    // The tensor that the op multiplies with or takes rows from; NULL: it has only vectors.
    const struct unit_tensor *tensor;
    double share;        // of the experts that the device has, whose work the op does; 1 for others
    double weight_bytes; // that the op reads of that tensor, which has its own type
    double vector_bytes; // of the unit's vectors
};
// call: valid during the call.
typedef void (*part_fn)(void *context, const struct op_call *call);

// The input of a walk; all borrowed during the call.
struct part_walk {
    const struct shape *shape;
    const struct unit *unit;
    const struct workload *w;
    const struct pass *pass;
    struct unit_part part;
    part_fn take;
    void *context;
};

// Hands every op of the part to take, in order; none if the unit has no tokens (pass_of_unit). A
// model that can only be planned may have matrices that no block computes with: each counts as a
// matmul of all tokens.
void part_walk(const struct part_walk *walk);

#endif
