/* search.c: proposes placements, prices each exactly, and keeps the fastest that fits.
 *
 * What is proposed comes from the model, the workload and the rates of the devices alone: a ladder
 * of the splits that people know, and the placements that knapsack.c finds for every number of
 * bytes at several fixed prices of a crossing. Limits and the link only decide which of the
 * proposals fit and what each of them takes. A higher limit or a faster link therefore never makes
 * the answer slower: every proposal that fitted fits still and takes no longer, and the least of
 * more and smaller numbers is not greater. It is never slower than the ladder either. Owns its
 * tables while it runs; any thread. Tested by tests/test_solver.c.
 */
#include "planner/plan_internal.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

enum {
    MAX_CELLS = 4096,
    MIN_CELLS = 256,
    WORK = 1 << 17,   // cells * units, about
    N_PRICES = 4,     // the last is 0
    PRICE_RATIO = 16, // between two prices
    N_RESTRICTED = 2, // with all kinds of units, without the one that needs most scratch memory
    CACHE_PART = 16,  // caches that hold less than this part of the model are not planned for
};

struct search {
    const struct shape *shape;
    const struct machine *machine;
    const uint8_t *allowed;
    struct pricing pricing;
    struct knapsack k;
    uint8_t *restricted; // k.allowed
    double *bytes, *us;  // k.bytes, k.us
    double all_bytes;    // of all units on the accelerator
    double least_part;   // of k.us that any unit takes with any micro-batch, cached or not
    int8_t *device;      // the proposal
    int8_t *best;
    double best_us;
    struct workload best_workload;
};

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
    mem_free(s->device);
    mem_free(s->best);
    *s = (struct search){0};
}

static enum status search_open(struct search *s, const struct plan *plan, const struct shape *shape,
                               const uint8_t *allowed, struct err *e) {
    const size_t n = (size_t)shape->n_units;
    const int32_t n_cells = cells_of(shape);
    *s = (struct search){.shape = shape, .machine = &plan->machine, .allowed = allowed};
    s->best_us = (double)INFINITY;
    s->k.n_units = shape->n_units;
    s->k.n_cells = n_cells;
    s->k.labels = mem_alloc(knapsack_labels(n_cells), sizeof *s->k.labels);
    s->k.came_from = mem_alloc(n * MAX_DEVICES * (size_t)n_cells, sizeof *s->k.came_from);
    s->restricted = mem_alloc(n, sizeof *s->restricted);
    s->bytes = mem_alloc(n, sizeof *s->bytes);
    s->us = mem_alloc(n * MAX_DEVICES, sizeof *s->us);
    s->device = mem_alloc(n, sizeof *s->device);
    s->best = mem_alloc(n, sizeof *s->best);
    if (s->k.labels && s->k.came_from && s->restricted && s->bytes && s->us && s->device && s->best)
        return OK;
    search_close(s);
    return err_memory(e, n * MAX_DEVICES * (size_t)n_cells * sizeof(uint16_t), "planning");
}

// Prices the proposal with every micro-batch. The first of equals stays: the ladder's, and the
// smallest micro-batch.
static void consider(struct search *s) {
    struct price price;
    pricing_of(&s->pricing, s->device, &price);
    for (int i = 0; i < s->pricing.n_choices; i++) {
        if (!price.fits[i] || price.us[i] >= s->best_us) continue;
        s->best_us = price.us[i];
        s->best_workload = s->pricing.choices[i].w;
        memcpy(s->best, s->device, (size_t)s->shape->n_units);
    }
}

static bool may_be_on(const struct search *s, int u, int d) { return s->allowed[u] >> d & 1; }

// ---- The ladder: what people do by hand ---------------------------------------------------------

// What goes to the accelerator of the first units, and of the last ones.
enum rung { NOTHING, ATTENTION, ALL_BUT_EXPERTS, ALL };

static bool on_rung(enum rung rung, enum unit_kind kind) {
    return rung == ALL || (rung == ALL_BUT_EXPERTS && kind != UNIT_EXPERTS) ||
           (rung == ATTENTION && kind == UNIT_ATTENTION);
}

