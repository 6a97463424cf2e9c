/* importance.c: see importance.h. */
#include "runtime/quantize/importance.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

enum { ENTRIES_MOST = 1 << 20, NAME_MOST = 1024 };

static enum status make_entries(struct importance *m, uint32_t n, struct err *e) {
    m->entries = mem_alloc(n, sizeof *m->entries);
    if (!m->entries) return err_memory(e, n * sizeof *m->entries, "the matrix of importance");
    m->n_entries = n;
    return OK;
}

static enum status make_entry(struct importance_entry *entry, const char *name, size_t length,
                              uint64_t n_values, struct err *e) {
    if (memchr(name, 0, length))
        return err_set(e, ERR_FORMAT, "the name of a tensor has a zero byte");
    entry->name = mem_text(name, length);
    entry->values = mem_alloc(n_values, sizeof *entry->values);
    entry->n_values = n_values;
    if (entry->name && entry->values) return OK;
    return err_memory(e, n_values * sizeof *entry->values, "the matrix of importance");
}

static enum status check_values(const struct importance_entry *entry, struct err *e) {
    for (uint64_t i = 0; i < entry->n_values; i++) {
        if (entry->values[i] >= 0 && entry->values[i] < INFINITY) continue;
        err_set(e, ERR_FORMAT, "importance of %s, column %llu", entry->name, (unsigned long long)i);
        err_expected(e, "a number of 0 or more");
        return err_actual(e, "%g", (double)entry->values[i]);
    }
    return OK;
}

static enum status make_index(struct importance *m, struct err *e) {
    if (strmap_init(&m->index, m->n_entries, e)) return e->status;
    for (uint32_t i = 0; i < m->n_entries; i++) {
        const char *name = m->entries[i].name;
        if (!*name) continue; // pruned
        if (check_values(&m->entries[i], e)) return e->status;
        if (!strmap_put(&m->index, name, (uint32_t)strlen(name), i))
            return err_set(e, ERR_FORMAT, "importance of %s comes twice", name);
    }
    return OK;
}

// ---- GGUF ---------------------------------------------------------------------------------------

static const char SUMS[] = ".in_sum2", COUNTS[] = ".counts";

static bool ends_with_sums(const struct gguf_tensor *t) {
    const size_t length = sizeof SUMS - 1;
    return t->name.length > length && t->name.length < NAME_MOST &&
           memcmp(t->name.bytes + t->name.length - length, SUMS, length) == 0;
}

// The sums [n_matrices, n_columns] over how often the matrix was used; a matrix without use gets
// ones.
static void divide(const float *sums, const float *counts, uint64_t n_columns, uint64_t n_matrices,
                   float *out) {
    for (uint64_t i = 0; i < n_columns * n_matrices; i++) {
        float sum, count;
        memcpy(&sum, sums + i, sizeof sum);
        memcpy(&count, counts + i / n_columns, sizeof count);
        out[i] = count > 0 ? sum / count : 1;
    }
}

static enum status read_tensor(struct importance_entry *entry, const struct gguf *g,
                               const struct gguf_tensor *sums, struct err *e) {
    char name[NAME_MOST + sizeof COUNTS];
    const size_t length = sums->name.length - (sizeof SUMS - 1);
    memcpy(name, sums->name.bytes, length);
    memcpy(name + length, COUNTS, sizeof COUNTS);
    const struct gguf_tensor *counts = gguf_find_tensor(g, name);
    const uint64_t n_columns = sums->ne[0],
                   n_matrices = sums->size_bytes / sizeof(float) / n_columns;
    if (sums->type != DTYPE_F32 || !counts || counts->type != DTYPE_F32 ||
        counts->size_bytes != n_matrices * sizeof(float)) {
        err_set(e, ERR_FORMAT, "importance of %.*s", (int)length, name);
        return err_expected(e, "sums and a count for each matrix, in F32");
    }
    if (make_entry(entry, name, length, n_columns * n_matrices, e)) return e->status;
    divide((const float *)(const void *)sums->data, (const float *)(const void *)counts->data,
           n_columns, n_matrices, entry->values);
    return OK;
}

static enum status set_dataset(struct importance *m, struct gguf_text text, struct err *e) {
    m->dataset = mem_text(text.bytes, text.length);
    return m->dataset ? OK : err_memory(e, text.length, "the matrix of importance");
}

