/* feed.c: see feed.h. */
#include "runtime/engine/feed.h"

#include "base/mem.h"
#include "base/number.h"

#include <string.h>

// A tensor of a streamed unit, with its source and its place in the slot.
struct part {
    int index;                   // of the unit's tensors
    const struct weight *source; // the CPU's rows
    uint64_t offset_bytes, size_bytes;
    uint64_t run_bytes; // that follow each other in the source: all, or those of one expert
};

// Lists the tensors to fetch, with the padding of footprint_slot; *end_bytes gets where they end.
// Tensors of a split unit that are not cut are on the accelerator already.
static int parts_of(const struct feeder *f, int32_t u, struct part out[MAX_UNIT_TENSORS],
                    uint64_t *end_bytes) {
    const struct unit *unit = &f->shape->units[u];
    const bool split = f->plan->place.units[u].cpu_parts > 0;
    const struct weight *table = weights_of_cpu(f->weights, u, split);
    uint64_t at = 0;
    int n = 0;
    for (int i = 0; i < unit->n_tensors; i++) {
        const struct unit_tensor *t = &unit->tensors[i];
        const struct weight *w = &table[i];
        if (w->n_rows == 0 || (split && !unit_is_cut(t))) continue;
        const struct cut cut = footprint_cut(t, f->plan->place.units[u].cpu_parts);
        const bool some = split && t->use == USE_EXPERTS;
        const uint64_t n_matrices = (uint64_t)(some ? cut.n - cut.first : t->n_matrices);
        const uint64_t size_bytes =
            dtype_bytes(w->type, (uint64_t)w->n_cols) * (uint64_t)w->n_rows * n_matrices;
        out[n++] = (struct part){i, w, at, size_bytes,
                                 w->slot_bytes ? size_bytes / n_matrices : size_bytes};
        at += round_up(size_bytes, f->device->info.align_bytes);
    }
    ASSERT(at <= f->plan->slot_bytes);
    *end_bytes = at;
    return n;
}

static char *slot_at(const struct feeder *f, int32_t slot) {
    return (char *)f->slots.base + (uint64_t)slot * f->plan->slot_bytes;
}

static enum status open_chunks(struct feeder *f, const struct model *model, struct err *e) {
    const struct plan *plan = f->plan;
    size_t n_chunks = 0;
    for (int u = 0; u < plan->n_units; u++) {
        if (!plan->place.units[u].streamed) continue;
        const struct unit *unit = &f->shape->units[u];
        n_chunks += footprint_fetch(unit, plan->place.units[u].cpu_parts, 1) / plan->block_bytes;
        // The last chunk of a tensor, or of an expert in a file that has them apart, may not be
        // full.
        for (int i = 0; i < unit->n_tensors; i++)
            n_chunks += model->strides[u][i] ? (size_t)unit->tensors[i].n_matrices : 1;
    }
    f->chunks = mem_alloc(n_chunks, sizeof *f->chunks);
    f->first_chunk = mem_alloc((size_t)plan->n_units, sizeof *f->first_chunk);
    if (f->chunks && f->first_chunk) return OK;
    return err_memory(e, n_chunks * sizeof *f->chunks, "the table of streamed weights");
}

static enum status open_blocks(struct feeder *f, const struct placed_model *placed, struct err *e) {
    const struct plan *plan = f->plan;
    struct device *host = placed->devices[DEVICE_HOST];
    const size_t n_blocks = (size_t)plan->n_blocks;
    if (open_chunks(f, placed->model, e)) return e->status;
    f->staged = mem_alloc(n_blocks, sizeof *f->staged);
    f->drained = mem_alloc(n_blocks, sizeof *f->drained);
    if (!f->staged || !f->drained)
        return err_memory(e, n_blocks * sizeof *f->staged, "the events of streamed weights");
    for (size_t i = 0; i < n_blocks; i++) {
        if (event_new(f->device, &f->staged[i], e) || event_new(f->device, &f->drained[i], e))
            return e->status;
    }
    if (stream_new(f->device, STREAM_COPY_IN, &f->stage, e) ||
        buffer_new(host, n_blocks * plan->block_bytes, PURPOSE_STAGING, &f->blocks, e))
        return e->status;
    device_host_register(f->device, f->blocks.base, f->blocks.size_bytes);
    return OK;
}

