/* evaluate.c: see evaluate.h. */
#include "planner/search/evaluate.h"

#include "base/mem.h"
#include "base/number.h"
#include "planner/plan/simulate.h"

#include <math.h>

// Number of places that a unit may have: a device, parts, streamed or not.
enum { PLACES = MAX_DEVICES * UNIT_PARTS * 2 };
// The sides on which a step may compute a part of a unit: each device, the host with weights from
// its cache, and the accelerator with weights from a slot. With them, the phases and the parts, a
// unit has that many works.
enum {
    SIDE_CACHED = MAX_DEVICES,
    SIDE_STREAMED,
    SIDES,
    UNIT_WORKS = UNIT_PARTS * STEP_PHASES * SIDES,
};

// The row of figures of the unit in that place.
static int32_t place_row(const struct evaluator *ev, int32_t u, const struct unit_place *place) {
    const int32_t part = place->device * UNIT_PARTS + place->cpu_parts;
    return ev->facts[u].twin * PLACES + part * 2 + place->streamed;
}

// ---- Opening ------------------------------------------------------------------------------------

static bool same_tensor(const struct unit_tensor *a, const struct unit_tensor *b) {
    return a->role == b->role && a->use == b->use && a->type == b->type && a->n_cols == b->n_cols &&
           a->n_rows == b->n_rows && a->n_matrices == b->n_matrices &&
           a->size_bytes == b->size_bytes;
}

static bool are_twins(const struct shape *shape, const struct unit *a, const struct unit *b) {
    if (unit_is_tail(shape, a) != unit_is_tail(shape, b)) return false;
    if (a->kind != b->kind || a->n_tensors != b->n_tensors || a->n_heads != b->n_heads ||
        a->n_kv_heads != b->n_kv_heads || a->head_dim_k != b->head_dim_k ||
        a->head_dim_v != b->head_dim_v || a->window != b->window || a->gated != b->gated ||
        a->gated_apart != b->gated_apart || a->joint_norm != b->joint_norm ||
        a->cache_unit != b->cache_unit || a->lends_cache != b->lends_cache ||
        a->state_bytes != b->state_bytes || a->n_experts != b->n_experts ||
        a->n_experts_used != b->n_experts_used || a->n_ff_expert != b->n_ff_expert)
        return false;
    for (int i = 0; i < a->n_tensors; i++)
        if (!same_tensor(&a->tensors[i], &b->tensors[i])) return false;
    return true;
}

// Describes a unit and finds its twin: layers come in few kinds, and twins share their figures.
static void describe_unit(struct evaluator *ev, int32_t u) {
    const struct unit *unit = &ev->shape->units[u];
    struct unit_facts *facts = &ev->facts[u];
    *facts = (struct unit_facts){u, unit_can_split(unit), unit_can_stream(unit),
                                 cost_all_read_bytes(unit)};
    for (int32_t i = u - 1; i >= 0 && facts->twin == u; i--)
        if (ev->facts[i].twin == i && are_twins(ev->shape, &ev->shape->units[i], unit))
            facts->twin = i;
}

static void describe_choice(struct evaluator *ev, struct choice *choice) {
    const struct workload *w = &choice->w;
    struct tables_layout tables;
    footprint_tables(ev->shape, w, &tables);
    choice->tables_bytes = tables.size_bytes;
    choice->n_samples = workload_samples(w, ev->shape, w->n_past, choice->samples);
    while (choice->n_prompt < choice->n_samples && choice->samples[choice->n_prompt].is_prompt)
        choice->n_prompt++;
    if (w->n_gen == 1) choice->n_samples = choice->n_prompt; // no pass decodes
    choice->first_line = ev->n_lines;
    ev->n_lines += choice->n_samples;
}

enum status evaluator_open(struct evaluator *ev, const struct shape *shape,
                           const struct machine *machine, uint64_t own_bytes,
                           const struct workload *w, struct err *e) {
    *ev = (struct evaluator){.shape = shape, .machine = machine, .own_bytes = own_bytes};
    int32_t ubatches[MAX_CHOICES];
    ev->n_choices = workload_ubatches(w, ubatches);
    ev->kv_varies = w->window > 0 && !w->full_windows;
    for (int i = 0; i < ev->n_choices; i++) {
        ev->choices[i].w = *w;
        ev->choices[i].w.n_ubatch = ubatches[i];
        describe_choice(ev, &ev->choices[i]);
    }
    const size_t n = (size_t)shape->n_units, n_lines = (size_t)ev->n_lines;
    ev->facts = mem_alloc(n, sizeof *ev->facts);
    const size_t n_work = n * UNIT_WORKS * n_lines, n_times = n * PLACES * 2;
    ev->bytes = mem_alloc(n * PLACES * MAX_CHOICES, sizeof *ev->bytes);
    ev->work = mem_resize(NULL, n_work, sizeof *ev->work);
    ev->times = mem_resize(NULL, n_times, sizeof *ev->times);
    ev->has_work = mem_alloc(n_work + n_times, sizeof *ev->has_work);
    if (!ev->facts || !ev->bytes || !ev->work || !ev->times || !ev->has_work) {
        evaluator_close(ev);
        return err_memory(e, n_work * sizeof *ev->work, "planning");
    }
    ev->has_times = ev->has_work + n_work;
    for (int32_t u = 0; u < shape->n_units; u++) describe_unit(ev, u);
    return OK;
}

