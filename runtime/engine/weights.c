/* weights.c: see weights.h. */
#include "runtime/engine/weights.h"

#include "base/mem.h"
#include "base/number.h"
#include "runtime/engine/upload.h"
#include "runtime/model/model_take.h"

#include <stdlib.h>
#include <string.h>

enum {
    READ_CHUNK = 16 << 20,
    PAGE_GAP = 4096,
    MOST_LENT = 512, // stretches of the file; a device pins no more than about twice as many
};

struct load {
    struct weights *w;
    const struct placed_model *placed;
    const struct engine_options *options;
    struct upload uploads[MAX_DEVICES]; // to accelerators that get copies
    uint64_t done_bytes, total_bytes;
    uint64_t at[MAX_DEVICES], arena_at; // where the next unit starts, on accelerators
    uint64_t made_at;                   // where the next tensor of weights.made starts
    struct stream *converter;           // of the CPU
    bool tight;                         // a copy of the arena in the file's cache has no room
    bool lock;                          // the CPU's weights in RAM, until the system refuses
};

// The rows of a tensor on one device, or its experts, which are all of one without experts.
struct rows {
    int32_t first, count;
    int32_t first_expert, n_experts;
    uint64_t offset_bytes, size_bytes; // of the tensor in the file
};

// The rows, or the experts, of a tensor that is cut on one device: the first on the accelerator,
// the others on the CPU.
static struct rows rows_of(const struct unit_tensor *t, int32_t cpu_parts, bool on_cpu) {
    const struct cut cut = footprint_cut(t, cpu_parts);
    const int32_t first = on_cpu ? cut.first : 0, count = on_cpu ? cut.n - cut.first : cut.first;
    const uint64_t one_bytes = t->size_bytes / (uint64_t)cut.n;
    const uint64_t offset_bytes = (uint64_t)first * one_bytes;
    const uint64_t size_bytes = (uint64_t)count * one_bytes;
    if (t->use == USE_EXPERTS)
        return (struct rows){0, t->n_rows, first, count, offset_bytes, size_bytes};
    return (struct rows){first, count, 0, 1, offset_bytes, size_bytes};
}

// One device's share of a unit: all of it or, of a split one, the accelerator's or the CPU's.
struct share {
    int32_t u, cpu_parts; // 0 parts: all of it
    bool on_cpu;
    const struct unit *unit;
    int32_t n;                       // tensors that the device has, whole or cut
    int32_t index[MAX_UNIT_TENSORS]; // their numbers in the unit
    const struct gguf_tensor *tensors[MAX_UNIT_TENSORS];
    uint64_t strides[MAX_UNIT_TENSORS]; // as in struct model
    struct rows rows[MAX_UNIT_TENSORS];
    bool joined[MAX_UNIT_TENSORS]; // made of rows of a larger tensor (model_is_joined)
};

static struct share share_of(const struct placed_model *placed, int32_t u, bool on_cpu) {
    const struct unit *unit = &placed->shape->units[u];
    struct share share = {.u = u,
                          .cpu_parts = placed->plan->place.units[u].cpu_parts,
                          .on_cpu = on_cpu,
                          .unit = unit};
    for (int i = 0; i < unit->n_tensors; i++) {
        const struct unit_tensor *t = &unit->tensors[i];
        const bool cut = share.cpu_parts && unit_is_cut(t);
        // A matrix that is not cut is the accelerator's alone; vectors are on both.
        if (share.cpu_parts && on_cpu && !cut && t->use == USE_MATRIX) continue;
        share.index[share.n] = i;
        share.tensors[share.n] = placed->model->tensors[u][i];
        share.strides[share.n] = placed->model->strides[u][i];
        share.joined[share.n] = model_is_joined(placed->model, unit, t->role);
        share.rows[share.n++] =
            cut ? rows_of(t, share.cpu_parts, on_cpu)
                : (struct rows){0, t->n_rows, 0, t->n_matrices, 0, t->size_bytes};
    }
    return share;
}

