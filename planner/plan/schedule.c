/* schedule.c: from a placement to the flat list of steps of one forward pass.
 *
 * The residual stream starts where the embedding lives and is sent on whenever the next unit is
 * computed elsewhere. A split unit is computed on both devices, with a join after each of its
 * phases; a streamed one on the accelerator, in prefill, and what the CPU has of it is fetched as
 * soon as its slot is free. Owns nothing: fills the step lists inside a struct plan. Any thread.
 * Tested by tests/planner/test_schedule.c.
 */
#include "planner/plan/schedule.h"

#include "planner/plan/footprint.h"
#include "planner/plan/pair.h"

struct scheduler {
    struct plan *plan;
    const struct shape *shape;
    enum batch_class batch;
    int8_t at;          // device that has the residual stream
    int32_t n_streamed; // computed so far
    int32_t fetched;    // first unit that no fetch has been scheduled for
    int32_t n_fetched;
};

static bool is_streamed(const struct scheduler *s, int32_t unit) {
    return s->batch == BATCH_PREFILL && s->plan->place.units[unit].streamed;
}

static void add(struct scheduler *s, struct step step) {
    int32_t *n = &s->plan->n_steps[s->batch];
    ASSERT(*n < MAX_STEPS);
    s->plan->steps[s->batch][(*n)++] = step;
}

// Columns of data go from one device to the other, within a split unit or (-1) between units.
static void send(struct scheduler *s, int8_t from, int16_t unit, enum step_data data,
                 int32_t first_col, int32_t n_cols) {
    add(s, (struct step){.kind = STEP_SEND,
                         .device = from,
                         .peer = (int8_t)(1 - from),
                         .slot = -1,
                         .data = data,
                         .first_col = first_col,
                         .n_cols = n_cols,
                         .unit = unit,
                         .bytes_per_row = (uint64_t)n_cols * sizeof(float)});
}

static void wait_for_peer(struct scheduler *s, int8_t device, int16_t unit, enum step_data data) {
    add(s, (struct step){.kind = STEP_WAIT,
                         .device = device,
                         .peer = (int8_t)(1 - device),
                         .slot = -1,
                         .data = data,
                         .unit = unit});
}

static void compute(struct scheduler *s, int8_t device, int16_t unit, enum step_phase phase,
                    int8_t slot) {
    add(s, (struct step){
               .kind = STEP_COMPUTE, .device = device, .slot = slot, .phase = phase, .unit = unit});
}

// The residual stream of all tokens, whole.
static void send_residual(struct scheduler *s, int8_t from, int16_t unit) {
    send(s, from, unit, DATA_RESIDUAL, 0, s->shape->n_embd);
    wait_for_peer(s, (int8_t)(1 - from), unit, DATA_RESIDUAL);
}

static void start(struct scheduler *s) {
    bool used[MAX_DEVICES] = {false};
    for (int u = 0; u < s->plan->n_units; u++) {
        used[plan_compute_device(s->plan, s->batch, u)] = true;
        if (s->plan->place.units[u].cpu_parts) used[GPU] = true;
    }
    for (int8_t d = 0; d < s->plan->machine.n_devices; d++) {
        if (!used[d] || s->plan->machine.devices[d].is_host) continue;
        add(s, (struct step){.kind = STEP_INPUTS,
                             .device = d,
                             .slot = -1,
                             .unit = -1,
                             .bytes_fixed = s->plan->tables.size_bytes});
    }
}

// What one position takes in the cache of a streamed unit, if that is on the CPU.
static uint64_t fetched_row_bytes(const struct scheduler *s, int32_t u) {
    const struct unit *unit = &s->shape->units[u];
    return s->plan->place.units[u].cpu_parts ? 0 : footprint_kv_row(unit, &s->plan->workload);
}

// The next streamed unit goes to the slot that follows in the ring, if there is one left.
static void fetch_next(struct scheduler *s) {
    const struct plan *plan = s->plan;
    while (s->fetched < plan->n_units && !is_streamed(s, s->fetched)) s->fetched++;
    if (s->fetched == plan->n_units) return;
    const int16_t u = (int16_t)s->fetched++;
    add(s, (struct step){.kind = STEP_FETCH,
                         .device = GPU,
                         .slot = (int8_t)(s->n_fetched++ % plan->place.n_slots),
                         .unit = u,
                         .bytes_fixed =
                             footprint_fetch(&s->shape->units[u], plan->place.units[u].cpu_parts),
                         .bytes_per_past = fetched_row_bytes(s, u)});
}

// What was added to a cache that had been fetched goes back.
static void store(struct scheduler *s, int16_t u, int8_t slot) {
    if (!fetched_row_bytes(s, u)) return;
    add(s, (struct step){.kind = STEP_STORE,
                         .device = GPU,
                         .slot = slot,
                         .unit = u,
                         .bytes_per_row = fetched_row_bytes(s, u)});
}

