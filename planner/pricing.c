/* pricing.c: what any placement takes, added up from a table.
 *
 * With two devices and one residual stream, a pass is a chain: its time is the sum of its units'
 * times where they are, its crossings, and what the copy of the tables delays the start. All of it
 * is linear in the passes but the last, which needs the CPU's time up to the first crossing. So a
 * placement is priced in one walk over its units for all micro-batches at once, and the price is
 * what simulate.c says (tests/test_solver.c compares). Owns its tables; any thread.
 */
#include "planner/plan_internal.h"

#include "base/mem.h"

#include <string.h>

static double max_us(double a, double b) { return a > b ? a : b; }

static void price_unit(struct pricing *p, int u, int i) {
    const struct unit *unit = &p->shape->units[u];
    const struct choice *choice = &p->choices[i];
    for (int d = 0; d < p->machine->n_devices; d++) {
        const struct machine_device *device = &p->machine->devices[d];
        p->units[u].bytes[d][i] = footprint_unit_weights(unit, device, false) +
                                  footprint_unit_kv(p->shape, unit, &choice->w, device);
        for (int cached = 0; cached < 2; cached++) {
            const struct cost_place at = {p->shape, device, &choice->w, cached};
            double sum = 0;
            for (int s = 0; s < choice->n_samples; s++) {
                const struct sample *sample = &choice->samples[s];
                const double us = cost_sum(cost_of_unit(&at, unit, &sample->pass));
                sum += sample->weight * us;
                if (d != HOST) continue;
                double *before = &choice->before_us[cached][s * (p->n_units + 1) + u];
                before[1] = before[0] + us;
            }
            p->units[u].us[d][cached][i] = sum;
        }
    }
    for (int s = 0; s < choice->n_samples; s++) {
        double *before = &choice->before_bytes[s * (p->n_units + 1) + u];
        before[1] = before[0] + cost_read_bytes(unit, WHOLE_UNIT, &choice->samples[s].pass);
    }
}

static void price_copies(struct pricing *p, struct choice *choice) {
    struct tables_layout tables;
    footprint_tables(&choice->w, &tables);
    choice->staging_bytes = tables.size_bytes;
    if (p->machine->n_devices < 2) return;
    const struct machine_device *gpu = &p->machine->devices[GPU];
    const double row_bytes = 4.0 * p->shape->n_embd, logits_bytes = 4.0 * p->shape->n_vocab;
    for (int pinned = 0; pinned < 2; pinned++) {
        choice->inputs_us[pinned] = cost_copy_us(gpu, (double)tables.size_bytes, true, pinned);
        for (int s = 0; s < choice->n_samples; s++) {
            const struct pass *pass = &choice->samples[s].pass;
            const double weight = choice->samples[s].weight, rows = pass->n_tokens * row_bytes;
            choice->to_us[pinned] += weight * cost_copy_us(gpu, rows, true, pinned);
            choice->from_us[pinned] += weight * cost_copy_us(gpu, rows, false, pinned);
            if (!pass->n_logits) continue;
            choice->logits_us[pinned] +=
                weight * cost_copy_us(gpu, pass->n_logits * logits_bytes, false, pinned);
        }
    }
}

static void price_scratch(struct pricing *p, struct choice *choice) {
    for (int d = 0; d < p->machine->n_devices; d++) {
        for (int mask = 0; mask < KIND_MASKS; mask++) {
            bool has[UNIT_KINDS];
            for (int kind = 0; kind < UNIT_KINDS; kind++) has[kind] = mask >> kind & 1;
            struct scratch_layout layout;
            footprint_scratch(p->shape, &choice->w, &p->machine->devices[d], has, &layout);
            choice->scratch_bytes[d][mask] = layout.size_bytes;
        }
    }
}

// Samples in proportion to the workload's total time: with one token to generate, no pass decodes.
static void take_samples(struct choice *choice, const struct shape *shape) {
    choice->n_samples = workload_samples(&choice->w, shape, choice->samples);
    while (choice->w.n_gen == 1 && !choice->samples[choice->n_samples - 1].is_prompt)
        choice->n_samples--;
}

enum status pricing_open(struct pricing *p, const struct shape *shape,
                         const struct machine *machine, const struct workload *w, struct err *e) {
    *p = (struct pricing){.shape = shape, .machine = machine, .n_units = shape->n_units};
    int32_t ubatches[MAX_CHOICES], n_samples = 0;
    p->n_choices = workload_ubatches(w, ubatches);
    for (int i = 0; i < p->n_choices; i++) {
        struct choice *choice = &p->choices[i];
        choice->w = *w;
        choice->w.n_ubatch = ubatches[i];
        take_samples(choice, shape);
        price_copies(p, choice);
        price_scratch(p, choice);
        n_samples += choice->n_samples;
    }
    const size_t n_units = (size_t)shape->n_units;
    const size_t n_sums = (n_units + 1) * (size_t)n_samples * 3;
    p->units = mem_alloc(n_units, sizeof *p->units);
    p->read_bytes = mem_alloc(n_units, sizeof *p->read_bytes);
    double *sums = p->memory = mem_alloc(n_sums, sizeof *sums);
    if (!p->units || !p->read_bytes || !p->memory) {
        pricing_close(p);
        return err_memory(e, n_sums * sizeof *sums + n_units * sizeof *p->units, "planning");
    }
    for (int i = 0; i < p->n_choices; i++) {
        struct choice *choice = &p->choices[i];
        const size_t size = (n_units + 1) * (size_t)choice->n_samples;
        choice->before_us[0] = sums;
        choice->before_us[1] = sums + size;
        choice->before_bytes = sums + 2 * size;
        sums += 3 * size;
        for (int u = 0; u < p->n_units; u++) price_unit(p, u, i);
    }
    const struct unit *head = &shape->units[shape->n_units - 1];
    for (int d = 0; d < machine->n_devices && head->shares_embed; d++) {
        p->shared_bytes[d] = footprint_unit_weights(head, &machine->devices[d], false) -
                             footprint_unit_weights(head, &machine->devices[d], true);
    }
    for (int u = 0; u < p->n_units; u++) p->read_bytes[u] = cost_all_read_bytes(&shape->units[u]);
    return OK;
}