// True if tensor i of the share has another type in the file, or other rows.
static bool is_converted(const struct share *share, int i) {
    return share->joined[i] ||
           share->tensors[i]->type != share->unit->tensors[share->index[i]].type;
}

// True if the CPU cannot use it where the file is mapped.
static bool is_made(const struct share *share, int i) {
    return is_converted(share, i) || share->strides[i] == EXPERTS_APART;
}

// Decodes rows to F32 by the CPU's op for that.
static enum status decode(const struct load *load, enum dtype type, const struct embed_args *args,
                          struct err *e) {
    enum weight_type known_type;
    const bool known = dtype_weight(type, &known_type);
    ASSERT(known);
    load->placed->devices[DEVICE_HOST]->ops->embed(load->converter, known_type, args);
    return stream_wait(load->converter, e);
}

// Rows of one head, [n, rank], and the numbers of so many rows.
struct head_rows {
    float *rows;
    int32_t *numbers;
};

// Makes the matrices of keys or values of all heads; head has room for what one needs.
static enum status make_heads(const struct load *load, const struct share *share, int i,
                              float *target, const struct head_rows *head, struct err *e) {
    const struct shape *shape = load->placed->shape;
    const struct gguf_tensor *t = share->tensors[i];
    const bool keys = share->unit->tensors[share->index[i]].role == ROLE_ATTN_K_B;
    const int32_t rank = shape->latent.rank, n_keys = shape->latent.key_dim - shape->n_rot;
    const int32_t n_values = shape->latent.value_dim, n = keys ? n_keys : n_values;
    const int32_t n_rows = share->unit->n_heads * (n_keys + n_values);
    const struct embed_args args = {head->rows, t->data, head->numbers, n, rank, n_rows, 1};
    for (int32_t h = 0; h < share->unit->n_heads; h++, target += (int64_t)n * rank) {
        const int32_t first = h * (n_keys + n_values) + (keys ? 0 : n_keys);
        for (int32_t k = 0; k < n; k++) head->numbers[k] = first + k;
        if (decode(load, t->type, &args, e)) return e->status;
        for (int64_t c = 0; c < (int64_t)n * rank; c++)
            target[keys ? c % rank * n + c / rank : c] = head->rows[c];
    }
    return OK;
}

// Gathers the rows of a delta net's queries, keys and values or of its gates, as they are.
static void gather_rows(const struct load *load, const struct share *share, int i, char *target) {
    const struct recurrent_shape *r = &load->placed->shape->recurrent;
    const struct unit_tensor *t = &share->unit->tensors[share->index[i]];
    const char *source = (const char *)share->tensors[i]->data;
    const uint64_t row_bytes = dtype_bytes(t->type, (uint64_t)t->n_cols);
    const uint64_t n_keys = (uint64_t)r->n_key_heads;
    const uint64_t one = row_bytes * (uint64_t)r->head_dim; // a query or a key
    const uint64_t many = one * (uint64_t)r->n_heads / n_keys;
    for (uint64_t k = 0; k < n_keys; k++, source += 2 * one + 2 * many) {
        if (t->role == ROLE_ATTN_GATE) {
            memcpy(target + k * many, source + 2 * one + many, many);
            continue;
        }
        memcpy(target + k * one, source, one);
        memcpy(target + (n_keys + k) * one, source + one, one);
        memcpy(target + 2 * n_keys * one + k * many, source + 2 * one, many);
    }
}

// Makes the heads' matrices of latent attention of rows that a larger tensor has.
static enum status make_latent(const struct load *load, const struct share *share, int i,
                               float *target, struct err *e) {
    const struct latent_shape *l = &load->placed->shape->latent;
    const uint64_t n = (uint64_t)max_i32(l->key_dim, l->value_dim), n_cells = n * (uint64_t)l->rank;
    const struct head_rows head = {mem_alloc(n_cells, sizeof(float)),
                                   mem_alloc(n, sizeof(int32_t))};
    const enum status status =
        head.rows && head.numbers
            ? make_heads(load, share, i, target, &head, e)
            : err_memory(e, n_cells * sizeof(float), "the keys and values of a head");
    mem_free(head.rows);
    mem_free(head.numbers);
    return status;
}