// Reads where the numbers come from: of several texts the first is told.
static enum status read_source(struct importance *m, const struct gguf *g, struct err *e) {
    const struct gguf_value *texts = gguf_find(g, "imatrix.datasets");
    const uint8_t *cursor = NULL;
    struct gguf_text first;
    if (gguf_read_u64(g, "imatrix.chunk_count", 0, UINT32_MAX, &m->n_chunks, e)) return e->status;
    if (!texts || texts->type != GGUF_ARRAY || texts->element != GGUF_STRING ||
        !gguf_next_text(texts, &cursor, &first))
        return OK;
    return set_dataset(m, first, e);
}

static enum status read_gguf(struct importance *m, const char *path, struct err *e) {
    struct gguf g;
    uint32_t n = 0;
    enum status status = OK;
    if (gguf_open(&g, path, e)) return e->status;
    for (uint32_t i = 0; i < g.n_tensors; i++) n += ends_with_sums(&g.tensors[i]);
    if (n == 0)
        status = err_set(e, ERR_FORMAT, "%s holds no importance", path);
    else
        status = make_entries(m, n, e);
    for (uint32_t i = 0, next = 0; i < g.n_tensors && !status; i++)
        if (ends_with_sums(&g.tensors[i]))
            status = read_tensor(&m->entries[next++], &g, &g.tensors[i], e);
    if (!status) status = read_source(m, &g, e);
    gguf_close(&g);
    return status;
}

// ---- The older form -----------------------------------------------------------------------------

// Bytes of the file that are not read yet.
struct rest {
    const uint8_t *bytes;
    uint64_t size;
};

static bool take(struct rest *r, void *out, uint64_t size_bytes) {
    if (size_bytes > r->size) return false;
    memcpy(out, r->bytes, size_bytes);
    r->bytes += size_bytes;
    r->size -= size_bytes;
    return true;
}

static bool take_count(struct rest *r, int32_t most, uint32_t *out) {
    int32_t number;
    if (!take(r, &number, sizeof number) || number < 1 || number > most) return false;
    *out = (uint32_t)number;
    return true;
}

// Name, number of uses, values that are sums over the uses.
static enum status read_record(struct importance_entry *entry, struct rest *r, struct err *e) {
    char name[NAME_MOST];
    uint32_t length, n_values;
    int32_t n_uses;
    if (!take_count(r, NAME_MOST, &length) || !take(r, name, length) ||
        !take(r, &n_uses, sizeof n_uses) || !take_count(r, INT32_MAX, &n_values) ||
        n_values > r->size / sizeof(float))
        return err_set(e, ERR_FORMAT, "a record ends early or has an impossible length");
    if (make_entry(entry, name, length, n_values, e)) return e->status;
    take(r, entry->values, n_values * sizeof *entry->values);
    for (uint32_t i = 0; i < n_values && n_uses > 0; i++) entry->values[i] /= (float)n_uses;
    return OK;
}

// Number of chunks, and the text's name: later files have them at their end.
static enum status read_end(struct importance *m, struct rest *r, struct err *e) {
    uint32_t n_chunks, length;
    if (!take_count(r, INT32_MAX, &n_chunks)) return OK;
    m->n_chunks = n_chunks;
    if (!take_count(r, INT32_MAX, &length) || length > r->size) return OK;
    return set_dataset(m, (struct gguf_text){(const char *)r->bytes, length}, e);
}

static enum status read_dat(struct importance *m, const struct file *file, struct err *e) {
    struct rest rest = {file->map, file->size_bytes};
    uint32_t n;
    if (!take_count(&rest, ENTRIES_MOST, &n) || n > file->size_bytes / 16)
        return err_set(e, ERR_FORMAT, "%s holds no importance", gguf_part_name(file));
    if (make_entries(m, n, e)) return e->status;
    for (uint32_t i = 0; i < n; i++)
        if (read_record(&m->entries[i], &rest, e))
            return err_context(e, "%s, record %u", gguf_part_name(file), i + 1);
    return read_end(m, &rest, e);
}

// ---- Both ---------------------------------------------------------------------------------------

