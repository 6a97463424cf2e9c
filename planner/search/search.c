/* search.c: proposes placements, prices each exactly, and keeps the fastest that fits.
 *
 * What is proposed comes from the model, the workload and the rates of the devices alone: a ladder
 * of the splits that people know, and the placements that knapsack.c finds for every number of
 * bytes at several fixed prices of a crossing, as if copies were free, with units whole, with FFNs
 * split and with attention split too; and for each of them, ways to stream what the CPU has of
 * FFNs, of attention, and of both. Limits and the link only decide which of the proposals fit and
 * what each of them takes. A higher limit or a faster link therefore never makes the answer slower:
 * every proposal that fitted fits still and takes no longer, and the least of more and smaller
 * numbers is not greater. It is never slower than the ladder either. Owns its tables while it runs;
 * any thread. Tested by tests/planner/test_solver.c.
 */
#include "planner/search/search.h"

#include "base/mem.h"
#include "planner/plan/cost.h"
#include "planner/search/knapsack.h"
#include "planner/search/pricing.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    MAX_CELLS = 4096,
    MIN_CELLS = 256,
    SPLIT_CELLS = 256, // at most, since there are many of these knapsacks
    WORK = 1 << 17,    // cells * units, about
    N_PRICES = 4,      // the last is 0
    FEW_PRICES = 2,    // of the kinds of knapsacks that there are many of
    PRICE_RATIO = 16,  // between two prices
    N_RESTRICTED = 2,  // with all kinds of units, without the one that needs most scratch memory
    CACHE_PART = 16,   // caches that hold less than this part of the model are not planned for
    FEW_UNITS = 8,     // that many or less are streamed in every number
    QUARTERS = 4,      // more are in quarters of their number
};
// Of split units the CPU has a given number of parts, or as many as take it as long as the
// accelerator; or a few less, since what it works on comes to it late.
enum { BALANCED = UNIT_PARTS, FEWER = BALANCED + 2, PART_KINDS, SPARSE = 4 };

// What goes to the accelerator of the first units, and of the last ones.
enum rung { NOTHING, ATTENTION, ALL_BUT_EXPERTS, ALL };
static const enum rung RUNGS[][2] = {{NOTHING, ALL},         {NOTHING, ALL_BUT_EXPERTS},
                                     {NOTHING, ATTENTION},   {ATTENTION, ALL},
                                     {ATTENTION, NOTHING},   {ALL, NOTHING},
                                     {ALL_BUT_EXPERTS, ALL}, {ALL_BUT_EXPERTS, NOTHING}};
enum { N_RUNGS = sizeof RUNGS / sizeof *RUNGS, ALL_RUNGS = (1 << N_RUNGS) - 1 };

// What is streamed of a proposal: groups of units of which the CPU has something.
enum { STREAM_FFNS = 1, STREAM_SPLIT_ATTENTION = 2, STREAM_ATTENTION = 4, STREAM_ALL = 7 };
static const uint8_t STREAMED[] = {STREAM_FFNS, STREAM_ALL, STREAM_ALL & ~STREAM_FFNS};

// What a strategy proposes.
struct rules {
    uint32_t rungs;    // of RUNGS, a bit each
    bool whole_layers; // of the ladder, splits between layers alone
    bool knapsacks;
    bool unstreamed, streamed; // everything that can be
    bool partly_streamed;
    bool split, unsplit; // unsplit: dense FFNs may be whole on the CPU
};
static const struct rules RULES[STRATEGIES] = {
    [STRATEGY_AUTO] = {.rungs = ALL_RUNGS,
                       .knapsacks = true,
                       .unstreamed = true,
                       .streamed = true,
                       .partly_streamed = true,
                       .split = true,
                       .unsplit = true},
    [STRATEGY_CPU] = {.rungs = 1, .unstreamed = true, .unsplit = true},
    [STRATEGY_LAYERS] = {.rungs = 1, .whole_layers = true, .unstreamed = true, .unsplit = true},
    [STRATEGY_ATTENTION_FIRST] = {.rungs = 1 << 2 | 1 << 3, .unstreamed = true, .unsplit = true},
    [STRATEGY_STREAMED] = {.rungs = ALL_RUNGS,
                           .knapsacks = true,
                           .streamed = true,
                           .unsplit = true},
    [STRATEGY_ROW_SPLIT] = {.rungs = ALL_RUNGS,
                            .knapsacks = true,
                            .unstreamed = true,
                            .split = true},
};