// Makes a tensor that is converted: of other rows, or F32.
static enum status make_converted(const struct load *load, const struct share *share, int i,
                                  void *target, struct err *e) {
    const struct gguf_tensor *t = share->tensors[i];
    const int32_t first = 0, n_cols = (int32_t)(share->rows[i].size_bytes / sizeof(float));
    if (share->joined[i] && load->placed->shape->latent.rank)
        return make_latent(load, share, i, target, e);
    if (share->joined[i]) {
        gather_rows(load, share, i, target);
        return OK;
    }
    return decode(load, t->type, &(struct embed_args){target, t->data, &first, 1, n_cols, 1, 1}, e);
}

// Sets the address of tensor i of the share, and the bytes from one expert to the next.
static void bind(struct weights *w, const struct share *share, int i, const void *data,
                 uint64_t slot_bytes) {
    const struct unit_tensor *t = &share->unit->tensors[share->index[i]];
    struct weight *table = share->on_cpu && share->cpu_parts ? w->cpu[share->u] : w->home[share->u];
    const struct rows *rows = &share->rows[i];
    table[share->index[i]] = (struct weight){
        t->type, t->n_cols, rows->count, rows->first, (void *)(uintptr_t)data, slot_bytes};
}

static enum status report(struct load *load, uint64_t size_bytes, struct err *e) {
    load->done_bytes += size_bytes;
    if (progress_tell(&load->options->progress, "load", load->done_bytes, load->total_bytes)) {
        return OK;
    }
    return err_set(e, ERR_CANCELLED, "loading was stopped");
}

// Reads a stretch to target or, if via is not NULL, copies it there, on an accelerator. Where
// memory is tight, each piece is dropped from the file's cache, so that the bytes are not in memory
// twice. Else they stay there, and the next start need not read the disk.
static enum status read_stretch(const struct stretch *from, char *target, struct upload *via,
                                struct err *e) {
    if (via) return upload_add(via, from, target, e);
    for (uint64_t done = 0; done < from->size_bytes; done += READ_CHUNK) {
        const uint64_t offset = from->offset + done,
                       n = min_u64(from->size_bytes - done, READ_CHUNK);
        if (file_read(from->file, target + done, offset, n, e)) return e->status;
        if (from->forget) file_forget(from->file, offset, n);
    }
    return OK;
}

// Reads the experts of tensor i of the share one behind the other.
static enum status gather_experts(const struct load *load, const struct share *share, int i,
                                  char *target, struct upload *via, struct err *e) {
    const struct model *m = load->placed->model;
    const enum tensor_role role = share->unit->tensors[share->index[i]].role;
    const uint64_t stride = share->strides[i];
    const struct rows *rows = &share->rows[i];
    const uint64_t one_bytes = rows->size_bytes / (uint64_t)rows->n_experts;
    for (int32_t k = rows->first_expert; k < rows->first_expert + rows->n_experts; k++) {
        const bool apart = stride == EXPERTS_APART;
        const struct gguf_tensor *t =
            apart ? model_find_expert(m, share->unit->layer, role, k) : share->tensors[i];
        const uint64_t offset = t->file_offset + (apart ? 0 : (uint64_t)k * stride);
        const struct stretch from = {&m->gguf->parts[t->part], offset, one_bytes, load->tight};
        if (read_stretch(&from, target, via, e)) return e->status;
        target += one_bytes;
    }
    return OK;
}