// The last n units by one rung, the units before by another.
static void consider_split(struct search *s, int32_t n, enum rung first, enum rung last) {
    const int32_t n_units = s->shape->n_units;
    for (int u = 0; u < n_units; u++) {
        const enum rung rung = u >= n_units - n ? last : first;
        int d = on_rung(rung, s->shape->units[u].kind) ? GPU : HOST;
        if (!may_be_on(s, u, d)) d = 1 - d;
        s->device[u] = (int8_t)d;
    }
    consider(s);
}

static void climb_ladder(struct search *s) {
    static const enum rung rungs[][2] = {{NOTHING, ALL},         {NOTHING, ALL_BUT_EXPERTS},
                                         {NOTHING, ATTENTION},   {ATTENTION, ALL},
                                         {ATTENTION, NOTHING},   {ALL, NOTHING},
                                         {ALL_BUT_EXPERTS, ALL}, {ALL_BUT_EXPERTS, NOTHING}};
    for (size_t r = 0; r < sizeof rungs / sizeof *rungs; r++) {
        for (int32_t n = 0; n <= s->shape->n_units; n++)
            consider_split(s, n, rungs[r][0], rungs[r][1]);
    }
}

// ---- The knapsacks ------------------------------------------------------------------------------

static void solve_and_consider(struct search *s, double price_us, int32_t n_cells) {
    const double room = (double)s->machine->devices[GPU].budget_bytes * n_cells / s->all_bytes;
    s->k.cell_bytes = s->all_bytes / n_cells;
    s->k.n_cells = room < n_cells - 1 ? (int32_t)room + 1 : n_cells; // those that can fit
    s->k.price_us = price_us;
    knapsack_solve(&s->k);
    for (int32_t cell = s->k.n_cells - 1; cell >= 0; cell--) {
        for (int last = 0; last < MAX_DEVICES; last++) {
            // Cannot win, whatever the micro-batch, the cache and the link.
            const double us = knapsack_units_us(&s->k, cell, last);
            const double least_us = us * s->least_part * (1 - 1e-9);
            if (us == (double)INFINITY || least_us >= s->best_us) continue;
            knapsack_placement(&s->k, cell, last, s->device);
            consider(s);
        }
    }
}

// All prices. They span what the whole workload takes on the CPU, which no link changes. Each
// divides the bytes differently: what is hidden behind a faster neighbour in one cell shows in
// another.
static void solve_prices(struct search *s) {
    const int32_t n_cells = cells_of(s->shape);
    double price_us = 0;
    for (int u = 0; u < s->shape->n_units; u++) price_us += s->us[u];
    for (int i = 1; i < N_PRICES; i++)
        solve_and_consider(s, price_us /= PRICE_RATIO, n_cells - n_cells * i / 16);
    solve_and_consider(s, 0, n_cells);
}

// A head that shares its table with the embedding takes less room beside it, and the embedding
// hardly fills a cache, so each side of it is a problem of its own.
static void solve_sides(struct search *s, bool host_cached) {
    const uint64_t shared = s->pricing.shared_bytes[GPU];
    if (!shared && !host_cached) {
        solve_prices(s);
        return;
    }
    const uint8_t both = s->restricted[0];
    double *head_bytes = &s->bytes[s->shape->n_units - 1];
    for (int d = 0; d < MAX_DEVICES; d++) {
        s->restricted[0] = both & (uint8_t)(1 << d);
        if (!s->restricted[0]) continue;
        if (d == GPU) *head_bytes -= (double)shared;
        solve_prices(s);
        if (d == GPU) *head_bytes += (double)shared;
    }
    s->restricted[0] = both;
}

// Scratch memory is shared by all units of a kind and as large as the neediest of them, so leaving
// the neediest kinds on the CPU is worth a try of its own.
static void solve_restricted(struct search *s, const struct choice *choice, bool host_cached) {
    uint64_t limit = UINT64_MAX;
    for (int i = 0; i < N_RESTRICTED; i++) {
        bool differs = i == 0;
        uint64_t most = 0;
        for (int u = 0; u < s->shape->n_units; u++) {
            const uint64_t need = choice->scratch_bytes[GPU][1 << s->shape->units[u].kind];
            s->restricted[u] = s->allowed[u];
            if (need >= limit && may_be_on(s, u, HOST)) s->restricted[u] = 1 << HOST;
            if (need < limit && need > most) most = need;
            differs = differs || s->restricted[u] != s->allowed[u];
        }
        if (differs) solve_sides(s, host_cached);
        limit = most;
    }
}

