/* quantize_file.c: see quantize_file.h. */
#include "runtime/quantize/quantize_file.h"

#include "base/mem.h"
#include "base/new_file.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/quantize.h"
#include "runtime/gguf/gguf_write.h"
#include "runtime/quantize/importance.h"
#include "runtime/quantize/key_overrides.h"
#include "runtime/quantize/pruning.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK_ELEMENTS = 4 << 20, WRITE_BYTES = 1 << 20, QUANTIZATION_VERSION = 2 };

// A model on its way into a new file.
struct job {
    const struct quantize_options *options;
    struct gguf gguf;
    struct pruning pruning;       // of gguf
    struct importance importance; // empty without a file
    struct type_rules rules;
    struct key_overrides overrides;
    enum dtype *types; // [n_tensors]
    struct team *team;
    int32_t n_lanes;
    float *rows;              // [n_lanes, longest row]: a row as floats for each lane
    uint64_t *bad;            // [n_lanes], of struct row_work
    uint8_t *chunk;           // quantised rows
    struct new_file *targets; // owned, [n_targets]: the parts of the new file, or one
    uint32_t n_targets;
    struct new_file *target; // the one of targets that tensors are written to
    uint64_t done_bytes;     // of the source's tensors
    struct quantize_result result;
};

// ---- Rows ---------------------------------------------------------------------------------------

// Rows of one tensor, which the lanes share out.
struct row_work {
    const struct gguf_tensor *tensor;
    enum weight_type from;
    enum dtype to;
    const float *importance; // NULL: none
    bool per_matrix;
    uint64_t first, count;             // rows
    size_t source_bytes, target_bytes; // of a row
    float *rows;
    uint8_t *out;
    uint64_t *bad; // [n_lanes]: the first row that holds no usable number, or UINT64_MAX
};

static bool usable(const float *row, uint64_t n, float most) {
    for (uint64_t i = 0; i < n; i++)
        if (!(fabsf(row[i]) <= most)) return false;
    return true;
}

static const float *row_importance(const struct row_work *w, uint64_t row) {
    if (!w->importance || !w->per_matrix) return w->importance;
    return w->importance + row / w->tensor->ne[1] % w->tensor->ne[2] * w->tensor->ne[0];
}

static void quantize_lane(const struct lane *lane, void *context) {
    const struct row_work *w = context;
    const int64_t n = (int64_t)w->tensor->ne[0];
    float *row = w->rows + lane->index * n;
    int64_t first, last;
    lane_share(lane, (int64_t)w->count, 1, &first, &last);
    w->bad[lane->index] = UINT64_MAX;
    for (int64_t i = first; i < last; i++) {
        const uint64_t number = w->first + (uint64_t)i;
        dequantize_row(w->from, w->tensor->data + number * w->source_bytes, row, n);
        if (!usable(row, (uint64_t)n, quantize_most(w->to))) {
            w->bad[lane->index] = number;
            return;
        }
        quantize_row(w->to, row, row_importance(w, number), w->out + (size_t)i * w->target_bytes,
                     n);
    }
}

static enum status check_rows(const struct job *j, const struct row_work *w, struct err *e) {
    for (int32_t i = 0; i < j->n_lanes; i++) {
        if (w->bad[i] == UINT64_MAX) continue;
        err_set(e, ERR_FORMAT, "tensor %.*s, row %llu: an element is no number, or too large",
                (int)w->tensor->name.length, w->tensor->name.bytes, (unsigned long long)w->bad[i]);
        return err_expected(e, "magnitudes up to %g", (double)quantize_most(w->to));
    }
    return OK;
}

// ---- Tensors ------------------------------------------------------------------------------------

static enum status tell(struct job *j, uint64_t bytes, struct err *e) {
    j->done_bytes += bytes;
    if (progress_tell(&j->options->progress, "quantize", j->done_bytes, j->result.source_bytes))
        return OK;
    return err_set(e, ERR_CANCELLED, "quantising was stopped; no file is left");
}

static enum status copy_tensor(struct job *j, const struct gguf_tensor *t, struct err *e) {
    for (uint64_t at = 0, n; at < t->size_bytes; at += n) {
        n = t->size_bytes - at < WRITE_BYTES ? t->size_bytes - at : WRITE_BYTES;
        if (new_file_write(j->target, t->data + at, n, e) || tell(j, n, e)) return e->status;
        file_forget(&j->gguf.parts[t->part], t->file_offset + at, n);
    }
    return OK;
}

