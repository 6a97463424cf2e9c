/* pricing.c: the tables that the price of any placement is added up from (price.c).
 *
 * What each unit takes on each device, by micro-batch and pass, whole, streamed and, as lines over
 * the number of rows, split. Units that are alike are worked out once. Owns its tables; any thread.
 * Tested by tests/planner/test_solver.c.
 */
#include "planner/search/pricing.h"

#include "base/mem.h"
#include "planner/plan/accounts.h"
#include "planner/plan/cost.h"
#include "planner/plan/footprint.h"

// ---- Tables -------------------------------------------------------------------------------------

static bool same_tensor(const struct unit_tensor *a, const struct unit_tensor *b) {
    return a->role == b->role && a->use == b->use && a->type == b->type && a->n_cols == b->n_cols &&
           a->n_rows == b->n_rows && a->n_matrices == b->n_matrices &&
           a->size_bytes == b->size_bytes;
}

static bool same_unit(const struct unit *a, const struct unit *b) {
    if (a->kind != b->kind || a->n_tensors != b->n_tensors || a->n_heads != b->n_heads ||
        a->n_kv_heads != b->n_kv_heads || a->head_dim_k != b->head_dim_k ||
        a->head_dim_v != b->head_dim_v || a->window != b->window ||
        a->state_bytes != b->state_bytes || a->n_experts != b->n_experts ||
        a->n_experts_used != b->n_experts_used || a->n_ff_expert != b->n_ff_expert)
        return false;
    for (int i = 0; i < a->n_tensors; i++)
        if (!same_tensor(&a->tensors[i], &b->tensors[i])) return false;
    return true;
}

// Layers come in few kinds: what is known of one is known of its twins.
static int32_t find_twin(const struct pricing *p, int32_t u) {
    for (int32_t i = u - 1; i >= 0; i--) {
        if (p->units[i].twin == i && same_unit(&p->shape->units[i], &p->shape->units[u])) return i;
    }
    return u;
}

static struct line *lines_of(const struct pricing *p, int32_t u, int d, bool cached, int phase) {
    const size_t row = (((size_t)u * MAX_DEVICES + (size_t)d) * 2 + (size_t)cached) * 2;
    return p->lines + (row + (size_t)phase) * (size_t)p->n_lines;
}

static double *middle_of(const struct pricing *p, int32_t u, bool cached) {
    return p->middle_us + ((size_t)u * 2 + (size_t)cached) * (size_t)p->n_lines;
}

// The line through what two splits take.
static struct line line_of(const struct cost_place *at, const struct unit *unit,
                           enum step_phase phase, const struct pass *pass) {
    const bool on_host = at->device->is_host;
    const struct unit_tensor *down = footprint_down(unit);
    const int32_t n_rows = phase == PHASE_IN ? down->n_cols : down->n_rows;
    double rows[2], us[2];
    for (int i = 0; i < 2; i++) {
        const int32_t parts = i ? UNIT_PARTS - 1 : 1;
        const int32_t row = footprint_split_row(n_rows, parts);
        const struct unit_part part = {phase, parts, !on_host, on_host};
        rows[i] = on_host ? n_rows - row : row;
        us[i] = cost_sum(cost_of_part(at, unit, part, pass));
    }
    const double row_us = rows[0] == rows[1] ? 0 : (us[1] - us[0]) / (rows[1] - rows[0]);
    return (struct line){us[0] - row_us * rows[0], row_us};
}

static void price_split(struct pricing *p, int32_t u, const struct choice *choice) {
    const struct unit *unit = &p->shape->units[u];
    for (int d = 0; d < MAX_DEVICES; d++) {
        for (int cached = 0; cached < 2; cached++) {
            const struct cost_place at = {p->shape, &p->machine->devices[d], &choice->w, cached};
            for (int s = 0; s < choice->n_samples; s++) {
                const struct pass *pass = &choice->samples[s].pass;
                const int32_t line = choice->first_line + s;
                lines_of(p, u, d, cached, 0)[line] = line_of(&at, unit, PHASE_IN, pass);
                lines_of(p, u, d, cached, 1)[line] = line_of(&at, unit, PHASE_OUT, pass);
            }
        }
    }
    if (unit->kind != UNIT_ATTENTION) return;
    const struct unit_part middle = {PHASE_MID, 1, true, false};
    for (int cached = 0; cached < 2; cached++) {
        const struct cost_place at = {p->shape, &p->machine->devices[GPU], &choice->w, cached};
        for (int s = 0; s < choice->n_samples; s++)
            middle_of(p, u, cached)[choice->first_line + s] =
                cost_sum(cost_of_part(&at, unit, middle, &choice->samples[s].pass));
    }
}

