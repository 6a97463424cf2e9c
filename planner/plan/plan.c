/* plan.c: see plan.h. */
#include "planner/plan/plan.h"

#include "base/number.h"

#include <math.h>

const char *step_kind_name(enum step_kind kind) {
    static const char *const names[] = {"inputs", "fetch", "compute", "send",
                                        "wait",   "store", "logits"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

const char *step_data_name(enum step_data data) {
    static const char *const names[STEP_DATA] = {"residual",     "hidden", "queries",
                                                 "attended",     "branch", "shared",
                                                 "layer inputs", "routed", "expert"};
    return (unsigned)data < STEP_DATA ? names[data] : "unknown";
}

struct link step_link(const struct machine *m, const struct step *step) {
    switch (step->kind) {
    case STEP_INPUTS:
    case STEP_FETCH: return machine_link(m, DEVICE_HOST, step->device);
    case STEP_SEND: return machine_link(m, step->device, step->peer);
    case STEP_STORE:
    case STEP_LOGITS: return machine_link(m, step->device, DEVICE_HOST);
    case STEP_COMPUTE:
    case STEP_WAIT: break;
    }
    ASSERT(false);
    return (struct link){0};
}

uint64_t step_past_bytes(const struct step *step, int32_t n_past) {
    return step->bytes_per_past * (uint64_t)min_i32(n_past, step->most_past);
}

enum batch_class batch_class_of(int32_t n_tokens) {
    return n_tokens <= 1 ? BATCH_ONE : n_tokens <= 32 ? BATCH_SMALL : BATCH_PREFILL;
}

int8_t placement_device(const struct placement *place, enum batch_class batch, int32_t unit) {
    const struct unit_place *at = &place->units[unit];
    return batch == BATCH_PREFILL && at->streamed ? place->ring : at->device;
}

bool plan_unit_is_whole(const struct plan *plan, int32_t unit) {
    return plan->place.units[unit].device != DEVICE_HOST && !plan->place.units[unit].cpu_parts;
}

int32_t plan_layers_on_gpu(const struct plan *plan, const struct shape *shape) {
    int32_t layers = plan->place.units[plan->n_units - 1].device != DEVICE_HOST;
    for (int u = 1; u + 1 < plan->n_units;) {
        const int32_t layer = shape->units[u].layer;
        bool whole = true;
        for (; shape->units[u].layer == layer; u++) whole = whole && plan_unit_is_whole(plan, u);
        layers += whole;
    }
    return layers;
}

struct pass plan_pass(const struct plan *plan, enum batch_class batch) {
    const struct workload *w = &plan->workload;
    switch (batch) {
    case BATCH_ONE: return (struct pass){1, 1, w->n_prompt < w->n_ctx ? w->n_prompt : w->n_ctx - 1};
    case BATCH_SMALL: return (struct pass){w->n_ubatch < 8 ? w->n_ubatch : 8, 1, 0};
    case BATCH_PREFILL:
    case BATCH_CLASSES: break;
    }
    return (struct pass){w->n_ubatch, 1, 0};
}

const char *plan_purpose_name(enum plan_purpose purpose) {
    static const char *const names[PLAN_PURPOSES] = {"weights_bytes", "kv_bytes", "scratch_bytes",
                                                     "staging_bytes"};
    return (unsigned)purpose < PLAN_PURPOSES ? names[purpose] : "unknown";
}

struct pass pass_of_unit(const struct pass *pass, const struct shape *shape,
                         const struct unit *unit) {
    struct pass own = *pass;
    if (unit_is_tail(shape, unit)) own.n_tokens = pass->n_logits;
    return own;
}

double pass_expert_tokens(const struct pass *pass, const struct workload *w) {
    const double n_sequences = pass_sequences(pass);
    const double exponent = w->expert_exponent > 0 ? w->expert_exponent : EXPERT_EXPONENT;
    return n_sequences * pow(pass->n_tokens / n_sequences, exponent);
}