// What a knapsack takes for the time of its units.
struct knapsack_kind {
    int32_t choice;           // micro-batch
    bool cached[MAX_DEVICES]; // weights come from caches
    bool free_copies;         // weights are streamed in no time, where that is faster
    bool splits;
    bool attention; // is streamed and split too, not FFNs alone
    int32_t parts;  // of split units: a number, or BALANCED + how many fewer
    int32_t n_prices, n_restricted;
    int32_t coarse; // part of all cells
};

struct search {
    const struct search_request *request;
    const struct shape *shape;
    const struct machine *machine;
    struct rules rules;
    struct pricing pricing;
    struct knapsack k;
    uint8_t *restricted;     // k.allowed
    double *bytes, *us;      // k.bytes, k.us, [OPTIONS, n_units]
    uint8_t *parts, *option; // [n_units], of OPTION_SPLIT; of a placement of k
    int32_t *streamable;     // [n_units], those of the proposal
    // Bounds: k.least_us is without caches, cached_part the part of it that is left with those of
    // some devices, a bit each; least_part is the least of these.
    double *least_us, cached_part[4], least_part;
    int caches;              // devices that have any
    bool *returns;           // k.returns
    double prefill_share;    // of what a unit takes, at most
    double all_bytes;        // of all units on the accelerator
    uint64_t all_read_bytes; // of all units
    int32_t n_caches;        // ways in which weights may come from caches, that share the work
    uint8_t stream_groups;   // what proposals stream: k.us are as if that took no time
    struct placement *ways, *best; // the proposal; the best so far
    double best_us;
    struct workload best_workload;
};

static int32_t max_i32(int32_t a, int32_t b) { return a > b ? a : b; }

static int32_t cells_of(const struct shape *shape) {
    const int32_t n = WORK / shape->n_units;
    return n < MIN_CELLS ? MIN_CELLS : n > MAX_CELLS ? MAX_CELLS : n;
}

static void search_close(struct search *s) {
    pricing_close(&s->pricing);
    mem_free(s->k.labels);
    mem_free(s->k.came_from);
    mem_free(s->restricted);
    mem_free(s->bytes);
    mem_free(s->us);
    mem_free(s->least_us);
    mem_free(s->parts);
    mem_free(s->option);
    mem_free(s->returns);
    mem_free(s->streamable);
    mem_free(s->ways);
    mem_free(s->best);
    *s = (struct search){0};
}

// Memory that both devices share is never streamed from one to the other, nor are units split that
// read it together.
static void set_rules(struct search *s) {
    s->rules = RULES[s->request->constraints->strategy];
    if (s->machine->n_devices > GPU && !s->machine->devices[GPU].unified) return;
    s->rules.streamed = s->rules.partly_streamed = s->rules.split = false;
    s->rules.unstreamed = s->rules.unsplit = true;
}

static enum status search_open(struct search *s, const struct plan *plan,
                               const struct search_request *request, struct err *e) {
    const struct shape *shape = request->shape;
    const size_t n = (size_t)shape->n_units, n_cells = (size_t)cells_of(shape);
    *s = (struct search){.request = request, .shape = shape, .machine = &plan->machine};
    set_rules(s);
    s->caches = s->machine->devices[HOST].rates.cache_bytes > 0;
    s->best_us = (double)INFINITY;
    s->k.n_units = shape->n_units;
    s->k.labels = mem_alloc(knapsack_labels((int32_t)n_cells), sizeof *s->k.labels);
    s->k.came_from = mem_alloc(n * MAX_DEVICES * n_cells, sizeof *s->k.came_from);
    s->restricted = mem_alloc(n, sizeof *s->restricted);
    s->bytes = mem_alloc(n * OPTIONS, sizeof *s->bytes);
    s->us = mem_alloc(n * OPTIONS, sizeof *s->us);
    s->least_us = mem_alloc(n * OPTIONS, sizeof *s->least_us);
    s->parts = mem_alloc(n, sizeof *s->parts);
    s->option = mem_alloc(n, sizeof *s->option);
    s->returns = mem_alloc(n, sizeof *s->returns);
    s->streamable = mem_alloc(n, sizeof *s->streamable);
    s->ways = mem_alloc(1, sizeof *s->ways);
    s->best = mem_alloc(1, sizeof *s->best);
    if (s->k.labels && s->k.came_from && s->restricted && s->bytes && s->us && s->least_us &&
        s->parts && s->option && s->returns && s->streamable && s->ways && s->best)
        return OK;
    search_close(s);
    return err_memory(e, n * MAX_DEVICES * n_cells * sizeof(uint16_t), "planning");
}

