/* weights.c: see weights.h. */
#include "runtime/engine/weights.h"

#include "base/mem.h"

enum { HOST = 0, READ_CHUNK = 16 << 20 };

struct load {
    struct weights *w;
    const struct placed_model *placed;
    const struct engine_options *options;
    struct stream *streams[MAX_DEVICES]; // copy-in streams, NULL on the host
    uint64_t done_bytes, total_bytes;
    uint64_t at[MAX_DEVICES], arena_at; // where the next unit starts, on accelerators
};

// What one device has of a tensor.
struct rows {
    uint64_t n_rows, offset_bytes, size_bytes; // of the tensor in the file
};

// The accelerator has the first rows of a matrix that is cut, the CPU the others.
static struct rows rows_of(const struct gguf_tensor *t, const struct unit_tensor *info,
                           int32_t cpu_parts, bool on_cpu) {
    const uint64_t row_bytes = dtype_bytes(t->type, t->ne[0]);
    const uint64_t cut = (uint64_t)footprint_split_row(info->n_rows, cpu_parts);
    if (!on_cpu) return (struct rows){cut, 0, cut * row_bytes};
    return (struct rows){t->ne[1] - cut, cut * row_bytes, (t->ne[1] - cut) * row_bytes};
}

// One device's share of a unit: all of it or, of a split one, the accelerator's or the CPU's.
struct share {
    int32_t u, cpu_parts; // 0 parts: all of it
    bool on_cpu;
    const struct unit *unit;
    int32_t n; // tensors of which the device has something
    const struct gguf_tensor *tensors[MAX_UNIT_TENSORS];
    struct rows rows[MAX_UNIT_TENSORS];
};

static struct share share_of(const struct placed_model *placed, int32_t u, bool on_cpu) {
    const struct unit *unit = &placed->shape->units[u];
    struct share share = {u, placed->plan->place.units[u].cpu_parts, on_cpu, unit, 0, {0}, {{0}}};
    const struct gguf_tensor *tensors[MAX_UNIT_TENSORS];
    const int32_t n = model_unit_tensors(placed->model, unit, tensors);
    for (int i = 0; i < n; i++) {
        const struct gguf_tensor *t = tensors[i];
        const struct unit_tensor *info = &unit->tensors[i];
        const bool cut = share.cpu_parts && unit_is_cut(info);
        // A matrix that is not cut is the accelerator's alone; vectors are on both.
        if (share.cpu_parts && on_cpu && !cut && info->use == USE_MATRIX) continue;
        share.tensors[share.n] = t;
        share.rows[share.n++] = cut ? rows_of(t, info, share.cpu_parts, on_cpu)
                                    : (struct rows){t->ne[1], 0, t->size_bytes};
    }
    return share;
}

// Where tensor i of the share is bound.
static struct tensor *binding(struct weights *w, const struct model *m, const struct share *share,
                              int i) {
    const struct gguf_tensor *t = share->tensors[i];
    const int32_t layer = share->unit->layer;
    if (share->unit->kind == UNIT_EMBED) return &w->embed[W_EMBED];
    if (share->unit->kind == UNIT_HEAD)
        return &w->head[t == m->globals[W_OUT_NORM] ? W_OUT_NORM : W_OUTPUT];
    struct tensor *table =
        share->on_cpu && share->cpu_parts ? w->cpu_layers[layer] : w->layers[layer];
    for (int slot = 0; slot < W_LAYER_COUNT; slot++) {
        if (m->layers[layer][slot] == t) return &table[slot];
    }
    ASSERT(!t); // every tensor of a unit has a slot
    return NULL;
}

static struct tensor view(const struct share *share, int i, void *data,
                          const struct buffer *buffer) {
    const struct gguf_tensor *t = share->tensors[i];
    return (struct tensor){
        t->type, {t->ne[0], share->rows[i].n_rows, t->ne[2], t->ne[3]}, data, buffer};
}

static enum status report(struct load *load, uint64_t size_bytes, struct err *e) {
    load->done_bytes += size_bytes;
    if (progress_tell(&load->options->progress, "load", load->done_bytes, load->total_bytes)) {
        return OK;
    }
    return err_set(e, ERR_CANCELLED, "loading was stopped");
}

