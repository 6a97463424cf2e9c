/* schedule.c: see schedule.h.
 *
 * The residual stream starts where the embedding lives and is sent on whenever the next unit is
 * computed elsewhere. A split unit is computed on both devices, with a join after each of its
 * phases; a streamed one on the accelerator of the ring, in prefill, and the CPU's rows of it are
 * fetched as soon as its slot is free.
 */
#include "planner/plan/schedule.h"

#include "planner/plan/footprint.h"
#include "planner/plan/ties.h"

// The state of a walk.
struct walker {
    const struct schedule *s;
    int8_t at;          // device that has the residual stream
    int32_t n_streamed; // computed so far
    int32_t fetched;    // first unit that no fetch has been scheduled for
    int32_t n_fetched;
    int32_t n_to, n_from, n_inputs; // sends of the host, of others; devices that get tables
};

static const struct unit_place *place_of(const struct walker *w, int32_t unit) {
    return &w->s->place->units[unit];
}

static bool is_streamed(const struct walker *w, int32_t unit) {
    return w->s->batch == BATCH_PREFILL && place_of(w, unit)->streamed;
}

// Counts the bytes that the step copies, and tells the tail's steps.
static void count_bytes(const struct schedule *s, struct step *step) {
    const struct unit *unit = step->unit >= 0 ? &s->shape->units[step->unit] : NULL;
    const struct unit_place *place = unit ? &s->place->units[step->unit] : NULL;
    step->tail = unit && unit_is_tail(s->shape, unit);
    switch (step->kind) {
    case STEP_INPUTS: step->bytes_fixed = s->tables_bytes; break;
    case STEP_FETCH:
        step->bytes_fixed = footprint_fetch(unit, place->cpu_parts, 1);
        step->most_past = unit->window ? s->w->window - 1 : INT32_MAX;
        if (footprint_fetches_kv(unit, place)) step->bytes_per_past = footprint_kv_row(unit, s->w);
        break;
    case STEP_STORE: step->bytes_per_row = footprint_kv_row(unit, s->w); break;
    case STEP_SEND:
        step->bytes_per_row = (uint64_t)step->n_cols * sizeof(float);
        if (step->data == DATA_ROUTED) step->bytes_fixed = footprint_starts(s->shape);
        break;
    case STEP_LOGITS: step->bytes_per_row = (uint64_t)s->shape->n_vocab * sizeof(float); break;
    case STEP_COMPUTE:
    case STEP_WAIT: break;
    }
}

static void emit(struct walker *w, struct step *step) {
    const bool sends = step->kind == STEP_SEND && step->data != DATA_LAYER_INPUTS;
    w->n_to += sends && step->device == DEVICE_HOST;
    w->n_from += sends && step->device != DEVICE_HOST;
    w->n_inputs += step->kind == STEP_INPUTS;
    count_bytes(w->s, step);
    w->s->take(w->s->context, step);
}

// Columns that go from one device to another.
struct columns {
    enum step_data data;
    int32_t first, count;
};

// Sends columns from one device to another, within a split unit or (-1) between units, and lets the
// other wait for them.
static void send(struct walker *w, int8_t from, int8_t to, int16_t unit, struct columns columns) {
    emit(w, &(struct step){.kind = STEP_SEND,
                           .device = from,
                           .peer = to,
                           .slot = -1,
                           .data = columns.data,
                           .first_col = columns.first,
                           .n_cols = columns.count,
                           .unit = unit});
}

static void wait_for(struct walker *w, int8_t device, int8_t peer, int16_t unit,
                     enum step_data data) {
    emit(w, &(struct step){.kind = STEP_WAIT,
                           .device = device,
                           .peer = peer,
                           .slot = -1,
                           .data = data,
                           .unit = unit});
}

static void hand_over(struct walker *w, int8_t from, int8_t to, int16_t unit,
                      struct columns columns) {
    send(w, from, to, unit, columns);
    wait_for(w, to, from, unit, columns.data);
}

static void compute(struct walker *w, int8_t device, int16_t unit, enum step_phase phase,
                    int8_t slot) {
    emit(w,
         &(struct step){
             .kind = STEP_COMPUTE, .device = device, .slot = slot, .phase = phase, .unit = unit});
}

// Moves the residual stream of all tokens, alone or with more, to device to. One end of every copy
// is the host.
static void move(struct walker *w, int8_t to, int16_t unit, struct columns columns) {
    while (w->at != to) {
        const int8_t next = w->at == DEVICE_HOST ? to : DEVICE_HOST;
        hand_over(w, w->at, next, unit, columns);
        w->at = next;
    }
}

// The columns that a unit reads of what others have computed.
static struct columns input_of(const struct walker *w, int16_t u) {
    const int32_t n_embd = w->s->shape->n_embd;
    if (unit_reads_normed(w->s->shape, u)) return (struct columns){DATA_SHARED, 0, 2 * n_embd};
    return (struct columns){DATA_RESIDUAL, 0, n_embd};
}