static enum status quantize_rows(struct job *j, struct row_work *w, struct err *e) {
    team_run(j->team, quantize_lane, w);
    if (check_rows(j, w, e) || new_file_write(j->target, w->out, w->count * w->target_bytes, e))
        return e->status;
    const struct gguf_tensor *t = w->tensor;
    file_forget(&j->gguf.parts[t->part], t->file_offset + w->first * w->source_bytes,
                w->count * w->source_bytes);
    return tell(j, w->count * w->source_bytes, e);
}

static uint64_t rows_of(const struct gguf_tensor *t) { return t->ne[1] * t->ne[2] * t->ne[3]; }

static uint64_t chunk_rows(uint64_t n_columns) {
    return n_columns < CHUNK_ELEMENTS ? CHUNK_ELEMENTS / n_columns : 1;
}

static enum status quantize_tensor(struct job *j, const struct gguf_tensor *t, enum dtype to,
                                   struct err *e) {
    const uint64_t n_rows = rows_of(t), most = chunk_rows(t->ne[0]);
    struct row_work w = {.tensor = t,
                         .to = to,
                         .source_bytes = dtype_bytes(t->type, t->ne[0]),
                         .target_bytes = dtype_bytes(to, t->ne[0]),
                         .rows = j->rows,
                         .out = j->chunk,
                         .bad = j->bad};
    const bool is_weight = dtype_weight(t->type, &w.from);
    ASSERT(is_weight); // mixture_choose takes no other
    if (importance_find(&j->importance, t, &w.importance, &w.per_matrix, e)) return e->status;
    for (; w.first < n_rows; w.first += w.count) {
        w.count = n_rows - w.first < most ? n_rows - w.first : most;
        if (quantize_rows(j, &w, e)) return e->status;
    }
    return OK;
}

// ---- The head -----------------------------------------------------------------------------------

static bool key_is(const struct gguf_value *value, const char *key) {
    return value->key.length == strlen(key) && memcmp(value->key.bytes, key, strlen(key)) == 0;
}

// Keys that the new file has with other values or not at all.
static bool is_replaced(const struct job *j, const struct gguf_value *value) {
    static const char *const keys[] = {"general.quantization_version",
                                       "split.no",
                                       "split.count",
                                       "split.tensors.count",
                                       "quantize.imatrix.file",
                                       "quantize.imatrix.dataset",
                                       "quantize.imatrix.entries_count",
                                       "quantize.imatrix.chunks_count"};
    if (key_overrides_have(&j->overrides, value->key)) return true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (key_is(value, keys[i])) return true;
    if (j->pruning.n_gone && key_is(value, j->pruning.key)) return true;
    return key_is(value, "general.file_type") && !mixture_copies(j->options->mixture);
}

// True if the new file has no value of that key yet.
static bool is_free(const struct job *j, const char *key) {
    return !key_overrides_have(&j->overrides, (struct gguf_text){key, strlen(key)});
}

static void add_number(const struct job *j, struct gguf_head *h, const char *key, uint32_t number) {
    if (is_free(j, key)) gguf_head_u32(h, key, number);
}

static void add_text(const struct job *j, struct gguf_head *h, const char *key, const char *text) {
    if (is_free(j, key)) gguf_head_text(h, key, text);
}

static void add_importance(const struct job *j, struct gguf_head *h) {
    const struct importance *m = &j->importance;
    add_text(j, h, "quantize.imatrix.file", j->options->importance);
    if (m->dataset) add_text(j, h, "quantize.imatrix.dataset", m->dataset);
    add_number(j, h, "quantize.imatrix.entries_count", m->n_entries);
    if (m->n_chunks) add_number(j, h, "quantize.imatrix.chunks_count", (uint32_t)m->n_chunks);
}

static void add_keys(const struct job *j, struct gguf_head *h) {
    const struct quantize_options *o = j->options;
    for (uint32_t i = 0; i < j->gguf.n_values; i++)
        if (!is_replaced(j, &j->gguf.values[i])) gguf_head_value(h, &j->gguf.values[i]);
    if (!mixture_copies(o->mixture)) add_number(j, h, "general.file_type", o->mixture->file_type);
    add_number(j, h, "general.quantization_version", QUANTIZATION_VERSION);
    const struct pruning *p = &j->pruning;
    if (p->n_gone) add_number(j, h, p->key, (uint32_t)(p->n_layers - p->n_gone));
    if (o->importance) add_importance(j, h);
    key_overrides_write(&j->overrides, h);
}

// Says which part this is, where there are several. Later parts have no other keys, but that of an
// unusual alignment, by which they are read, too.
static void add_part(const struct job *j, struct gguf_head *h, uint32_t part) {
    const struct gguf_value *alignment = gguf_find(&j->gguf, "general.alignment");
    if (part > 0 && alignment) gguf_head_value(h, alignment);
    if (j->n_targets == 1) return;
    gguf_head_u16(h, "split.no", (uint16_t)part);
    gguf_head_u16(h, "split.count", (uint16_t)j->n_targets);
    gguf_head_i32(h, "split.tensors.count", (int32_t)j->gguf.n_tensors);
}