// What streamed units take on the accelerator: their weights come from no cache, and those of split
// ones in two parts.
static double streamed_us(const struct pricing *p, const struct choice *choice, int32_t u,
                          bool split, const struct pass *pass) {
    const struct cost_place at = {p->shape, &p->machine->devices[GPU], &choice->w, false};
    const struct unit_part both = {PHASE_ALL, 1, true, true};
    return cost_sum(cost_of_part(&at, &p->shape->units[u], split ? both : WHOLE_UNIT, pass));
}

static void price_on_device(struct pricing *p, int32_t u, int i, int d, bool cached) {
    const struct choice *choice = &p->choices[i];
    const struct cost_place at = {p->shape, &p->machine->devices[d], &choice->w, cached};
    struct unit_price *price = &p->units[u];
    for (int s = 0; s < choice->n_samples; s++) {
        const struct sample *sample = &choice->samples[s];
        double *before = choice->before_us[d][cached] + s * (p->n_units + 1);
        const double us = price->twin < u
                              ? before[price->twin + 1] - before[price->twin]
                              : cost_sum(cost_of_unit(&at, &p->shape->units[u], &sample->pass));
        before[u + 1] = before[u] + us;
        price->us[d][cached][s >= choice->n_prefill][i] += sample->weight * us;
    }
}

static void price_streamed(struct pricing *p, int32_t u, int i) {
    const struct choice *choice = &p->choices[i];
    struct unit_price *price = &p->units[u];
    for (int split = 0; split <= price->can_split; split++) {
        for (int s = 0; s < choice->n_prefill; s++) {
            double *all = choice->streamed_us[split] + s * (p->n_units + 1);
            all[u] = price->twin < u ? all[price->twin]
                                     : streamed_us(p, choice, u, split, &choice->samples[s].pass);
            price->streamed_us[split][i] += choice->samples[s].weight * all[u];
        }
    }
}

static void price_unit(struct pricing *p, int32_t u, int i) {
    const struct unit *unit = &p->shape->units[u];
    const struct choice *choice = &p->choices[i];
    struct unit_price *price = &p->units[u];
    for (int d = 0; d < p->machine->n_devices; d++) {
        const struct machine_device *device = &p->machine->devices[d];
        price->kv_bytes[d][i] = footprint_unit_kv(p->shape, unit, &choice->w, device);
        price->bytes[d][i] = footprint_unit_weights(unit, device, false) + price->kv_bytes[d][i];
        for (int cached = 0; cached < 2; cached++) price_on_device(p, u, i, d, cached);
    }
    for (int s = 0; s < choice->n_samples; s++) {
        double *before = choice->before_bytes + s * (p->n_units + 1) + u;
        before[1] = before[0] + cost_read_bytes(unit, WHOLE_UNIT, &choice->samples[s].pass);
    }
    if (p->machine->n_devices < 2) return;
    if (price->can_stream) price_streamed(p, u, i);
    if (price->can_split && price->twin == u) price_split(p, u, choice);
}

