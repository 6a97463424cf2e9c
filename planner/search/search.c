/* search.c: see search.h.
 *
 * Proposals depend on the model, the workload and the rates of the devices alone. A loop goes
 * through the splits that people use: some kinds of units of the first layers on the accelerator,
 * others of the last ones, for every layer between them, the rest on the CPU. Then units go to the
 * accelerator in the order of their gain by byte, to one share of their rows and then whole, for
 * every share. Knapsacks add the best choices for every number of bytes: of whole units, and with
 * some shares of rows. Each of these has nothing streamed, or sets of kinds (streams.h). Limits
 * and the link only decide which proposals fit, and their times. A higher limit or a faster link
 * therefore never makes the answer slower: every proposal that fitted still fits and takes no
 * longer, and the minimum of more and smaller numbers is not greater.
 */
#include "planner/search/search.h"

#include "base/mem.h"
#include "base/number.h"
#include "planner/plan/footprint.h"
#include "planner/plan/ties.h"
#include "planner/search/evaluate.h"
#include "planner/search/knapsack.h"
#include "planner/search/streams.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SPLIT_LABELS = 16 * 1024, // cells times units of a knapsack with split units
    KNOWN = 16 * 1024,        // proposals that are remembered
};

// The units of a run of layers that go whole to the accelerator.
enum rung { NOTHING, ATTENTION, ALL_BUT_EXPERTS, ALL };
// The first layers, and the last ones.
static const enum rung RUNGS[][2] = {{NOTHING, ALL},         {NOTHING, ALL_BUT_EXPERTS},
                                     {NOTHING, ATTENTION},   {ATTENTION, ALL},
                                     {ATTENTION, NOTHING},   {ALL, NOTHING},
                                     {ALL_BUT_EXPERTS, ALL}, {ALL_BUT_EXPERTS, NOTHING}};
enum { N_RUNGS = sizeof RUNGS / sizeof *RUNGS, ALL_RUNGS = (1 << N_RUNGS) - 1 };

// The proposals of a strategy.
struct rules {
    uint32_t rungs;    // of RUNGS, a bit each
    bool whole_layers; // runs begin between layers only
    bool knapsacks;
    bool unstreamed, streamed; // streamed: every unit that can be streamed
    bool split, unsplit;       // unsplit: dense FFNs may be whole on the CPU
};
static const struct rules RULES[STRATEGIES] = {
    [STRATEGY_AUTO] = {.rungs = ALL_RUNGS,
                       .knapsacks = true,
                       .unstreamed = true,
                       .streamed = true,
                       .split = true,
                       .unsplit = true},
    [STRATEGY_CPU] = {.rungs = 1, .unstreamed = true, .unsplit = true},
    [STRATEGY_LAYERS] = {.rungs = 1, .whole_layers = true, .unstreamed = true, .unsplit = true},
    [STRATEGY_ATTENTION_FIRST] = {.rungs = 1 << 2 | 1 << 3, .unstreamed = true, .unsplit = true},
    [STRATEGY_STREAMED] = {.rungs = ALL_RUNGS,
                           .knapsacks = true,
                           .streamed = true,
                           .unsplit = true},
    [STRATEGY_ROW_SPLIT] = {.rungs = ALL_RUNGS, .unstreamed = true, .split = true},
};

struct search {
    const struct search_request *request;
    const struct shape *shape;
    struct machine machine; // with margins
    int8_t accelerator;     // the device that proposals use besides the host
    struct rules rules;
    struct evaluator ev;
    int32_t parts;         // the CPU's parts of units that are split in this round, 0: none are
    bool splits_attention; // in this round, besides FFNs and experts
    struct placement place, best; // the proposal; the best so far
    double best_us;               // with its margin
    bool too_big; // the last proposal that streamed nothing was too big for the accelerator
    struct workload best_workload;
    uint64_t known[KNOWN]; // hashes of considered proposals, 0: none
};

// Sets the rules of a strategy. With unified memory no unit is streamed.
static void set_rules(struct search *s) {
    const bool whole = s->accelerator == DEVICE_HOST || s->request->constraints->whole_units;
    s->rules = RULES[s->request->constraints->strategy];
    if (whole) s->rules.split = false, s->rules.unsplit = true;
    if (!whole && !s->machine.devices[s->accelerator].unified) return;
    s->rules.streamed = false, s->rules.unstreamed = true;
}

static bool may_be_on(const struct search *s, int32_t u, int8_t d) {
    return s->request->allowed[u] >> d & 1;
}

static bool is_attention(const struct search *s, int32_t u) {
    return s->shape->units[u].kind == UNIT_ATTENTION;
}

