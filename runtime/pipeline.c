/* pipeline.c: see pipeline.h. */
#include "runtime/pipeline.h"

#include "base/mem.h"
#include "runtime/arch.h"

enum { HOST = 0 };

static enum status open_lane(struct pipeline_lane *lane, struct device *device,
                             uint64_t scratch_bytes, struct err *e) {
    lane->device = device;
    if (buffer_new(device, scratch_bytes, PURPOSE_SCRATCH, &lane->scratch, e) ||
        stream_new(device, STREAM_COMPUTE, &lane->compute, e)) {
        return e->status;
    }
    if (device->info.is_host) return OK; // other devices copy to and from its memory
    if (stream_new(device, STREAM_COPY_IN, &lane->copy_in, e) ||
        stream_new(device, STREAM_COPY_OUT, &lane->copy_out, e) ||
        event_new(device, &lane->computed, e) || event_new(device, &lane->arrived, e) ||
        event_new(device, &lane->sent, e)) {
        return e->status;
    }
    return OK;
}

// The divisors of the rope frequencies go to every device that computes attention.
static enum status load_freqs(struct pipeline *p, int d, struct err *e) {
    const struct gguf_tensor *freqs = p->model->globals[W_ROPE_FREQS];
    const struct scratch_layout *layout = &p->plan->devices[d].scratch;
    if (!freqs || layout->angles == layout->freqs) return OK;
    struct pipeline_lane *lane = &p->lanes[d];
    char *target = (char *)lane->scratch.base + layout->freqs;
    stream_copy(lane->compute, target, freqs->data, freqs->size_bytes, COPY_TO_DEVICE);
    return stream_wait(lane->compute, e);
}

// Where the accelerators copy to and from while tokens are computed: the tables, and the residual
// stream and the logits in the host's scratch.
static void pin(struct pipeline *p) {
    for (int d = HOST + 1; d < p->plan->machine.n_devices; d++) {
        struct device *device = p->lanes[d].device;
        const struct buffer *scratch = &p->lanes[HOST].scratch;
        device_host_register(device, p->staging.base, p->staging.size_bytes);
        device_host_register(device, scratch->base, scratch->size_bytes);
    }
}

static void unpin(struct pipeline *p, struct device *device) {
    device_host_unregister(device, p->staging.base);
    device_host_unregister(device, p->lanes[HOST].scratch.base);
}

enum status pipeline_open(struct pipeline *p, const struct placed_model *placed,
                          const struct weights *weights, struct err *e) {
    const struct plan *plan = placed->plan;
    struct device *const *devices = placed->devices;
    *p = (struct pipeline){
        .plan = plan, .shape = placed->shape, .model = placed->model, .weights = weights};
    p->kv = mem_alloc((size_t)plan->n_units, sizeof *p->kv);
    if (!p->kv) return err_memory(e, (size_t)plan->n_units * sizeof *p->kv, "the table of caches");
    for (int d = 0; d < plan->machine.n_devices; d++) {
        if (open_lane(&p->lanes[d], devices[d], plan->devices[d].scratch.size_bytes, e))
            return e->status;
        if (load_freqs(p, d, e)) return e->status;
    }
    if (buffer_new(devices[HOST], plan->tables.size_bytes, PURPOSE_STAGING, &p->staging, e))
        return e->status;
    pin(p);
    for (int u = 0; u < plan->n_units; u++) {
        struct device *d = devices[plan->unit_device[u]];
        if (plan->unit_kv_bytes[u] &&
            buffer_new(d, plan->unit_kv_bytes[u], PURPOSE_KV, &p->kv[u], e)) {
            return e->status;
        }
    }
    return OK;
}

void pipeline_close(struct pipeline *p) {
    for (int d = MAX_DEVICES - 1; d >= 0; d--) {
        struct pipeline_lane *lane = &p->lanes[d];
        stream_free(lane->compute);
        stream_free(lane->copy_in);
        stream_free(lane->copy_out);
        event_free(&lane->computed);
        event_free(&lane->arrived);
        event_free(&lane->sent);
        if (d != HOST && lane->device) unpin(p, lane->device);
        buffer_free(&lane->scratch);
    }
    buffer_free(&p->staging);
    for (int u = 0; p->kv && u < p->plan->n_units; u++) buffer_free(&p->kv[u]);
    mem_free(p->kv);
    *p = (struct pipeline){0};
}