enum status importance_open(struct importance *m, const char *path, struct err *e) {
    struct file file;
    *m = (struct importance){0};
    if (file_open(&file, path, e)) return e->status;
    const bool is_gguf = file.size_bytes >= 4 && memcmp(file.map, "GGUF", 4) == 0;
    enum status status = is_gguf ? read_gguf(m, path, e) : read_dat(m, &file, e);
    file_close(&file);
    if (!status && make_index(m, e)) status = err_context(e, "%s", path);
    if (status) importance_close(m);
    return status;
}

static void close_entry(struct importance_entry *entry) {
    mem_free(entry->name);
    mem_free(entry->values);
}

static bool is_chosen(const struct importance_choice *choice, const char *name) {
    bool found = false;
    for (int32_t i = 0; i < choice->n && !found; i++) found = strstr(name, choice->names[i]);
    return found != choice->excludes;
}

static enum status check_text(const struct importance *m, const struct importance_choice *choice,
                              const char *text, const struct log *log, struct err *e) {
    const char *option = choice->excludes ? "--exclude-weights" : "--include-weights";
    bool found = false;
    if (!*text) {
        err_set(e, ERR_USAGE, "%s: the text is empty", option);
        return err_expected(e, "a part of a tensor's name, such as ffn_down");
    }
    for (uint32_t i = 0; i < m->n_entries && !found; i++) found = strstr(m->entries[i].name, text);
    if (!found)
        log_line(log, LOG_WARN, "%s: the importance of no tensor has '%.80s' in its name", option,
                 text);
    return OK;
}

enum status importance_choose(struct importance *m, const struct importance_choice *choice,
                              const struct log *log, struct err *e) {
    uint32_t n = 0;
    if (choice->n == 0) return OK;
    for (int32_t i = 0; i < choice->n; i++)
        if (check_text(m, choice, choice->names[i], log, e)) return e->status;
    for (uint32_t i = 0; i < m->n_entries; i++) {
        if (is_chosen(choice, m->entries[i].name))
            m->entries[n++] = m->entries[i];
        else
            close_entry(&m->entries[i]);
    }
    m->n_entries = n;
    if (n == 0) {
        err_set(e, ERR_USAGE, "%s leaves the importance of no tensor",
                choice->excludes ? "--exclude-weights" : "--include-weights");
        return err_fix(e, "name tensors as the file does, such as blk.0.ffn_down, or leave out "
                          "--imatrix");
    }
    strmap_close(&m->index);
    return make_index(m, e);
}

enum status importance_prune(struct importance *m, const struct pruning *p, struct err *e) {
    char name[NAME_MOST];
    if (p->n_gone == 0) return OK;
    for (uint32_t i = 0; i < m->n_entries; i++) {
        char *old = m->entries[i].name;
        const size_t length = pruning_rename(p, (struct gguf_text){old, strlen(old)}, name);
        memcpy(old, name, length);
        old[length] = 0;
    }
    strmap_close(&m->index);
    return make_index(m, e);
}

void importance_close(struct importance *m) {
    for (uint32_t i = 0; i < m->n_entries; i++) close_entry(&m->entries[i]);
    mem_free(m->entries);
    mem_free(m->dataset);
    strmap_close(&m->index);
    *m = (struct importance){0};
}

enum status importance_find(const struct importance *m, const struct gguf_tensor *t,
                            const float **values, bool *per_matrix, struct err *e) {
    uint32_t i;
    *values = NULL;
    *per_matrix = false;
    if (!strmap_get(&m->index, t->name.bytes, (uint32_t)t->name.length, &i)) return OK;
    const struct importance_entry *entry = &m->entries[i];
    *values = entry->values;
    *per_matrix = t->ne[2] > 1 && entry->n_values == t->ne[0] * t->ne[2];
    if (*per_matrix || entry->n_values == t->ne[0]) return OK;
    err_set(e, ERR_FORMAT, "importance of %s is of another model", entry->name);
    if (t->ne[2] > 1)
        err_expected(e, "%llu values, or %llu for all matrices",
                     (unsigned long long)(t->ne[0] * t->ne[2]), (unsigned long long)t->ne[0]);
    else
        err_expected(e, "%llu values", (unsigned long long)t->ne[0]);
    err_actual(e, "%llu", (unsigned long long)entry->n_values);
    return err_fix(e, "measure it with this model: tandem imatrix -m FILE -f TEXT");
}