// Reads tensor i of the share as it is in the file, experts one behind the other, to target or,
// if via is not NULL, through it.
static enum status read_plain(const struct load *load, const struct share *share, int i,
                              char *target, struct upload *via, struct err *e) {
    const struct gguf_tensor *t = share->tensors[i];
    const struct rows *rows = &share->rows[i];
    if (share->strides[i]) return gather_experts(load, share, i, target, via, e);
    const struct stretch from = {&load->placed->model->gguf->parts[t->part],
                                 t->file_offset + rows->offset_bytes, rows->size_bytes,
                                 load->tight};
    return read_stretch(&from, target, via, e);
}

// Reads or makes tensor i of the share.
static enum status read_tensor(const struct load *load, const struct share *share, int i,
                               char *target, struct err *e) {
    if (is_converted(share, i)) return make_converted(load, share, i, target, e);
    return read_plain(load, share, i, target, NULL, e);
}

// Makes a tensor of the share in the buffer for such tensors.
static enum status make_tensor(struct load *load, const struct share *share, int i, struct err *e) {
    const uint64_t align = load->placed->devices[DEVICE_HOST]->info.align_bytes;
    char *data = (char *)load->w->made.base + load->made_at;
    load->made_at += round_up(share->rows[i].size_bytes, align);
    bind(load->w, share, i, data, 0);
    return read_tensor(load, share, i, data, e);
}

// Bytes of the file from the first to the last of tensor i of the share.
static uint64_t mapped_bytes(const struct share *share, int i) {
    const uint64_t n = (uint64_t)share->rows[i].n_experts, size_bytes = share->rows[i].size_bytes;
    return share->strides[i] ? (n - 1) * share->strides[i] + size_bytes / n : size_bytes;
}

// Bytes of the tensor before the share's.
static uint64_t offset_of(const struct share *share, int i) {
    const struct rows *rows = &share->rows[i];
    return share->strides[i] ? (uint64_t)rows->first_expert * share->strides[i]
                             : rows->offset_bytes;
}

// Locks the bytes in RAM if that was asked for. The first refusal is told and ends it.
static void lock_rows(struct load *load, const struct file *part, uint64_t first,
                      uint64_t size_bytes) {
    struct err e;
    char text[512];
    if (!load->lock || file_lock(part, first, size_bytes, &e) == OK) return;
    load->lock = false;
    log_line(load->options->log, LOG_WARN, "--mlock: %s", err_text(&e, text, sizeof text));
}

// Brings a tensor of the share into memory without a copy.
static enum status map_tensor(struct load *load, const struct share *share, int i, struct err *e) {
    const struct gguf_tensor *t = share->tensors[i];
    const struct file *part = &load->placed->model->gguf->parts[t->part];
    const uint64_t first = t->file_offset + offset_of(share, i);
    const bool cold = load->placed->plan->unit_cold_bytes[share->u] > 0;
    if (!cold && file_populate(part, first, mapped_bytes(share, i), e)) return e->status;
    if (!cold) lock_rows(load, part, first, mapped_bytes(share, i));
    bind(load->w, share, i, t->data + offset_of(share, i), share->strides[i]);
    return OK;
}

// Brings the share into memory, since the host computes with the mapped file.
static enum status map_share(struct load *load, const struct share *share, struct err *e) {
    for (int i = 0; i < share->n; i++) {
        if (is_made(share, i)) {
            if (make_tensor(load, share, i, e)) return e->status;
            continue;
        }
        if (map_tensor(load, share, i, e)) return e->status;
    }
    return OK;
}

static enum status read_share(struct load *load, const struct share *share, struct err *e) {
    const uint64_t align = load->placed->devices[DEVICE_HOST]->info.align_bytes;
    for (int i = 0; i < share->n; i++) {
        char *data = (char *)load->w->arena.base + load->arena_at;
        if (read_tensor(load, share, i, data, e)) return e->status;
        bind(load->w, share, i, data, 0);
        load->arena_at += round_up(share->rows[i].size_bytes, align);
    }
    return OK;
}

