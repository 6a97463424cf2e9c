/* price.c: what a placement takes, added up from pricing.c's tables.
 *
 * With two devices and one residual stream, a pass is a chain: its time is the sum of its units'
 * times where they are, of the joins of split units, of its crossings, and of what the copy of the
 * tables delays the start. All of it is linear in the passes but the last, which needs the CPU's
 * time up to the first crossing. So a placement is priced in one walk over its units for all
 * micro-batches at once. Only passes that fetch weights or run ahead, and those in which the CPU
 * splits the first unit while the tables are still copied, are walked clock by clock, and only if
 * what is known of them says that they could be fast enough. The price is what simulate.c says
 * (tests/planner/test_solver.c compares). Owns nothing; any thread.
 */
#include "planner/plan/accounts.h"
#include "planner/plan/cost.h"
#include "planner/plan/footprint.h"
#include "planner/search/pricing.h"

#include <math.h>
#include <string.h>

static double max_us(double a, double b) { return a > b ? a : b; }
static double min_us(double a, double b) { return a < b ? a : b; }
static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

// What a placement has, besides sums over its units.
struct outline {
    const struct placement *ways;
    int kinds[MAX_DEVICES];              // masks
    bool used[PASS_GROUPS][MAX_DEVICES]; // computes anything
    double cached[MAX_DEVICES];          // 1: the device's cache keeps its weights, else 0
    int32_t n_to, n_from, n_first;       // crossings each way, units before the first one
    int32_t n_streamed;
    int32_t n_to_prefill, n_from_prefill; // likewise in prefill, joins included
    bool joins_first;                     // the CPU sends the residual stream to a join at first
    bool returns;                         // to the CPU in prefill, whatever is streamed
    uint64_t slot_bytes, arena_bytes, cache_bytes, most_fetch_bytes;
    double fetch_bytes, kv_row_bytes; // of all that is streamed
};

// ---- Clocks, as in simulate.c -------------------------------------------------------------------

struct clocks {
    double compute[MAX_DEVICES], copy_in, copy_out, fetch, full[RING_SLOTS], free[RING_SLOTS];
    double start_us, busy_us[MAX_DEVICES], to_us, inputs_us, fetch_us, store_us;
    double host_bytes; // read by the CPU, not from a cache
    bool host_sent;
};

// One sample of a placement.
struct walk {
    const struct pricing *p;
    const struct outline *o;
    const struct choice *choice;
    int32_t i, s; // choice, sample
    struct clocks c;
};

static void copy_to(struct walk *w, double size_bytes) {
    const double us = cost_copy_us(&w->p->machine->devices[GPU], size_bytes, true);
    w->c.to_us += us;
    w->c.copy_in = max_us(w->c.copy_in, w->c.compute[HOST]) + us;
}

static void copy_from(struct walk *w, double size_bytes) {
    const double us = cost_copy_us(&w->p->machine->devices[GPU], size_bytes, false);
    w->c.copy_out = max_us(w->c.copy_out, w->c.compute[GPU]) + us;
}

static void wait(double *clock, double until_us) { *clock = max_us(*clock, until_us); }

static double bytes_of(const struct walk *w, int32_t n_cols) {
    return 4.0 * n_cols * w->choice->samples[w->s].pass.n_tokens;
}

static double dram_us(const struct walk *w, double size_bytes) {
    const double gbps = w->p->machine->dram_gbps;
    return gbps > 0 ? size_bytes / (gbps * 1e3) : 0;
}

static void send_residual(struct walk *w, int from) {
    const double size_bytes = bytes_of(w, w->p->shape->n_embd);
    if (from == GPU) {
        copy_from(w, size_bytes);
        wait(&w->c.compute[HOST], w->c.copy_out);
        return;
    }
    if (!w->c.host_sent) {
        const double shared = w->c.host_bytes + (double)w->choice->staging_bytes;
        wait(&w->c.compute[HOST], w->c.start_us + dram_us(w, shared));
        w->c.host_sent = true;
    }
    copy_to(w, size_bytes);
    wait(&w->c.compute[GPU], w->c.copy_in);
}

static void compute(struct walk *w, int d, double us) {
    w->c.compute[d] += us;
    w->c.busy_us[d] += us;
}

