/* pipeline.c: see pipeline.h. */
#include "runtime/engine/pipeline.h"

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/kv_page.h"
#include "runtime/engine/states.h"
#include "runtime/model/model_read.h"

#include <stdio.h>
#include <string.h>

#define PAUSE_NS UINT64_C(250000000) // the CPU computes at least so long between two pauses

static enum status open_device(struct pipeline_device *on, struct device *device,
                               uint64_t scratch_bytes, struct err *e) {
    on->device = device;
    if (buffer_new(device, scratch_bytes, PURPOSE_SCRATCH, &on->scratch, e) ||
        stream_new(device, STREAM_COMPUTE, &on->compute, e)) {
        return e->status;
    }
    if (device->info.is_host) return OK; // other devices copy to and from its memory
    if (stream_new(device, STREAM_COPY_IN, &on->copy_in, e) ||
        stream_new(device, STREAM_COPY_OUT, &on->copy_out, e) ||
        event_new(device, &on->computed, e) || event_new(device, &on->arrived, e) ||
        event_new(device, &on->finished, e)) {
        return e->status;
    }
    for (int data = 0; data < STEP_DATA; data++)
        if (event_new(device, &on->sent[data], e)) return e->status;
    return OK;
}

// Copies data to an area, where it stays.
static enum status fill_area(struct pipeline *p, int d, enum area area, const void *source,
                             uint64_t size_bytes, struct err *e) {
    struct pipeline_device *on = &p->devices[d];
    char *target = (char *)on->scratch.base + p->plan->devices[d].scratch.at[area];
    stream_copy(on->compute, target, source, size_bytes, COPY_TO_DEVICE);
    return stream_wait(on->compute, e);
}

static bool has_area(const struct pipeline *p, int d, enum area area) {
    return p->plan->devices[d].scratch.size[area] > 0;
}

// Fills the slot tables: for every number of the CPU's parts that of the accelerator's experts, and
// that of the CPU's. Each device has its experts in order. The first table has all.
static void count_slots(int32_t *slots, int64_t n_tables, int32_t n_experts) {
    const struct unit_tensor of_experts = {.use = USE_EXPERTS, .n_matrices = n_experts};
    for (int32_t i = 0; i < n_tables; i++, slots += n_experts) {
        const int32_t cut = footprint_cut(&of_experts, i / 2).first;
        for (int32_t k = 0; k < n_experts; k++) {
            const bool on_cpu = k >= cut;
            slots[k] = on_cpu != i % 2 ? -1 : on_cpu ? k - cut : k;
        }
    }
}

static enum status fill_slots(struct pipeline *p, int d, struct err *e) {
    const uint64_t size_bytes = p->plan->devices[d].scratch.size[AREA_EXPERT_SLOTS];
    const uint64_t *at = p->plan->devices[d].scratch.at;
    const int32_t n_experts = p->shape->n_experts;
    ASSERT(at[AREA_PAIR_ORDER] - at[AREA_PAIR_STARTS] == footprint_starts(p->shape));
    int32_t *slots = mem_alloc(size_bytes / sizeof *slots, sizeof *slots);
    if (!slots) return err_memory(e, size_bytes, "the table of experts");
    count_slots(slots, (int64_t)(size_bytes / sizeof *slots) / n_experts, n_experts);
    const enum status status = fill_area(p, d, AREA_EXPERT_SLOTS, slots, size_bytes, e);
    mem_free(slots);
    return status;
}

// Copies the divisors of the rope frequencies to every device that computes attention, and the slot
// tables to every device that computes experts.
static enum status fill_areas(struct pipeline *p, int d, struct err *e) {
    const struct gguf_tensor *freqs = model_rope_divisors(p->model, p->plan->workload.n_ctx);
    if (freqs && has_area(p, d, AREA_FREQS) &&
        fill_area(p, d, AREA_FREQS, freqs->data, freqs->size_bytes, e))
        return e->status;
    return has_area(p, d, AREA_EXPERT_SLOTS) ? fill_slots(p, d, e) : OK;
}

// Makes a flag for each send of a micro-batch of up to 32 tokens, if the device has so many.
static enum status open_flags(struct pipeline *p, struct pipeline_device *on, struct err *e) {
    int32_t most = 0;
    for (int batch = 0; batch < BATCH_CLASSES; batch++) {
        int32_t n = 0;
        for (int32_t i = 0; i < p->plan->n_steps[batch] && batch != BATCH_PREFILL; i++)
            n += p->plan->steps[batch][i].kind == STEP_SEND;
        if (n > most) most = n;
    }
    if (most == 0 || most > on->device->info.n_flags) return OK;
    on->flags = mem_alloc((size_t)most, sizeof *on->flags);
    if (!on->flags) return err_memory(e, (size_t)most * sizeof *on->flags, "flags of hand-overs");
    for (; on->n_flags < most; on->n_flags++)
        if (event_new_flag(on->device, &on->flags[on->n_flags], e)) return e->status;
    return OK;
}

// Pins the host memory that accelerators copy to and from while tokens are computed: the tables,
// and the host's scratch with the residual stream and the logits. A copy of memory that is not
// pinned reads it when it is encoded, before the CPU has written there: then there are no flags.
static enum status pin(struct pipeline *p, struct err *e) {
    for (int d = DEVICE_HOST + 1; d < p->n_devices; d++) {
        struct pipeline_device *on = &p->devices[d];
        const struct buffer *scratch = &p->devices[DEVICE_HOST].scratch;
        const bool tables =
            device_host_register(on->device, p->staging.base, p->staging.size_bytes);
        const bool rest = device_host_register(on->device, scratch->base, scratch->size_bytes);
        if (tables && rest && on->device->info.reaches_host && open_flags(p, on, e))
            return e->status;
    }
    return OK;
}