// ---- Weights that an accelerator uses where the file is mapped ----------------------------------

enum { LOAD_ALIGN = 16 }; // a kernel loads that many bytes at once

// True if the head has the embedding's table, which is on the device already: the embedding's unit
// comes first.
static bool is_shared(const struct placed_model *placed, const struct share *share, int i) {
    const struct unit_place *units = placed->plan->place.units;
    return i == 0 && share->unit->shares_embed && units[0].device == units[share->u].device;
}

// True if the accelerator can use tensor i of its share where the file is mapped.
static bool lies_ready(const struct share *share, int i) {
    const uint8_t *data = share->tensors[i]->data + share->rows[i].offset_bytes;
    return !is_made(share, i) && !share->strides[i] && (uintptr_t)data % LOAD_ALIGN == 0;
}

static int by_address(const void *a, const void *b) {
    const struct mapped_range *one = a, *other = b;
    return (one->base > other->base) - (one->base < other->base);
}

// Lists what the accelerator can use, tensor by tensor, in the order of addresses. Returns the
// bytes that the plan counts for it.
static uint64_t list_ready(struct weights *w, const struct placed_model *placed) {
    const uint64_t align = w->reader->info.align_bytes;
    uint64_t bytes = 0;
    for (int32_t u = 0; u < placed->plan->n_units; u++) {
        if (placed->plan->place.units[u].device == DEVICE_HOST) continue;
        const struct share share = share_of(placed, u, false);
        for (int i = 0; i < share.n; i++) {
            const uint64_t size_bytes = share.rows[i].size_bytes;
            if (is_shared(placed, &share, i) || !lies_ready(&share, i)) continue;
            w->ranges[w->n_ranges++] = (struct mapped_range){
                share.tensors[i]->data + share.rows[i].offset_bytes, size_bytes};
            bytes += round_up(size_bytes, align);
        }
    }
    qsort(w->ranges, (size_t)w->n_ranges, sizeof *w->ranges, by_address);
    return bytes;
}

// Joins ranges with less than a page between them.
static void join_ranges(struct weights *w) {
    int32_t n = 0;
    for (int32_t i = 0; i < w->n_ranges; i++) {
        const struct mapped_range r = w->ranges[i];
        struct mapped_range *last = n > 0 ? &w->ranges[n - 1] : NULL;
        const uint64_t apart = last ? (uint64_t)(r.base - last->base) : 0;
        if (last && apart < last->size_bytes + PAGE_GAP)
            last->size_bytes = max_u64(last->size_bytes, apart + r.size_bytes);
        else
            w->ranges[n++] = r;
    }
    w->n_ranges = n;
}

static void forget_ranges(struct weights *w) {
    for (int32_t i = 0; i < w->n_ranges; i++)
        device_host_unregister(w->reader, (void *)(uintptr_t)w->ranges[i].base);
    mem_free(w->ranges);
    w->ranges = NULL;
    w->n_ranges = 0;
}

// Tells an accelerator whose memory is the host's of the mapped weights that it can use; if it
// refuses some, it gets copies of all. *bytes: of the plan, that need no copy.
static enum status tell_ranges(struct weights *w, const struct placed_model *placed,
                               uint64_t *bytes, struct err *e) {
    const size_t n_most = (size_t)placed->plan->n_units * MAX_UNIT_TENSORS;
    *bytes = 0;
    if (!w->reader || !w->reader->info.unified) return OK;
    w->ranges = mem_alloc(n_most, sizeof *w->ranges);
    if (!w->ranges) return err_memory(e, n_most * sizeof *w->ranges, "the list of weights");
    const uint64_t ready_bytes = list_ready(w, placed);
    join_ranges(w);
    for (int32_t i = 0; i < w->n_ranges; i++) {
        const struct mapped_range *r = &w->ranges[i];
        if (device_host_register(w->reader, (void *)(uintptr_t)r->base, r->size_bytes)) continue;
        w->n_ranges = i;
        forget_ranges(w);
        return OK;
    }
    *bytes = ready_bytes;
    return OK;
}