// The phases of a split unit; see schedule.c.
static void join(struct walk *w, int at, const struct split_us *us) {
    const int32_t *n_cols = us->n_cols;
    send_residual(w, at);
    compute(w, GPU, us->in[GPU]);
    if (!us->attends) copy_from(w, bytes_of(w, n_cols[GPU]));
    compute(w, HOST, us->in[HOST]);
    copy_to(w, bytes_of(w, n_cols[HOST]));
    wait(&w->c.compute[GPU], w->c.copy_in);
    compute(w, GPU, us->middle);
    if (us->attends) copy_from(w, bytes_of(w, n_cols[GPU] + n_cols[HOST]));
    wait(&w->c.compute[HOST], w->c.copy_out);
    compute(w, GPU, us->out[GPU]);
    compute(w, HOST, us->out[HOST]);
    copy_to(w, bytes_of(w, us->n_host_rows));
    wait(&w->c.compute[GPU], w->c.copy_in);
}

// ---- Split units over the workload --------------------------------------------------------------

static void price_joins(const struct pricing *p, const struct outline *o, int32_t twin,
                        int32_t parts, struct split_price *out) {
    *out = (struct split_price){0};
    for (int i = 0; i < p->n_choices; i++) {
        const struct choice *choice = &p->choices[i];
        for (int s = 0; s < choice->n_samples; s++) {
            struct split_us us;
            pricing_split(p, twin, parts, o->cached, choice->first_line + s, &us);
            for (int at = 0; at < MAX_DEVICES; at++) {
                struct walk w = {p, o, choice, i, s, {.host_sent = true}};
                join(&w, at, &us);
                out->us[at][s >= choice->n_prefill][i] +=
                    choice->samples[s].weight * w.c.compute[GPU];
            }
        }
    }
}

// Remembers: neighbours are alike, and many proposals have them.
static const struct split_price *split_price(const struct pricing *p, const struct outline *o,
                                             int u) {
    const uint32_t twin = (uint32_t)p->units[u].twin, parts = o->ways->units[u].cpu_parts;
    uint32_t key = twin * UNIT_PARTS + parts;
    for (int d = 0; d < MAX_DEVICES; d++) key = key * 2 + (uint32_t)o->cached[d];
    struct memo *memo = &p->memos[(key * UINT32_C(2654435761) >> 16) % MEMOS];
    if (memo->key != key) {
        memo->key = key;
        price_joins(p, o, (int32_t)twin, (int32_t)parts, &memo->price);
    }
    return &memo->price;
}

// ---- Passes that are walked ---------------------------------------------------------------------

// The next streamed unit from u on, or n_units.
static int32_t next_streamed(const struct walk *w, int32_t u) {
    while (u < w->p->n_units && !w->o->ways->units[u].streamed) u++;
    return u;
}

// Cached keys and values of that many positions, between the host and a slot.
static double cache_us(const struct walk *w, int32_t u, int32_t n_positions, bool to_device) {
    const struct placement *ways = w->o->ways;
    if (ways->units[u].cpu_parts) return 0;
    return cost_cache_us(&w->p->machine->devices[GPU],
                         (double)w->p->units[u].kv_row_bytes * n_positions, to_device);
}

static void fetch(struct walk *w, int32_t u, int32_t slot) {
    const uint8_t parts = w->o->ways->units[u].cpu_parts;
    const uint64_t size_bytes =
        parts ? pricing_split_bytes(w->p, u, SPLIT_FETCH, parts) : w->p->units[u].fetch_bytes;
    const double us =
        cost_feed_us(&w->p->machine->devices[GPU], w->o->ways->feed, (double)size_bytes) +
        cache_us(w, u, w->choice->samples[w->s].pass.n_past, true);
    w->c.fetch_us += us;
    w->c.fetch = w->c.full[slot] = max_us(w->c.fetch, w->c.free[slot]) + us;
}