static void unpin(struct pipeline *p, struct device *device) {
    device_host_unregister(device, p->staging.base);
    device_host_unregister(device, p->devices[DEVICE_HOST].scratch.base);
}

// Opens one buffer for each accelerator, and one for each unit on the host, since some of these are
// pinned.
static enum status open_caches(struct pipeline *p, const struct placed_model *placed,
                               struct err *e) {
    const struct plan *plan = placed->plan;
    const size_t n = (size_t)plan->n_units;
    p->host_kv = mem_alloc(n, sizeof *p->host_kv);
    p->caches = mem_alloc(n, sizeof *p->caches);
    if (!p->host_kv || !p->caches)
        return err_memory(e, n * sizeof *p->host_kv, "the table of caches");
    for (int d = DEVICE_HOST + 1; d < plan->machine.n_devices; d++) {
        const uint64_t size_bytes = plan->devices[d].bytes[PLAN_KV];
        if (size_bytes && buffer_new(placed->devices[d], size_bytes, PURPOSE_KV, &p->kv[d], e))
            return e->status;
    }
    uint64_t at[MAX_DEVICES] = {0};
    for (size_t u = 0; u < n; u++) {
        const int d = plan->place.units[u].device;
        const uint64_t size_bytes = plan->unit_kv_bytes[u];
        if (d == DEVICE_HOST && size_bytes &&
            buffer_new(placed->devices[DEVICE_HOST], size_bytes, PURPOSE_KV, &p->host_kv[u], e))
            return e->status;
        if (size_bytes)
            p->caches[u] = d == DEVICE_HOST ? p->host_kv[u].base : (char *)p->kv[d].base + at[d];
        at[d] += size_bytes;
    }
    return OK;
}

enum status pipeline_open(struct pipeline *p, const struct placed_model *placed,
                          const struct weights *weights, struct trace *trace, struct err *e) {
    const struct plan *plan = placed->plan;
    struct device *const *devices = placed->devices;
    *p = (struct pipeline){.plan = plan,
                           .shape = placed->shape,
                           .model = placed->model,
                           .weights = weights,
                           .n_devices = plan_n_devices_used(plan),
                           .awaited = -1};
    for (int d = 0; d < p->n_devices; d++) {
        if (open_device(&p->devices[d], devices[d], plan->devices[d].scratch.size_bytes, e))
            return e->status;
        if (fill_areas(p, d, e)) return e->status;
    }
    if (buffer_new(devices[DEVICE_HOST], plan->tables.size_bytes, PURPOSE_STAGING, &p->staging, e))
        return e->status;
    if (pin(p, e) || open_caches(p, placed, e) ||
        feed_open(&p->feed, placed, weights, p->host_kv, e) ||
        pager_open(&p->pager, placed, weights, e))
        return e->status;
    return recorder_open(&p->recorder, placed, trace, e);
}

// Frees the caches. Those of streamed attention on the CPU may still be used by copies of a lost
// device.
static void close_caches(struct pipeline *p, bool lost) {
    for (int d = 0; d < MAX_DEVICES; d++) buffer_free(&p->kv[d]);
    for (int u = 0; p->host_kv && u < p->plan->n_units; u++) {
        p->host_kv[u].abandoned = lost && p->plan->place.units[u].streamed;
        buffer_free(&p->host_kv[u]);
    }
    mem_free(p->host_kv);
    mem_free(p->caches);
}

void pipeline_close(struct pipeline *p) {
    bool lost = false; // copies of a lost device may still use the host's memory
    feed_close(&p->feed);
    pager_close(&p->pager);
    recorder_close(&p->recorder);
    for (int d = MAX_DEVICES - 1; d >= 0; d--) {
        struct pipeline_device *on = &p->devices[d];
        stream_free(on->compute);
        stream_free(on->copy_in);
        stream_free(on->copy_out);
        lost |= on->device && on->device->lost; // a wait may have failed only now
        event_free(&on->computed);
        event_free(&on->arrived);
        event_free(&on->finished);
        for (int data = 0; data < STEP_DATA; data++) event_free(&on->sent[data]);
        for (int32_t i = 0; i < on->n_flags; i++) event_free(&on->flags[i]);
        mem_free(on->flags);
        if (d != DEVICE_HOST && on->device) unpin(p, on->device);
        on->scratch.abandoned = d == DEVICE_HOST && lost;
        buffer_free(&on->scratch);
    }
    p->staging.abandoned = lost;
    buffer_free(&p->staging);
    close_caches(p, lost);
    *p = (struct pipeline){0};
}

static struct batch_tables tables_at(const struct pipeline *p, char *base) {
    const struct tables_layout *t = &p->plan->tables;
    return (struct batch_tables){.tokens = (int32_t *)(base + t->tokens),
                                 .positions = (int32_t *)(base + t->positions),
                                 .sequences = (int32_t *)(base + t->sequences),
                                 .cache_rows = (int32_t *)(base + t->cache_rows),
                                 .rows = (int32_t *)(base + t->rows),
                                 .pages = (int32_t *)(base + t->pages),
                                 .steps = (int32_t *)(base + t->steps),
                                 .ring_rows = (int32_t *)(base + t->ring_rows),
                                 .ring_pages = (int32_t *)(base + t->ring_pages)};
}

struct batch_tables pipeline_tables(const struct pipeline *p) {
    return tables_at(p, p->staging.base);
}

float *pipeline_logits(const struct pipeline *p) {
    return (float *)((char *)p->devices[DEVICE_HOST].scratch.base +
                     p->plan->devices[DEVICE_HOST].scratch.at[AREA_LOGITS]);
}

// ---- Names of steps, for messages ---------------------------------------------------------------

static const struct step *step_at(const struct pipeline *p, int32_t i) {
    return &p->plan->steps[p->batch][i];
}