void schedule_used(const struct placement *place, const struct shape *shape, enum batch_class batch,
                   bool used[MAX_DEVICES]) {
    for (int d = 0; d < MAX_DEVICES; d++) used[d] = false;
    for (int32_t u = 0; u < shape->n_units; u++) {
        const struct unit_place *unit = &place->units[u];
        const bool streamed = batch == BATCH_PREFILL && unit->streamed;
        used[streamed ? place->ring : unit->device] = true;
        if (unit->cpu_parts && !streamed) used[DEVICE_HOST] = true;
    }
}

static void start(struct walker *w) {
    bool used[MAX_DEVICES];
    schedule_used(w->s->place, w->s->shape, w->s->batch, used);
    for (int8_t d = 0; d < w->s->machine->n_devices; d++) {
        if (!used[d] || d == DEVICE_HOST) continue;
        emit(w, &(struct step){.kind = STEP_INPUTS, .device = d, .slot = -1, .unit = -1});
    }
}

// Fetches the next streamed unit, if there is one, into the next slot of the ring.
static void fetch_next(struct walker *w) {
    const int32_t n_units = w->s->shape->n_units;
    while (w->fetched < n_units && !is_streamed(w, w->fetched)) w->fetched++;
    if (w->fetched == n_units) return;
    emit(w, &(struct step){.kind = STEP_FETCH,
                           .device = w->s->place->ring,
                           .slot = (int8_t)(w->n_fetched++ % RING_SLOTS),
                           .unit = (int16_t)w->fetched++});
}

static void compute_streamed(struct walker *w, int16_t u) {
    const int8_t slot = (int8_t)(w->n_streamed++ % RING_SLOTS);
    move(w, w->s->place->ring, -1, input_of(w, u));
    compute(w, w->s->place->ring, u, PHASE_ALL, slot);
    if (footprint_fetches_kv(&w->s->shape->units[u], place_of(w, u)))
        emit(w, &(struct step){
                    .kind = STEP_STORE, .device = w->s->place->ring, .slot = slot, .unit = u});
}

static void compute_whole(struct walker *w, int16_t u) {
    move(w, place_of(w, u)->device, -1, input_of(w, u));
    compute(w, w->at, u, PHASE_ALL, -1);
}

// Gives both devices of a split unit its input: the one that has it sends it.
static void begin_split(struct walker *w, int16_t u) {
    const int8_t gpu = place_of(w, u)->device;
    const struct columns all = input_of(w, u);
    if (w->at != DEVICE_HOST && w->at != gpu) move(w, DEVICE_HOST, u, all);
    const int8_t to = w->at == DEVICE_HOST ? gpu : DEVICE_HOST;
    hand_over(w, w->at, to, u, all);
}

// Ends a split unit: the CPU's columns of the residual stream go to the accelerator, or those of
// the unit's output, if that is not added as it is.
static void end_split(struct walker *w, int16_t u) {
    const struct unit_place *place = place_of(w, u);
    const struct unit *unit = &w->s->shape->units[u];
    const enum step_data data = unit_leaves_branch(unit) ? DATA_BRANCH : DATA_RESIDUAL;
    const int32_t n_embd = w->s->shape->n_embd;
    const int32_t first = footprint_split_row(n_embd, place->cpu_parts);
    compute(w, place->device, u, PHASE_OUT, -1);
    compute(w, DEVICE_HOST, u, PHASE_OUT, -1);
    hand_over(w, DEVICE_HOST, place->device, u, (struct columns){data, first, n_embd - first});
    if (unit_post_norm(unit)) compute(w, place->device, u, PHASE_NORM, -1);
    w->at = place->device;
}

// Each device computes its rows of gate and up, gets the other's, and computes its rows of down.
static void compute_split_ffn(struct walker *w, int16_t u) {
    const struct unit_place *place = place_of(w, u);
    const int32_t n_ff = footprint_split_width(&w->s->shape->units[u]);
    const int32_t first = footprint_split_row(n_ff, place->cpu_parts);
    begin_split(w, u);
    compute(w, place->device, u, PHASE_IN, -1);
    send(w, place->device, DEVICE_HOST, u, (struct columns){DATA_HIDDEN, 0, first});
    compute(w, DEVICE_HOST, u, PHASE_IN, -1);
    send(w, DEVICE_HOST, place->device, u, (struct columns){DATA_HIDDEN, first, n_ff - first});
    wait_for(w, DEVICE_HOST, place->device, u, DATA_HIDDEN);
    wait_for(w, place->device, DEVICE_HOST, u, DATA_HIDDEN);
    end_split(w, u);
}