static void start(struct walk *w, enum pass_group group) {
    struct clocks *c = &w->c;
    for (int d = 0; d < w->p->machine->n_devices; d++)
        if (w->o->used[group][d]) c->start_us += w->p->machine->devices[d].rates.pass_us;
    c->compute[HOST] = c->compute[GPU] = c->copy_in = c->copy_out = c->fetch = c->start_us;
    c->host_sent = w->o->ways->units[0].device != HOST;
    if (!w->o->used[group][GPU]) return;
    c->inputs_us = w->choice->inputs_us;
    c->to_us += c->inputs_us;
    c->compute[GPU] = c->copy_in += c->inputs_us;
}

static void compute_whole(struct walk *w, int32_t u, int d) {
    const size_t at = (size_t)w->s * (size_t)(w->p->n_units + 1) + (size_t)u;
    const double *plain = &w->choice->before_us[d][0][at];
    const double *fast = &w->choice->before_us[d][1][at];
    const double *bytes = &w->choice->before_bytes[at];
    compute(w, d, pricing_blend(plain[1] - plain[0], fast[1] - fast[0], w->o->cached[d]));
    if (d == HOST) w->c.host_bytes += (1 - w->o->cached[HOST]) * (bytes[1] - bytes[0]);
}

static void compute_streamed(struct walk *w, int32_t u, int32_t slot) {
    const size_t at = (size_t)w->s * (size_t)(w->p->n_units + 1) + (size_t)u;
    wait(&w->c.compute[GPU], w->c.full[slot]);
    compute(w, GPU, w->choice->streamed_us[w->o->ways->units[u].cpu_parts > 0][at]);
    w->c.free[slot] = w->c.compute[GPU];
    const double us = cache_us(w, u, w->choice->samples[w->s].pass.n_tokens, false);
    if (!(us > 0)) return;
    w->c.store_us += us;
    w->c.free[slot] = w->c.copy_out = max_us(w->c.copy_out, w->c.compute[GPU]) + us;
}

static void compute_split(struct walk *w, int32_t u, int at) {
    struct split_us us;
    pricing_split(w->p, u, w->o->ways->units[u].cpu_parts, w->o->cached,
                  w->choice->first_line + w->s, &us);
    join(w, at, &us);
    w->c.host_bytes +=
        (1 - w->o->cached[HOST]) *
        (double)pricing_split_bytes(w->p, u, SPLIT_HOST, w->o->ways->units[u].cpu_parts);
}

static void walk_units(struct walk *w, enum pass_group group) {
    const struct placement *ways = w->o->ways;
    const bool streams = group == PASSES_PREFILL && w->o->n_streamed > 0;
    int32_t next = 0, slot = 0, at = ways->units[0].device;
    for (int32_t i = 0; streams && i < RING_SLOTS; i++) {
        next = next_streamed(w, next);
        if (next < w->p->n_units) fetch(w, next++, i);
    }
    for (int32_t u = 0; u < w->p->n_units; u++) {
        const bool streamed = streams && ways->units[u].streamed;
        if (ways->units[u].cpu_parts && !streamed) {
            compute_split(w, u, at);
            at = GPU;
            continue;
        }
        const int d = streamed ? GPU : ways->units[u].device;
        if (d != at) send_residual(w, at);
        at = d;
        if (!streamed) {
            compute_whole(w, u, d);
            continue;
        }
        compute_streamed(w, u, slot);
        next = next_streamed(w, next);
        if (next < w->p->n_units) fetch(w, next++, slot);
        slot = (slot + 1) % RING_SLOTS;
    }
    if (at == GPU && w->choice->samples[w->s].pass.n_logits)
        copy_from(w, 4.0 * w->p->shape->n_vocab * w->choice->samples[w->s].pass.n_logits);
}

static bool runs_ahead(const struct outline *o) {
    return o->used[PASSES_PREFILL][GPU] && o->n_to_prefill <= 1 && o->n_from_prefill == 0;
}

