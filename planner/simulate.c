/* simulate.c: walks the step list on paper. First version: bytes only. Owns nothing. Tested by
 * tests/test_planner.c. */
#include "planner/planner.h"

void plan_simulate(const struct plan *plan, int32_t n_tokens, int32_t n_logits,
                   struct simulation *out) {
    *out = (struct simulation){0};
    // Everything is allocated before the first pass and nothing after it, so the peak is the sum.
    for (int d = 0; d < plan->machine.n_devices; d++) {
        for (int p = 0; p < PLAN_PURPOSES; p++) out->peak_bytes[d] += plan->devices[d].bytes[p];
    }
    enum batch_class batch = batch_class_of(n_tokens);
    out->n_steps = plan->n_steps[batch];
    for (int i = 0; i < plan->n_steps[batch]; i++) {
        const struct step *step = &plan->steps[batch][i];
        uint64_t rows = (uint64_t)(step->kind == STEP_LOGITS ? n_logits : n_tokens);
        uint64_t copied = step->bytes_fixed + step->bytes_per_row * rows;
        out->copied_bytes += copied;
        out->n_copies += copied > 0;
        if (step->kind == STEP_COMPUTE)
            out->weight_bytes[step->device] += plan->unit_read_bytes[step->unit];
    }
}