static bool may_split(const struct search *s, int32_t u) {
    return s->rules.split && s->ev.facts[u].can_split && may_be_on(s, u, DEVICE_HOST) &&
           may_be_on(s, u, s->accelerator);
}

// ---- Margins ------------------------------------------------------------------------------------

void search_add_margins(struct machine *m) {
    for (int d = 0; d < m->n_devices; d++)
        m->devices[d].link.latency_us = 1.5 * m->devices[d].link.latency_us + 5;
}

double search_margin(const struct placement *place, int32_t n_units) {
    double margin = 1;
    for (int32_t u = 0; u < n_units; u++) {
        if (place->units[u].cpu_parts) return 1.08;
        if (place->units[u].streamed) margin = 1.05;
    }
    return margin;
}

// ---- One proposal -------------------------------------------------------------------------------

// Evaluates the proposal and keeps it if it is the fastest; the first of equals stays. Returns true
// if the same with other units streamed, or with a feed that pins less, may be faster.
static bool consider_placement(struct search *s) {
    struct evaluation evaluation;
    const double margin = search_margin(&s->place, s->shape->n_units);
    ties_follow(s->shape, &s->place);
    evaluate(&s->ev, &s->place, fmin(s->best_us / margin, DBL_MAX), &evaluation);
    if (s->place.feed == FEED_NONE)
        s->too_big =
            evaluation.bytes[0][s->accelerator] > s->machine.devices[s->accelerator].budget_bytes;
    for (int i = 0; i < s->ev.n_choices; i++) {
        if (!evaluation.fits[i] || evaluation.us[i] * margin >= s->best_us) continue;
        s->best_us = evaluation.us[i] * margin;
        s->best_workload = s->ev.choices[i].w;
        s->best = s->place;
    }
    return s->place.feed == FEED_NONE ? !evaluation.hopeless : !evaluation.settled;
}

// The kind of streaming that a unit of the proposal can have, 0 if none.
static uint8_t group_of(const struct search *s, int32_t u) {
    if (!s->ev.facts[u].can_stream) return 0;
    return streams_group(s->shape->units[u].kind, &s->place.units[u]);
}

// Considers the proposal with these groups of units streamed, with the requested feed or any.
static bool consider_streams(struct search *s, uint8_t groups) {
    const enum feed asked = s->request->constraints->place.feed;
    for (int32_t u = 0; u < s->shape->n_units; u++)
        s->place.units[u].streamed = group_of(s, u) & groups;
    s->place.feed = FEED_NONE;
    if (!groups) return consider_placement(s);
    for (int feed = FEED_ARENA; feed < FEEDS; feed++) {
        if (asked != FEED_NONE && asked != (enum feed)feed) continue;
        s->place.feed = (enum feed)feed;
        if (!consider_placement(s)) break;
    }
    return true;
}