static enum status open_rows(struct feed_rows *rows, const struct workload *w, struct err *e) {
    const size_t n_pages = (size_t)workload_pages(w);
    rows->past = mem_alloc(n_pages, sizeof *rows->past);
    rows->fresh = mem_alloc(n_pages, sizeof *rows->fresh);
    if (rows->past && rows->fresh) return OK;
    return err_memory(e, 2 * n_pages * sizeof *rows->past, "the rows of streamed caches");
}

static enum status open_all_rows(struct feeder *f, struct err *e) {
    const struct workload *w = &f->plan->workload;
    const size_t n_sessions = (size_t)w->n_sessions;
    f->first = mem_alloc(n_sessions, sizeof *f->first);
    f->end = mem_alloc(n_sessions, sizeof *f->end);
    if (!f->first || !f->end)
        return err_memory(e, 2 * n_sessions * sizeof *f->first, "the positions of sessions");
    if (open_rows(&f->rows, w, e)) return e->status;
    return w->window ? open_rows(&f->ring_rows, w, e) : OK;
}

static enum status open_caches(struct feeder *f, struct err *e) {
    const struct plan *plan = f->plan;
    for (int32_t u = 0; u < plan->n_units; u++) {
        if (!feed_moves_cache(f, u)) continue;
        if (!f->first && open_all_rows(f, e)) return e->status;
        device_host_register(f->device, f->caches[u].base, f->caches[u].size_bytes);
    }
    return OK;
}

enum status feed_open(struct feeder *f, const struct placed_model *placed,
                      const struct weights *weights, const struct buffer *caches, struct err *e) {
    const struct plan *plan = placed->plan;
    *f = (struct feeder){0};
    if (plan->slot_bytes == 0) return OK;
    ASSERT(plan->place.ring != DEVICE_HOST);
    f->plan = plan;
    f->shape = placed->shape;
    f->weights = weights;
    f->caches = caches;
    f->device = placed->devices[plan->place.ring];
    const uint64_t ring_bytes = RING_SLOTS * plan->slot_bytes;
    if (stream_new(f->device, STREAM_COPY_IN, &f->fetch, e) ||
        buffer_new(f->device, ring_bytes, PURPOSE_STAGING, &f->slots, e))
        return e->status;
    for (int i = 0; i < RING_SLOTS; i++) {
        if (event_new(f->device, &f->fetched[i], e) || event_new(f->device, &f->used[i], e))
            return e->status;
    }
    if (open_caches(f, e)) return e->status;
    return plan->place.feed == FEED_STAGED ? open_blocks(f, placed, e) : OK;
}

static void close_caches(struct feeder *f) {
    for (int32_t u = 0; f->plan && u < f->plan->n_units; u++)
        if (feed_moves_cache(f, u)) device_host_unregister(f->device, f->caches[u].base);
    mem_free(f->rows.past);
    mem_free(f->rows.fresh);
    mem_free(f->ring_rows.past);
    mem_free(f->ring_rows.fresh);
    mem_free(f->first);
    mem_free(f->end);
}

void feed_close(struct feeder *f) {
    stream_free(f->fetch);
    stream_free(f->stage);
    const bool lost = f->device && f->device->lost; // the streams may have found out only now
    for (int i = 0; i < RING_SLOTS; i++) {
        event_free(&f->fetched[i]);
        event_free(&f->used[i]);
    }
    for (int i = 0; f->staged && f->drained && i < f->plan->n_blocks; i++) {
        event_free(&f->staged[i]);
        event_free(&f->drained[i]);
    }
    close_caches(f);
    buffer_free(&f->slots);
    if (f->blocks.base) device_host_unregister(f->device, f->blocks.base);
    f->blocks.abandoned = lost; // a call or a copy may still run, and a call reads the chunks
    buffer_free(&f->blocks);
    mem_free(f->staged);
    mem_free(f->drained);
    if (!lost) mem_free(f->chunks);
    mem_free(f->first_chunk);
    *f = (struct feeder){0};
}

// ---- Caches -------------------------------------------------------------------------------------

bool feed_moves_cache(const struct feeder *f, int32_t unit) {
    const struct plan *plan = f->plan;
    return plan && plan->place.units[unit].streamed && !plan->place.units[unit].cpu_parts &&
           f->shape->units[unit].kind == UNIT_ATTENTION;
}

bool feed_moves_caches(const struct feeder *f) { return f->rows.past != NULL; }

