/* gguf_open.c: gguf_open of gguf.h: opens a model file, and finds and joins the parts of a model
 * that was split over several GGUF files.
 *
 * Moves the mappings and tensors of the other parts into the struct gguf of part 1, which then owns
 * them. Parts are named PREFIX-00001-of-00003.gguf and carry split.no (from 0), split.count and
 * split.tensors.count. Must not change the keys: only those of part 1 are used. Any thread. Tested
 * by tests/runtime/test_gguf.c.
 */
#include "runtime/gguf/gguf.h"

#include "base/mem.h"
#include "runtime/gguf/gguf_part.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    PART_LIMIT = 65535,     // split.count is a u16 as the format's own tool writes it
    TENSOR_LIMIT = 1 << 24, // in all parts
    SUFFIX_BYTES = 20,      // "-00001-of-00003.gguf"
};

struct split {
    uint64_t number; // from 0
    uint64_t count;
    uint64_t n_tensors; // in all parts
};

static const char ONE_FOLDER[] =
    "put all parts of one download in one folder, with their own names";

static void suffix(char out[SUFFIX_BYTES + 1], uint64_t number, uint64_t count) {
    snprintf(out, SUFFIX_BYTES + 1, "-%05u-of-%05u.gguf", (unsigned)((number + 1) % 100000),
             (unsigned)(count % 100000));
}

// Makes the name of part number from the name of any part of the same split. NULL if memory is
// refused.
static char *part_path(const char *path, uint64_t number, uint64_t count) {
    size_t length = strlen(path);
    char *copy = mem_alloc(length + 1, 1);
    if (!copy) return NULL;
    memcpy(copy, path, length - SUFFIX_BYTES);
    suffix(copy + length - SUFFIX_BYTES, number, count);
    return copy;
}

// Checks that the file name has the numbers of the keys; otherwise the other parts cannot be found.
static enum status check_name(const struct file *file, const struct split *s, struct err *e) {
    char wanted[SUFFIX_BYTES + 1];
    size_t length = strlen(file->path);
    suffix(wanted, s->number, s->count);
    if (length > SUFFIX_BYTES && strcmp(file->path + length - SUFFIX_BYTES, wanted) == 0) return OK;
    err_set(e, ERR_FORMAT, "%s: is part %" PRIu64 " of %" PRIu64 ", but its name does not say so",
            gguf_part_name(file), s->number + 1, s->count);
    err_expected(e, "a name that ends in %s", wanted);
    return err_fix(e, "give the file its original name back");
}

static enum status read_split(const struct gguf *g, struct split *s, struct err *e) {
    *s = (struct split){.count = 1};
    if (gguf_read_u64(g, "split.count", 0, PART_LIMIT, &s->count, e) != OK) return e->status;
    if (gguf_read_u64(g, "split.no", 0, PART_LIMIT - 1, &s->number, e) != OK) return e->status;
    return gguf_read_u64(g, "split.tensors.count", 0, TENSOR_LIMIT, &s->n_tensors, e);
}

static enum status check_first(const struct gguf *g, const struct split *s, struct err *e) {
    const struct file *file = &g->parts[0];
    if (check_name(file, s, e) != OK) return e->status;
    if (s->number != 0) {
        char first[SUFFIX_BYTES + 1];
        suffix(first, 0, s->count);
        err_set(e, ERR_FORMAT, "%s: is part %" PRIu64 " of a split model", gguf_part_name(file),
                s->number + 1);
        err_expected(e, "part 1 of %" PRIu64, s->count);
        return err_fix(e, "give the file that ends in %s", first);
    }
    if (gguf_find(g, "split.tensors.count")) return OK;
    err_set(e, ERR_FORMAT, "%s: key split.tensors.count is missing", gguf_part_name(file));
    return err_fix(e, "split the model again, or fetch another copy");
}

static enum status check_part(const struct gguf *part, const struct split *first, uint64_t number,
                              struct err *e) {
    const char *name = gguf_part_name(&part->parts[0]);
    struct split s;
    if (read_split(part, &s, e) != OK) return e->status;
    if (!gguf_find(part, "split.no") || !gguf_find(part, "split.count")) {
        err_set(e, ERR_FORMAT, "%s: keys split.no and split.count are missing", name);
    } else if (s.count != first->count) {
        err_set(e, ERR_FORMAT, "%s: key split.count differs from part 1", name);
        err_expected(e, "%" PRIu64, first->count);
        err_actual(e, "%" PRIu64, s.count);
    } else if (s.number != number) {
        err_set(e, ERR_FORMAT, "%s: key split.no is not that of its name", name);
        err_expected(e, "%" PRIu64, number);
        err_actual(e, "%" PRIu64, s.number);
    } else {
        return OK;
    }
    return err_fix(e, "%s", ONE_FOLDER);
}