static bool may_be_on(const struct search *s, int u, int d) {
    return s->request->allowed[u] >> d & 1;
}

static bool is_attention(const struct search *s, int u) {
    return s->shape->units[u].kind == UNIT_ATTENTION;
}

static bool may_split(const struct search *s, int u) {
    return s->rules.split && s->pricing.units[u].can_split && may_be_on(s, u, HOST) &&
           may_be_on(s, u, GPU);
}

// Whether it may not be left whole on the CPU.
static bool must_split(const struct search *s, int u) {
    return !s->rules.unsplit && !is_attention(s, u) && may_split(s, u);
}

// ---- One proposal -------------------------------------------------------------------------------

// Prices the proposal with every micro-batch. The first of equals stays: the ladder's, and the
// smallest micro-batch.
static void consider_ways(struct search *s, struct price *price) {
    pricing_of(&s->pricing, s->ways, fmin(s->best_us, DBL_MAX), price);
    for (int i = 0; i < s->pricing.n_choices; i++) {
        if (!price->fits[i] || price->us[i] >= s->best_us) continue;
        s->best_us = price->us[i];
        s->best_workload = s->pricing.choices[i].w;
        *s->best = *s->ways;
    }
}

static bool can_win(const struct search *s, const double bound_us[]) {
    for (int i = 0; i < s->pricing.n_choices; i++)
        if (bound_us[i] < s->best_us) return true;
    return false;
}

// A ring with one feed. Whether a slower feed may be better, for it fits where this one does not.
static bool consider_feed(struct search *s, enum feed feed) {
    struct price price;
    bool open = false;
    s->ways->feed = feed;
    consider_ways(s, &price);
    for (int i = 0; i < s->pricing.n_choices; i++)
        open = open || (price.holds[i] && !price.fits[i] &&
                        (feed != FEED_ARENA || price.bound_us[i] < s->best_us));
    return open;
}

// The feeds from the best on, as far as the better ones cannot be.
static void consider_feeds(struct search *s) {
    const enum feed asked = s->request->constraints->place.feed;
    const struct machine_device *gpu = &s->machine->devices[GPU];
    double fastest_us = (double)INFINITY;
    for (int feed = FEED_ARENA; feed < FEEDS; feed++) {
        if (asked != FEED_NONE && asked != (enum feed)feed) continue;
        const double us = cost_feed_us(gpu, (enum feed)feed, 1e9);
        if (us >= fastest_us) continue;
        if (!consider_feed(s, (enum feed)feed)) fastest_us = us;
    }
}

// Of n streamable units, count are streamed, evenly spread.
static void consider_streams(struct search *s, int32_t n, int32_t count) {
    for (int32_t i = 0; i < n; i++) {
        const int64_t before = (int64_t)i * count / n, after = (int64_t)(i + 1) * count / n;
        s->ways->units[s->streamable[i]].streamed = after > before;
    }
    consider_feeds(s);
}

// What of the proposal can be streamed.
static uint8_t group_of(const struct search *s, int u) {
    const bool split = s->ways->units[u].cpu_parts > 0;
    if (!s->pricing.units[u].can_stream || (s->ways->units[u].device != HOST && !split)) return 0;
    if (!is_attention(s, u)) return STREAM_FFNS;
    return split ? STREAM_SPLIT_ATTENTION : STREAM_ATTENTION;
}

static uint8_t find_groups(const struct search *s) {
    uint8_t groups = 0;
    for (int u = 0; u < s->shape->n_units; u++) groups |= group_of(s, u);
    return groups;
}

static void stream_nothing(struct search *s) {
    for (int u = 0; u < s->shape->n_units; u++) s->ways->units[u].streamed = false;
}