static const struct feed_rows *rows_of(const struct feeder *f, int32_t unit) {
    return f->shape->units[unit].window ? &f->ring_rows : &f->rows;
}

int32_t feed_past_rows(const struct feeder *f, int32_t unit) {
    return rows_of(f, unit)->n_past_rows;
}

// Adds the rows of one session, in which the batch sees most_past positions before its own.
static void add_rows(struct feed_rows *rows, const int32_t *pages, int32_t first, int32_t end,
                     int32_t most_past) {
    const int32_t n_past = min_i32(first, most_past);
    rows->n_past = kv_add_rows(rows->past, rows->n_past, pages, first - n_past, first);
    rows->n_fresh = kv_add_rows(rows->fresh, rows->n_fresh, pages, first, end);
    rows->n_past_rows += n_past;
}

void feed_batch(struct feeder *f, const struct batch_tables *t, int32_t n_tokens) {
    const struct workload *w = &f->plan->workload;
    const size_t n_pages = (size_t)workload_pages_per_session(w);
    int32_t n_found = 0;
    f->rows.n_past = f->rows.n_fresh = f->rows.n_past_rows = 0;
    f->ring_rows.n_past = f->ring_rows.n_fresh = f->ring_rows.n_past_rows = 0;
    for (int32_t s = 0; s < w->n_sessions; s++) f->first[s] = INT32_MAX, f->end[s] = 0;
    for (int32_t i = 0; i < n_tokens; i++) {
        const int32_t s = t->sequences[i], at = t->positions[i];
        f->first[s] = min_i32(f->first[s], at);
        f->end[s] = max_i32(f->end[s], at + 1);
    }
    for (size_t s = 0; s < (size_t)w->n_sessions; s++) {
        const int32_t first = f->first[s], end = f->end[s];
        if (end == 0) continue;
        add_rows(&f->rows, t->pages + s * n_pages, first, end, INT32_MAX);
        if (w->window)
            add_rows(&f->ring_rows, t->ring_pages + s * n_pages, first, end, w->window - 1);
        n_found += end - first;
    }
    ASSERT(n_found == n_tokens);
}

void *feed_cache(const struct feeder *f, int32_t unit, int32_t slot) {
    struct part parts[MAX_UNIT_TENSORS];
    uint64_t end_bytes;
    (void)parts_of(f, unit, parts, &end_bytes);
    return slot_at(f, slot) + end_bytes;
}

// Copies the past of the batch to the slot, or its new rows from the slot.
static void copy_cache(const struct feeder *f, int32_t u, int32_t slot, struct stream *s,
                       enum copy_direction way) {
    const bool there = way == COPY_TO_DEVICE;
    const struct feed_rows *moved = rows_of(f, u);
    const struct kv_rows *rows = there ? moved->past : moved->fresh;
    const int32_t n = there ? moved->n_past : moved->n_fresh;
    const struct workload *w = &f->plan->workload;
    const struct unit *unit = &f->shape->units[u];
    const struct buffer *cache = &f->caches[u];
    const struct kv_layout on_host = kv_layout_of(w, unit, cache->device->info.align_bytes);
    const struct kv_layout in_slot = kv_layout_of(w, unit, f->device->info.align_bytes);
    for (int values = 0; values < 2; values++) {
        const uint64_t row_bytes = values ? on_host.v_row_bytes : on_host.k_row_bytes;
        char *host = (char *)cache->base + (values ? on_host.values : 0);
        char *device = (char *)feed_cache(f, u, slot) + (values ? in_slot.values : 0);
        for (int32_t i = 0; i < n; i++) {
            const uint64_t at = (uint64_t)rows[i].first * row_bytes;
            const uint64_t size_bytes = (uint64_t)rows[i].count * row_bytes;
            if (there)
                stream_copy(s, device + at, host + at, size_bytes, way);
            else
                stream_copy(s, host + at, device + at, size_bytes, way);
        }
    }
}

void feed_store(struct feeder *f, int32_t unit, int32_t slot, struct stream *copy_out) {
    copy_cache(f, unit, slot, copy_out, COPY_FROM_DEVICE);
}

// ---- Through blocks -----------------------------------------------------------------------------