// The last step encoded on a stream, -1 if there is none.
static int32_t last_step(const struct pipeline *p, struct step_place place) {
    if (place.track == TRACK_STAGE) place.track = TRACK_FETCH;
    for (int32_t i = p->n_encoded - 1; i >= 0; i--) {
        const struct step_place other = step_place(step_at(p, i));
        if (other.device == place.device && other.track == place.track) return i;
    }
    return -1;
}

// Names the data that a wait for a step waits for, without the unit.
static const char *step_words(const struct step *step) {
    static const char *const data[STEP_DATA] = {[DATA_RESIDUAL] = "the residual stream for ",
                                                [DATA_HIDDEN] = "columns of ",
                                                [DATA_QUERIES] = "the queries of ",
                                                [DATA_ATTENDED] = "what was attended to in ",
                                                [DATA_BRANCH] = "columns of the output of ",
                                                [DATA_SHARED] = "the input of ",
                                                [DATA_ROUTED] = "the pairs of ",
                                                [DATA_EXPERTS] = "rows of ",
                                                [DATA_LAYER_INPUTS] = "the inputs of layers from "};
    switch (step->kind) {
    case STEP_INPUTS: return "the tables of the batch";
    case STEP_FETCH:
        return step->bytes_per_past ? "the weights and the cache of " : "the weights of ";
    case STEP_SEND:
    case STEP_WAIT: return data[step->data];
    case STEP_STORE: return "what is new in the cache of ";
    case STEP_LOGITS: return "the logits";
    case STEP_COMPUTE: break;
    }
    return "";
}

// Names the data with the unit: "the residual stream for blk.7.ffn". Returns out.
static const char *step_text(const struct pipeline *p, int32_t i, char *out, size_t size_bytes) {
    const struct step *step = step_at(p, i);
    const char *word = step_words(step);
    char name[64] = "";
    if (step->kind == STEP_INPUTS || step->kind == STEP_LOGITS) {
        (void)snprintf(out, size_bytes, "%s", word);
        return out;
    }
    // A step between units gets the name of the next unit.
    for (int32_t k = i; k < p->plan->n_steps[p->batch] && !name[0]; k++)
        if (step_at(p, k)->unit >= 0 && (k == i || step_at(p, k)->kind == STEP_COMPUTE))
            plan_unit_name(&p->shape->units[step_at(p, k)->unit], name, sizeof name);
    (void)snprintf(out, size_bytes, "%s%s", word, name);
    return out;
}

// Reports a failed wait for device, or with i >= 0 for its step i, before the text in *e.
static enum status fail_at(const struct pipeline *p, int8_t device, int32_t i, struct err *e) {
    const char *name = p->devices[device].device->info.name;
    char text[128];
    if (strncmp(e->what, name, strlen(name)) != 0) err_context(e, "%s", name);
    if (i < 0) return e->status;
    return err_context(e, "waiting for %s", step_text(p, i, text, sizeof text));
}

// True if what a small micro-batch hands over goes through the compute stream of the device: as ops
// among ops there, without starts and events of its own. Nothing would overlap with it: what
// follows on that stream waits for it, or for what the CPU makes of it.
static bool hands_over_in_order(const struct pipeline *p, const struct pipeline_device *on) {
    return p->batch != BATCH_PREFILL && on->device->info.reaches_host;
}

// True if the accelerator and the CPU wait for each other by flags: then all of a micro-batch is
// encoded and submitted before the CPU computes, and nothing is submitted between its phases.
static bool waits_by_flags(const struct pipeline *p, const struct pipeline_device *on) {
    return p->batch != BATCH_PREFILL && on->n_flags > 0;
}

static struct event *next_flag(struct pipeline *p, struct pipeline_device *on) {
    ASSERT(p->n_sent < on->n_flags);
    return &on->flags[p->n_sent++];
}

// The stream of copies from the device that has computed: its compute stream or copy_out, which
// waits for that.
static struct stream *stream_out(const struct pipeline *p, struct pipeline_device *on) {
    if (hands_over_in_order(p, on)) return on->compute;
    stream_record(on->compute, &on->computed);
    stream_wait_event(on->copy_out, &on->computed);
    return on->copy_out;
}

// ---- Units --------------------------------------------------------------------------------------

// Tokens of a micro-batch that follow each other.
struct token_rows {
    int32_t first, n;
};

// The tokens that a step computes or copies: for the tail from the first one on whose logits are
// wanted.
static struct token_rows rows_of(const struct pipeline *p, const struct step *step,
                                 const struct micro_batch *batch) {
    if (!step->tail) return (struct token_rows){0, batch->n_tokens};
    if (!batch->n_logits) return (struct token_rows){0, 0};
    const int32_t first = pipeline_tables(p).rows[0];
    return (struct token_rows){first, batch->n_tokens - first};
}

// Floats of an area in front of a row, where a unit that begins with that row finds its own. Areas
// that only one unit has begin with it.
static int64_t floats_before(const struct shape *shape, enum area area, int32_t row) {
    switch (area) {
    case AREA_RESIDUAL:
    case AREA_NORMED: return (int64_t)row * shape->n_embd;
    case AREA_LAYER_INPUTS: return (int64_t)row * shape_layer_inputs(shape);
    default: return 0;
    }
}

// Lets a unit compute these tokens alone. The head finds its own in the table of rows.
static void take_rows(struct forward *f, struct token_rows rows) {
    if (f->unit->kind == UNIT_HEAD) return;
    for (int i = 0; i < AREAS; i++)
        if (f->area[i]) f->area[i] += floats_before(f->shape, (enum area)i, rows.first);
    f->n_tokens = rows.n;
}