// All units of some groups are streamed, and if there are few or if partly, some of them.
static void consider_groups(struct search *s, uint8_t groups, bool partly) {
    int32_t n = 0;
    stream_nothing(s);
    for (int u = 0; u < s->shape->n_units; u++)
        if (group_of(s, u) & groups) s->streamable[n++] = u;
    consider_streams(s, n, n);
    if (!s->rules.partly_streamed || (n > FEW_UNITS && !partly)) return;
    const int32_t parts = n <= FEW_UNITS ? n : QUARTERS;
    for (int32_t part = parts - 1; part > 0; part--) consider_streams(s, n, n * part / parts);
}

// The proposal with nothing streamed, and with those of the groups that can be, apart and together.
// partly: some of many FFNs too, but attention not without FFNs.
static void consider(struct search *s, uint8_t groups, bool partly) {
    struct price price;
    stream_nothing(s);
    s->ways->feed = FEED_NONE;
    s->ways->ring = machine_accelerator(s->machine);
    const uint8_t found = s->rules.streamed ? find_groups(s) & groups : 0;
    if (s->rules.unstreamed || !(found & STREAM_FFNS)) {
        consider_ways(s, &price);
        if (!found || !can_win(s, price.streamed_us)) return;
    }
    uint32_t tried = 1;
    for (size_t i = 0; i < sizeof STREAMED / sizeof *STREAMED; i++) {
        const uint8_t some = STREAMED[i] & found;
        if (tried >> some & 1) continue;
        tried |= UINT32_C(1) << some;
        const bool leaves_ffns = found & ~some & STREAM_FFNS;
        if (!leaves_ffns || (s->rules.partly_streamed && !partly))
            consider_groups(s, some, partly && some == STREAM_FFNS);
    }
}

// ---- The ladder: what people do by hand ---------------------------------------------------------

static bool on_rung(enum rung rung, enum unit_kind kind) {
    return rung == ALL || (rung == ALL_BUT_EXPERTS && kind != UNIT_EXPERTS) ||
           (rung == ATTENTION && kind == UNIT_ATTENTION);
}

// The last n units by one rung, the units before by another.
static void consider_last(struct search *s, int32_t n, enum rung first, enum rung last) {
    const int32_t n_units = s->shape->n_units;
    for (int u = 0; u < n_units; u++) {
        const enum rung rung = u >= n_units - n ? last : first;
        int d = on_rung(rung, s->shape->units[u].kind) ? GPU : HOST;
        if (!may_be_on(s, u, d)) d = 1 - d;
        s->ways->units[u].device = (int8_t)d;
        s->ways->units[u].cpu_parts = 0;
        if (d == HOST && must_split(s, u)) return;
    }
    consider(s, STREAM_ALL, true);
}

// The last n units are whole layers.
static bool is_whole(const struct shape *shape, int32_t n) {
    if (n == 0 || n == shape->n_units) return true;
    const enum unit_kind kind = shape->units[shape->n_units - n].kind;
    return kind == UNIT_ATTENTION || kind == UNIT_HEAD;
}

static void climb_ladder(struct search *s) {
    for (size_t r = 0; r < N_RUNGS; r++) {
        if (!(s->rules.rungs >> r & 1)) continue;
        for (int32_t n = 0; n <= s->shape->n_units; n++) {
            if (s->rules.whole_layers && !is_whole(s->shape, n)) continue;
            consider_last(s, n, RUNGS[r][0], RUNGS[r][1]);
        }
    }
}

// ---- The knapsacks ------------------------------------------------------------------------------

static void take_placement(struct search *s, int32_t cell, int last) {
    knapsack_placement(&s->k, cell, last, s->option);
    for (int u = 0; u < s->shape->n_units; u++) {
        const bool split = s->option[u] == OPTION_SPLIT;
        s->ways->units[u].device = s->option[u] == OPTION_HOST ? HOST : GPU;
        s->ways->units[u].cpu_parts = split ? s->parts[u] : 0;
    }
}

// The part that the placement of a cell takes at least of its time without caches. The more a
// device reads, the less of it comes from its cache. Two cells are for rounding.
static double cached_part(const struct search *s, int32_t cell) {
    const double cell_bytes = s->k.cell_bytes, all = (double)s->all_read_bytes;
    const double most = (cell + 2) * cell_bytes + (double)s->pricing.shared_bytes[GPU];
    const bool cached = cost_is_cached(s->machine, (uint64_t)fmax(all - most, 0));
    return s->cached_part[cached & s->caches];
}