static struct batch_tables tables_at(const struct pipeline *p, char *base) {
    const struct tables_layout *t = &p->plan->tables;
    return (struct batch_tables){.tokens = (int32_t *)(base + t->tokens),
                                 .positions = (int32_t *)(base + t->positions),
                                 .sequences = (int32_t *)(base + t->sequences),
                                 .slots = (int32_t *)(base + t->slots),
                                 .rows = (int32_t *)(base + t->rows),
                                 .pages = (int32_t *)(base + t->pages)};
}

struct batch_tables pipeline_tables(const struct pipeline *p) {
    return tables_at(p, p->staging.base);
}

float *pipeline_logits(const struct pipeline *p) {
    return (float *)((char *)p->lanes[HOST].scratch.base + p->plan->devices[HOST].scratch.logits);
}

// Everything that units on device d see of this micro-batch.
static struct forward forward_on(const struct pipeline *p, int d, const struct micro_batch *batch) {
    const struct pipeline_lane *lane = &p->lanes[d];
    const struct scratch_layout *s = &p->plan->devices[d].scratch;
    char *base = lane->scratch.base;
    struct batch_tables t =
        lane->device->info.is_host ? pipeline_tables(p) : tables_at(p, base + s->tables);
    const uint64_t logits_at =
        s->logits + (uint64_t)batch->first_logits * (uint64_t)p->shape->n_vocab * sizeof(float);
    return (struct forward){.stream = lane->compute,
                            .ops = lane->device->ops,
                            .hp = &p->model->hp,
                            .tokens = t.tokens,
                            .positions = t.positions,
                            .sequences = t.sequences,
                            .slots = t.slots,
                            .rows = t.rows,
                            .pages = t.pages,
                            .n_tokens = batch->n_tokens,
                            .n_logits = batch->n_logits,
                            .max_pages = workload_pages_per_session(&p->plan->workload),
                            .residual = (float *)(base + s->residual),
                            .normed = (float *)(base + s->normed),
                            .freqs =
                                p->model->globals[W_ROPE_FREQS] ? (float *)(base + s->freqs) : NULL,
                            .angles = (float *)(base + s->angles),
                            .q = (float *)(base + s->q),
                            .attended = (float *)(base + s->attended),
                            .k = (float *)(base + s->k),
                            .v = (float *)(base + s->v),
                            .gate = (float *)(base + s->gate),
                            .up = (float *)(base + s->up),
                            .gathered = (float *)(base + s->gathered),
                            .logits = (float *)(base + logits_at),
                            .matmul = base + s->matmul,
                            .k_type = p->plan->workload.kv_type_k,
                            .v_type = p->plan->workload.kv_type_v};
}

static void compute(struct pipeline *p, const struct step *step, const struct micro_batch *batch) {
    const struct unit *unit = &p->shape->units[step->unit];
    struct pipeline_lane *lane = &p->lanes[step->device];
    struct forward f = forward_on(p, step->device, batch);
    f.weights = weights_of(p->weights, unit);
    if (unit->kind == UNIT_HEAD && !batch->n_logits) return;
    if (unit->kind == UNIT_ATTENTION) {
        const uint64_t rows = (uint64_t)workload_pages(&p->plan->workload) * KV_PAGE;
        const uint64_t cols = (uint64_t)(p->shape->n_kv_heads * p->shape->head_dim);
        f.k_cache = p->kv[step->unit].base;
        f.v_cache = (char *)f.k_cache +
                    round_up(dtype_bytes(f.k_type, rows * cols), lane->device->info.align_bytes);
        if (!lane->has_angles) p->model->arch->encode_angles(&f);
        lane->has_angles = true;
    }
    p->model->arch->encode(&f, unit->kind);
}

static void copy_inputs(struct pipeline *p, const struct step *step) {
    struct pipeline_lane *lane = &p->lanes[step->device];
    char *target = (char *)lane->scratch.base + p->plan->devices[step->device].scratch.tables;
    stream_copy(lane->copy_in, target, p->staging.base, step->bytes_fixed, COPY_TO_DEVICE);
    stream_record(lane->copy_in, &lane->arrived);
    stream_wait_event(lane->compute, &lane->arrived);
}