// The host computes with the mapped file: nothing is copied, only brought into memory.
static enum status map_share(struct load *load, const struct share *share, struct err *e) {
    const struct model *m = load->placed->model;
    const struct buffer *buffer = &load->w->buffers[HOST];
    for (int i = 0; i < share->n; i++) {
        const struct gguf_tensor *t = share->tensors[i];
        const struct rows *rows = &share->rows[i];
        if (file_populate(&m->gguf->parts[t->part], t->file_offset + rows->offset_bytes,
                          rows->size_bytes, e))
            return e->status;
        char *data = (char *)(uintptr_t)t->data + rows->offset_bytes;
        *binding(load->w, m, share, i) = view(share, i, data, buffer);
    }
    return OK;
}

// Piece by piece, so that the bytes are not in the file's cache and here at once.
static enum status read_rows(const struct file *part, char *target, uint64_t offset,
                             uint64_t size_bytes, struct err *e) {
    for (uint64_t done = 0; done < size_bytes; done += READ_CHUNK) {
        const uint64_t left = size_bytes - done, n = left < READ_CHUNK ? left : READ_CHUNK;
        if (file_read(part, target + done, offset + done, n, e)) return e->status;
        file_forget(part, offset + done, n);
    }
    return OK;
}

static enum status read_share(struct load *load, const struct share *share, struct err *e) {
    struct weights *w = load->w;
    const struct model *m = load->placed->model;
    for (int i = 0; i < share->n; i++) {
        const struct gguf_tensor *t = share->tensors[i];
        const struct rows *rows = &share->rows[i];
        char *data = (char *)w->arena.base + load->arena_at;
        if (read_rows(&m->gguf->parts[t->part], data, t->file_offset + rows->offset_bytes,
                      rows->size_bytes, e))
            return e->status;
        *binding(w, m, share, i) = view(share, i, data, &w->arena);
        load->arena_at += rows->size_bytes;
    }
    return OK;
}

static enum status copy_share(struct load *load, const struct share *share, int device,
                              struct err *e) {
    const struct device *d = load->placed->devices[device];
    const struct buffer *buffer = &load->w->buffers[device];
    struct stream *stream = load->streams[device];
    for (int i = 0; i < share->n; i++) {
        struct tensor *bound = binding(load->w, load->placed->model, share, i);
        const struct rows *rows = &share->rows[i];
        // The embedding table is there already: its unit comes first and lies on the same device.
        const struct tensor *embed = &load->w->embed[W_EMBED];
        if (i == 0 && share->unit->shares_embed && embed->buffer->device == d) {
            *bound = *embed;
            continue;
        }
        *bound = view(share, i, (char *)buffer->base + load->at[device], buffer);
        stream_copy(stream, bound->data, share->tensors[i]->data + rows->offset_bytes,
                    rows->size_bytes, COPY_TO_DEVICE);
        load->at[device] += round_up(rows->size_bytes, d->info.align_bytes);
    }
    return stream_wait(stream, e);
}

// What the CPU has of the unit is in the arena.
static bool in_arena(const struct plan *plan, int32_t u) {
    return plan->place.units[u].streamed && plan->place.feed == FEED_ARENA;
}

// The CPU's share of a unit: all of it, or the last rows of a split one.
static enum status load_on_cpu(struct load *load, int32_t u, struct err *e) {
    const struct share share = share_of(load->placed, u, true);
    return in_arena(load->placed->plan, u) ? read_share(load, &share, e)
                                           : map_share(load, &share, e);
}

static enum status load_unit(struct load *load, int32_t u, struct err *e) {
    const struct plan *plan = load->placed->plan;
    const int d = plan->place.units[u].device;
    if (d != HOST) {
        const struct share share = share_of(load->placed, u, false);
        if (copy_share(load, &share, d, e)) return e->status;
    }
    if ((d == HOST || plan->place.units[u].cpu_parts) && load_on_cpu(load, u, e)) return e->status;
    return report(load, plan->unit_weight_bytes[u] + plan->unit_cpu_bytes[u], e);
}