// Whether the placement of a cell may be faster than the best, with some micro-batch and link.
// Micro-batches that run ahead overlap what one device computes with what the other does.
// Placements that do so with nothing streamed are on the ladder; others may hide half of prefill.
static bool cell_can_win(const struct search *s, int32_t cell, int last) {
    bool returns;
    double us = knapsack_least_us(&s->k, cell, last, &returns);
    if (s->stream_groups && !returns) us *= 1 - s->prefill_share / 2;
    if (us == (double)INFINITY || us * s->least_part >= s->best_us) return false;
    return us < s->best_us || us * cached_part(s, cell) < s->best_us;
}

static void solve_and_consider(struct search *s, double price_us, int32_t n_cells) {
    const double room = (double)s->machine->devices[GPU].budget_bytes * n_cells / s->all_bytes;
    s->k.cell_bytes = s->all_bytes / n_cells;
    s->k.n_cells = room < n_cells - 1 ? (int32_t)room + 1 : n_cells; // those that can fit
    s->k.price_us = price_us;
    knapsack_solve(&s->k);
    for (int32_t cell = s->k.n_used - 1; cell >= 0; cell--) {
        for (int last = 0; last < MAX_DEVICES; last++) {
            if (!cell_can_win(s, cell, last)) continue;
            take_placement(s, cell, last);
            consider(s, s->stream_groups, s->stream_groups == STREAM_FFNS);
        }
    }
}

// Several prices, the last of them 0. They span what the whole workload takes on the CPU, which no
// link changes. Each divides the bytes differently: what is hidden behind a faster neighbour in one
// cell shows in another.
static void solve_prices(struct search *s, const struct knapsack_kind *kind) {
    int32_t n_cells = cells_of(s->shape) / kind->coarse;
    if (n_cells > MIN_CELLS) n_cells = max_i32(n_cells / s->n_caches, MIN_CELLS);
    const int32_t most = kind->attention ? 2 * SPLIT_CELLS : SPLIT_CELLS;
    if (kind->splits && n_cells > most) n_cells = most;
    double price_us = 0;
    for (int u = 0; u < s->shape->n_units; u++) price_us += s->us[u];
    for (int i = 1; i < N_PRICES; i++) {
        price_us /= PRICE_RATIO;
        if (i > N_PRICES - kind->n_prices)
            solve_and_consider(s, price_us, n_cells - n_cells * i / 16);
    }
    solve_and_consider(s, 0, n_cells);
}

// A head that shares its table with the embedding takes less room beside it, and the embedding
// hardly fills a cache, so each side of it is a problem of its own.
static void solve_sides(struct search *s, const struct knapsack_kind *kind) {
    const uint64_t shared = s->pricing.shared_bytes[GPU];
    if (!shared && !kind->cached[HOST]) {
        solve_prices(s, kind);
        return;
    }
    const uint8_t both = s->restricted[0];
    double *head_bytes = &s->bytes[OPTION_GPU * s->shape->n_units + s->shape->n_units - 1];
    for (int d = 0; d < MAX_DEVICES; d++) {
        s->restricted[0] = both & (uint8_t)(1 << d);
        if (!s->restricted[0]) continue;
        if (d == GPU) *head_bytes -= (double)shared;
        solve_prices(s, kind);
        if (d == GPU) *head_bytes += (double)shared;
    }
    s->restricted[0] = both;
}

static bool kind_splits(const struct search *s, const struct knapsack_kind *kind, int u) {
    return kind->splits && may_split(s, u) && (kind->attention || !is_attention(s, u));
}

// The options of a unit in a knapsack.
static uint8_t options_of(const struct search *s, const struct knapsack_kind *kind, int u) {
    uint8_t options = s->request->allowed[u];
    if (kind_splits(s, kind, u)) options |= 1 << OPTION_SPLIT;
    if (must_split(s, u)) options &= (uint8_t) ~(1 << OPTION_HOST);
    return options;
}

// Scratch memory is shared by all units of a kind and as large as the neediest of them, so leaving
// the neediest kinds on the CPU is worth a try of its own.
static void solve_restricted(struct search *s, const struct knapsack_kind *kind) {
    const struct choice *choice = &s->pricing.choices[kind->choice];
    uint64_t limit = UINT64_MAX;
    for (int i = 0; i < kind->n_restricted; i++) {
        bool differs = i == 0;
        uint64_t most = 0;
        for (int u = 0; u < s->shape->n_units; u++) {
            const uint64_t need = choice->scratch_bytes[GPU][1 << s->shape->units[u].kind];
            const uint8_t options = options_of(s, kind, u);
            s->restricted[u] = options;
            if (need >= limit && options >> HOST & 1) s->restricted[u] = 1 << HOST;
            if (need < limit && need > most) most = need;
            differs = differs || s->restricted[u] != options;
        }
        if (differs) solve_sides(s, kind);
        limit = most;
    }
}