// Each device computes its rows of the queries. The accelerator gets the CPU's columns, computes
// attention for all queries, sends the result to the CPU, and each device computes its rows of the
// output.
static void compute_split_attention(struct walker *w, int16_t u) {
    const struct unit_place *place = place_of(w, u);
    const int32_t width = footprint_split_width(&w->s->shape->units[u]);
    const int32_t first = footprint_split_row(width, place->cpu_parts);
    begin_split(w, u);
    compute(w, place->device, u, PHASE_IN, -1);
    compute(w, DEVICE_HOST, u, PHASE_IN, -1);
    const struct columns queries = {DATA_QUERIES, first, width - first};
    hand_over(w, DEVICE_HOST, place->device, u, queries);
    compute(w, place->device, u, PHASE_MID, -1);
    hand_over(w, place->device, DEVICE_HOST, u, (struct columns){DATA_ATTENDED, 0, width});
    end_split(w, u);
}

// The accelerator chooses the experts, and the CPU gets their input and the pairs. Each device
// computes its experts, then the accelerator gets the CPU's rows and adds all up.
static void compute_split_experts(struct walker *w, int16_t u) {
    const int8_t gpu = place_of(w, u)->device;
    const int32_t n_embd = w->s->shape->n_embd;
    const int32_t n_used = w->s->shape->units[u].n_experts_used;
    move(w, gpu, -1, input_of(w, u));
    compute(w, gpu, u, PHASE_IN, -1);
    send(w, gpu, DEVICE_HOST, u, (struct columns){DATA_ROUTED, 0, n_embd + n_used});
    compute(w, gpu, u, PHASE_MID, -1);
    wait_for(w, DEVICE_HOST, gpu, u, DATA_ROUTED);
    compute(w, DEVICE_HOST, u, PHASE_MID, -1);
    hand_over(w, DEVICE_HOST, gpu, u, (struct columns){DATA_EXPERTS, 0, n_used * n_embd});
    compute(w, gpu, u, PHASE_OUT, -1);
}

static void compute_unit(struct walker *w, int16_t u) {
    if (is_streamed(w, u))
        compute_streamed(w, u);
    else if (!place_of(w, u)->cpu_parts)
        compute_whole(w, u);
    else if (w->s->shape->units[u].kind == UNIT_ATTENTION)
        compute_split_attention(w, u);
    else if (w->s->shape->units[u].kind == UNIT_EXPERTS)
        compute_split_experts(w, u);
    else
        compute_split_ffn(w, u);
}

// Sends what the embedding has made for each layer to the other device, if that needs it.
static void send_layer_inputs(struct walker *w) {
    const struct schedule *s = w->s;
    const int8_t to = w->at == DEVICE_HOST ? machine_accelerator(s->machine) : DEVICE_HOST;
    if (to == w->at || !ties_read_inputs(s->shape, s->place, s->batch, to)) return;
    const struct columns inputs = {DATA_LAYER_INPUTS, 0, shape_layer_inputs(s->shape)};
    hand_over(w, w->at, to, 0, inputs);
}

bool schedule_walk(const struct schedule *schedule) {
    struct walker w = {.s = schedule, .at = schedule->place->units[0].device};
    start(&w);
    for (int32_t i = 0; i < RING_SLOTS; i++) fetch_next(&w);
    for (int16_t u = 0; u < schedule->shape->n_units; u++) {
        compute_unit(&w, u);
        if (u == 0) send_layer_inputs(&w);
        if (is_streamed(&w, u)) fetch_next(&w);
    }
    if (w.at != DEVICE_HOST)
        emit(&w, &(struct step){.kind = STEP_LOGITS, .device = w.at, .slot = -1, .unit = -1});
    return w.n_inputs > 0 && w.n_to <= 1 && w.n_from == 0;
}

struct step schedule_fetch(const struct schedule *schedule, int16_t unit) {
    struct step step = {.kind = STEP_FETCH, .device = schedule->place->ring, .unit = unit};
    count_bytes(schedule, &step);
    return step;
}

int8_t schedule_unit(const struct schedule *schedule, int32_t unit, int8_t at) {
    struct walker w = {.s = schedule, .at = at};
    compute_unit(&w, (int16_t)unit);
    return w.at;
}

// ---- The steps of a plan ------------------------------------------------------------------------

struct writer {
    struct plan *plan;
    enum batch_class batch;
};

static void write_step(void *context, const struct step *step) {
    const struct writer *w = context;
    int32_t *n = &w->plan->n_steps[w->batch];
    ASSERT(*n < MAX_STEPS);
    w->plan->steps[w->batch][(*n)++] = *step;
}

void plan_schedule(struct plan *plan, const struct shape *shape) {
    for (int batch = 0; batch < BATCH_CLASSES; batch++) {
        struct writer w = {plan, (enum batch_class)batch};
        const struct schedule schedule = {.shape = shape,
                                          .machine = &plan->machine,
                                          .w = &plan->workload,
                                          .place = &plan->place,
                                          .tables_bytes = plan->tables.size_bytes,
                                          .batch = w.batch,
                                          .take = write_step,
                                          .context = &w};
        plan->n_steps[batch] = 0;
        plan->runs_ahead = schedule_walk(&schedule);
    }
}