static double least_part(const struct search *s) {
    double least = 1;
    for (int u = 0; u < s->shape->n_units; u++) {
        for (int d = 0; d < MAX_DEVICES; d++) {
            const double us = s->k.us[d][u];
            for (int i = 0; i < s->pricing.n_choices && us > 0; i++) {
                for (int cached = 0; cached < 2; cached++)
                    least = fmin(least, s->pricing.units[u].us[d][cached][i] / us);
            }
        }
    }
    return least;
}

// Fills the knapsack for a micro-batch and for weights that come from caches or memory.
static void fill_knapsack(struct search *s, int i, bool host_cached, bool gpu_cached) {
    double sum = 1;
    for (int u = 0; u < s->shape->n_units; u++) {
        const struct unit_price *unit = &s->pricing.units[u];
        s->us[u] = unit->us[HOST][host_cached][i];
        s->us[s->shape->n_units + u] = unit->us[GPU][gpu_cached][i];
        s->bytes[u] = (double)unit->bytes[GPU][i];
        sum += s->bytes[u];
    }
    s->k.us[HOST] = s->us;
    s->k.us[GPU] = s->us + s->shape->n_units;
    s->k.bytes = s->bytes;
    s->k.allowed = s->restricted;
    s->all_bytes = sum;
    s->least_part = least_part(s);
}

// Whether weights come from the device's cache depends on the placement. It is planned for both
// where that is open and matters.
static bool is_plausible(const struct search *s, int d, bool cached, uint64_t all_bytes) {
    const uint64_t cache_bytes = s->machine->devices[d].rates.cache_bytes;
    return cached ? cache_bytes >= all_bytes / CACHE_PART : cache_bytes < all_bytes;
}

static void solve_knapsacks(struct search *s) {
    uint64_t all_bytes = 0;
    for (int u = 0; u < s->shape->n_units; u++) all_bytes += s->pricing.read_bytes[u];
    // Placements hardly depend on the micro-batch: three find them for all. The smallest matters
    // where it bounds the caches of sliding windows.
    const int32_t n = s->pricing.n_choices, picked[3] = {0, n / 3, n - 1};
    for (int cached = 0; cached < 4; cached++) {
        const bool host = cached & 1, gpu = cached >> 1;
        if (!is_plausible(s, HOST, host, all_bytes) || !is_plausible(s, GPU, gpu, all_bytes))
            continue;
        for (int i = 0; i < 3; i++) {
            if (i > 0 && picked[i] == picked[i - 1]) continue;
            fill_knapsack(s, picked[i], host, gpu);
            solve_restricted(s, &s->pricing.choices[picked[i]], host);
        }
    }
}

static bool is_free(const struct search *s) {
    for (int u = 0; u < s->shape->n_units; u++)
        if (may_be_on(s, u, HOST) && may_be_on(s, u, GPU)) return true;
    return false;
}

static enum status search_with(struct search *s, const struct workload *w, struct err *e) {
    if (pricing_open(&s->pricing, s->shape, s->machine, w, e)) return e->status;
    if (is_free(s)) {
        climb_ladder(s);
        solve_knapsacks(s);
    } else {
        consider_split(s, 0, ALL, ALL);
    }
    pricing_close(&s->pricing);
    return OK;
}

enum status search_placement(struct plan *plan, const struct shape *shape, const uint8_t allowed[],
                             bool kv_auto, bool *found, struct err *e) {
    struct search s;
    *found = false;
    if (search_open(&s, plan, shape, allowed, e)) return e->status;
    struct workload w = plan->workload;
    enum status status = search_with(&s, &w, e);
    struct err ignored;
    if (!status && kv_auto && (w.kv_type_k != DTYPE_Q8_0 || w.kv_type_v != DTYPE_Q8_0) &&
        workload_check_kv(DTYPE_Q8_0, shape, "", &ignored) == OK) {
        w.kv_type_k = w.kv_type_v = DTYPE_Q8_0;
        status = search_with(&s, &w, e);
    }
    *found = !status && s.best_us < (double)INFINITY;
    if (*found) {
        plan->workload = s.best_workload;
        memcpy(plan->unit_device, s.best, (size_t)shape->n_units);
    }
    search_close(&s);
    return status;
}