// ---- What knapsacks take for the time of a unit -------------------------------------------------

static bool kind_streams(const struct search *s, const struct knapsack_kind *kind, int u) {
    return kind->free_copies && s->pricing.units[u].can_stream &&
           (kind->attention || !is_attention(s, u));
}

// What a unit takes over the workload.
struct unit_us {
    double all, prefill;
};

// A split unit without its joins.
static struct unit_us split_us(const struct search *s, const struct knapsack_kind *kind, int u,
                               int32_t parts) {
    const struct choice *choice = &s->pricing.choices[kind->choice];
    const double cached[MAX_DEVICES] = {kind->cached[HOST], kind->cached[GPU]};
    double us[PASS_GROUPS] = {0};
    for (int i = 0; i < choice->n_samples; i++) {
        struct split_us split;
        pricing_split(&s->pricing, u, parts, cached, choice->first_line + i, &split);
        us[i >= choice->n_prefill] +=
            choice->samples[i].weight * (fmax(split.in[HOST], split.in[GPU]) + split.middle +
                                         fmax(split.out[HOST], split.out[GPU]));
    }
    const double streamed_us = s->pricing.units[u].streamed_us[1][kind->choice];
    if (kind_streams(s, kind, u)) us[PASSES_PREFILL] = fmin(us[PASSES_PREFILL], streamed_us);
    return (struct unit_us){us[PASSES_PREFILL] + us[PASSES_OTHER], us[PASSES_PREFILL]};
}

static struct unit_us option_us(const struct search *s, const struct knapsack_kind *kind, int u,
                                enum option option) {
    if (option == OPTION_SPLIT) return split_us(s, kind, u, s->parts[u]);
    const struct unit_price *unit = &s->pricing.units[u];
    const double(*us)[MAX_CHOICES] = unit->us[option][kind->cached[option]];
    double prefill_us = us[PASSES_PREFILL][kind->choice];
    if (option == OPTION_HOST && kind_streams(s, kind, u))
        prefill_us = fmin(prefill_us, unit->streamed_us[0][kind->choice]);
    return (struct unit_us){prefill_us + us[PASSES_OTHER][kind->choice], prefill_us};
}

static bool has_option(const struct search *s, int u, enum option option) {
    return option != OPTION_SPLIT || s->parts[u] > 0;
}

// A unit with any micro-batch, since a placement is proposed for all.
static double least_us(struct search *s, const struct knapsack_kind *kind, int u,
                       enum option option, int caches) {
    struct knapsack_kind any = *kind;
    double least = (double)INFINITY;
    any.cached[HOST] = caches & 1;
    any.cached[GPU] = caches >> 1;
    for (any.choice = 0; any.choice < s->pricing.n_choices; any.choice++) {
        const struct unit_us us = option_us(s, &any, u, option);
        least = fmin(least, us.all);
        if (us.all > 0) s->prefill_share = fmax(s->prefill_share, us.prefill / us.all);
    }
    return least;
}

static void fill_least(struct search *s, const struct knapsack_kind *kind, int u,
                       enum option option) {
    const int32_t twin = s->pricing.units[u].twin;
    double *least = s->least_us + (size_t)option * (size_t)s->shape->n_units;
    if (twin < u && has_option(s, twin, option)) {
        least[u] = least[twin];
        return;
    }
    least[u] = least_us(s, kind, u, option, 0);
    for (int caches = 1; caches < 4 && least[u] > 0; caches++) {
        if (caches & ~s->caches) continue;
        s->cached_part[caches] =
            fmin(s->cached_part[caches], least_us(s, kind, u, option, caches) / least[u]);
    }
}

// Where units are streamed, prefill has other crossings.
static double least_crossing_us(const struct search *s) {
    double least = (double)INFINITY;
    for (int i = 0; i < s->pricing.n_choices; i++) {
        const struct choice *choice = &s->pricing.choices[i];
        least = fmin(least, fmin(choice->to_us[PASSES_OTHER], choice->from_us[PASSES_OTHER]));
    }
    return least;
}