void evaluator_close(struct evaluator *ev) {
    mem_free(ev->facts);
    mem_free(ev->bytes);
    mem_free(ev->work);
    mem_free(ev->times);
    mem_free(ev->has_work);
    *ev = (struct evaluator){0};
}

// ---- Units --------------------------------------------------------------------------------------

static const struct unit_bytes *bytes_of(struct evaluator *ev, int32_t u, int8_t ring,
                                         const struct unit_place *place, int choice) {
    const size_t i = ev->kv_varies ? (size_t)choice : 0;
    struct unit_bytes *out = &ev->bytes[(size_t)place_row(ev, u, place) * MAX_CHOICES + i];
    if (out->weights) return out;
    const struct unit_context context = {&ev->choices[i].w, ev->machine, ring};
    unit_bytes_of(&context, &ev->shape->units[u], place, false, out);
    return out;
}

// The scratch of a device that computes these kinds of units.
static uint64_t scratch_bytes_of(struct evaluator *ev, int i, int d, uint32_t kinds) {
    uint64_t *bytes = &ev->choices[i].scratch_bytes[d][kinds];
    struct scratch_layout layout;
    if (*bytes) return *bytes;
    footprint_scratch(ev->shape, &ev->choices[i].w, &ev->machine->devices[d], kinds, &layout);
    return *bytes = layout.size_bytes;
}

// Bytes that a head saves beside the embedding whose table it shares.
static uint64_t shared_bytes(const struct evaluator *ev, const struct placement *place) {
    const int32_t last = ev->shape->n_units - 1;
    const struct unit *head = &ev->shape->units[last];
    const int8_t d = place->units[last].device;
    if (!head->shares_embed || place->units[0].device != d) return 0;
    const struct machine_device *device = &ev->machine->devices[d];
    return footprint_unit_weights(head, device, false) - footprint_unit_weights(head, device, true);
}

// ---- One pass -----------------------------------------------------------------------------------

struct walk {
    struct evaluator *ev;
    const struct placement *place;
    int choice, sample;
    struct host_cached cached;
    bool free_copies; // as if copies took no time
    struct clocks clocks;
};

// Prices the part of a unit that the step computes, once for all twins, with its weights in the
// CPU's cache or not.
static struct step_work price(struct walk *w, const struct step *step, bool cached) {
    struct evaluator *ev = w->ev;
    const struct choice *choice = &ev->choices[w->choice];
    const int32_t twin = ev->facts[step->unit].twin;
    const int32_t parts = w->place->units[step->unit].cpu_parts;
    const struct unit *unit = &ev->shape->units[twin];
    const int side = step->slot >= 0 ? SIDE_STREAMED : cached ? SIDE_CACHED : step->device;
    const int work = (parts * STEP_PHASES + (int)step->phase) * SIDES + side;
    const size_t row = (size_t)twin * UNIT_WORKS + (size_t)work;
    const size_t i = row * (size_t)ev->n_lines + (size_t)(choice->first_line + w->sample);
    struct step_work *out = &ev->work[i];
    if (ev->has_work[i]) return *out;
    ev->has_work[i] = true;
    const struct cost_place at = {ev->shape, &ev->machine->devices[step->device], &choice->w,
                                  cached};
    const struct cost cost =
        cost_of_part(&at, unit, step_part(step, parts), &choice->samples[w->sample].pass);
    *out = (struct step_work){cost_sum(cost), cached ? 0 : cost.read_bytes, cost.launch_us};
    return *out;
}