// Fills in everything that units on device d read of this micro-batch.
static struct forward forward_on(const struct pipeline *p, int d, const struct micro_batch *batch) {
    const struct pipeline_device *on = &p->devices[d];
    const struct scratch_layout *s = &p->plan->devices[d].scratch;
    char *base = on->scratch.base;
    struct forward f = {.stream = on->compute,
                        .ops = on->device->ops,
                        .hp = &p->model->hp,
                        .shape = p->shape,
                        .n_tokens = batch->n_tokens,
                        .n_logits = batch->n_logits,
                        .max_pages = workload_pages_per_session(&p->plan->workload),
                        .k_type = p->plan->workload.kv_type_k,
                        .v_type = p->plan->workload.kv_type_v};
    f.tables =
        on->device->info.is_host ? pipeline_tables(p) : tables_at(p, base + s->at[AREA_TABLES]);
    for (int i = 0; i < AREAS; i++) f.area[i] = (float *)(base + s->at[i]);
    if (!model_rope_divisors(p->model, p->plan->workload.n_ctx)) f.area[AREA_FREQS] = NULL;
    f.area[AREA_LOGITS] += (int64_t)batch->first_logits * p->shape->n_vocab;
    return f;
}

// Sets the weights of the step: those of its device, those in the ring, or both.
static void bind_pieces(const struct pipeline *p, const struct step *step, struct forward *f,
                        struct weight in_slot[MAX_UNIT_TENSORS]) {
    const bool split = p->plan->place.units[step->unit].cpu_parts > 0;
    const bool on_cpu = p->devices[step->device].device->info.is_host;
    const struct weight *last = split ? weights_of_cpu(p->weights, step->unit, true) : NULL;
    if (step->slot >= 0) {
        feed_bind(&p->feed, step->unit, step->slot, in_slot);
        last = in_slot;
    }
    if (!split || !on_cpu) f->pieces[f->n_pieces++] = weights_of(p->weights, step->unit);
    if (split && (on_cpu || step->slot >= 0)) f->pieces[f->n_pieces++] = last;
    if (!split && step->slot >= 0) f->pieces[0] = last;
    for (int i = 0; i < f->n_pieces; i++) {
        const int table = 2 * p->plan->place.units[step->unit].cpu_parts + (split && (on_cpu || i));
        f->slots[i] = (const int32_t *)(const void *)f->area[AREA_EXPERT_SLOTS] +
                      (int64_t)table * p->shape->n_experts;
    }
    f->unit = &p->shape->units[step->unit];
    f->phase = step->phase;
}

enum kv_order pipeline_kv_order(const struct pipeline *p, int32_t unit) {
    const struct device *device = p->devices[p->plan->place.units[unit].device].device;
    const bool moves = feed_moves_cache(&p->feed, unit),
               one = p->shape->units[unit].head_dim_v == 0;
    return moves || one ? KV_BY_ROW : device->info.kv_order;
}

// Sets the cache of the device that computes the attention itself, or the cache in the slot.
static void bind_cache(const struct pipeline *p, const struct step *step, struct forward *f) {
    const struct device *device = p->devices[step->device].device;
    if (f->unit->kind != UNIT_ATTENTION) return;
    const struct unit *with_cache = unit_with_cache(p->shape, f->unit);
    const struct kv_layout layout =
        kv_layout_of(&p->plan->workload, with_cache, device->info.align_bytes);
    const bool moves = step->slot >= 0 && feed_moves_cache(&p->feed, step->unit);
    f->k_cache = moves ? feed_cache(&p->feed, step->unit, step->slot)
                       : p->caches[with_cache - p->shape->units];
    f->v_cache = (char *)f->k_cache + layout.values;
    f->kv_order = pipeline_kv_order(p, (int32_t)(with_cache - p->shape->units));
    if (f->unit->window) {
        f->tables.cache_rows = f->tables.ring_rows;
        f->tables.pages = f->tables.ring_pages;
    }
    if (!unit_has_state(p->shape, f->unit)) return;
    f->conv_states = (float *)(void *)((char *)f->k_cache + layout.states);
    f->matrix_states =
        f->conv_states + states_conv_floats(&p->plan->workload, &p->shape->recurrent);
}

static void encode(struct pipeline_device *on, const struct forward *f) {
    const struct block *block = blocks_of_unit(f->shape, f->unit);
    bool *has_shared = &on->has_shared[f->unit->kind];
    const bool reads_shared = f->phase == PHASE_ALL || f->phase == PHASE_MID;
    if (reads_shared && block->encode_shared && !*has_shared) {
        block->encode_shared(f);
        *has_shared = true;
    }
    block->encode(f);
}

static void count_experts(void *context) {
    const struct pipeline *p = context;
    const char *scratch = p->devices[DEVICE_HOST].scratch.base;
    const uint64_t starts = p->plan->devices[DEVICE_HOST].scratch.at[AREA_PAIR_STARTS];
    expert_counts_add(p->counts, p->running->n_tokens,
                      (const int32_t *)(const void *)(scratch + starts));
}

// True if the CPU's step computes experts whose choice is to be counted.
static bool counts_experts(const struct pipeline *p, const struct step *step) {
    const struct unit *unit = &p->shape->units[step->unit];
    return p->counts_batch && unit->kind == UNIT_EXPERTS && !step->tail &&
           step->device == DEVICE_HOST && unit->n_experts == p->counts->n_experts &&
           unit->n_experts_used == p->counts->n_used;
}