// Copies a tensor of the share that is converted.
static enum status copy_converted(const struct load *load, const struct share *share, int i,
                                  char *target, struct upload *via, struct err *e) {
    const uint64_t size_bytes = share->rows[i].size_bytes;
    float *made = mem_alloc(size_bytes / sizeof *made, sizeof *made);
    if (!made) return err_memory(e, size_bytes, "a tensor that is converted");
    enum status status = make_converted(load, share, i, made, e);
    if (!status) {
        stream_copy(via->copy, target, made, size_bytes, COPY_TO_DEVICE);
        status = stream_wait(via->copy, e);
    }
    mem_free(made);
    return status;
}

static enum status copy_share(struct load *load, const struct share *share, int device,
                              struct err *e) {
    const struct device *d = load->placed->devices[device];
    struct upload *via = &load->uploads[device];
    for (int i = 0; i < share->n; i++) {
        const struct rows *rows = &share->rows[i];
        if (is_shared(load->placed, share, i)) {
            load->w->home[share->u][0] = load->w->home[0][0];
            continue;
        }
        if (load->w->in_place.size_bytes && lies_ready(share, i)) {
            if (map_tensor(load, share, i, e)) return e->status;
            continue;
        }
        char *data = (char *)load->w->buffers[device].base + load->at[device];
        bind(load->w, share, i, data, 0);
        if (is_converted(share, i) ? copy_converted(load, share, i, data, via, e)
                                   : read_plain(load, share, i, data, via, e))
            return e->status;
        load->at[device] += round_up(rows->size_bytes, d->info.align_bytes);
    }
    return via->device ? upload_wait(via, e) : OK; // NULL: everything is in place
}

// True if the CPU's rows of the unit are in the arena.
static bool in_arena(const struct plan *plan, int32_t u) {
    return plan->place.units[u].streamed && plan->place.feed == FEED_ARENA;
}

// Loads the CPU's share of a unit: all of it, or the last rows of a split unit.
static enum status load_on_cpu(struct load *load, int32_t u, struct err *e) {
    const struct share share = share_of(load->placed, u, true);
    return in_arena(load->placed->plan, u) && !load->w->lent ? read_share(load, &share, e)
                                                             : map_share(load, &share, e);
}

static enum status load_unit(struct load *load, int32_t u, struct err *e) {
    const struct plan *plan = load->placed->plan;
    const int d = plan->place.units[u].device;
    if (d != DEVICE_HOST) {
        const struct share share = share_of(load->placed, u, false);
        if (copy_share(load, &share, d, e)) return e->status;
    }
    if ((d == DEVICE_HOST || plan->place.units[u].cpu_parts) && load_on_cpu(load, u, e))
        return e->status;
    return report(load, plan->unit_weight_bytes[u] + plan->unit_cpu_bytes[u], e);
}

static enum status load_units(struct load *load, struct err *e) {
    const struct plan *plan = load->placed->plan;
    struct weights *w = load->w;
    for (int u = 0; u < plan->n_units; u++)
        load->total_bytes += plan->unit_weight_bytes[u] + plan->unit_cpu_bytes[u];
    for (int32_t u = 0; u < plan->n_units; u++)
        if (load_unit(load, u, e)) return e->status;
    for (int d = DEVICE_HOST + 1; d < plan->machine.n_devices; d++)
        ASSERT(load->at[d] == w->buffers[d].size_bytes);
    ASSERT(w->lent || load->arena_at == w->arena.size_bytes);
    ASSERT(load->made_at == w->made.size_bytes);
    return OK;
}