static void price_copies(struct pricing *p, struct choice *choice) {
    struct tables_layout tables;
    footprint_tables(&choice->w, &tables);
    choice->staging_bytes = tables.size_bytes;
    if (p->machine->n_devices < 2) return;
    const struct machine_device *gpu = &p->machine->devices[GPU];
    const double row_bytes = 4.0 * p->shape->n_embd, logits_bytes = 4.0 * p->shape->n_vocab;
    choice->inputs_us = cost_copy_us(gpu, (double)tables.size_bytes, true);
    for (int s = 0; s < choice->n_samples; s++) {
        const struct pass *pass = &choice->samples[s].pass;
        const double weight = choice->samples[s].weight, rows = pass->n_tokens * row_bytes;
        const int group = s >= choice->n_prefill;
        choice->to_us[group] += weight * cost_copy_us(gpu, rows, true);
        choice->from_us[group] += weight * cost_copy_us(gpu, rows, false);
        if (!pass->n_logits) continue;
        choice->logits_us[group] +=
            weight * cost_copy_us(gpu, pass->n_logits * logits_bytes, false);
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
    for (int s = 0; s < choice->n_samples; s++) {
        const struct sample *sample = &choice->samples[s];
        const bool is_prefill = batch_class_of(sample->pass.n_tokens) == BATCH_PREFILL;
        ASSERT(!is_prefill || choice->n_prefill == s); // they come first
        choice->n_prefill += is_prefill;
        choice->n_passes[is_prefill ? PASSES_PREFILL : PASSES_OTHER] += sample->weight;
    }
}

enum { TABLES = MAX_DEVICES * 2 + 2 + 1 };

static void share_memory(struct pricing *p) {
    double *next = p->memory;
    for (int i = 0; i < p->n_choices; i++) {
        struct choice *choice = &p->choices[i];
        const size_t size = (size_t)(p->n_units + 1) * (size_t)choice->n_samples;
        for (int d = 0; d < MAX_DEVICES; d++) {
            for (int cached = 0; cached < 2; cached++, next += size)
                choice->before_us[d][cached] = next;
        }
        for (int split = 0; split < 2; split++, next += size) choice->streamed_us[split] = next;
        choice->before_bytes = next;
        next += size;
    }
}

static void describe_split(struct pricing *p, int32_t u) {
    const struct unit *unit = &p->shape->units[u];
    const struct machine_device *gpu = &p->machine->devices[GPU];
    struct unit_price *price = &p->units[u];
    price->split_cols = footprint_down(unit)->n_cols;
    price->split_rows = footprint_down(unit)->n_rows;
    if (price->twin < u) return;
    uint64_t *sizes = p->split_bytes + (size_t)u * SPLIT_SIZES * UNIT_PARTS;
    for (int parts = 1; parts < UNIT_PARTS; parts++) {
        for (int d = 0; d < MAX_DEVICES; d++)
            sizes[d * UNIT_PARTS + parts] =
                footprint_split_weights(unit, &p->machine->devices[d], parts);
        sizes[SPLIT_FETCH * UNIT_PARTS + parts] = footprint_fetch(unit, parts);
        sizes[SPLIT_SLOT * UNIT_PARTS + parts] =
            footprint_slot(p->shape, unit, &p->choices[0].w, gpu, parts);
    }
}

// A slot that a cache goes to has no window, so it depends on no micro-batch.
static void describe_unit(struct pricing *p, int32_t u) {
    const struct unit *unit = &p->shape->units[u];
    const struct workload *w = &p->choices[0].w;
    struct unit_price *price = &p->units[u];
    price->can_stream = unit_can_stream(unit);
    price->can_split = p->machine->n_devices > GPU && unit_can_split(unit);
    price->twin = find_twin(p, u);
    p->read_bytes[u] = cost_all_read_bytes(unit);
    if (price->can_stream && p->machine->n_devices > GPU) {
        price->slot_bytes = footprint_slot(p->shape, unit, w, &p->machine->devices[GPU], 0);
        price->fetch_bytes = footprint_fetch(unit, 0);
        price->kv_row_bytes = footprint_kv_row(unit, w);
    }
    if (price->can_split) describe_split(p, u);
}

static enum status take_memory(struct pricing *p, struct err *e) {
    const size_t n_units = (size_t)p->n_units, n_lines = (size_t)p->n_lines;
    p->units = mem_alloc(n_units, sizeof *p->units);
    p->read_bytes = mem_alloc(n_units, sizeof *p->read_bytes);
    p->memory = mem_alloc((n_units + 1) * n_lines * TABLES, sizeof *p->memory);
    p->lines = mem_alloc(n_units * n_lines * 4 * MAX_DEVICES, sizeof *p->lines);
    p->middle_us = mem_alloc(2 * n_units * n_lines, sizeof *p->middle_us);
    p->split_bytes = mem_alloc(n_units * SPLIT_SIZES * UNIT_PARTS, sizeof *p->split_bytes);
    p->memos = mem_alloc(MEMOS, sizeof *p->memos);
    if (p->units && p->read_bytes && p->memory && p->lines && p->middle_us && p->split_bytes &&
        p->memos)
        return OK;
    const size_t size_bytes = n_units * n_lines * TABLES * sizeof *p->memory;
    pricing_close(p);
    return err_memory(e, size_bytes, "planning");
}

enum status pricing_open(struct pricing *p, const struct shape *shape,
                         const struct machine *machine, uint64_t own_bytes,
                         const struct workload *w, struct err *e) {
    *p = (struct pricing){
        .shape = shape, .machine = machine, .own_bytes = own_bytes, .n_units = shape->n_units};
    int32_t ubatches[MAX_CHOICES];
    p->n_choices = workload_ubatches(w, ubatches);
    for (int i = 0; i < p->n_choices; i++) {
        struct choice *choice = &p->choices[i];
        choice->w = *w;
        choice->w.n_ubatch = ubatches[i];
        take_samples(choice, shape);
        price_copies(p, choice);
        price_scratch(p, choice);
        choice->first_line = p->n_lines;
        p->n_lines += choice->n_samples;
    }
    if (take_memory(p, e)) return e->status;
    share_memory(p);
    for (int32_t u = 0; u < p->n_units; u++) {
        describe_unit(p, u);
        for (int i = 0; i < p->n_choices; i++) price_unit(p, u, i);
    }
    const struct unit *head = &shape->units[shape->n_units - 1];
    for (int d = 0; d < machine->n_devices && head->shares_embed; d++) {
        p->shared_bytes[d] = footprint_unit_weights(head, &machine->devices[d], false) -
                             footprint_unit_weights(head, &machine->devices[d], true);
    }
    return OK;
}

void pricing_close(struct pricing *p) {
    mem_free(p->units);
    mem_free(p->read_bytes);
    mem_free(p->memory);
    mem_free(p->lines);
    mem_free(p->middle_us);
    mem_free(p->split_bytes);
    mem_free(p->memos);
    *p = (struct pricing){0};
}

// That many rows, of which a share of the weights comes from a cache.
static double rows_us(const struct line *plain, const struct line *cached, int32_t n_rows,
                      double share) {
    const double us = plain->base_us + plain->row_us * n_rows;
    return share > 0 ? pricing_blend(us, cached->base_us + cached->row_us * n_rows, share) : us;
}

void pricing_split(const struct pricing *p, int32_t unit, int32_t parts,
                   const double cached[MAX_DEVICES], int32_t line, struct split_us *out) {
    const struct unit_price *price = &p->units[unit];
    const int32_t row_in = footprint_split_row(price->split_cols, parts);
    const int32_t row_out = footprint_split_row(price->split_rows, parts);
    const int32_t twin = price->twin;
    out->attends = p->shape->units[unit].kind == UNIT_ATTENTION;
    out->middle = 0;
    if (out->attends)
        out->middle = pricing_blend(middle_of(p, twin, false)[line], middle_of(p, twin, true)[line],
                                    cached[GPU]);
    out->n_cols[GPU] = row_in;
    out->n_cols[HOST] = price->split_cols - row_in;
    out->n_host_rows = price->split_rows - row_out;
    for (int d = 0; d < MAX_DEVICES; d++) {
        const int32_t n_rows = d == HOST ? out->n_host_rows : row_out;
        const struct line *in[] = {lines_of(p, twin, d, false, 0), lines_of(p, twin, d, true, 0)};
        const struct line *last[] = {lines_of(p, twin, d, false, 1), lines_of(p, twin, d, true, 1)};
        out->in[d] = rows_us(&in[0][line], &in[1][line], out->n_cols[d], cached[d]);
        out->out[d] = rows_us(&last[0][line], &last[1][line], n_rows, cached[d]);
    }
}