static enum status load_units(struct load *load, struct err *e) {
    const struct plan *plan = load->placed->plan;
    struct weights *w = load->w;
    for (int u = 0; u < plan->n_units; u++)
        load->total_bytes += plan->unit_weight_bytes[u] + plan->unit_cpu_bytes[u];
    for (int32_t u = 0; u < plan->n_units; u++)
        if (load_unit(load, u, e)) return e->status;
    for (int d = HOST + 1; d < plan->machine.n_devices; d++)
        ASSERT(load->at[d] == w->buffers[d].size_bytes);
    ASSERT(load->arena_at == w->arena.size_bytes);
    return OK;
}

// The weights that each device has of all units, and what of the host's is in the arena instead.
static void count_bytes(const struct plan *plan, uint64_t bytes[MAX_DEVICES],
                        uint64_t *arena_bytes) {
    for (int32_t u = 0; u < plan->n_units; u++) {
        const int d = plan->place.units[u].device;
        if (d != HOST) bytes[d] += plan->unit_weight_bytes[u];
        const uint64_t cpu_bytes = d == HOST ? plan->unit_weight_bytes[u] : plan->unit_cpu_bytes[u];
        *(in_arena(plan, u) ? arena_bytes : &bytes[HOST]) += cpu_bytes;
    }
}

static enum status open_buffers(struct weights *w, const struct placed_model *placed,
                                struct err *e) {
    const int n_devices = placed->plan->machine.n_devices;
    uint64_t bytes[MAX_DEVICES] = {0}, arena_bytes = 0;
    count_bytes(placed->plan, bytes, &arena_bytes);
    void *mapping = (void *)(uintptr_t)placed->model->gguf->parts[0].map;
    buffer_map(placed->devices[HOST], mapping, bytes[HOST], PURPOSE_WEIGHTS, &w->buffers[HOST]);
    for (int d = HOST + 1; d < n_devices; d++) {
        if (bytes[d] &&
            buffer_new(placed->devices[d], bytes[d], PURPOSE_WEIGHTS, &w->buffers[d], e))
            return e->status;
    }
    if (!arena_bytes) return OK;
    if (buffer_new(placed->devices[HOST], arena_bytes, PURPOSE_WEIGHTS, &w->arena, e))
        return e->status;
    for (int d = HOST + 1; d < n_devices; d++) {
        w->pinned_for = placed->devices[d];
        device_host_register(w->pinned_for, w->arena.base, w->arena.size_bytes);
    }
    return OK;
}

enum status weights_open(struct weights *w, const struct placed_model *placed, struct err *e) {
    const size_t n_layers = (size_t)placed->shape->n_layers;
    *w = (struct weights){0};
    w->layers = mem_alloc(n_layers, sizeof *w->layers);
    w->cpu_layers = mem_alloc(n_layers, sizeof *w->cpu_layers);
    if (!w->layers || !w->cpu_layers)
        return err_memory(e, 2 * n_layers * sizeof *w->layers, "the table of weights");
    return open_buffers(w, placed, e);
}

enum status weights_load(struct weights *w, const struct placed_model *placed,
                         const struct engine_options *options, struct err *e) {
    struct load load = {.w = w, .placed = placed, .options = options};
    const int n_devices = placed->plan->machine.n_devices;
    enum status status = OK;
    for (int d = 0; d < n_devices && !status; d++) {
        if (placed->devices[d]->info.is_host || !w->buffers[d].size_bytes) continue;
        status = stream_new(placed->devices[d], STREAM_COPY_IN, &load.streams[d], e);
    }
    if (!status) status = load_units(&load, e);
    for (int d = 0; d < n_devices; d++) stream_free(load.streams[d]);
    return status;
}

void weights_close(struct weights *w) {
    if (w->pinned_for) {
        device_host_unregister(w->pinned_for, w->arena.base);
        w->arena.mapped |= w->pinned_for->lost; // a copy may still read it: not given back
    }
    buffer_free(&w->arena);
    for (int d = 0; d < MAX_DEVICES; d++) buffer_free(&w->buffers[d]);
    mem_free(w->layers);
    mem_free(w->cpu_layers);
    *w = (struct weights){0};
}

const struct tensor *weights_of(const struct weights *w, const struct unit *unit) {
    if (unit->kind == UNIT_EMBED) return w->embed;
    if (unit->kind == UNIT_HEAD) return w->head;
    return w->layers[unit->layer];
}

const struct tensor *weights_of_cpu(const struct weights *w, const struct unit *unit, bool split) {
    return split ? w->cpu_layers[unit->layer] : w->layers[unit->layer];
}