static void compute(struct pipeline *p, int32_t i, const struct micro_batch *batch) {
    const struct step *step = step_at(p, i);
    const struct token_rows rows = rows_of(p, step, batch);
    struct pipeline_device *on = &p->devices[step->device];
    struct forward f = forward_on(p, step->device, batch);
    struct weight in_slot[MAX_UNIT_TENSORS];
    if (rows.n == 0) return;
    bind_pieces(p, step, &f, in_slot);
    take_rows(&f, rows);
    bind_cache(p, step, &f);
    if (step->slot >= 0) feed_use(&p->feed, step->slot, on->compute);
    if (step->device == DEVICE_HOST) pager_read(&p->pager, step->unit, on->compute);
    struct span_mark *mark = recorder_first(&p->recorder, i, TRACK_COMPUTE, on->compute, 0);
    encode(on, &f);
    recorder_last(mark, on->compute);
    if (counts_experts(p, step)) stream_call(on->compute, count_experts, p);
    const bool is_last = step->phase != PHASE_IN; // of the CPU's
    if (step->device == DEVICE_HOST && is_last) pager_drop(&p->pager, step->unit, on->compute);
    if (step->slot >= 0) feed_release(&p->feed, step->slot, on->compute);
}

static void copy_inputs(struct pipeline *p, int32_t i) {
    const struct step *step = step_at(p, i);
    struct pipeline_device *on = &p->devices[step->device];
    char *target =
        (char *)on->scratch.base + p->plan->devices[step->device].scratch.at[AREA_TABLES];
    const bool in_order = hands_over_in_order(p, on);
    struct stream *s = in_order ? on->compute : on->copy_in;
    // The tables and the residual stream of the micro-batch that still runs are read until its end.
    if (!in_order && p->state != PIPELINE_IDLE) stream_wait_event(s, &on->finished);
    struct span_mark *mark = recorder_first(&p->recorder, i, TRACK_COPY_IN, s, step->bytes_fixed);
    stream_copy(s, target, p->staging.base, step->bytes_fixed, COPY_TO_DEVICE);
    recorder_last(mark, s);
    if (in_order) return;
    stream_record(s, &on->arrived);
    stream_wait_event(on->compute, &on->arrived);
}

static void fetch(struct pipeline *p, int32_t i, const struct micro_batch *batch) {
    const struct step *step = step_at(p, i);
    if (rows_of(p, step, batch).n == 0) return;
    struct feeder *feed = &p->feed;
    struct span_mark *staged = NULL;
    uint64_t past_bytes = 0;
    if (step->bytes_per_past)
        past_bytes = step->bytes_per_past * (uint64_t)feed_past_rows(feed, step->unit);
    feed_begin(feed, step->slot);
    struct span_mark *mark =
        recorder_first(&p->recorder, i, TRACK_FETCH, feed->fetch, step->bytes_fixed + past_bytes);
    if (feed->stage)
        staged = recorder_first(&p->recorder, i, TRACK_STAGE, feed->stage, step->bytes_fixed);
    feed_fetch(feed, step->unit, step->slot);
    recorder_last(mark, feed->fetch);
    if (feed->stage) recorder_last(staged, feed->stage);
}

// Stores new rows of the cache. The slot is in use until the store ends, not only until the compute
// step before it ends.
static void store(struct pipeline *p, int32_t i, const struct micro_batch *batch) {
    const struct step *step = step_at(p, i);
    struct pipeline_device *on = &p->devices[step->device];
    stream_record(on->compute, &on->computed);
    stream_wait_event(on->copy_out, &on->computed);
    struct span_mark *mark = recorder_first(&p->recorder, i, TRACK_COPY_OUT, on->copy_out,
                                            step->bytes_per_row * (uint64_t)batch->n_tokens);
    feed_store(&p->feed, step->unit, step->slot, on->copy_out);
    recorder_last(mark, on->copy_out);
    feed_release(&p->feed, step->slot, on->copy_out);
}

// ---- Between devices ----------------------------------------------------------------------------

static void flush_accelerators(struct pipeline *p) {
    if (p->feed.stage) stream_flush(p->feed.stage);
    if (p->feed.fetch) stream_flush(p->feed.fetch);
    for (int d = DEVICE_HOST + 1; d < p->n_devices; d++) {
        stream_flush(p->devices[d].copy_in);
        stream_flush(p->devices[d].compute);
        stream_flush(p->devices[d].copy_out);
    }
}

// Reports how far the CPU is, except in small micro-batches and at their end.
static enum status tell(const struct pipeline *p, struct err *e) {
    const struct micro_batch *batch = p->running;
    const int32_t n_steps = p->plan->n_steps[p->batch];
    if (!batch->progress || p->batch != BATCH_PREFILL || p->n_encoded == n_steps) return OK;
    const uint64_t done =
        batch->n_before + (uint64_t)batch->n_tokens * (uint64_t)p->n_encoded / (uint64_t)n_steps;
    if (progress_tell(batch->progress, "prefill", done, batch->n_total)) return OK;
    return err_set(e, ERR_CANCELLED, "prefill was stopped after %llu of %llu tokens",
                   (unsigned long long)done, (unsigned long long)batch->n_total);
}

// Runs the commands encoded for the CPU, in this thread. Submits those of accelerators first, so
// that these work meanwhile.
static enum status flush_host(struct pipeline *p, struct err *e) {
    flush_accelerators(p);
    if (p->awaited >= 0) {
        const int32_t i = p->awaited;
        const struct step *step = step_at(p, i);
        const uint64_t first_ns = clock_ns();
        p->awaited = -1;
        // Owner of this wait: the calling thread, since the CPU has nothing else to do.
        if (event_wait(&p->devices[step->peer].sent[step->data], e))
            return fail_at(p, step->peer, i, e);
        recorder_add(&p->recorder, i, first_ns, clock_ns());
    }
    stream_flush(p->devices[DEVICE_HOST].compute);
    return tell(p, e);
}