// The parts that the CPU and the accelerator compute equally fast, as far as that goes, less the
// shift; or those that are given.
static uint8_t parts_of(const struct search *s, const struct knapsack_kind *kind, int u) {
    if (kind->parts < BALANCED) return (uint8_t)kind->parts;
    int32_t best = 0;
    double least = (double)INFINITY;
    for (int32_t parts = 1; parts < UNIT_PARTS; parts++) {
        const double us = split_us(s, kind, u, parts).all;
        if (us >= least) continue;
        least = us;
        best = parts;
    }
    const int32_t shift = kind->parts - BALANCED;
    return (uint8_t)(best > shift ? best - shift : 1);
}

static void fill_knapsack(struct search *s, const struct knapsack_kind *kind) {
    const int32_t n = s->shape->n_units;
    double sum = 1;
    s->prefill_share = 0;
    for (int caches = 0; caches < 4; caches++) s->cached_part[caches] = 1;
    for (int u = 0; u < n; u++) {
        const struct unit_price *unit = &s->pricing.units[u];
        s->parts[u] = 0;
        s->returns[u] = !kind_streams(s, kind, u);
        if (kind_splits(s, kind, u))
            s->parts[u] = unit->twin < u && s->parts[unit->twin] ? s->parts[unit->twin]
                                                                 : parts_of(s, kind, u);
        for (int o = 0; o < OPTIONS; o++) {
            if (!has_option(s, u, (enum option)o)) continue;
            s->us[o * n + u] = option_us(s, kind, u, (enum option)o).all;
            fill_least(s, kind, u, (enum option)o);
        }
        s->bytes[OPTION_GPU * n + u] = (double)unit->bytes[GPU][kind->choice];
        if (s->parts[u])
            s->bytes[OPTION_SPLIT * n + u] =
                (double)(pricing_split_bytes(&s->pricing, u, SPLIT_GPU, s->parts[u]) +
                         unit->kv_bytes[GPU][kind->choice]);
        sum += s->bytes[OPTION_GPU * n + u];
    }
    for (int o = 0; o < OPTIONS; o++) {
        s->k.us[o] = s->us + o * n;
        s->k.bytes[o] = s->bytes + o * n;
        s->k.least_us[o] = s->least_us + o * n;
    }
    s->k.allowed = s->restricted;
    s->k.returns = s->returns;
    s->all_bytes = sum;
    s->stream_groups = !kind->free_copies ? 0 : kind->attention ? STREAM_ALL : STREAM_FFNS;
    s->k.least_crossing_us = least_crossing_us(s);
    s->least_part = 1;
    for (int caches = 0; caches < 4; caches++)
        s->least_part = fmin(s->least_part, s->cached_part[caches]);
}

static void solve_kind(struct search *s, const struct knapsack_kind *kind) {
    fill_knapsack(s, kind);
    solve_restricted(s, kind);
}

// ---- The kinds of knapsacks ---------------------------------------------------------------------

// Whether weights come from the device's cache depends on the placement. It is planned for both
// where that is open and matters.
static bool is_plausible(const struct search *s, int d, bool cached, uint64_t all_bytes) {
    const uint64_t cache_bytes = s->machine->devices[d].rates.cache_bytes;
    return cached ? cache_bytes >= all_bytes / CACHE_PART : cache_bytes < all_bytes;
}

static bool any_splits(const struct search *s, bool attention) {
    for (int u = 0; u < s->shape->n_units; u++)
        if (may_split(s, u) && attention == is_attention(s, u)) return true;
    return false;
}

static bool any_streams(const struct search *s, bool attention) {
    for (int u = 0; u < s->shape->n_units && s->rules.streamed; u++)
        if (s->pricing.units[u].can_stream && attention == is_attention(s, u)) return true;
    return false;
}