// The work is linear in the share of the weights that the cache keeps.
static struct step_work compute_work(struct walk *w, const struct step *step) {
    const struct unit *unit = &w->ev->shape->units[step->unit];
    const double share = step->device == DEVICE_HOST ? cost_share_cached(w->cached, unit) : 0;
    const struct step_work from = price(w, step, share >= 1);
    if (!(share > 0 && share < 1)) return from;
    const struct step_work to = price(w, step, true);
    return (struct step_work){from.us + share * (to.us - from.us), (1 - share) * from.dram_bytes,
                              from.launch_us};
}

static void take_step(void *context, const struct step *step) {
    struct walk *w = context;
    const struct pass *pass = &w->ev->choices[w->choice].samples[w->sample].pass;
    struct step_work work = {0};
    if (step->kind == STEP_COMPUTE)
        work = compute_work(w, step);
    else if (!w->free_copies)
        work = simulate_copy(w->ev->machine, w->place->feed, step, pass);
    clocks_run(&w->clocks, step, &work);
}

static struct schedule schedule_of(struct walk *w) {
    const struct evaluator *ev = w->ev;
    const struct choice *choice = &ev->choices[w->choice];
    return (struct schedule){.shape = ev->shape,
                             .machine = ev->machine,
                             .w = &choice->w,
                             .place = w->place,
                             .tables_bytes = choice->tables_bytes,
                             .batch = batch_class_of(choice->samples[w->sample].pass.n_tokens),
                             .take = take_step,
                             .context = w};
}

static double walk_us(struct walk *w) {
    struct evaluator *ev = w->ev;
    const struct sample *sample = &ev->choices[w->choice].samples[w->sample];
    const struct schedule schedule = schedule_of(w);
    bool used[MAX_DEVICES];
    schedule_used(w->place, ev->shape, schedule.batch, used);
    clocks_start(&w->clocks, ev->machine, used, w->place->units[0].device);
    const bool ahead = schedule_walk(&schedule) && schedule.batch == BATCH_PREFILL;
    return ahead && !sample_waits(sample) ? clocks_period_us(&w->clocks)
                                          : clocks_total_us(&w->clocks);
}

// ---- Units as they are placed -------------------------------------------------------------------

// Time of the unit alone in the walk's pass, on clocks that start at 0, with the residual stream on
// device from.
static double walk_unit_us(struct walk *w, int32_t u, int8_t from) {
    struct evaluator *ev = w->ev;
    const struct sample *sample = &ev->choices[w->choice].samples[w->sample];
    const bool used[MAX_DEVICES] = {false};
    const struct schedule schedule = schedule_of(w);
    clocks_start(&w->clocks, ev->machine, used, from);
    w->clocks.host_sent = true;
    return sample->weight * w->clocks.compute[schedule_unit(&schedule, u, from)];
}

// Adds the times of the unit in the walk's pass, its fetched weights present already, and the time
// of its fetch.
static void time_pass(struct walk *w, int32_t u, struct unit_time *out) {
    const int i = w->choice;
    const struct machine *m = w->ev->machine;
    const struct sample *sample = &w->ev->choices[i].samples[w->sample];
    const struct unit_place *at = &w->place->units[u];
    const bool streamed = at->streamed && batch_class_of(sample->pass.n_tokens) == BATCH_PREFILL;
    const enum pass_kind kind = !sample->is_prompt     ? PASS_DECODE
                                : sample_waits(sample) ? PASS_WAITS
                                                       : PASS_AHEAD;
    if (kind == PASS_DECODE && i > 0) return;
    for (int8_t d = 0; d < m->n_devices; d++) out->chain_us[kind][d][i] += walk_unit_us(w, u, d);
    w->free_copies = true;
    *(kind == PASS_DECODE ? &out->decode_alone_us : &out->prompt_alone_us[i]) +=
        walk_unit_us(w, u, streamed ? w->place->ring : at->device);
    w->free_copies = false;
    for (int d = 0; d < m->n_devices; d++)
        out->busy_us[kind][d][i] += sample->weight * w->clocks.busy_us[d];
    if (!streamed) return;
    const struct schedule schedule = schedule_of(w);
    const struct step fetch = schedule_fetch(&schedule, (int16_t)u);
    for (int f = FEED_ARENA; f < FEEDS; f++)
        out->fetch_us[kind][f][i] +=
            sample->weight * simulate_copy(m, (enum feed)f, &fetch, &sample->pass).us;
}

const struct unit_time *evaluator_unit_time(struct evaluator *ev, int32_t unit,
                                            const struct placement *place, bool cached) {
    const size_t row = (size_t)place_row(ev, unit, &place->units[unit]) * 2 + cached;
    struct unit_time *out = &ev->times[row];
    if (ev->has_times[row]) return out;
    ev->has_times[row] = true;
    *out = (struct unit_time){0};
    struct walk w = {.ev = ev, .place = place, .cached = {cached, cached}};
    for (w.choice = 0; w.choice < ev->n_choices; w.choice++)
        for (w.sample = 0; w.sample < ev->choices[w.choice].n_samples; w.sample++)
            time_pass(&w, unit, out);
    return out;
}