// What passes like this one take in a row, or, where the next waits, one.
static double walk_sample(const struct pricing *p, const struct outline *o, int32_t i, int32_t s) {
    struct walk w = {.p = p, .o = o, .choice = &p->choices[i], .i = i, .s = s};
    const enum pass_group group = s < w.choice->n_prefill ? PASSES_PREFILL : PASSES_OTHER;
    const struct clocks *c = &w.c;
    start(&w, group);
    walk_units(&w, group);
    double memory_us = 0;
    if (group == PASSES_PREFILL && o->n_streamed > 0) {
        const struct pass *pass = &w.choice->samples[s].pass;
        const double cache_bytes = o->kv_row_bytes * (pass->n_past + pass->n_tokens);
        memory_us = dram_us(&w, c->host_bytes + cache_bytes +
                                    o->fetch_bytes * cost_feed_passes(o->ways->feed));
    }
    double total =
        max_us(max_us(c->compute[HOST], c->compute[GPU]), max_us(c->copy_in, c->copy_out));
    total = max_us(max_us(total, c->fetch), c->start_us + memory_us);
    if (group != PASSES_PREFILL || !runs_ahead(o) || sample_waits(&w.choice->samples[s]))
        return total;
    double pass_us[MAX_DEVICES] = {0};
    for (int d = 0; d < p->machine->n_devices; d++)
        if (o->used[group][d]) pass_us[d] = p->machine->devices[d].rates.pass_us;
    const double host = pass_us[HOST] + c->busy_us[HOST] + c->to_us - c->inputs_us;
    const double accelerator = pass_us[GPU] + c->to_us + c->busy_us[GPU];
    const double link = max_us(c->fetch_us + c->to_us, c->store_us);
    return min_us(total, max_us(max_us(host, accelerator), max_us(link, memory_us)));
}

// ---- Sums over units ----------------------------------------------------------------------------

static void outline_unit(const struct pricing *p, int32_t u, struct outline *o,
                         uint64_t read_bytes[MAX_DEVICES]) {
    const struct placement *ways = o->ways;
    const int d = ways->units[u].device, kind = 1 << p->shape->units[u].kind;
    const bool streamed = ways->units[u].streamed, split = ways->units[u].cpu_parts > 0;
    const uint64_t cpu_bytes =
        split ? pricing_split_bytes(p, u, SPLIT_HOST, ways->units[u].cpu_parts) : 0;
    read_bytes[d] += p->read_bytes[u] - cpu_bytes;
    read_bytes[HOST] += cpu_bytes;
    o->kinds[d] |= kind;
    if (split) o->kinds[HOST] |= kind;
    if (streamed) o->kinds[GPU] |= kind;
    o->n_streamed += streamed;
    o->used[PASSES_OTHER][d] = true;
    o->used[PASSES_PREFILL][streamed ? GPU : d] = true;
    if (split) o->used[PASSES_OTHER][HOST] = true;
    if (split && !streamed) o->used[PASSES_PREFILL][HOST] = true;
}

// Crossings of the residual stream in the passes that stream nothing, and in those of prefill.
static void outline_crossings(const struct pricing *p, struct outline *o) {
    const struct placement *ways = o->ways;
    int at = ways->units[0].device, at_prefill = at;
    int32_t n_gpu = 0;
    o->n_first = p->n_units;
    for (int32_t u = 0; u < p->n_units; u++) {
        const bool split = ways->units[u].cpu_parts > 0;
        const int d = ways->units[u].device, d_prefill = ways->units[u].streamed ? GPU : d;
        if ((d != at || split) && o->n_first == p->n_units) {
            o->n_first = u;
            o->joins_first = split && at == HOST;
        }
        o->n_to += !split && d > at;
        o->n_from += !split && d < at;
        o->n_to_prefill += d_prefill > at_prefill;
        o->n_from_prefill += d_prefill < at_prefill || (split && !ways->units[u].streamed);
        o->returns = o->returns || (d == HOST && n_gpu > 0 && !p->units[u].can_stream);
        n_gpu += d == GPU;
        at = d;
        at_prefill = d_prefill;
    }
}

static void outline_of(const struct pricing *p, const struct placement *ways, struct outline *o) {
    uint64_t read_bytes[MAX_DEVICES] = {0};
    *o = (struct outline){.ways = ways};
    for (int32_t u = 0; u < p->n_units; u++) outline_unit(p, u, o, read_bytes);
    o->cached[HOST] = cost_is_cached(p->machine, read_bytes[HOST]);
    outline_crossings(p, o);
}