// Cuts a tensor into chunks, from number n on, and returns the number behind its last.
static int32_t cut_part(struct feeder *f, const struct part *part, int32_t n) {
    const uint64_t block_bytes = f->plan->block_bytes;
    const char *run = part->source->data;
    for (uint64_t done = 0; done < part->size_bytes; done += part->run_bytes) {
        for (uint64_t at = 0; at < part->run_bytes; at += block_bytes, n++) {
            const uint64_t left = part->run_bytes - at;
            char *block = (char *)f->blocks.base + (uint64_t)(n % f->plan->n_blocks) * block_bytes;
            f->chunks[n] =
                (struct feed_chunk){block, run + at, left < block_bytes ? left : block_bytes};
        }
        run += part->source->slot_bytes;
    }
    return n;
}

// Cuts all tensors into chunks. The chunks of a block are the same in every pass, so the contexts
// of the calls never change while a call may run.
static void cut_chunks(struct feeder *f) {
    struct part parts[MAX_UNIT_TENSORS];
    uint64_t end_bytes;
    int32_t n = 0;
    for (int32_t u = 0; u < f->plan->n_units; u++) {
        if (!f->plan->place.units[u].streamed) continue;
        f->first_chunk[u] = n;
        const int n_parts = parts_of(f, u, parts, &end_bytes);
        for (int i = 0; i < n_parts; i++) n = cut_part(f, &parts[i], n);
    }
    f->cut = true;
}

static void copy_chunk(void *context) {
    const struct feed_chunk *chunk = context;
    memcpy(chunk->block, chunk->source, chunk->size_bytes);
}

// Fills each block as soon as its last copy to the slot is done, and copies it to the slot as soon
// as it is full. n: the part's first chunk; returns the one behind its last.
static int32_t fetch_staged(struct feeder *f, int32_t n, const struct part *part, char *target) {
    for (uint64_t at = 0; at < part->size_bytes; at += f->chunks[n++].size_bytes) {
        struct feed_chunk *chunk = &f->chunks[n];
        struct event *staged = &f->staged[n % f->plan->n_blocks];
        struct event *drained = &f->drained[n % f->plan->n_blocks];
        stream_wait_event(f->stage, drained);
        stream_call(f->stage, copy_chunk, chunk);
        stream_record(f->stage, staged);
        stream_wait_event(f->fetch, staged);
        stream_copy(f->fetch, target + at, chunk->block, chunk->size_bytes, COPY_TO_DEVICE);
        stream_record(f->fetch, drained);
    }
    return n;
}

// ---- What the pipeline calls --------------------------------------------------------------------

void feed_begin(struct feeder *f, int32_t slot) { stream_wait_event(f->fetch, &f->used[slot]); }

void feed_fetch(struct feeder *f, int32_t unit, int32_t slot) {
    struct part parts[MAX_UNIT_TENSORS];
    uint64_t end_bytes;
    const int n = parts_of(f, unit, parts, &end_bytes);
    if (f->stage && !f->cut) cut_chunks(f);
    int32_t chunk = f->stage ? f->first_chunk[unit] : 0;
    for (int i = 0; i < n; i++) {
        const struct part *part = &parts[i];
        char *target = slot_at(f, slot) + part->offset_bytes;
        if (f->stage)
            chunk = fetch_staged(f, chunk, part, target);
        else // the arena has experts one behind the other
            stream_copy(f->fetch, target, part->source->data, part->size_bytes, COPY_TO_DEVICE);
    }
    if (feed_moves_cache(f, unit)) copy_cache(f, unit, slot, f->fetch, COPY_TO_DEVICE);
    stream_record(f->fetch, &f->fetched[slot]);
}

void feed_use(struct feeder *f, int32_t slot, struct stream *compute) {
    stream_wait_event(compute, &f->fetched[slot]);
}

void feed_release(struct feeder *f, int32_t slot, struct stream *s) {
    stream_record(s, &f->used[slot]);
}

void feed_bind(const struct feeder *f, int32_t unit, int32_t slot,
               struct weight out[MAX_UNIT_TENSORS]) {
    struct part parts[MAX_UNIT_TENSORS];
    uint64_t end_bytes;
    const int n = parts_of(f, unit, parts, &end_bytes);
    memset(out, 0, MAX_UNIT_TENSORS * sizeof *out);
    for (int i = 0; i < n; i++) {
        struct weight *bound = &out[parts[i].index];
        *bound = *parts[i].source;
        bound->data = slot_at(f, slot) + parts[i].offset_bytes;
        bound->slot_bytes = 0;
    }
}