// The data of a send: an area of the scratch memory, and the columns of its rows. arrives: another
// area of the accelerator where it goes, if it does.
static const struct {
    enum area area;
    enum dim width;
    enum area arrives;
} CARRIED[STEP_DATA] = {
    [DATA_RESIDUAL] = {.area = AREA_RESIDUAL, .width = DIM_EMBD},
    [DATA_HIDDEN] = {.area = AREA_GATE, .width = DIM_FF},
    [DATA_QUERIES] = {.area = AREA_Q, .width = DIM_QUERIES},
    [DATA_ATTENDED] = {.area = AREA_ATTENDED, .width = DIM_ATTENDED},
    [DATA_BRANCH] = {.area = AREA_NORMED, .width = DIM_EMBD},
    [DATA_SHARED] = {.area = AREA_RESIDUAL, .width = DIM_EMBD},
    [DATA_ROUTED] = {.area = AREA_NORMED, .width = DIM_EMBD},
    [DATA_EXPERTS] = {AREA_EXPERT_OUT, DIM_EXPERT_ROWS, AREA_CPU_OUT},
    [DATA_LAYER_INPUTS] = {.area = AREA_LAYER_INPUTS, .width = DIM_LAYER_INPUTS}};

static char *area_on(const struct pipeline *p, int d, enum area area) {
    return (char *)p->devices[d].scratch.base + p->plan->devices[d].scratch.at[area];
}

// The address of data on device d, from a row on.
static char *data_on(const struct pipeline *p, int d, enum step_data data, int32_t row) {
    const bool moves = d != DEVICE_HOST && CARRIED[data].arrives;
    const enum area area = moves ? CARRIED[data].arrives : CARRIED[data].area;
    return area_on(p, d, area) + floats_before(p->shape, area, row) * (int64_t)sizeof(float);
}

// The bytes from the residual stream to the area that goes with it.
static uint64_t normed_after(const struct pipeline *p, int d) {
    const struct scratch_layout *scratch = &p->plan->devices[d].scratch;
    return scratch->at[AREA_NORMED] - scratch->at[AREA_RESIDUAL];
}

// The input of split experts, which is elsewhere if they make it themselves behind a shared one.
static char *routed_on(const struct pipeline *p, int d, int16_t unit, int32_t row) {
    if (p->shape->units[unit].joint_norm) return area_on(p, d, AREA_EXPERT_IN);
    return data_on(p, d, DATA_ROUTED, row);
}

// Copies the input of split experts, then where the pairs of each expert start, and the pairs.
static void copy_routed(const struct pipeline *p, struct stream *s, const struct step *step,
                        struct token_rows rows) {
    const uint64_t n = (uint64_t)rows.n, x_bytes = (uint64_t)p->shape->n_embd * sizeof(float);
    const uint64_t pairs_bytes = step->bytes_fixed + n * (step->bytes_per_row - x_bytes);
    stream_copy(s, routed_on(p, step->peer, step->unit, rows.first),
                routed_on(p, step->device, step->unit, rows.first), n * x_bytes, COPY_FROM_DEVICE);
    stream_copy(s, area_on(p, step->peer, AREA_PAIR_STARTS),
                area_on(p, step->device, AREA_PAIR_STARTS), pairs_bytes, COPY_FROM_DEVICE);
}

// Copies columns of these tokens in one command.
static void copy_columns(const struct pipeline *p, struct stream *s, const struct step *step,
                         struct token_rows rows) {
    const struct unit *unit = step->unit >= 0 ? &p->shape->units[step->unit] : NULL;
    const int32_t width = (int32_t)dims_of(p->shape, unit, CARRIED[step->data].width);
    const uint64_t at = (uint64_t)step->first_col * sizeof(float);
    char *target = data_on(p, step->peer, step->data, rows.first) + at;
    const char *source = data_on(p, step->device, step->data, rows.first) + at;
    const enum copy_direction way = step->device == DEVICE_HOST ? COPY_TO_DEVICE : COPY_FROM_DEVICE;
    if (rows.n == 0) return;
    if (step->data == DATA_ROUTED) {
        copy_routed(p, s, step, rows);
        return;
    }
    if (step->data == DATA_SHARED) { // all tokens of one area, then of the other
        const uint64_t area_bytes = step->bytes_per_row * (uint64_t)rows.n / 2;
        const struct row_copy both = {
            target,     source, normed_after(p, step->peer), normed_after(p, step->device),
            area_bytes, 2};
        stream_copy_rows(s, &both, way);
        return;
    }
    if (rows.n == 1 || step->n_cols == width) {
        stream_copy(s, target, source, step->bytes_per_row * (uint64_t)rows.n, way);
        return;
    }
    const uint64_t stride = (uint64_t)width * sizeof(float);
    stream_copy_rows(
        s, &(struct row_copy){target, source, stride, stride, step->bytes_per_row, rows.n}, way);
}

static enum status send_from_host(struct pipeline *p, int32_t i, const struct micro_batch *batch,
                                  struct err *e) {
    const struct step *step = step_at(p, i);
    struct pipeline_device *to = &p->devices[step->peer];
    if (waits_by_flags(p, to)) {
        struct event *flag = next_flag(p, to);
        stream_record(p->devices[DEVICE_HOST].compute, flag);
        stream_wait_event(to->compute, flag);
    } else if (flush_host(p, e)) { // the CPU's work is done when this returns
        return e->status;
    }
    const bool in_order = hands_over_in_order(p, to);
    const struct token_rows rows = rows_of(p, step, batch);
    struct stream *s = in_order ? to->compute : to->copy_in;
    struct span_mark *mark =
        recorder_first(&p->recorder, i, TRACK_COPY_IN, s, step->bytes_per_row * (uint64_t)rows.n);
    copy_columns(p, s, step, rows);
    recorder_last(mark, s);
    if (!in_order) stream_record(s, &to->arrived);
    return OK;
}