struct sums {
    // Of class prefill: units on each device, and joins. Of the others everything that is linear.
    double prefill_us[MAX_DEVICES][MAX_CHOICES], joins_us[MAX_CHOICES], other_us[MAX_CHOICES];
    // If units that can be streamed are or not, whichever is faster: all, and what is on the
    // accelerator anyway.
    double least_us[MAX_CHOICES], whole_us[MAX_CHOICES];
};

static void count_streamed(const struct pricing *p, struct outline *o, int32_t u) {
    const struct unit_price *unit = &p->units[u];
    const int parts = o->ways->units[u].cpu_parts;
    uint64_t slot_bytes = unit->slot_bytes, fetch_bytes = unit->fetch_bytes;
    if (parts) {
        slot_bytes = pricing_split_bytes(p, u, SPLIT_SLOT, parts);
        fetch_bytes = pricing_split_bytes(p, u, SPLIT_FETCH, parts);
    }
    o->slot_bytes = max_u64(o->slot_bytes, slot_bytes);
    o->most_fetch_bytes = max_u64(o->most_fetch_bytes, fetch_bytes);
    o->fetch_bytes += (double)fetch_bytes;
    o->arena_bytes += parts ? pricing_split_bytes(p, u, SPLIT_HOST, parts) : fetch_bytes;
    if (parts) return;
    o->cache_bytes += unit->kv_bytes[HOST][0];
    o->kv_row_bytes += (double)unit->kv_row_bytes;
}

static void count_bytes(const struct pricing *p, struct outline *o, struct price *out) {
    const struct placement *ways = o->ways;
    uint64_t bytes[MAX_DEVICES][MAX_CHOICES] = {{0}};
    for (int32_t u = 0; u < p->n_units; u++) {
        const struct unit_price *unit = &p->units[u];
        const int parts = ways->units[u].cpu_parts, d = ways->units[u].device;
        for (int i = 0; i < MAX_CHOICES && !parts; i++) bytes[d][i] += unit->bytes[d][i];
        for (int i = 0; i < MAX_CHOICES && parts; i++) {
            bytes[HOST][i] += pricing_split_bytes(p, u, SPLIT_HOST, parts);
            bytes[GPU][i] += pricing_split_bytes(p, u, SPLIT_GPU, parts) + unit->kv_bytes[GPU][i];
        }
        if (ways->units[u].streamed) count_streamed(p, o, u);
    }
    const int d_head = ways->units[p->n_units - 1].device;
    const uint64_t shared = ways->units[0].device == d_head ? p->shared_bytes[d_head] : 0;
    int32_t n_blocks;
    uint64_t block_bytes;
    footprint_blocks(o->n_streamed ? ways->feed : FEED_NONE, o->most_fetch_bytes, &n_blocks,
                     &block_bytes);
    for (int i = 0; i < p->n_choices; i++) {
        const struct choice *choice = &p->choices[i];
        const uint64_t blocks_bytes = (uint64_t)n_blocks * block_bytes;
        const uint64_t host_scratch = choice->scratch_bytes[HOST][o->kinds[HOST]];
        bytes[d_head][i] -= shared;
        out->bytes[i][HOST] = bytes[HOST][i] + host_scratch + choice->staging_bytes;
        out->bytes[i][GPU] = bytes[GPU][i] + choice->scratch_bytes[GPU][o->kinds[GPU]] +
                             (o->n_streamed ? RING_SLOTS * o->slot_bytes : 0);
        const uint64_t kept = (ways->feed == FEED_ARENA ? o->arena_bytes : 0) + o->cache_bytes;
        const bool feeds = !o->n_streamed || kept <= p->own_bytes;
        out->holds[i] = machine_holds(p->machine, out->bytes[i]);
        out->bytes[i][HOST] += blocks_bytes;
        out->fits[i] = feeds && machine_holds(p->machine, out->bytes[i]);
    }
}

// A whole unit on a device, by group and choice; blended only where the cache keeps a part.
static const double (*unit_us(const struct unit_price *unit, int d, double cached,
                              double room[PASS_GROUPS][MAX_CHOICES]))[MAX_CHOICES] {
    if (!(cached > 0)) return unit->us[d][0];
    if (!(cached < 1)) return unit->us[d][1];
    for (int group = 0; group < PASS_GROUPS; group++) {
        for (int i = 0; i < MAX_CHOICES; i++)
            room[group][i] =
                pricing_blend(unit->us[d][0][group][i], unit->us[d][1][group][i], cached);
    }
    return room;
}