// True if the proposal was considered lately: two ways often lead to the same one.
static bool is_known(struct search *s) {
    uint64_t hash = 1;
    for (int32_t u = 0; u < s->shape->n_units; u++) {
        const struct unit_place *at = &s->place.units[u];
        hash = (hash ^ (uint64_t)(at->device * UNIT_PARTS + at->cpu_parts)) *
               UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    uint64_t *known = &s->known[hash % KNOWN];
    if (*known == hash) return true;
    *known = hash;
    return false;
}

// Considers the proposal with nothing streamed, and with the groups that can be streamed, apart and
// together.
static void consider(struct search *s) {
    uint8_t found = 0;
    s->too_big = false;
    uint32_t tried = 1;
    if (is_known(s)) return;
    for (int32_t u = 0; u < s->shape->n_units && s->rules.streamed; u++) found |= group_of(s, u);
    if ((s->rules.unstreamed || !(found & STREAM_FFNS)) && !consider_streams(s, 0)) return;
    for (int i = 0; i < STREAM_SETS; i++) {
        const uint8_t groups = streams_set(i) & found;
        if (tried >> groups & 1) continue;
        tried |= UINT32_C(1) << groups;
        if (s->rules.unstreamed || !(found & ~groups & STREAM_FFNS))
            (void)consider_streams(s, groups);
    }
}

// ---- Runs of layers: what people do by hand -----------------------------------------------------

static bool on_rung(enum rung rung, enum unit_kind kind) {
    return rung == ALL || (rung == ALL_BUT_EXPERTS && kind != UNIT_EXPERTS) ||
           (rung == ATTENTION && kind == UNIT_ATTENTION);
}

// True if the strategy wants a part of the unit on the accelerator.
static bool must_split(const struct search *s, int32_t u) {
    return !s->rules.unsplit && s->shape->units[u].kind == UNIT_FFN && may_split(s, u);
}

// Considers the last n units by one rung, the units before by another.
static void consider_runs(struct search *s, int32_t n, const enum rung rungs[2]) {
    const int32_t n_units = s->shape->n_units;
    for (int32_t u = 0; u < n_units; u++) {
        const bool wanted = on_rung(rungs[u >= n_units - n], s->shape->units[u].kind);
        int8_t d = wanted ? s->accelerator : DEVICE_HOST;
        if (!may_be_on(s, u, d)) d = wanted ? DEVICE_HOST : s->accelerator;
        if (d == DEVICE_HOST && must_split(s, u)) return;
        s->place.units[u] = (struct unit_place){.device = d};
    }
    consider(s);
}

// True if the last n units are whole layers.
static bool is_whole(const struct shape *shape, int32_t n) {
    if (n == 0 || n == shape->n_units) return true;
    const enum unit_kind kind = shape->units[shape->n_units - n].kind;
    return kind == UNIT_ATTENTION || kind == UNIT_HEAD;
}

static void consider_ladder(struct search *s) {
    for (size_t r = 0; r < N_RUNGS; r++) {
        for (int32_t n = s->shape->n_units; n >= 0 && s->rules.rungs >> r & 1; n--)
            if (!s->rules.whole_layers || is_whole(s->shape, n)) consider_runs(s, n, RUNGS[r]);
    }
}

// ---- Units in the order of their gain -----------------------------------------------------------

// The view by which units are ordered; no link changes it.
struct view {
    bool streams; // the accelerator computes the CPU's part of prompts, where it can
    int choice;   // the micro-batch of prompts
    bool beside;  // the embedding is on the accelerator, beside a head that may share its table
};

// Time of the unit in its place in the proposal.
static double unit_us(struct search *s, int32_t u, struct view view) {
    struct unit_place *place = &s->place.units[u];
    const struct unit_time *time = evaluator_unit_time(&s->ev, u, &s->place, false);
    const double decode_us = time->decode_alone_us, prompt_us = time->prompt_alone_us[view.choice];
    if (!view.streams || !group_of(s, u)) return decode_us + prompt_us;
    place->streamed = true;
    time = evaluator_unit_time(&s->ev, u, &s->place, false);
    place->streamed = false;
    return decode_us + fmin(prompt_us, time->prompt_alone_us[view.choice]);
}

// The unit's bytes on the accelerator.
static double unit_gpu_bytes(const struct search *s, int32_t u, struct view view) {
    const struct unit_place *place = &s->place.units[u];
    const struct machine_device *gpu = &s->machine.devices[s->accelerator];
    const struct unit *unit = &s->shape->units[u];
    if (place->device == DEVICE_HOST) return 0;
    const uint64_t weights = place->cpu_parts ? footprint_split_weights(unit, gpu, place->cpu_parts)
                                              : footprint_unit_weights(unit, gpu, view.beside);
    return (double)(weights + footprint_unit_kv(unit, &s->ev.choices[0].w, gpu));
}

// A step of a unit towards the accelerator, and the time that it saves.
struct gain {
    double us_per_byte;
    int32_t unit, parts; // the CPU's parts after the step; 0: whole on the accelerator
};

static int by_gain(const void *a, const void *b) {
    const struct gain *one = a, *other = b;
    if (one->us_per_byte != other->us_per_byte)
        return one->us_per_byte < other->us_per_byte ? 1 : -1;
    if (one->unit != other->unit) return other->unit - one->unit; // equal gains keep units adjacent
    return other->parts - one->parts;
}

// True if this round splits the unit: FFNs and experts, and in some rounds attention.
static bool round_splits(const struct search *s, int32_t u) {
    return s->parts && may_split(s, u) && (s->splits_attention || !is_attention(s, u));
}

// Places as little as allowed on the accelerator. False if the round has less there than the
// strategy requires.
static bool place_least(struct search *s) {
    for (int32_t u = 0; u < s->shape->n_units; u++) {
        const bool split = must_split(s, u) && round_splits(s, u);
        const bool on_gpu = split || !may_be_on(s, u, DEVICE_HOST);
        if (!split && must_split(s, u)) return false;
        s->place.units[u] = (struct unit_place){.device = on_gpu ? s->accelerator : DEVICE_HOST,
                                                .cpu_parts = split ? (uint8_t)s->parts : 0};
    }
    return true;
}

// Time per byte that is saved if the unit is placed with these parts instead of the proposal's.
static struct gain gain_of(struct search *s, int32_t u, int32_t parts, struct view view) {
    const struct unit_place before = s->place.units[u];
    const double us = unit_us(s, u, view), bytes = unit_gpu_bytes(s, u, view);
    s->place.units[u] = (struct unit_place){.device = s->accelerator, .cpu_parts = (uint8_t)parts};
    const double saved_us = us - unit_us(s, u, view);
    const double more_bytes = unit_gpu_bytes(s, u, view) - bytes + 1;
    s->place.units[u] = before;
    return (struct gain){saved_us / more_bytes, u, parts};
}

// Finds the remaining steps of the unit: to its share, then to the whole. If the second step gains
// more per byte than the first, both follow each other with their common gain.
static int32_t find_steps(struct search *s, int32_t u, struct view view, struct gain out[2]) {
    struct unit_place *place = &s->place.units[u];
    const struct unit_place before = *place;
    if (place->device != DEVICE_HOST && !place->cpu_parts) return 0;
    if (!may_be_on(s, u, s->accelerator)) return 0;
    out[0] = gain_of(s, u, 0, view);
    if (place->cpu_parts || !round_splits(s, u)) return 1;
    const struct gain first = gain_of(s, u, s->parts, view);
    *place = (struct unit_place){.device = s->accelerator, .cpu_parts = (uint8_t)s->parts};
    const struct gain second = gain_of(s, u, 0, view);
    *place = before;
    const bool at_once = second.us_per_byte > first.us_per_byte;
    out[1] = at_once ? out[0] : second;
    out[0] = at_once ? (struct gain){out[0].us_per_byte, u, s->parts} : first;
    return 2;
}

// Considers the proposal after each step. Each step takes more of the accelerator's memory, so
// after one that is too big none fits.
static void consider_in_turn(struct search *s, const struct gain *gains, int32_t n) {
    enum { MANY_STEPS = 160 }; // more than 80 units that split: every second step will do
    const int32_t stride = 1 + n / MANY_STEPS;
    consider(s);
    for (int32_t i = 0; i < n && !s->too_big; i++) {
        s->place.units[gains[i].unit] =
            (struct unit_place){.device = s->accelerator, .cpu_parts = (uint8_t)gains[i].parts};
        if ((i + 1) % stride == 0 || i + 1 == n) consider(s);
    }
}

// Considers all steps from the least placement on, in the order of their gain in the view, and in
// that with streamed prompts.
static void consider_gains(struct search *s, struct gain *gains) {
    for (int streams = 0; streams <= s->rules.streamed && place_least(s); streams++) {
        const struct view view = {streams, s->ev.n_choices / 3, false};
        int32_t n = 0;
        for (int32_t u = 0; u < s->shape->n_units; u++) n += find_steps(s, u, view, gains + n);
        qsort(gains, (size_t)n, sizeof *gains, by_gain);
        consider_in_turn(s, gains, n);
    }
}

// The step between shares. Models with few kinds of units, as all known ones, get all shares;
// models in which no two layers are alike get fewer, since each share of each kind is priced.
static int32_t share_step(const struct search *s) {
    enum { FEW_KINDS = 32 };
    int32_t n_kinds = 0;
    for (int32_t u = 0; u < s->shape->n_units; u++) n_kinds += s->ev.facts[u].twin == u;
    return 1 + n_kinds / FEW_KINDS;
}

static enum status consider_splits(struct search *s, struct err *e) {
    const size_t n = 2 * (size_t)s->shape->n_units;
    const int32_t step = share_step(s);
    struct gain *gains = mem_alloc(n, sizeof *gains);
    if (!gains) return err_memory(e, n * sizeof *gains, "planning");
    s->parts = 0;
    if (s->rules.knapsacks) consider_gains(s, gains);
    for (s->parts = 1; s->parts < UNIT_PARTS && s->rules.split; s->parts += step) {
        for (int attention = 0; attention < 2; attention++)
            s->splits_attention = attention, consider_gains(s, gains);
    }
    mem_free(gains);
    return OK;
}

// ---- Knapsacks ----------------------------------------------------------------------------------

// Places the unit in this way; false if that is not allowed.
static bool place_way(struct search *s, int32_t u, enum knapsack_way way) {
    const int8_t d = way == WAY_HOST ? DEVICE_HOST : s->accelerator;
    const int32_t parts = way == WAY_SPLIT ? s->parts : 0;
    s->place.units[u] = (struct unit_place){.device = d, .cpu_parts = (uint8_t)parts};
    return way == WAY_SPLIT ? round_splits(s, u) : may_be_on(s, u, d);
}

static void fill_items(struct search *s, struct view view, struct knapsack *k) {
    double sum = 1;
    for (int32_t u = 0; u < s->shape->n_units; u++) {
        struct knapsack_item *item = &k->items[u];
        for (int way = 0; way < KNAPSACK_WAYS; way++) {
            const bool allowed = place_way(s, u, (enum knapsack_way)way) &&
                                 (u > 0 || way == WAY_WHOLE || !view.beside);
            item->us[way] = allowed ? unit_us(s, u, view) : (double)INFINITY;
            item->bytes[way] = allowed ? unit_gpu_bytes(s, u, view) : 0;
        }
        sum += item->bytes[WAY_WHOLE];
    }
    k->cell_bytes = sum / k->n_cells;
}

// Considers the choices of all cells; those beyond the accelerator's budget do not fit.
static void consider_cells(struct search *s, struct view view, struct knapsack *k) {
    const struct machine_device *gpu = &s->machine.devices[s->accelerator];
    enum knapsack_way ways[MAX_UNITS];
    fill_items(s, view, k);
    const double n_fit = (double)gpu->budget_bytes / k->cell_bytes + 1;
    knapsack_solve(k);
    for (int32_t cell = n_fit < k->n_cells ? (int32_t)n_fit : k->n_cells - 1; cell >= 0; cell--) {
        if (!knapsack_take(k, cell, ways)) continue;
        for (int32_t u = 0; u < s->shape->n_units; u++) (void)place_way(s, u, ways[u]);
        consider(s);
    }
}

// The shares halve, since a small part on the CPU takes time in proportion to it; few experts come
// in few shares, of which 12 parts hit another one. Knapsacks with split units have fewer cells: of
// many units the orders of gain come as near as finer cells. The gain of units in prompts depends
// on the micro-batch; two of them, a small and a large one, come as near to the optimum as all
// (test_exhaustive).
static enum status consider_knapsacks(struct search *s, struct err *e) {
    static const int32_t SHARES[] = {0, 2, 4, 8, 12, 16, 24};
    const int32_t few = min_i32(SPLIT_LABELS / s->shape->n_units, KNAPSACK_CELLS);
    const struct unit *head = &s->shape->units[s->shape->n_units - 1];
    const int n = s->ev.n_choices;
    struct knapsack *k = mem_alloc(1, sizeof *k);
    if (!k) return err_memory(e, sizeof *k, "planning");
    k->n_units = s->shape->n_units;
    s->splits_attention = true;
    for (size_t i = 0; i < (s->rules.split ? sizeof SHARES / sizeof *SHARES : 1); i++) {
        s->parts = SHARES[i];
        k->n_cells = s->parts ? few : KNAPSACK_CELLS;
        for (int streams = !s->rules.unstreamed; streams <= s->rules.streamed; streams++)
            for (int choice = n > 1; choice < n; choice += (n + 1) / 2)
                for (int beside = 0; beside <= head->shares_embed; beside++)
                    consider_cells(s, (struct view){streams, choice, beside}, k);
    }
    mem_free(k);
    return OK;
}

// ---- The search ---------------------------------------------------------------------------------

static enum status search_with(struct search *s, const struct workload *w, struct err *e) {
    *e = (struct err){.status = OK};
    memset(s->known, 0, sizeof s->known);
    if (evaluator_open(&s->ev, s->shape, &s->machine, s->request->own_bytes, w, e))
        return e->status;
    if (s->accelerator != DEVICE_HOST) {
        if (s->rules.knapsacks) (void)consider_knapsacks(s, e);
        if (!e->status) (void)consider_splits(s, e);
    }
    consider_ladder(s);
    evaluator_close(&s->ev);
    return e->status;
}

static enum status search_both(struct search *s, const struct plan *plan, struct err *e) {
    struct workload w = plan->workload;
    if (search_with(s, &w, e)) return e->status;
    if (!s->request->constraints->kv_auto || !footprint_shrink_kv(&w, s->shape)) return OK;
    return search_with(s, &w, e);
}

enum status search_placement(struct plan *plan, const struct search_request *request, bool *found,
                             struct err *e) {
    struct search *s = mem_alloc(1, sizeof *s);
    *found = false;
    if (!s) return err_memory(e, sizeof *s, "planning");
    s->request = request;
    s->shape = request->shape;
    s->machine = plan->machine;
    search_add_margins(&s->machine);
    s->accelerator = machine_accelerator(&s->machine);
    s->place.ring = s->accelerator;
    s->best_us = (double)INFINITY;
    set_rules(s);
    const enum status status = search_both(s, plan, e);
    *found = !status && s->best_us < (double)INFINITY;
    if (*found) {
        plan->workload = s->best_workload;
        plan->place = s->best;
    }
    mem_free(s);
    return status;
}