void pricing_close(struct pricing *p) {
    mem_free(p->units);
    mem_free(p->read_bytes);
    mem_free(p->memory);
    *p = (struct pricing){0};
}

// What a placement has, besides the sums.
struct outline {
    int kinds[MAX_DEVICES]; // masks
    bool cached[MAX_DEVICES];
    int32_t n_to, n_from, n_first; // crossings each way, units before the first one
};

static struct outline outline_of(const struct pricing *p, const int8_t device[]) {
    struct outline out = {.n_first = p->n_units};
    uint64_t read_bytes[MAX_DEVICES] = {0};
    for (int u = 0; u < p->n_units; u++) {
        const int d = device[u];
        read_bytes[d] += p->read_bytes[u];
        out.kinds[d] |= 1 << p->shape->units[u].kind;
        if (u == 0 || d == device[u - 1]) continue;
        if (!out.n_to && !out.n_from) out.n_first = u;
        out.n_to += d == GPU;
        out.n_from += d == HOST;
    }
    for (int d = 0; d < p->machine->n_devices; d++)
        out.cached[d] = read_bytes[d] <= p->machine->devices[d].rates.cache_bytes;
    return out;
}

// What the start of the passes takes beyond the sum of the chain; see simulate.c.
static double start_us(const struct pricing *p, const struct choice *choice,
                       const struct outline *o, bool on_host, bool pinned) {
    double sum = 0;
    const double inputs_us = choice->inputs_us[pinned];
    for (int s = 0; s < choice->n_samples; s++) {
        double us = inputs_us;
        if (on_host) {
            const size_t at = (size_t)s * (size_t)(p->n_units + 1) + (size_t)o->n_first;
            const double before_us = choice->before_us[o->cached[HOST]][at];
            const double bytes =
                (o->cached[HOST] ? 0 : choice->before_bytes[at]) + (double)choice->staging_bytes;
            const double dram = p->machine->dram_gbps * 1e3;
            us = max_us(us, max_us(before_us, dram > 0 ? bytes / dram : 0)) - before_us;
        }
        sum += choice->samples[s].weight * us;
    }
    return sum;
}

static double chain_us(const struct pricing *p, int i, const struct outline *o,
                       const int8_t device[], bool pinned) {
    const struct choice *choice = &p->choices[i];
    double us = o->n_to * choice->to_us[pinned] + o->n_from * choice->from_us[pinned];
    if (device[p->n_units - 1] == GPU) us += choice->logits_us[pinned];
    double n_passes = 0;
    for (int s = 0; s < choice->n_samples; s++) n_passes += choice->samples[s].weight;
    for (int d = 0; d < p->machine->n_devices; d++)
        if (o->kinds[d]) us += n_passes * p->machine->devices[d].rates.pass_us;
    if (o->kinds[GPU]) us += start_us(p, choice, o, device[0] == HOST, pinned);
    return us;
}

void pricing_of(const struct pricing *p, const int8_t device[], struct price *out) {
    const struct outline o = outline_of(p, device);
    double us[MAX_CHOICES] = {0};
    uint64_t bytes[MAX_DEVICES][MAX_CHOICES] = {{0}};
    for (int u = 0; u < p->n_units; u++) {
        const int d = device[u];
        for (int i = 0; i < MAX_CHOICES; i++) {
            us[i] += p->units[u].us[d][o.cached[d]][i];
            bytes[d][i] += p->units[u].bytes[d][i];
        }
    }
    const int d_head = device[p->n_units - 1];
    for (int i = 0; i < p->n_choices; i++) {
        const struct choice *choice = &p->choices[i];
        if (device[0] == d_head) bytes[d_head][i] -= p->shared_bytes[d_head];
        for (int d = 0; d < MAX_DEVICES; d++)
            out->bytes[i][d] = bytes[d][i] + choice->scratch_bytes[d][o.kinds[d]];
        out->bytes[i][HOST] += choice->staging_bytes;
        out->fits[i] = machine_holds(p->machine, out->bytes[i]);
        const bool pinned = choice->staging_bytes + choice->scratch_bytes[HOST][o.kinds[HOST]] <=
                            p->machine->pinned_bytes;
        out->us[i] = us[i] + chain_us(p, i, &o, device, pinned);
    }
}