// A unit of prefill, streamed or, where streamed_us is NULL, not; of a split one, wherever the
// residual stream was before.
static void add_least(const double us[], const double other_us[], const double *streamed_us,
                      double out[]) {
    for (int i = 0; i < MAX_CHOICES; i++) {
        const double least = min_us(us[i], other_us[i]);
        out[i] += streamed_us ? min_us(least, streamed_us[i]) : least;
    }
}

static void sum_units(const struct pricing *p, const struct outline *o, struct sums *out) {
    const struct placement *ways = o->ways;
    int at = ways->units[0].device, at_prefill = at;
    *out = (struct sums){0};
    for (int32_t u = 0; u < p->n_units; u++) {
        const struct unit_price *unit = &p->units[u];
        const int d = ways->units[u].device;
        if (ways->units[u].cpu_parts) {
            const struct split_price *split = split_price(p, o, u);
            for (int i = 0; i < MAX_CHOICES; i++)
                out->other_us[i] += split->us[at][PASSES_OTHER][i];
            if (!ways->units[u].streamed) {
                for (int i = 0; i < MAX_CHOICES; i++)
                    out->joins_us[i] += split->us[at_prefill][PASSES_PREFILL][i];
            }
            add_least(split->us[HOST][PASSES_PREFILL], split->us[GPU][PASSES_PREFILL],
                      unit->can_stream ? unit->streamed_us[1] : NULL, out->least_us);
        } else {
            double room[PASS_GROUPS][MAX_CHOICES];
            const double(*us)[MAX_CHOICES] = unit_us(unit, d, o->cached[d], room);
            for (int i = 0; i < MAX_CHOICES; i++) out->other_us[i] += us[PASSES_OTHER][i];
            for (int i = 0; i < MAX_CHOICES && !ways->units[u].streamed; i++)
                out->prefill_us[d][i] += us[PASSES_PREFILL][i];
            for (int i = 0; i < MAX_CHOICES && d == GPU; i++)
                out->whole_us[i] += us[PASSES_PREFILL][i];
            add_least(us[PASSES_PREFILL], us[PASSES_PREFILL],
                      unit->can_stream && d == HOST ? unit->streamed_us[0] : NULL, out->least_us);
        }
        for (int i = 0; i < MAX_CHOICES && ways->units[u].streamed; i++)
            out->prefill_us[GPU][i] += unit->streamed_us[ways->units[u].cpu_parts > 0][i];
        at = d;
        at_prefill = ways->units[u].streamed ? GPU : d;
    }
}

// What the start of the passes takes beyond the sum of the chain; see simulate.c.
static double start_us(const struct pricing *p, const struct choice *choice,
                       const struct outline *o, enum pass_group group) {
    double sum = 0;
    const bool prefill = group == PASSES_PREFILL;
    const int32_t end = prefill ? choice->n_prefill : choice->n_samples;
    for (int32_t s = prefill ? 0 : choice->n_prefill; s < end; s++) {
        double us = choice->inputs_us;
        if (o->ways->units[0].device == HOST) {
            const size_t at = (size_t)s * (size_t)(p->n_units + 1) + (size_t)o->n_first;
            const double before_us = pricing_blend(choice->before_us[HOST][0][at],
                                                   choice->before_us[HOST][1][at], o->cached[HOST]);
            const double bytes =
                (1 - o->cached[HOST]) * choice->before_bytes[at] + (double)choice->staging_bytes;
            const double dram = p->machine->dram_gbps * 1e3;
            us = max_us(us, max_us(before_us, dram > 0 ? bytes / dram : 0)) - before_us;
        }
        sum += choice->samples[s].weight * us;
    }
    return sum;
}