// Copies size bytes from the device's scratch to the host once what is encoded so far has been
// computed.
static void copy_out(struct pipeline_lane *lane, void *target, const void *source,
                     uint64_t size_bytes) {
    stream_record(lane->compute, &lane->computed);
    stream_wait_event(lane->copy_out, &lane->computed);
    stream_copy(lane->copy_out, target, source, size_bytes, COPY_FROM_DEVICE);
    stream_record(lane->copy_out, &lane->sent);
}

static char *residual_on(const struct pipeline *p, int d) {
    return (char *)p->lanes[d].scratch.base + p->plan->devices[d].scratch.residual;
}

static void send(struct pipeline *p, const struct step *step, const struct micro_batch *batch) {
    struct pipeline_lane *from = &p->lanes[step->device], *to = &p->lanes[step->peer];
    const uint64_t size_bytes = step->bytes_per_row * (uint64_t)batch->n_tokens;
    void *target = residual_on(p, step->peer), *source = residual_on(p, step->device);
    if (from->device->info.is_host) {
        stream_flush(from->compute); // the CPU's work is done when this returns
        stream_copy(to->copy_in, target, source, size_bytes, COPY_TO_DEVICE);
        stream_record(to->copy_in, &to->arrived);
    } else {
        ASSERT(to->device->info.is_host); // MAX_DEVICES is 2: one end is always the host
        copy_out(from, target, source, size_bytes);
    }
}

static void wait_for(struct pipeline *p, const struct step *step) {
    struct pipeline_lane *at = &p->lanes[step->device], *peer = &p->lanes[step->peer];
    stream_wait_event(at->compute, peer->device->info.is_host ? &at->arrived : &peer->sent);
}

static void copy_logits(struct pipeline *p, const struct step *step,
                        const struct micro_batch *batch) {
    if (!batch->n_logits) return;
    const uint64_t row_bytes = step->bytes_per_row, at = row_bytes * (uint64_t)batch->first_logits;
    struct pipeline_lane *lane = &p->lanes[step->device];
    const char *source =
        (char *)lane->scratch.base + p->plan->devices[step->device].scratch.logits + at;
    copy_out(lane, (char *)pipeline_logits(p) + at, source, row_bytes * (uint64_t)batch->n_logits);
}

// Waits for every stream, the CPU's first since it works in this thread. All are waited for even
// after a failure, so that nothing touches the tables or the residual stream any more. Keeps the
// first failure.
static enum status wait_all(struct pipeline *p, struct err *e) {
    enum status status = OK;
    for (int d = 0; d < p->plan->machine.n_devices; d++) {
        struct pipeline_lane *lane = &p->lanes[d];
        struct stream *streams[] = {lane->compute, lane->copy_in, lane->copy_out};
        for (int i = 0; i < 3; i++) {
            struct err next;
            if (!streams[i] || stream_wait(streams[i], &next) == OK) continue;
            if (status == OK) {
                *e = next;
                status = next.status;
                err_context(e, "%s", lane->device->info.name);
            }
        }
    }
    return status;
}

enum status pipeline_run(struct pipeline *p, const struct micro_batch *batch, struct err *e) {
    ASSERT(batch->n_tokens >= 1 && batch->n_tokens <= p->plan->workload.n_ubatch);
    ASSERT(batch->first_logits + batch->n_logits <= p->plan->workload.max_logits);
    if (p->failed) {
        err_set(e, ERR_DEVICE, "a device of this engine has failed before");
        return err_fix(e, "start again");
    }
    device_batch_hint(p->lanes[HOST].device, batch->n_tokens);
    for (int d = 0; d < MAX_DEVICES; d++) p->lanes[d].has_angles = false;
    const enum batch_class batch_size = batch_class_of(batch->n_tokens);
    for (int i = 0; i < p->plan->n_steps[batch_size]; i++) {
        const struct step *step = &p->plan->steps[batch_size][i];
        switch (step->kind) {
        case STEP_INPUTS: copy_inputs(p, step); break;
        case STEP_COMPUTE: compute(p, step, batch); break;
        case STEP_SEND: send(p, step, batch); break;
        case STEP_WAIT: wait_for(p, step); break;
        case STEP_LOGITS: copy_logits(p, step, batch); break;
        }
    }
    enum status status = wait_all(p, e);
    p->failed = status != OK;
    return status;
}
