/* variant.h: the changes that may make a plan faster, as problems to solve.
 *
 * Owns nothing. Any thread. Used by advise.c; tested by tests/planner/test_planner.c.
 */
#ifndef TANDEM_PLANNER_SEARCH_VARIANT_H
#define TANDEM_PLANNER_SEARCH_VARIANT_H

#include "planner/plan/plan.h"

// The changes that may help; each is solved as a whole new plan, unless it does not apply (no
// accelerator, RAM to spare, no smaller type, context at its minimum).
enum advice {
    ADVICE_VRAM,
    ADVICE_RAM,
    ADVICE_LAYERS_AUTO,
    ADVICE_SMALLER_QUANT,
    ADVICE_SHORTER_CONTEXT,
    ADVICE_KV_Q8_0,
    ADVICES
};
enum { ADVICE_CHARS = 96 };

struct variant {
    const struct shape *shape; // borrowed
    struct machine machine;
    struct workload workload;
    struct constraints constraints;
};

// Changes the problem, which is that of the plan, as the advice says, and writes its text; false if
// the advice does not apply. smaller: room for a shape.
bool variant_make(struct variant *v, enum advice advice, const struct plan *plan,
                  struct shape *smaller, char text[ADVICE_CHARS]);

#endif