static enum status wrong_total(const struct gguf *g, const struct split *first, uint64_t n_tensors,
                               struct err *e) {
    err_set(e, ERR_FORMAT, "%s: key split.tensors.count is not the number of tensors",
            gguf_part_name(&g->parts[0]));
    err_expected(e, "%" PRIu64 " tensors in %" PRIu64 " parts", first->n_tensors, first->count);
    err_actual(e, "%" PRIu64, n_tensors);
    return err_fix(e, "%s", ONE_FOLDER);
}

// Moves the mapping and the tensors of *part to the end of *g.
static enum status append(struct gguf *g, struct gguf *part, const struct split *first,
                          struct err *e) {
    uint64_t n = (uint64_t)g->n_tensors + part->n_tensors;
    if (n > first->n_tensors) return wrong_total(g, first, n, e);
    struct gguf_tensor *bigger = mem_resize(g->tensors, n, sizeof *bigger);
    if (!bigger) return err_memory(e, n * sizeof *bigger, "the tensors of a split GGUF");
    g->tensors = bigger;
    for (uint32_t i = 0; i < part->n_tensors; i++) {
        bigger[g->n_tensors + i] = part->tensors[i];
        bigger[g->n_tensors + i].part = g->n_parts;
    }
    g->n_tensors = (uint32_t)n;
    g->parts[g->n_parts++] = part->parts[0];
    part->n_parts = 0;
    return OK;
}

static enum status open_part(struct gguf *g, const struct split *first, uint64_t number,
                             struct err *e) {
    struct gguf part = {0};
    char *path = part_path(g->parts[0].path, number, first->count);
    if (!path) return err_memory(e, strlen(g->parts[0].path) + 1, "a file name");
    enum status status = gguf_part_open(&part, path, e);
    if (status == ERR_FILE) {
        err_context(e, "part %" PRIu64 " of %" PRIu64, number + 1, first->count);
        err_fix(e, "%s", ONE_FOLDER);
    }
    if (status == OK) status = check_part(&part, first, number, e);
    if (status == OK) status = append(g, &part, first, e);
    gguf_close(&part);
    mem_free(path);
    return status;
}

// Indexes the tensors of all parts, whose names must be unique, in the index of part 1.
static enum status index_all(struct gguf *g, const struct split *first, struct err *e) {
    if (g->n_tensors != first->n_tensors) return wrong_total(g, first, g->n_tensors, e);
    strmap_close(&g->tensor_index);
    if (strmap_init(&g->tensor_index, g->n_tensors, e) != OK) return e->status;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        if (strmap_put(&g->tensor_index, t->name.bytes, (uint32_t)t->name.length, i)) continue;
        return err_set(e, ERR_FORMAT, "%s: tensor %.*s is in two parts",
                       gguf_part_name(&g->parts[t->part]), (int)t->name.length, t->name.bytes);
    }
    return OK;
}

// Does nothing unless g, one open file, says that it is split. The caller closes *g on failure.
static enum status join_parts(struct gguf *g, struct err *e) {
    ASSERT(g->n_parts == 1);
    struct split first;
    if (read_split(g, &first, e) != OK) return e->status;
    if (first.count <= 1) return OK;
    if (check_first(g, &first, e) != OK) return e->status;
    struct file *bigger = mem_resize(g->parts, first.count, sizeof *bigger);
    if (!bigger) return err_memory(e, first.count * sizeof *bigger, "the parts of a split GGUF");
    g->parts = bigger;
    for (uint64_t number = 1; number < first.count; number++)
        if (open_part(g, &first, number, e) != OK) return e->status;
    return index_all(g, &first, e);
}

enum status gguf_open(struct gguf *g, const char *path, struct err *e) {
    ASSERT(g);
    ASSERT(path);
    ASSERT(e);
    if (gguf_part_open(g, path, e) != OK) goto fail;
    if (join_parts(g, e) != OK) goto fail;
    return OK;
fail:
    gguf_close(g);
    return e->status;
}
