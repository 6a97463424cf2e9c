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

static int place_index(const struct unit_place *place) {
    return (place->device * UNIT_PARTS + place->cpu_parts) * 2 + place->streamed;
}

// ---- Opening ------------------------------------------------------------------------------------

static bool same_tensor(const struct unit_tensor *a, const struct unit_tensor *b) {
    return a->role == b->role && a->use == b->use && a->type == b->type && a->n_cols == b->n_cols &&
           a->n_rows == b->n_rows && a->n_matrices == b->n_matrices &&
           a->size_bytes == b->size_bytes;
}

static bool are_twins(const struct unit *a, const struct unit *b) {
    if (a->kind != b->kind || a->n_tensors != b->n_tensors || a->n_heads != b->n_heads ||
        a->n_kv_heads != b->n_kv_heads || a->head_dim_k != b->head_dim_k ||
        a->head_dim_v != b->head_dim_v || a->window != b->window || a->gated != b->gated ||
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
        if (ev->facts[i].twin == i && are_twins(&ev->shape->units[i], unit)) facts->twin = i;
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
    for (int d = 0; d < ev->machine->n_devices; d++) {
        for (uint32_t kinds = 0; kinds < KIND_MASKS; kinds++) {
            struct scratch_layout layout;
            footprint_scratch(ev->shape, w, &ev->machine->devices[d], kinds, &layout);
            choice->scratch_bytes[d][kinds] = layout.size_bytes;
        }
    }
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
    const size_t n_bytes = n * PLACES * (ev->kv_varies ? MAX_CHOICES : 1);
    ev->facts = mem_alloc(n, sizeof *ev->facts);
    ev->bytes = mem_alloc(n_bytes, sizeof *ev->bytes);
    ev->work = mem_alloc(n * UNIT_WORKS * n_lines, sizeof *ev->work);
    ev->times = mem_alloc(n * PLACES * 2, sizeof *ev->times);
    if (!ev->facts || !ev->bytes || !ev->work || !ev->times) {
        evaluator_close(ev);
        return err_memory(e, n * UNIT_WORKS * n_lines * sizeof *ev->work, "planning");
    }
    for (int32_t u = 0; u < shape->n_units; u++) describe_unit(ev, u);
    return OK;
}

void evaluator_close(struct evaluator *ev) {
    mem_free(ev->facts);
    mem_free(ev->bytes);
    mem_free(ev->work);
    mem_free(ev->times);
    *ev = (struct evaluator){0};
}

// ---- Units --------------------------------------------------------------------------------------

static const struct unit_bytes *bytes_of(struct evaluator *ev, int32_t u, int8_t ring,
                                         const struct unit_place *place, int choice) {
    const int32_t twin = ev->facts[u].twin;
    const size_t n_choices = ev->kv_varies ? MAX_CHOICES : 1,
                 i = ev->kv_varies ? (size_t)choice : 0;
    const size_t row = (size_t)twin * PLACES + (size_t)place_index(place);
    struct unit_bytes *out = &ev->bytes[row * n_choices + i];
    if (out->weights) return out;
    const struct unit_context context = {&ev->choices[i].w, ev->machine, ring};
    unit_bytes_of(&context, &ev->shape->units[twin], place, false, out);
    return out;
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
    bool cached;      // the host's weights come from its cache
    bool free_copies; // as if copies took no time
    struct clocks clocks;
};

// Prices the part of a unit that the step computes, once for all twins.
static struct step_work compute_work(struct walk *w, const struct step *step) {
    struct evaluator *ev = w->ev;
    const struct choice *choice = &ev->choices[w->choice];
    const int32_t twin = ev->facts[step->unit].twin;
    const int32_t parts = w->place->units[step->unit].cpu_parts;
    const bool cached = w->cached && step->device == DEVICE_HOST;
    const int side = step->slot >= 0 ? SIDE_STREAMED : cached ? SIDE_CACHED : step->device;
    const int work = (parts * STEP_PHASES + (int)step->phase) * SIDES + side;
    const size_t row = (size_t)twin * UNIT_WORKS + (size_t)work;
    struct step_work *out =
        &ev->work[row * (size_t)ev->n_lines + (size_t)(choice->first_line + w->sample)];
    if (out->us > 0) return *out;
    const struct cost_place at = {ev->shape, &ev->machine->devices[step->device], &choice->w,
                                  cached};
    const struct cost cost = cost_of_part(&at, &ev->shape->units[twin], step_part(step, parts),
                                          &choice->samples[w->sample].pass);
    *out = (struct step_work){cost_sum(cost), cached ? 0 : cost.read_bytes};
    return *out;
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

// Times decoded tokens, which take the same time with every micro-batch.
static void time_decode(struct walk *w, int32_t u, struct unit_time *out) {
    if (w->choice > 0) return;
    for (int8_t d = 0; d < w->ev->machine->n_devices; d++)
        out->decode_us[d] += walk_unit_us(w, u, d);
    w->free_copies = true;
    out->decode_alone_us += walk_unit_us(w, u, w->place->units[u].device);
    w->free_copies = false;
}

// Times prompts with the unit's fetched weights present already; the faster feed bounds both feeds.
static void time_prompt(struct walk *w, int32_t u, struct unit_time *out) {
    const int i = w->choice;
    const struct sample *sample = &w->ev->choices[i].samples[w->sample];
    const struct unit_place *at = &w->place->units[u];
    const bool streamed = at->streamed && batch_class_of(sample->pass.n_tokens) == BATCH_PREFILL;
    for (int8_t d = 0; d < w->ev->machine->n_devices; d++) {
        const double us = walk_unit_us(w, u, d);
        out->prompt_us[d][i] += us;
        if (sample_waits(sample)) out->last_us[d][i] += us;
    }
    w->free_copies = true;
    out->prompt_alone_us[i] += walk_unit_us(w, u, streamed ? w->place->ring : at->device);
    w->free_copies = false;
    if (sample_waits(sample)) return;
    for (int d = 0; d < w->ev->machine->n_devices; d++)
        out->busy_us[d][i] += sample->weight * w->clocks.busy_us[d];
    if (!streamed) return;
    const struct schedule schedule = schedule_of(w);
    const struct step fetch = schedule_fetch(&schedule, (int16_t)u);
    double us = (double)INFINITY;
    for (int feed = FEED_ARENA; feed < FEEDS; feed++)
        us = min_us(us, simulate_copy(w->ev->machine, (enum feed)feed, &fetch, &sample->pass).us);
    out->fetch_us[i] += sample->weight * us;
}

static void time_unit(struct evaluator *ev, int32_t u, const struct placement *place, bool cached,
                      struct unit_time *out) {
    struct walk w = {.ev = ev, .place = place, .cached = cached};
    for (w.choice = 0; w.choice < ev->n_choices; w.choice++) {
        for (w.sample = 0; w.sample < ev->choices[w.choice].n_samples; w.sample++) {
            if (ev->choices[w.choice].samples[w.sample].is_prompt)
                time_prompt(&w, u, out);
            else
                time_decode(&w, u, out);
        }
    }
    out->known = true;
}

const struct unit_time *evaluator_unit_time(struct evaluator *ev, int32_t unit,
                                            const struct placement *place, bool cached) {
    const size_t row =
        (size_t)ev->facts[unit].twin * PLACES + (size_t)place_index(&place->units[unit]);
    struct unit_time *out = &ev->times[row * 2 + cached];
    if (!out->known) time_unit(ev, unit, place, cached, out);
    return out;
}

// ---- Lower bounds -------------------------------------------------------------------------------

// Sums over the units of a placement.
struct sums {
    double decode_us, prompt_us[MAX_CHOICES], last_us[MAX_CHOICES];
    double busy_us[MAX_DEVICES][MAX_CHOICES], fetch_us[MAX_CHOICES];
    bool runs_ahead; // prompts leave the host at most once and never come back
};

static double least_of(const double us[MAX_DEVICES][MAX_CHOICES], int i) {
    double least = us[0][i];
    for (int d = 1; d < MAX_DEVICES; d++) least = min_us(least, us[d][i]);
    return least;
}

// at: the device that has the residual stream; -1: some.
static void add_unit(struct evaluator *ev, const struct unit_time *time, int8_t at,
                     struct sums *sums) {
    for (int i = 0; i < ev->n_choices; i++) {
        sums->prompt_us[i] += at < 0 ? least_of(time->prompt_us, i) : time->prompt_us[at][i];
        sums->last_us[i] += at < 0 ? least_of(time->last_us, i) : time->last_us[at][i];
        sums->fetch_us[i] += time->fetch_us[i];
        for (int d = 0; d < MAX_DEVICES; d++) sums->busy_us[d][i] += time->busy_us[d][i];
    }
}

// Sums the times of all units. Small micro-batches stream nothing, so with streamed units the
// residual stream is not on the same device in all passes of the prompt.
static void sum_units(struct evaluator *ev, const struct placement *place, bool cached,
                      struct sums *sums) {
    int8_t at = place->units[0].device, at_prompt = place->units[0].streamed ? place->ring : at;
    bool streams = false;
    for (int32_t u = 0; u < ev->shape->n_units; u++) streams = streams || place->units[u].streamed;
    *sums = (struct sums){.runs_ahead = true};
    for (int32_t u = 0; u < ev->shape->n_units; u++) {
        const struct unit_place *to = &place->units[u];
        const int8_t next = to->streamed ? place->ring : to->device;
        const struct unit_time *time = evaluator_unit_time(ev, u, place, cached);
        const bool returns = next == DEVICE_HOST && at_prompt != DEVICE_HOST;
        if (returns || (to->cpu_parts && !to->streamed)) sums->runs_ahead = false;
        sums->decode_us += time->decode_us[at];
        add_unit(ev, time, streams ? -1 : at, sums);
        at = to->device;
        at_prompt = next;
    }
}

// A lower bound of a prompt's time. A pass takes at least the time of its chain of units, through
// which the residual stream goes. A period of passes that run ahead takes at least the time of the
// busiest device or of their fetches.
static double least_prompt_us(const struct sums *sums, int i) {
    if (!sums->runs_ahead) return sums->prompt_us[i];
    double most = sums->fetch_us[i];
    for (int d = 0; d < MAX_DEVICES; d++) most = max_us(most, sums->busy_us[d][i]);
    return sums->last_us[i] + min_us(most, sums->prompt_us[i]);
}

// A lower bound of the time if all units that can be streamed took no time in prompts: the chain of
// decoded tokens, and the host's computing of other units.
static double hopeless_us(struct evaluator *ev, const struct placement *place, bool cached) {
    double decode_us = 0, prompt_us[MAX_CHOICES] = {0}, least_us = (double)INFINITY;
    int8_t at = place->units[0].device;
    for (int32_t u = 0; u < ev->shape->n_units; u++) {
        const struct unit_time *time = evaluator_unit_time(ev, u, place, cached);
        decode_us += time->decode_us[at];
        at = place->units[u].device;
        if (at != DEVICE_HOST || ev->facts[u].can_stream) continue;
        for (int i = 0; i < ev->n_choices; i++) prompt_us[i] += least_of(time->prompt_us, i);
    }
    for (int i = 0; i < ev->n_choices; i++) least_us = min_us(least_us, prompt_us[i]);
    return decode_us + least_us;
}

// ---- Placements ---------------------------------------------------------------------------------

// Counts the bytes of all units.
static void count_units(struct evaluator *ev, const struct placement *place, int choice,
                        struct accounts *a) {
    const int32_t n_units = ev->shape->n_units;
    *a = (struct accounts){0};
    for (int32_t u = 0; u < n_units; u++)
        accounts_add(a, &ev->shape->units[u], &place->units[u], place->ring,
                     bytes_of(ev, u, place->ring, &place->units[u], choice));
    a->bytes[place->units[n_units - 1].device][PLAN_WEIGHTS] -= shared_bytes(ev, place);
}

// Adds the bytes that depend on the micro-batch. Returns true if the placement fits.
static bool count_choice(struct evaluator *ev, const struct placement *place, int i,
                         struct accounts a, struct evaluation *out) {
    const struct choice *choice = &ev->choices[i];
    uint64_t scratch_bytes[MAX_DEVICES];
    for (int d = 0; d < MAX_DEVICES; d++) scratch_bytes[d] = choice->scratch_bytes[d][a.kinds[d]];
    accounts_finish(&a, place, choice->tables_bytes, scratch_bytes);
    for (int d = 0; d < MAX_DEVICES; d++) {
        out->bytes[i][d] = 0;
        for (int p = 0; p < PLAN_PURPOSES; p++) out->bytes[i][d] += a.bytes[d][p];
    }
    return machine_holds(ev->machine, out->bytes[i]) &&
           (!a.slot_bytes || accounts_pinned_bytes(&a, place->feed) <= ev->own_bytes);
}

static bool count_bytes(struct evaluator *ev, const struct placement *place,
                        struct evaluation *out) {
    struct accounts a;
    bool any = false;
    out->too_big = true;
    for (int i = 0; i < ev->n_choices; i++) {
        if (i == 0 || ev->kv_varies) count_units(ev, place, i, &a);
        out->fits[i] = count_choice(ev, place, i, a, out);
        any = any || out->fits[i];
        bool holds = true;
        for (int d = DEVICE_HOST + 1; d < ev->machine->n_devices; d++)
            holds &= out->bytes[i][d] <= ev->machine->devices[d].budget_bytes;
        out->too_big &= !holds;
    }
    return any;
}

// True if the weights that the host reads stay in its cache.
static bool host_is_cached(struct evaluator *ev, const struct placement *place) {
    uint64_t read_bytes = 0;
    if (!ev->machine->devices[DEVICE_HOST].rates.cache_bytes) return false;
    for (int32_t u = 0; u < ev->shape->n_units; u++) {
        const struct unit_place *at = &place->units[u];
        const uint64_t cpu = bytes_of(ev, u, place->ring, at, 0)->cpu_weights;
        read_bytes += at->device == DEVICE_HOST ? ev->facts[u].read_bytes : cpu;
    }
    return cost_is_cached(ev->machine, read_bytes);
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
    struct walk w = {.ev = ev, .place = place, .cached = host_is_cached(ev, place)};
    struct sums sums;
    for (int i = 0; i < ev->n_choices; i++) out->us[i] = (double)INFINITY, out->fits[i] = false;
    out->hopeless = true;
    out->too_big = false;
    if (!all && hopeless_us(ev, place, w.cached) >= limit_us) return;
    if (!count_bytes(ev, place, out) && !all) return;
    out->hopeless = false;
    sum_units(ev, place, w.cached, &sums);
    for (w.choice = 0; w.choice < ev->n_choices; w.choice++) {
        const int i = w.choice;
        out->least_us[i] = sums.decode_us + least_prompt_us(&sums, i);
        if (!all && (!out->fits[i] || out->least_us[i] >= limit_us)) continue;
        out->us[i] = workload_us(&w, limit_us);
        if (!all) limit_us = min_us(limit_us, out->us[i]);
    }
}