// ---- Equal units --------------------------------------------------------------------------------

// Twins in equal places, which the residual stream reaches from the same device.
struct group {
    int32_t row, unit, n; // the row of times, one of the units, and their number
    int8_t from;
};

// A placement, its units in groups, and sums over them; see struct unit_time.
struct candidate {
    struct evaluator *ev;
    const struct placement *place;
    struct host_cached cached; // of the host's weights
    bool streams, runs_ahead;  // runs_ahead: prompts leave the host once and never come back
    double decode_us, chain_us[PASS_DECODE][MAX_CHOICES], fetch_us[PASS_DECODE][MAX_CHOICES];
    double busy_us[MAX_DEVICES][MAX_CHOICES]; // of PASS_AHEAD
    int32_t n_groups;
    struct group *groups; // [MAX_UNITS]
};

// Groups are as few as the kinds of units; where no two are alike, the last ones are tried.
static void add_to_group(struct candidate *c, int32_t u, int8_t from) {
    enum { TRIED = 16 };
    const int32_t row = place_row(c->ev, u, &c->place->units[u]);
    for (int32_t i = max_i32(0, c->n_groups - TRIED); i < c->n_groups; i++) {
        struct group *g = &c->groups[i];
        if (g->row != row || g->from != from) continue;
        g->n++;
        return;
    }
    c->groups[c->n_groups++] = (struct group){row, u, 1, from};
}

static const struct unit_bytes *group_bytes(const struct candidate *c, int i, int choice) {
    const int32_t u = c->groups[i].unit;
    return bytes_of(c->ev, u, c->place->ring, &c->place->units[u], choice);
}

// The least time: as if the cache kept all weights of which it keeps a part.
static const struct unit_time *group_time(const struct candidate *c, int i) {
    const int32_t u = c->groups[i].unit;
    return evaluator_unit_time(c->ev, u, c->place,
                               cost_share_cached(c->cached, &c->ev->shape->units[u]) > 0);
}

static void group_units(struct candidate *c) {
    int8_t from = c->place->units[0].device, at = DEVICE_HOST; // in decode, in prompts
    struct host_reads reads = {0};
    for (int32_t u = 0; u < c->ev->shape->n_units; u++) {
        const struct unit_place *to = &c->place->units[u];
        const int8_t next = to->streamed ? c->place->ring : to->device;
        add_to_group(c, u, from);
        c->streams |= to->streamed;
        c->runs_ahead &=
            (next != DEVICE_HOST || at == DEVICE_HOST) && (!to->cpu_parts || to->streamed);
        from = to->device;
        at = next;
    }
    for (int i = 0; i < c->n_groups; i++) {
        const int32_t u = c->groups[i].unit;
        const bool whole = c->place->units[u].device == DEVICE_HOST;
        const uint64_t each =
            whole ? c->ev->facts[u].read_bytes : group_bytes(c, i, 0)->cpu_weights;
        cost_add_reads(&reads, &c->ev->shape->units[u], each, (uint64_t)c->groups[i].n);
    }
    c->cached = cost_host_cached(c->ev->machine, &reads);
    for (int i = 0; i < c->n_groups; i++)
        c->decode_us +=
            c->groups[i].n * group_time(c, i)->chain_us[PASS_DECODE][c->groups[i].from][0];
}

// ---- Lower bounds -------------------------------------------------------------------------------

static double least_of(const double us[MAX_DEVICES][MAX_CHOICES], int i) {
    double least = us[0][i];
    for (int d = 1; d < MAX_DEVICES; d++) least = min_us(least, us[d][i]);
    return least;
}

// Sums the times of all units. Small micro-batches stream nothing, so with streamed units the
// residual stream is not on the same device in all passes of the prompt.
static void sum_units(struct candidate *c) {
    for (int32_t g = 0; g < c->n_groups; g++) {
        const struct group *group = &c->groups[g];
        const struct unit_time *t = group_time(c, g);
        const double n = group->n;
        for (int i = 0; i < c->ev->n_choices; i++) {
            for (int kind = 0; kind < PASS_DECODE; kind++) {
                const double(*us)[MAX_CHOICES] = t->chain_us[kind];
                c->chain_us[kind][i] += n * (c->streams ? least_of(us, i) : us[group->from][i]);
                c->fetch_us[kind][i] += n * t->fetch_us[kind][c->place->feed][i];
            }
            for (int d = 0; d < MAX_DEVICES; d++)
                c->busy_us[d][i] += n * t->busy_us[PASS_AHEAD][d][i];
        }
    }
}