// Lists what the arena would hold, tensor by tensor, in the order of addresses. False if some of it
// is not in the file as the accelerator needs it.
static bool list_streamed(struct weights *w, const struct placed_model *placed) {
    for (int32_t u = 0; u < placed->plan->n_units; u++) {
        if (!in_arena(placed->plan, u)) continue;
        const struct share share = share_of(placed, u, true);
        for (int i = 0; i < share.n; i++) {
            if (is_made(&share, i) || share.strides[i]) return false;
            w->ranges[w->n_ranges++] = (struct mapped_range){
                share.tensors[i]->data + share.rows[i].offset_bytes, share.rows[i].size_bytes};
        }
    }
    qsort(w->ranges, (size_t)w->n_ranges, sizeof *w->ranges, by_address);
    return true;
}

// Lends the accelerator the mapped file where the streamed weights lie, so that a start copies
// nothing. False where device, system or file do not allow it: then they need an arena.
static enum status lend_streamed(struct weights *w, const struct placed_model *placed, bool *done,
                                 struct err *e) {
    const size_t n_most = (size_t)placed->plan->n_units * MAX_UNIT_TENSORS;
    *done = false;
    if (!w->reader || !w->reader->info.pins_files || w->ranges) return OK;
    w->ranges = mem_alloc(n_most, sizeof *w->ranges);
    if (!w->ranges) return err_memory(e, n_most * sizeof *w->ranges, "the list of weights");
    *done = list_streamed(w, placed);
    if (*done) join_ranges(w);
    for (int32_t i = 0; i < w->n_ranges && *done; i++) {
        *done = i < MOST_LENT &&
                device_host_lend(w->reader, w->ranges[i].base, w->ranges[i].size_bytes);
        if (!*done) w->n_ranges = i;
    }
    if (!*done) forget_ranges(w);
    return OK;
}

// Counts the weights of all units on each device, and those of the host that are in the arena
// instead.
static void count_bytes(const struct plan *plan, uint64_t bytes[MAX_DEVICES],
                        uint64_t *arena_bytes) {
    for (int32_t u = 0; u < plan->n_units; u++) {
        const int d = plan->place.units[u].device;
        if (d != DEVICE_HOST) bytes[d] += plan->unit_weight_bytes[u];
        const uint64_t cpu_bytes =
            d == DEVICE_HOST ? plan->unit_weight_bytes[u] : plan->unit_cpu_bytes[u];
        *(in_arena(plan, u) ? arena_bytes : &bytes[DEVICE_HOST]) += cpu_bytes;
    }
}

// Counts those weights of the host that it makes, and does not use where the file is mapped.
static uint64_t count_made(const struct placed_model *placed) {
    const struct plan *plan = placed->plan;
    const uint64_t align = placed->devices[DEVICE_HOST]->info.align_bytes;
    uint64_t bytes = 0;
    for (int32_t u = 0; u < plan->n_units; u++) {
        const struct unit_place *place = &plan->place.units[u];
        if (in_arena(plan, u) || (place->device != DEVICE_HOST && !place->cpu_parts)) continue;
        const struct share share = share_of(placed, u, true);
        for (int i = 0; i < share.n; i++)
            if (is_made(&share, i)) bytes += round_up(share.rows[i].size_bytes, align);
    }
    return bytes;
}