static enum status send(struct pipeline *p, int32_t i, const struct micro_batch *batch,
                        struct err *e) {
    const struct step *step = step_at(p, i);
    struct pipeline_device *from = &p->devices[step->device];
    if (from->device->info.is_host) return send_from_host(p, i, batch, e);
    ASSERT(p->devices[step->peer].device->info.is_host); // MAX_DEVICES is 2: one end is the host
    const struct token_rows rows = rows_of(p, step, batch);
    struct stream *s = stream_out(p, from);
    struct span_mark *mark =
        recorder_first(&p->recorder, i, TRACK_COPY_OUT, s,
                       step->bytes_fixed + step->bytes_per_row * (uint64_t)rows.n);
    copy_columns(p, s, step, rows);
    recorder_last(mark, s);
    struct event *sent = &from->sent[step->data];
    if (waits_by_flags(p, from)) sent = p->handed[step->data] = next_flag(p, from);
    stream_record(s, sent);
    return OK;
}

// The CPU waits when it has come so far in what is encoded.
static void wait_by_flag(struct pipeline *p, int32_t i) {
    struct stream *s = p->devices[DEVICE_HOST].compute;
    struct span_mark *mark = recorder_first(&p->recorder, i, TRACK_COMPUTE, s, 0);
    stream_wait_event(s, p->handed[step_at(p, i)->data]);
    recorder_last(mark, s);
}

// Encodes a wait on an accelerator; for the CPU, unless it waits by flags, the calling thread
// waits, as late as it can.
static enum status wait_for(struct pipeline *p, int32_t i, struct err *e) {
    const struct step *step = step_at(p, i);
    struct pipeline_device *on = &p->devices[step->device], *peer = &p->devices[step->peer];
    if (on->device->info.is_host && waits_by_flags(p, peer)) {
        wait_by_flag(p, i);
        return OK;
    }
    if (on->device->info.is_host) {
        if (p->awaited >= 0 && flush_host(p, e)) return e->status;
        p->awaited = i;
        // The CPU may be flushed before flush_host is called, when its list is full.
        stream_wait_event(on->compute, &peer->sent[step->data]);
        return OK;
    }
    struct span_mark *mark = recorder_first(&p->recorder, i, TRACK_COMPUTE, on->compute, 0);
    if (!hands_over_in_order(p, on)) stream_wait_event(on->compute, &on->arrived);
    recorder_last(mark, on->compute);
    return OK;
}

static void copy_logits(struct pipeline *p, int32_t i, const struct micro_batch *batch) {
    if (!batch->n_logits) return;
    const struct step *step = step_at(p, i);
    struct pipeline_device *on = &p->devices[step->device];
    const uint64_t at = step->bytes_per_row * (uint64_t)batch->first_logits;
    const uint64_t size_bytes = step->bytes_per_row * (uint64_t)batch->n_logits;
    const char *source =
        (char *)on->scratch.base + p->plan->devices[step->device].scratch.at[AREA_LOGITS] + at;
    struct stream *s = stream_out(p, on);
    struct span_mark *mark = recorder_first(&p->recorder, i, TRACK_COPY_OUT, s, size_bytes);
    stream_copy(s, (char *)pipeline_logits(p) + at, source, size_bytes, COPY_FROM_DEVICE);
    recorder_last(mark, s);
}

// ---- Running ------------------------------------------------------------------------------------

// The step of what an accelerator should have sent and the CPU has waited for in vain, -1 if there
// is none.
static int32_t missing_step(const struct pipeline *p) {
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_encoded; i++) {
        const struct step *step = step_at(p, i);
        if (step->kind != STEP_SEND) continue;
        const int8_t d = step->device == DEVICE_HOST ? step->peer : step->device;
        if (!waits_by_flags(p, &p->devices[d]) || n == p->n_sent) return -1;
        if (step->device != DEVICE_HOST && !event_is_up(&p->devices[d].flags[n])) return i;
        n++;
    }
    return -1;
}

// Waits for every stream, the CPU's first since it works in this thread, and for all of them even
// after a failure, so that nothing touches the tables or the residual stream any more. Keeps the
// first failure. Owner of these waits: the calling thread, at the end of a micro-batch.
static enum status wait_all(struct pipeline *p, struct err *e) {
    enum status status = OK;
    for (int8_t d = 0; d < p->n_devices; d++) {
        struct pipeline_device *on = &p->devices[d];
        const bool feeds = p->feed.device == on->device;
        struct stream *streams[TRACKS] = {[TRACK_COMPUTE] = on->compute,
                                          [TRACK_COPY_IN] = on->copy_in,
                                          [TRACK_COPY_OUT] = on->copy_out,
                                          [TRACK_FETCH] = feeds ? p->feed.fetch : NULL,
                                          [TRACK_STAGE] = feeds ? p->feed.stage : NULL};
        for (enum trace_track track = 0; track < TRACKS; track++) {
            struct err next;
            if (!streams[track] || stream_wait(streams[track], &next) == OK) continue;
            if (status != OK) continue;
            *e = next;
            status = next.status;
            const int32_t missing = d == DEVICE_HOST ? missing_step(p) : -1;
            if (missing >= 0)
                fail_at(p, step_at(p, missing)->device, missing, e);
            else
                fail_at(p, d, last_step(p, (struct step_place){d, track}), e);
        }
    }
    return status;
}

// Ends after a failure, which is in *e: waits for all streams and marks the pipeline as failed.
static enum status give_up(struct pipeline *p, struct err *e) {
    struct err ignored;
    p->awaited = -1; // the CPU's own wait fails too
    p->failed = true;
    (void)wait_all(p, &ignored);
    p->state = PIPELINE_IDLE;
    return e->status;
}

// Ends because the listener wants no more. Encoded commands run to their end, and a later run may
// follow.
static enum status leave(struct pipeline *p, struct err *e) {
    struct err failure;
    p->state = PIPELINE_RUNNING;
    if (pipeline_finish(p, &failure)) *e = failure;
    return e->status;
}