// What a group of passes takes besides units and joins, if it is a chain.
static double chain_us(const struct pricing *p, const struct outline *o, int32_t i,
                       enum pass_group group) {
    const struct choice *choice = &p->choices[i];
    double us = o->n_to * choice->to_us[group] + o->n_from * choice->from_us[group];
    if (o->ways->units[p->n_units - 1].device == GPU) us += choice->logits_us[group];
    for (int d = 0; d < p->machine->n_devices; d++) {
        if (o->used[group][d]) us += choice->n_passes[group] * p->machine->devices[d].rates.pass_us;
    }
    return us;
}

// What the passes of class prefill take at least, if they are walked, with any feed.
static double prefill_bound_us(const struct pricing *p, const struct outline *o,
                               const struct sums *sums, int32_t i) {
    const double host = sums->prefill_us[HOST][i], gpu = sums->prefill_us[GPU][i];
    const double units = runs_ahead(o) ? max_us(host, gpu) : host + gpu + sums->joins_us[i];
    if (!o->n_streamed) return units;
    double fetch_us = (double)INFINITY;
    for (int feed = FEED_ARENA; feed < FEEDS; feed++)
        fetch_us = min_us(fetch_us,
                          cost_feed_us(&p->machine->devices[GPU], (enum feed)feed, o->fetch_bytes));
    return max_us(units, p->choices[i].n_passes[PASSES_PREFILL] * fetch_us);
}

static double walk_group(const struct pricing *p, const struct outline *o, int32_t i,
                         enum pass_group group) {
    const struct choice *choice = &p->choices[i];
    const int32_t first = group == PASSES_PREFILL ? 0 : choice->n_prefill;
    const int32_t end = group == PASSES_PREFILL ? choice->n_prefill : choice->n_samples;
    double us = 0;
    for (int32_t s = first; s < end; s++) us += choice->samples[s].weight * walk_sample(p, o, i, s);
    return us;
}

// One micro-batch: first what is known without walking.
static void price_choice(const struct pricing *p, const struct outline *o, const struct sums *sums,
                         int32_t i, double limit_us, struct price *out) {
    const struct choice *choice = &p->choices[i];
    const bool walks_prefill = o->n_streamed > 0 || o->joins_first || runs_ahead(o);
    double other = sums->other_us[i] + chain_us(p, o, i, PASSES_OTHER), prefill;
    if (!o->joins_first && o->used[PASSES_OTHER][GPU])
        other += start_us(p, choice, o, PASSES_OTHER);
    if (walks_prefill) {
        prefill = prefill_bound_us(p, o, sums, i);
    } else {
        prefill = sums->prefill_us[HOST][i] + sums->prefill_us[GPU][i] + sums->joins_us[i] +
                  chain_us(p, o, i, PASSES_PREFILL);
        if (o->used[PASSES_PREFILL][GPU]) prefill += start_us(p, choice, o, PASSES_PREFILL);
    }
    out->us[i] = out->bound_us[i] = other + prefill;
    // Micro-batches may run ahead unless the residual stream returns.
    out->streamed_us[i] =
        other + (o->returns ? sums->least_us[i] : max_us(sums->whole_us[i], sums->least_us[i] / 2));
    const bool asked = out->fits[i] || limit_us == (double)INFINITY;
    if (!asked || out->bound_us[i] * (1 - 1e-9) >= limit_us) {
        out->us[i] = (double)INFINITY;
        return;
    }
    if (o->joins_first) other = walk_group(p, o, i, PASSES_OTHER);
    if (walks_prefill) prefill = walk_group(p, o, i, PASSES_PREFILL);
    out->us[i] = other + prefill;
}

void pricing_of(const struct pricing *p, const struct placement *ways, double limit_us,
                struct price *out) {
    struct outline o;
    struct sums sums;
    outline_of(p, ways, &o);
    count_bytes(p, &o, out);
    bool any = limit_us == (double)INFINITY;
    for (int i = 0; i < p->n_choices; i++) {
        out->us[i] = out->bound_us[i] = out->streamed_us[i] = (double)INFINITY;
        any = any || out->holds[i];
    }
    if (!any) return;
    sum_units(p, &o, &sums);
    for (int i = 0; i < p->n_choices; i++)
        if (out->holds[i] || limit_us == (double)INFINITY)
            price_choice(p, &o, &sums, i, limit_us, out);
}
