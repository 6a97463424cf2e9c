/* weights.c: see weights.h. */
#include "runtime/weights.h"

#include "base/mem.h"

struct load {
    struct weights *w;
    const struct model *model;
    const struct engine_options *options;
    struct stream *streams[MAX_DEVICES]; // copy-in streams, NULL on the host
    uint64_t done_bytes, total_bytes;
};

// Where the tensor from the file is bound for this unit.
static struct tensor *binding(struct weights *w, const struct model *m, const struct unit *unit,
                              const struct gguf_tensor *t) {
    if (unit->kind == UNIT_EMBED) return &w->embed[W_EMBED];
    if (unit->kind == UNIT_HEAD)
        return &w->head[t == m->globals[W_OUT_NORM] ? W_OUT_NORM : W_OUTPUT];
    for (int slot = 0; slot < W_LAYER_COUNT; slot++) {
        if (m->layers[unit->layer][slot] == t) return &w->layers[unit->layer][slot];
    }
    ASSERT(!t); // every tensor of a unit has a slot
    return NULL;
}

static struct tensor view(const struct gguf_tensor *t, void *data, const struct buffer *buffer) {
    return (struct tensor){t->type, {t->ne[0], t->ne[1], t->ne[2], t->ne[3]}, data, buffer};
}

static enum status report(struct load *load, uint64_t size_bytes, struct err *e) {
    const struct engine_options *o = load->options;
    load->done_bytes += size_bytes;
    if (!o->progress ||
        o->progress(o->progress_context, "load", load->done_bytes, load->total_bytes)) {
        return OK;
    }
    return err_set(e, ERR_CANCELLED, "loading was stopped");
}

// The host computes with the mapped file: nothing is copied, only brought into memory.
static enum status map_unit(struct load *load, const struct unit *unit, const struct buffer *buffer,
                            struct err *e) {
    const struct gguf_tensor *tensors[MAX_UNIT_TENSORS];
    int32_t n = model_unit_tensors(load->model, unit, tensors);
    for (int i = 0; i < n; i++) {
        const struct gguf_tensor *t = tensors[i];
        const struct file *part = &load->model->gguf->parts[t->part];
        if (file_populate(part, t->file_offset, t->size_bytes, e)) return e->status;
        *binding(load->w, load->model, unit, t) = view(t, (void *)(uintptr_t)t->data, buffer);
    }
    return OK;
}

static enum status copy_unit(struct load *load, const struct unit *unit, struct stream *stream,
                             const struct buffer *buffer, struct err *e) {
    const struct device *d = stream->device;
    const struct gguf_tensor *tensors[MAX_UNIT_TENSORS];
    int32_t n = model_unit_tensors(load->model, unit, tensors);
    uint64_t at = 0;
    for (int i = 0; i < n; i++) {
        struct tensor *bound = binding(load->w, load->model, unit, tensors[i]);
        // The embedding table is there already: its unit comes first and lies on the same device.
        const struct tensor *embed = &load->w->embed[W_EMBED];
        if (i == 0 && unit->shares_embed && embed->buffer->device == d) {
            *bound = *embed;
            continue;
        }
        *bound = view(tensors[i], (char *)buffer->base + at, buffer);
        stream_copy(stream, bound->data, tensors[i]->data, tensors[i]->size_bytes, COPY_TO_DEVICE);
        at += round_up(tensors[i]->size_bytes, d->info.align_bytes);
    }
    ASSERT(at == buffer->size_bytes);
    return stream_wait(stream, e);
}

static enum status load_units(struct load *load, const struct placed_model *placed, struct err *e) {
    const struct plan *plan = placed->plan;
    for (int u = 0; u < plan->n_units; u++) load->total_bytes += plan->unit_weight_bytes[u];
    for (int u = 0; u < plan->n_units; u++) {
        const int d = plan->unit_device[u];
        const struct unit *unit = &placed->shape->units[u];
        const struct buffer *buffer = &load->w->buffers[u];
        if (placed->devices[d]->info.is_host ? map_unit(load, unit, buffer, e)
                                             : copy_unit(load, unit, load->streams[d], buffer, e))
            return e->status;
        if (report(load, buffer->size_bytes, e)) return e->status;
    }
    return OK;
}

enum status weights_open(struct weights *w, const struct placed_model *placed, struct err *e) {
    const size_t n_units = (size_t)placed->shape->n_units;
    *w = (struct weights){.n_units = placed->shape->n_units};
    w->buffers = mem_alloc(n_units, sizeof *w->buffers);
    w->layers = mem_alloc((size_t)placed->shape->n_layers, sizeof *w->layers);
    if (!w->buffers || !w->layers) {
        return err_memory(e, n_units * sizeof *w->buffers, "the table of weights");
    }
    for (size_t u = 0; u < n_units; u++) {
        struct device *d = placed->devices[placed->plan->unit_device[u]];
        const uint64_t size_bytes = placed->plan->unit_weight_bytes[u];
        if (!d->info.is_host) {
            if (buffer_new(d, size_bytes, PURPOSE_WEIGHTS, &w->buffers[u], e)) return e->status;
            continue;
        }
        const struct gguf_tensor *tensors[MAX_UNIT_TENSORS];
        model_unit_tensors(placed->model, &placed->shape->units[u], tensors);
        void *base = (void *)(uintptr_t)tensors[0]->data;
        buffer_map(d, base, size_bytes, PURPOSE_WEIGHTS, &w->buffers[u]);
    }
    return OK;
}

enum status weights_load(struct weights *w, const struct placed_model *placed,
                         const struct engine_options *options, struct err *e) {
    struct load load = {.w = w, .model = placed->model, .options = options};
    const int n_devices = placed->plan->machine.n_devices;
    enum status status = OK;
    for (int d = 0; d < n_devices && !status; d++) {
        if (placed->devices[d]->info.is_host) continue;
        status = stream_new(placed->devices[d], STREAM_COPY_IN, &load.streams[d], e);
    }
    if (!status) status = load_units(&load, placed, e);
    for (int d = 0; d < n_devices; d++) stream_free(load.streams[d]);
    return status;
}

void weights_close(struct weights *w) {
    for (int u = 0; w->buffers && u < w->n_units; u++) buffer_free(&w->buffers[u]);
    mem_free(w->buffers);
    mem_free(w->layers);
    *w = (struct weights){0};
}

const struct tensor *weights_of(const struct weights *w, const struct unit *unit) {
    if (unit->kind == UNIT_EMBED) return w->embed;
    if (unit->kind == UNIT_HEAD) return w->head;
    return w->layers[unit->layer];
}