static void compute_whole(struct scheduler *s, int16_t u) {
    const int8_t d = plan_compute_device(s->plan, s->batch, u);
    if (d != s->at) send_residual(s, s->at, -1);
    s->at = d;
    if (!is_streamed(s, u)) {
        compute(s, d, u, PHASE_ALL, -1);
        return;
    }
    const int8_t slot = (int8_t)(s->n_streamed++ % s->plan->place.n_slots);
    compute(s, d, u, PHASE_ALL, slot);
    store(s, u, slot);
    fetch_next(s);
}

// The last phase of a split unit: the CPU's columns of the residual stream go to the accelerator.
static void end_split(struct scheduler *s, int16_t u) {
    const int32_t n_embd = s->shape->n_embd;
    const int32_t first = footprint_split_row(n_embd, s->plan->place.units[u].cpu_parts);
    compute(s, GPU, u, PHASE_OUT, -1);
    compute(s, HOST, u, PHASE_OUT, -1);
    send(s, HOST, u, DATA_RESIDUAL, first, n_embd - first);
    wait_for_peer(s, GPU, u, DATA_RESIDUAL);
    s->at = GPU;
}

// Each device computes its rows of gate and up, gets the other's, and computes its rows of down.
static void compute_split_ffn(struct scheduler *s, int16_t u) {
    const int32_t n_ff = footprint_down(&s->shape->units[u])->n_cols;
    const int32_t first = footprint_split_row(n_ff, s->plan->place.units[u].cpu_parts);
    send_residual(s, s->at, u);
    compute(s, GPU, u, PHASE_IN, -1);
    send(s, GPU, u, DATA_HIDDEN, 0, first);
    compute(s, HOST, u, PHASE_IN, -1);
    send(s, HOST, u, DATA_HIDDEN, first, n_ff - first);
    wait_for_peer(s, HOST, u, DATA_HIDDEN);
    wait_for_peer(s, GPU, u, DATA_HIDDEN);
    end_split(s, u);
}

// Each device computes its rows of the queries. The accelerator gets the CPU's, attends with all of
// them, gives the CPU what they have attended to, and each computes its rows of the output.
static void compute_split_attention(struct scheduler *s, int16_t u) {
    const int32_t width = footprint_down(&s->shape->units[u])->n_cols;
    const int32_t first = footprint_split_row(width, s->plan->place.units[u].cpu_parts);
    send_residual(s, s->at, u);
    compute(s, GPU, u, PHASE_IN, -1);
    compute(s, HOST, u, PHASE_IN, -1);
    send(s, HOST, u, DATA_QUERIES, first, width - first);
    wait_for_peer(s, GPU, u, DATA_QUERIES);
    compute(s, GPU, u, PHASE_MID, -1);
    send(s, GPU, u, DATA_ATTENDED, 0, width);
    wait_for_peer(s, HOST, u, DATA_ATTENDED);
    end_split(s, u);
}

static void schedule_class(struct plan *plan, const struct shape *shape, enum batch_class batch) {
    struct scheduler s = {
        .plan = plan, .shape = shape, .batch = batch, .at = plan->place.units[0].device};
    plan->n_steps[batch] = 0;
    start(&s);
    for (int32_t i = 0; i < plan->place.n_slots; i++) fetch_next(&s);
    for (int16_t u = 0; u < plan->n_units; u++) {
        if (!plan->place.units[u].cpu_parts || is_streamed(&s, u))
            compute_whole(&s, u);
        else if (shape->units[u].kind == UNIT_ATTENTION)
            compute_split_attention(&s, u);
        else
            compute_split_ffn(&s, u);
    }
    if (!plan->machine.devices[s.at].is_host) {
        add(&s, (struct step){.kind = STEP_LOGITS,
                              .device = s.at,
                              .slot = -1,
                              .unit = -1,
                              .bytes_per_row = (uint64_t)shape->n_vocab * sizeof(float)});
    }
}

// The accelerator works on its own once it has the residual stream, if it never gives it back.
static bool runs_ahead(const struct plan *plan) {
    int n_to = 0, n_from = 0, n_inputs = 0;
    for (int i = 0; i < plan->n_steps[BATCH_PREFILL]; i++) {
        const struct step *step = &plan->steps[BATCH_PREFILL][i];
        n_inputs += step->kind == STEP_INPUTS;
        n_to += step->kind == STEP_SEND && step->device == HOST;
        n_from += step->kind == STEP_SEND && step->device != HOST;
    }
    return n_inputs > 0 && n_to <= 1 && n_from == 0;
}

void plan_schedule(struct plan *plan, const struct shape *shape) {
    for (int batch = 0; batch < BATCH_CLASSES; batch++)
        schedule_class(plan, shape, (enum batch_class)batch);
    plan->runs_ahead = runs_ahead(plan);
}