static enum status run_step(struct pipeline *p, int32_t i, const struct micro_batch *batch,
                            struct err *e) {
    switch (step_at(p, i)->kind) {
    case STEP_INPUTS: copy_inputs(p, i); break;
    case STEP_FETCH: fetch(p, i, batch); break;
    case STEP_COMPUTE: compute(p, i, batch); break;
    case STEP_SEND: return send(p, i, batch, e);
    case STEP_WAIT: return wait_for(p, i, e);
    case STEP_STORE: store(p, i, batch); break;
    case STEP_LOGITS: copy_logits(p, i, batch); break;
    }
    return OK;
}

static bool runs_ahead(const struct pipeline *p) {
    return p->plan->runs_ahead && p->batch == BATCH_PREFILL;
}

static bool is_of_host(const struct pipeline *p, int32_t i) {
    const struct step *step = step_at(p, i);
    return step->kind == STEP_COMPUTE && p->devices[step->device].device->info.is_host;
}

// True if the CPU may compute step i before more is encoded, so that it can be stopped between
// units of a prompt: the next steps are the CPU's too, and no fetch has to start meanwhile.
static bool may_pause(const struct pipeline *p, int32_t i) {
    return p->batch == BATCH_PREFILL && !p->plan->slot_bytes && is_of_host(p, i) &&
           i + 1 < p->plan->n_steps[p->batch] && is_of_host(p, i + 1);
}

// Lets the CPU compute its encoded commands, at most every quarter of a second: its team has to
// gather anew each time, which takes milliseconds if other programs use its cores.
static enum status take_pause(struct pipeline *p, struct err *e) {
    if (++p->n_unpaused < p->n_between) return OK;
    const uint64_t first_ns = clock_ns();
    const enum status status = flush_host(p, e);
    const uint64_t passed_ns = clock_ns() - first_ns;
    if (passed_ns < PAUSE_NS) p->n_between *= 2;
    if (passed_ns > 2 * PAUSE_NS && p->n_between > 1) p->n_between /= 2;
    p->n_unpaused = 0;
    return status;
}

static bool of_one_sequence(const struct batch_tables *tables, int32_t n_tokens) {
    for (int32_t i = 1; i < n_tokens; i++)
        if (tables->sequences[i] != tables->sequences[0]) return false;
    return true;
}

static enum status run_steps(struct pipeline *p, const struct micro_batch *batch, struct err *e) {
    p->n_encoded = p->n_sent = 0;
    for (int32_t i = 0; i < p->plan->n_steps[p->batch]; i++) {
        p->n_encoded++;
        if (run_step(p, i, batch, e)) return e->status;
        if (may_pause(p, i) && take_pause(p, e)) return e->status;
    }
    for (int d = DEVICE_HOST + 1; d < p->n_devices && runs_ahead(p); d++)
        stream_record(p->devices[d].compute, &p->devices[d].finished);
    return flush_host(p, e);
}

enum status pipeline_refuse(struct err *e) {
    err_set(e, ERR_DEVICE, "a device of this engine has failed before");
    return err_fix(e, "start again");
}

enum status pipeline_run(struct pipeline *p, const struct micro_batch *batch, struct err *e) {
    ASSERT(batch->n_tokens >= 1 && batch->n_tokens <= p->plan->workload.n_ubatch);
    ASSERT(batch->first_logits + batch->n_logits <= p->plan->workload.max_logits);
    ASSERT(p->state != PIPELINE_RUNNING);
    if (p->failed) return pipeline_refuse(e);
    const enum batch_class class = batch_class_of(batch->n_tokens);
    const struct batch_tables tables = pipeline_tables(p);
    // The CPU reads and writes caches whose stores may still run.
    const bool cpu_attends = feed_moves_caches(&p->feed) && class != BATCH_PREFILL;
    if (cpu_attends && pipeline_finish(p, e)) return e->status;
    if (feed_moves_caches(&p->feed)) feed_batch(&p->feed, &tables, batch->n_tokens);
    device_batch_hint(p->devices[DEVICE_HOST].device, batch->n_tokens);
    for (int d = 0; d < MAX_DEVICES; d++)
        memset(p->devices[d].has_shared, 0, sizeof p->devices[d].has_shared);
    p->batch = class;
    p->running = batch;
    p->counts_batch = p->counts && batch->n_tokens > 1 && of_one_sequence(&tables, batch->n_tokens);
    p->n_unpaused = 0;
    // The micro-batches of another prompt may be longer, or the computer busier.
    if (batch->n_before == 0) p->n_between /= 4;
    if (p->n_between == 0) p->n_between = 1;
    recorder_begin(&p->recorder, class,
                   &(struct pass){batch->n_tokens, batch->n_logits, tables.positions[0]});
    if (run_steps(p, batch, e)) return e->status == ERR_CANCELLED ? leave(p, e) : give_up(p, e);
    p->state = PIPELINE_RUNNING;
    return runs_ahead(p) ? OK : pipeline_finish(p, e);
}

enum status pipeline_ready(struct pipeline *p, struct err *e) {
    if (p->state != PIPELINE_RUNNING) return OK;
    for (int8_t d = DEVICE_HOST + 1; d < p->n_devices; d++) {
        // Owner of this wait: the calling thread, which is about to overwrite the host's memory.
        if (event_wait(&p->devices[d].arrived, e)) {
            fail_at(p, d, last_step(p, (struct step_place){d, TRACK_COPY_IN}), e);
            return give_up(p, e);
        }
    }
    // The copy of the tables has waited for the previous micro-batch.
    if (recorder_collect(&p->recorder, 1, e)) return give_up(p, e);
    p->state = PIPELINE_READY;
    return OK;
}

enum status pipeline_finish(struct pipeline *p, struct err *e) {
    if (p->state == PIPELINE_IDLE) return OK;
    if (wait_all(p, e) || recorder_collect(&p->recorder, 1, e) ||
        recorder_collect(&p->recorder, 0, e))
        return give_up(p, e);
    p->state = PIPELINE_IDLE;
    return OK;
}