// The part of the new file that a tensor goes to.
static uint32_t part_of(const struct job *j, const struct gguf_tensor *t) {
    return j->n_targets > 1 ? t->part : 0;
}

static uint64_t target_bytes(const struct job *j, uint32_t i) {
    const struct gguf_tensor *t = &j->gguf.tensors[i];
    return dtype_bytes(j->types[i], t->ne[0]) * rows_of(t);
}

// Fills the result, and tells the listener of the log every change.
static enum status count_changes(struct job *j, struct err *e) {
    struct quantize_result *r = &j->result;
    r->n_tensors = j->gguf.n_tensors;
    r->n_parts = j->options->keep_split ? j->gguf.n_parts : 1;
    for (uint32_t i = 0; i < j->gguf.n_tensors; i++) {
        const struct gguf_tensor *t = &j->gguf.tensors[i];
        const float *importance = NULL;
        bool per_matrix;
        r->source_bytes += t->size_bytes;
        r->target_bytes += target_bytes(j, i);
        r->n_elements += t->ne[0] * rows_of(t);
        if (j->types[i] == t->type) continue;
        if (importance_find(&j->importance, t, &importance, &per_matrix, e)) return e->status;
        r->n_changed++;
        r->n_important += importance != NULL;
        log_line(j->options->log, LOG_INFO, "%.*s: %s to %s%s",
                 (int)(t->name.length < 128 ? t->name.length : 128), t->name.bytes,
                 dtype_name(t->type), dtype_name(j->types[i]),
                 importance ? " with importance" : "");
    }
    return OK;
}

// Fills *h.
static enum status make_head(struct job *j, uint32_t part, struct gguf_head *h, struct err *e) {
    uint64_t offset = 0;
    gguf_head_open(h);
    if (part == 0) add_keys(j, h);
    add_part(j, h, part);
    for (uint32_t i = 0; i < j->gguf.n_tensors; i++) {
        const struct gguf_tensor *t = &j->gguf.tensors[i];
        if (part_of(j, t) != part) continue;
        gguf_head_tensor(h, t, j->types[i], offset);
        offset += round_up(target_bytes(j, i), j->gguf.alignment);
    }
    if (gguf_head_finish(h, j->gguf.alignment, e)) return e->status;
    return new_file_reserve(&j->targets[part], h->size + offset, e);
}

static enum status write_heads(struct job *j, struct err *e) {
    enum status status = OK;
    for (uint32_t part = 0; part < j->n_targets && !status; part++) {
        struct gguf_head head;
        status = make_head(j, part, &head, e);
        if (!status) status = new_file_write(&j->targets[part], head.bytes, head.size, e);
        gguf_head_close(&head);
    }
    return status;
}

// ---- The whole file -----------------------------------------------------------------------------

static enum status pad(struct job *j, uint64_t written, struct err *e) {
    static const uint8_t zeros[256];
    for (uint64_t left = round_up(written, j->gguf.alignment) - written; left > 0;) {
        const uint64_t n = left < sizeof zeros ? left : sizeof zeros;
        if (new_file_write(j->target, zeros, n, e)) return e->status;
        left -= n;
    }
    return OK;
}

static enum status write_tensors(struct job *j, struct err *e) {
    for (uint32_t i = 0; i < j->gguf.n_tensors; i++) {
        const struct gguf_tensor *t = &j->gguf.tensors[i];
        j->target = &j->targets[part_of(j, t)];
        const enum status status =
            j->types[i] == t->type ? copy_tensor(j, t, e) : quantize_tensor(j, t, j->types[i], e);
        if (status || pad(j, target_bytes(j, i), e)) return e->status;
    }
    return OK;
}

static enum status make_buffers(struct job *j, struct err *e) {
    uint64_t longest = 1, chunk = 1;
    for (uint32_t i = 0; i < j->gguf.n_tensors; i++) {
        const struct gguf_tensor *t = &j->gguf.tensors[i];
        const uint64_t n_rows =
            rows_of(t) < chunk_rows(t->ne[0]) ? rows_of(t) : chunk_rows(t->ne[0]);
        const uint64_t bytes = n_rows * dtype_bytes(j->types[i], t->ne[0]);
        if (j->types[i] == t->type) continue;
        if (t->ne[0] > longest) longest = t->ne[0];
        if (bytes > chunk) chunk = bytes;
    }
    j->bad = mem_alloc((size_t)j->n_lanes, sizeof *j->bad);
    j->rows = mem_alloc((size_t)j->n_lanes * longest, sizeof *j->rows);
    j->chunk = mem_alloc(chunk, 1);
    if (j->bad && j->rows && j->chunk) return OK;
    return err_memory(e, chunk + (size_t)j->n_lanes * longest * sizeof *j->rows,
                      "rows of a tensor");
}