static enum status open_buffers(struct weights *w, const struct placed_model *placed,
                                struct err *e) {
    const int n_devices = placed->plan->machine.n_devices;
    uint64_t bytes[MAX_DEVICES] = {0}, arena_bytes = 0;
    const uint64_t made_bytes = count_made(placed);
    count_bytes(placed->plan, bytes, &arena_bytes);
    bytes[DEVICE_HOST] -= made_bytes;
    if (n_devices > 1) w->reader = placed->devices[n_devices - 1];
    if (made_bytes &&
        buffer_new(placed->devices[DEVICE_HOST], made_bytes, PURPOSE_WEIGHTS, &w->made, e))
        return e->status;
    void *mapping = (void *)(uintptr_t)placed->model->gguf->parts[0].map;
    buffer_map(placed->devices[DEVICE_HOST], mapping, bytes[DEVICE_HOST], PURPOSE_WEIGHTS,
               &w->buffers[DEVICE_HOST]);
    uint64_t in_place_bytes;
    if (tell_ranges(w, placed, &in_place_bytes, e)) return e->status;
    if (in_place_bytes) {
        bytes[n_devices - 1] -= in_place_bytes;
        buffer_map(w->reader, mapping, in_place_bytes, PURPOSE_WEIGHTS, &w->in_place);
    }
    for (int d = DEVICE_HOST + 1; d < n_devices; d++) {
        if (bytes[d] &&
            buffer_new(placed->devices[d], bytes[d], PURPOSE_WEIGHTS, &w->buffers[d], e))
            return e->status;
    }
    if (!arena_bytes) return OK;
    if (lend_streamed(w, placed, &w->lent, e)) return e->status;
    if (w->lent) {
        buffer_map(placed->devices[DEVICE_HOST], mapping, arena_bytes, PURPOSE_WEIGHTS, &w->arena);
        return OK;
    }
    if (buffer_new(placed->devices[DEVICE_HOST], arena_bytes, PURPOSE_WEIGHTS, &w->arena, e))
        return e->status;
    for (int d = DEVICE_HOST + 1; d < n_devices; d++) {
        w->pinned_for = placed->devices[d];
        w->arena_refused = !device_host_register(w->pinned_for, w->arena.base, w->arena.size_bytes);
    }
    return OK;
}

enum status weights_open(struct weights *w, const struct placed_model *placed, struct err *e) {
    const size_t n_units = (size_t)placed->shape->n_units;
    *w = (struct weights){0};
    w->home = mem_alloc(n_units, sizeof *w->home);
    w->cpu = mem_alloc(n_units, sizeof *w->cpu);
    if (!w->home || !w->cpu)
        return err_memory(e, 2 * n_units * sizeof *w->home, "the table of weights");
    return open_buffers(w, placed, e);
}

enum status weights_load(struct weights *w, const struct placed_model *placed,
                         const struct engine_options *options, struct err *e) {
    const struct plan *plan = placed->plan;
    struct load load = {.w = w,
                        .placed = placed,
                        .options = options,
                        .tight =
                            plan_needs(plan, DEVICE_HOST) + (w->lent ? 0 : w->arena.size_bytes) >
                            plan->machine.devices[DEVICE_HOST].budget_bytes,
                        .lock = options->lock_memory};
    const int n_devices = plan->machine.n_devices;
    enum status status =
        stream_new(placed->devices[DEVICE_HOST], STREAM_COMPUTE, &load.converter, e);
    for (int d = 0; d < n_devices && !status; d++) {
        if (placed->devices[d]->info.is_host || !w->buffers[d].size_bytes) continue;
        status = upload_open(&load.uploads[d], placed->devices[d], e);
    }
    if (!status) status = load_units(&load, e);
    for (int d = 0; d < n_devices; d++) upload_close(&load.uploads[d]);
    stream_free(load.converter);
    return status;
}

void weights_close(struct weights *w) {
    if (w->pinned_for) {
        device_host_unregister(w->pinned_for, w->arena.base);
        w->arena.abandoned = w->pinned_for->lost; // a copy may still read it
    }
    buffer_free(&w->arena);
    w->made.abandoned = w->reader && w->reader->lost;
    buffer_free(&w->made);
    if (w->reader) forget_ranges(w);
    buffer_free(&w->in_place);
    for (int d = 0; d < MAX_DEVICES; d++) buffer_free(&w->buffers[d]);
    mem_free(w->home);
    mem_free(w->cpu);
    *w = (struct weights){0};
}

const struct weight *weights_of(const struct weights *w, int32_t unit) { return w->home[unit]; }

const struct weight *weights_of_cpu(const struct weights *w, int32_t unit, bool split) {
    return split ? w->cpu[unit] : w->home[unit];
}
