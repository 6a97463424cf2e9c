/* schedule.c: from a placement to the flat list of steps of one forward pass.
 *
 * Owns nothing: fills the step lists inside a struct plan. The residual stream starts where the
 * embedding lives and is sent on whenever the next unit lives elsewhere. Any thread. Tested by
 * tests/test_planner.c.
 */
#include "planner/plan_internal.h"

static void add(struct plan *plan, enum batch_class batch, struct step step) {
    ASSERT(plan->n_steps[batch] < MAX_STEPS);
    plan->steps[batch][plan->n_steps[batch]++] = step;
}

static void schedule_class(struct plan *plan, const struct shape *shape, enum batch_class batch) {
    const uint64_t row_bytes = (uint64_t)shape->n_embd * sizeof(float);
    bool used[MAX_DEVICES] = {false};
    for (int u = 0; u < plan->n_units; u++) used[plan->unit_device[u]] = true;
    plan->n_steps[batch] = 0;
    for (int8_t d = 0; d < plan->machine.n_devices; d++) {
        if (!used[d] || plan->machine.devices[d].is_host) continue;
        add(plan, batch,
            (struct step){.kind = STEP_INPUTS,
                          .device = d,
                          .unit = -1,
                          .bytes_fixed = plan->tables.size_bytes});
    }
    int8_t at = plan->unit_device[0];
    for (int16_t u = 0; u < plan->n_units; u++) {
        int8_t d = plan->unit_device[u];
        if (d != at) {
            add(plan, batch,
                (struct step){.kind = STEP_SEND,
                              .device = at,
                              .peer = d,
                              .unit = -1,
                              .bytes_per_row = row_bytes});
            add(plan, batch, (struct step){.kind = STEP_WAIT, .device = d, .peer = at, .unit = -1});
            at = d;
        }
        add(plan, batch, (struct step){.kind = STEP_COMPUTE, .device = d, .unit = u});
    }
    if (!plan->machine.devices[at].is_host) {
        add(plan, batch,
            (struct step){.kind = STEP_LOGITS,
                          .device = at,
                          .unit = -1,
                          .bytes_per_row = (uint64_t)shape->n_vocab * sizeof(float)});
    }
}

void plan_schedule(struct plan *plan, const struct shape *shape) {
    for (int batch = 0; batch < BATCH_CLASSES; batch++)
        schedule_class(plan, shape, (enum batch_class)batch);
}

enum batch_class batch_class_of(int32_t n_tokens) {
    return n_tokens <= 1 ? BATCH_ONE : n_tokens <= 32 ? BATCH_SMALL : BATCH_PREFILL;
}