static enum status open_job(struct job *j, struct err *e) {
    const struct quantize_options *o = j->options;
    if (type_rules_open(&j->rules, &o->types, e) ||
        key_overrides_open(&j->overrides, o->overrides, o->n_overrides, e) ||
        gguf_open(&j->gguf, o->source, e) ||
        pruning_open(&j->pruning, o->prune_layers, &j->gguf, e))
        return e->status;
    if (o->importance && (importance_open(&j->importance, o->importance, e) ||
                          importance_choose(&j->importance, &o->important, o->log, e) ||
                          importance_prune(&j->importance, &j->pruning, e)))
        return e->status;
    j->types = mem_alloc(j->gguf.n_tensors, sizeof *j->types);
    if (!j->types) return err_memory(e, j->gguf.n_tensors * sizeof *j->types, "the types");
    const struct mixture_terms terms = {.importance = o->importance ? &j->importance : NULL,
                                        .rules = &j->rules,
                                        .requantize = o->requantize};
    if (mixture_choose(o->mixture, &j->gguf, &terms, j->types, e))
        return err_context(e, "%s", o->source);
    type_rules_warn(&j->rules, o->log);
    return count_changes(j, e);
}

// The name of a part of the new file, which the caller frees; NULL if memory is refused.
static char *part_path(const struct job *j, uint32_t part) {
    static const char ending[] = ".gguf";
    const struct quantize_options *o = j->options;
    size_t length = strlen(o->target);
    if (!o->keep_split) return mem_text(o->target, length);
    const size_t n = sizeof ending - 1, room = length + 40;
    if (length > n && strcmp(o->target + length - n, ending) == 0) length -= n;
    char *path = mem_alloc(room, 1);
    if (path)
        snprintf(path, room, "%.*s-%05u-of-%05u.gguf", (int)length, o->target, part + 1,
                 j->n_targets);
    return path;
}

static enum status open_targets(struct job *j, struct err *e) {
    const uint32_t n = j->options->keep_split ? j->gguf.n_parts : 1;
    j->targets = mem_alloc(n, sizeof *j->targets);
    if (!j->targets) return err_memory(e, n * sizeof *j->targets, "the parts of the new file");
    j->n_targets = n;
    enum status status = OK;
    for (uint32_t part = 0; part < n && !status; part++) {
        char *path = part_path(j, part);
        status = path ? new_file_open(&j->targets[part], path, e)
                      : err_memory(e, strlen(j->options->target), "the name of a part");
        mem_free(path);
    }
    return status;
}

// Gives all parts their names; if one cannot have it, those before it go again.
static enum status commit(struct job *j, struct err *e) {
    for (uint32_t part = 0; part < j->n_targets; part++) {
        if (new_file_commit(&j->targets[part], e) == OK) continue;
        for (uint32_t named = 0; named < part; named++) {
            char *path = part_path(j, named);
            if (path) remove(path);
            mem_free(path);
        }
        return e->status;
    }
    return OK;
}

static enum status open_work(struct job *j, struct err *e) {
    const struct quantize_options *o = j->options;
    if (team_open(&j->team, o->n_threads, false, e)) return e->status;
    j->n_lanes = team_size(j->team);
    if (make_buffers(j, e)) return e->status;
    return open_targets(j, e);
}

static void close_job(struct job *j) {
    for (uint32_t part = 0; part < j->n_targets; part++) new_file_close(&j->targets[part]);
    mem_free(j->targets);
    team_close(j->team);
    importance_close(&j->importance);
    type_rules_close(&j->rules);
    key_overrides_close(&j->overrides);
    gguf_close(&j->gguf);
    pruning_close(&j->pruning);
    mem_free(j->types);
    mem_free(j->rows);
    mem_free(j->bad);
    mem_free(j->chunk);
}

enum status quantize_file(const struct quantize_options *options, struct quantize_result *result,
                          struct err *e) {
    struct job job = {.options = options};
    enum status status = OK;
    if (open_job(&job, e))
        status = e->status;
    else if (options->target && (open_work(&job, e) || write_heads(&job, e) ||
                                 write_tensors(&job, e) || commit(&job, e)))
        status = e->status;
    *result = job.result;
    close_job(&job);
    return status;
}