// A lower bound of a prompt's time. A pass takes at least the time of its fetches, and that of its
// chain of units, through which the residual stream goes. A period of passes that run ahead takes
// at least the time of the busiest device instead of the chain.
static double least_prompt_us(const struct candidate *c, int i) {
    double most = 0;
    for (int d = 0; d < MAX_DEVICES; d++) most = max_us(most, c->busy_us[d][i]);
    const double chain_us = c->chain_us[PASS_AHEAD][i];
    const double period_us = c->runs_ahead ? min_us(most, chain_us) : chain_us;
    return max_us(period_us, c->fetch_us[PASS_AHEAD][i]) +
           max_us(c->chain_us[PASS_WAITS][i], c->fetch_us[PASS_WAITS][i]);
}

// ---- Placements ---------------------------------------------------------------------------------

// Counts the bytes of all units.
static void count_units(const struct candidate *c, int choice, struct accounts *a) {
    *a = (struct accounts){0};
    for (int i = 0; i < c->n_groups; i++) {
        const int32_t u = c->groups[i].unit;
        accounts_add(a, &c->ev->shape->units[u], &c->place->units[u], c->place->ring,
                     group_bytes(c, i, choice), (uint64_t)c->groups[i].n);
    }
    const int8_t last = c->place->units[c->ev->shape->n_units - 1].device;
    a->bytes[last][PLAN_WEIGHTS] -= shared_bytes(c->ev, c->place);
}

// Adds the bytes that depend on the micro-batch. Returns true if the placement fits.
static bool count_choice(struct evaluator *ev, const struct placement *place, int i,
                         struct accounts a, struct evaluation *out) {
    uint64_t scratch_bytes[MAX_DEVICES] = {0};
    for (int d = 0; d < ev->machine->n_devices; d++)
        scratch_bytes[d] = scratch_bytes_of(ev, i, d, a.kinds[d]);
    accounts_finish(&a, place, ev->choices[i].tables_bytes, scratch_bytes);
    for (int d = 0; d < MAX_DEVICES; d++)
        for (int p = 0; p < PLAN_PURPOSES; p++) out->bytes[i][d] += a.bytes[d][p];
    return machine_holds(ev->machine, out->bytes[i]) &&
           (!a.slot_bytes || accounts_pinned_bytes(&a, place->feed) <= ev->own_bytes);
}

static bool count_bytes(const struct candidate *c, struct evaluation *out) {
    struct accounts a;
    bool any = false;
    for (int i = 0; i < c->ev->n_choices; i++) {
        if (i == 0 || c->ev->kv_varies) count_units(c, i, &a);
        out->fits[i] = count_choice(c->ev, c->place, i, a, out);
        any = any || out->fits[i];
        out->settled &= out->fits[i];
    }
    return any;
}

// The workload's time with one micro-batch, or INFINITY if it is not less than limit_us.
static double workload_us(struct walk *w, double limit_us) {
    const struct choice *choice = &w->ev->choices[w->choice];
    double us = 0;
    for (w->sample = choice->n_samples - 1; w->sample >= 0; w->sample--) {
        us += choice->samples[w->sample].weight * walk_us(w);
        if (us >= limit_us) return (double)INFINITY;
    }
    return us;
}

void evaluate(struct evaluator *ev, const struct placement *place, double limit_us,
              struct evaluation *out) {
    const bool all = limit_us == (double)INFINITY;
    struct group groups[MAX_UNITS];
    struct candidate c = {.ev = ev, .place = place, .runs_ahead = true, .groups = groups};
    group_units(&c);
    struct walk w = {.ev = ev, .place = place, .cached = c.cached};
    *out = (struct evaluation){.hopeless = true, .settled = true};
    for (int i = 0; i < ev->n_choices; i++) out->us[i] = (double)INFINITY;
    if ((c.decode_us >= limit_us || !count_bytes(&c, out)) && !all) return;
    out->hopeless = false;
    sum_units(&c);
    for (w.choice = 0; w.choice < ev->n_choices; w.choice++) {
        const int i = w.choice;
        out->least_us[i] = c.decode_us + least_prompt_us(&c, i);
        if (!all && (!out->fits[i] || out->least_us[i] >= limit_us)) continue;
        out->us[i] = workload_us(&w, limit_us);
        if (!all) limit_us = min_us(limit_us, out->us[i]);
    }
}