// Splits near balance, and in other parts that may make them fit. With attention there are more
// units of different sizes to fit, so cells are finer. In models of some layers, a second price and
// prompts that stream nothing find nothing more then.
static void solve_splits(struct search *s, struct knapsack_kind kind) {
    const bool small = s->shape->n_units <= 2 * FEW_UNITS;
    kind.splits = true;
    kind.n_prices = kind.attention && !small ? 1 : FEW_PRICES;
    kind.n_restricted = 1;
    kind.coarse = kind.attention ? 4 : 16;
    const int32_t layers = s->shape->n_units / (2 * FEW_UNITS);
    const int32_t most = kind.attention && layers >= 2 * SPARSE ? 2 * SPARSE : SPARSE;
    const int32_t step = layers < most ? 1 + layers : most;
    for (int streams = 0; streams < 2; streams++) {
        kind.free_copies = streams;
        if (streams ? !s->rules.streamed : !s->rules.unstreamed) continue;
        if (kind.attention && !small && !streams && s->rules.streamed) continue;
        for (kind.parts = 1; kind.parts < UNIT_PARTS; kind.parts += step) solve_kind(s, &kind);
        for (kind.parts = BALANCED; kind.parts < PART_KINDS; kind.parts += FEWER - BALANCED)
            solve_kind(s, &kind);
    }
}

static void solve_cached(struct search *s, bool host, bool gpu) {
    // Placements hardly depend on the micro-batch: three find them for all. The smallest matters
    // where it bounds the caches of sliding windows.
    const int32_t n = s->pricing.n_choices, picked[3] = {0, n / 3, n - 1};
    struct knapsack_kind kind = {
        .cached = {host, gpu}, .n_prices = N_PRICES, .n_restricted = N_RESTRICTED, .coarse = 1};
    for (int i = 0; i < 3 && s->rules.unstreamed && s->rules.unsplit; i++) {
        if (i > 0 && picked[i] == picked[i - 1]) continue;
        kind.choice = picked[i];
        solve_kind(s, &kind);
    }
    kind.choice = picked[1];
    kind.n_prices = s->rules.unstreamed ? FEW_PRICES : N_PRICES;
    for (int attention = 0; attention < 2; attention++) {
        kind.attention = attention;
        kind.free_copies = true;
        kind.coarse = 8;
        if (s->rules.unsplit && any_streams(s, attention)) solve_kind(s, &kind);
        if (any_splits(s, attention)) solve_splits(s, kind);
    }
}

static void solve_knapsacks(struct search *s) {
    s->all_read_bytes = 0;
    for (int u = 0; u < s->shape->n_units; u++) s->all_read_bytes += s->pricing.read_bytes[u];
    bool plausible[4];
    s->n_caches = 0;
    for (int cached = 0; cached < 4; cached++) {
        plausible[cached] = is_plausible(s, HOST, cached & 1, s->all_read_bytes) &&
                            is_plausible(s, GPU, cached >> 1, s->all_read_bytes);
        s->n_caches += plausible[cached];
    }
    for (int cached = 0; cached < 4; cached++)
        if (plausible[cached]) solve_cached(s, cached & 1, cached >> 1);
}

// ---- The search ---------------------------------------------------------------------------------

static bool is_free(const struct search *s) {
    for (int u = 0; u < s->shape->n_units; u++)
        if (may_be_on(s, u, HOST) && may_be_on(s, u, GPU)) return true;
    return false;
}

static enum status search_with(struct search *s, const struct workload *w, struct err *e) {
    if (pricing_open(&s->pricing, s->shape, s->machine, s->request->own_bytes, w, e))
        return e->status;
    if (is_free(s)) {
        climb_ladder(s);
        if (s->rules.knapsacks) solve_knapsacks(s);
    } else {
        consider_last(s, 0, ALL, ALL);
    }
    pricing_close(&s->pricing);
    return OK;
}

static void keep_best(const struct search *s, struct plan *plan) {
    plan->workload = s->best_workload;
    plan->place = *s->best;
}

enum status search_placement(struct plan *plan, const struct search_request *request, bool *found,
                             struct err *e) {
    struct search s;
    *found = false;
    if (search_open(&s, plan, request, e)) return e->status;
    struct workload w = plan->workload;
    enum status status = search_with(&s, &w, e);
    struct err ignored;
    if (!status && request->constraints->kv_auto &&
        (w.kv_type_k != DTYPE_Q8_0 || w.kv_type_v != DTYPE_Q8_0) &&
        workload_check_kv(DTYPE_Q8_0, request->shape, "", &ignored) == OK) {
        w.kv_type_k = w.kv_type_v = DTYPE_Q8_0;
        status = search_with(&s, &w, e);
    }
    *found = !status && s.best_us < (double)INFINITY;
    if (*found) keep_best(&s, plan);
    search_close(&s);
    return status;
}
