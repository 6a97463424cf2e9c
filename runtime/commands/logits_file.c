/* logits_file.c: see logits_file.h. */
#include "runtime/commands/logits_file.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MAGIC_BYTES = 8, HEAD_BYTES = 20, ROW_HEAD = 4 }; // ROW_HEAD: the two floats, as uint16
static const char MAGIC[] = "_logits_";
static const float DEPTH = 16;       // below the best logit; what lies deeper becomes this
static const float STEPS = 65535.0F; // in a row

int32_t logits_file_scored(const struct logits_shape *s) {
    return s->n_window - 1 - s->n_window / 2;
}

static size_t row_length(const struct logits_shape *s) {
    return 2 * (((size_t)s->n_vocab + 1) / 2) + ROW_HEAD;
}

// ---- Reading ------------------------------------------------------------------------------------

// The size that a file of this shape has; 0 if there is none.
static uint64_t size_of(const struct logits_shape *s) {
    uint64_t tokens, rows, bytes;
    if (s->n_window < 4 || s->n_vocab < 1 || s->n_windows < 1) return 0;
    if (!mul_size((uint64_t)s->n_windows, (uint64_t)s->n_window * sizeof(int32_t), &tokens) ||
        !mul_size((uint64_t)s->n_windows, (uint64_t)logits_file_scored(s), &rows) ||
        !mul_size(rows, row_length(s) * sizeof(uint16_t), &bytes) ||
        !add_size(bytes, tokens + HEAD_BYTES, &bytes))
        return 0;
    return bytes;
}

enum status logits_file_open(struct logits_file *f, const char *path, struct err *e) {
    *f = (struct logits_file){.file.descriptor = -1};
    if (file_open(&f->file, path, e)) return e->status;
    const bool begins =
        f->file.size_bytes >= HEAD_BYTES && memcmp(f->file.map, MAGIC, MAGIC_BYTES) == 0;
    if (begins) memcpy(&f->shape, f->file.map + MAGIC_BYTES, sizeof f->shape);
    const uint64_t wanted = begins ? size_of(&f->shape) : 0;
    if (begins && wanted == f->file.size_bytes) {
        f->tokens = (const int32_t *)(const void *)(f->file.map + HEAD_BYTES);
        return OK;
    }
    err_set(e, ERR_FORMAT, "%s: %s", path,
            begins ? "has not the size that its head tells" : "is no file of --kl-divergence-base");
    if (begins) err_expected(e, "%" PRIu64 " bytes", wanted);
    if (begins) err_actual(e, "%" PRIu64, f->file.size_bytes);
    logits_file_close(f);
    return err_fix(e, "write it again: tandem perplexity ... --kl-divergence-base FILE");
}

void logits_file_close(struct logits_file *f) {
    if (f->file.path) file_close(&f->file);
    *f = (struct logits_file){0};
}

enum status logits_file_row(const struct logits_file *f, int64_t i, struct logits_row *out,
                            struct err *e) {
    const size_t length = row_length(&f->shape);
    const uint16_t *rows =
        (const uint16_t *)(const void *)(f->tokens +
                                         (size_t)f->shape.n_windows * (size_t)f->shape.n_window);
    const uint16_t *row = rows + (size_t)i * length;
    out->steps = row + ROW_HEAD;
    memcpy(&out->step, row, sizeof out->step);
    memcpy(&out->least, row + 2, sizeof out->least);
    if (isfinite(out->step) && out->step >= 0 && isfinite(out->least) && out->least <= 0) return OK;
    err_set(e, ERR_FORMAT, "%s: the probabilities of row %" PRId64 " are damaged", f->file.path, i);
    err_expected(e, "a step of 0 or more and a logarithm of 0 or less");
    err_actual(e, "%g and %g", (double)out->step, (double)out->least);
    return err_fix(e, "write it again: tandem perplexity ... --kl-divergence-base FILE");
}

// ---- Writing ------------------------------------------------------------------------------------

enum status logits_writer_open(struct logits_writer *w, const char *path,
                               const struct logits_shape *shape, const int32_t *tokens,
                               struct err *e) {
    const size_t n_tokens = (size_t)shape->n_windows * (size_t)shape->n_window;
    *w = (struct logits_writer){.shape = *shape, .row = mem_alloc(row_length(shape), 2)};
    if (!w->row) return err_memory(e, row_length(shape) * 2, "a row of probabilities");
    if (new_file_open_over(&w->file, path, e) == OK &&
        new_file_reserve(&w->file, size_of(shape), e) == OK &&
        new_file_write(&w->file, MAGIC, MAGIC_BYTES, e) == OK &&
        new_file_write(&w->file, shape, sizeof *shape, e) == OK &&
        new_file_write(&w->file, tokens, n_tokens * sizeof *tokens, e) == OK)
        return OK;
    logits_writer_close(w);
    return e->status;
}

// Source: log_softmax of llama.cpp's tools/perplexity, whose files these are.
enum status logits_writer_add(struct logits_writer *w, const float *logits, struct err *e) {
    const int32_t n = w->shape.n_vocab;
    float most = logits[0], least = logits[0];
    double sum = 0;
    for (int32_t i = 1; i < n; i++) {
        most = fmaxf(most, logits[i]);
        least = fminf(least, logits[i]);
    }
    least = fmaxf(least, most - DEPTH);
    for (int32_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    const float lowest = least - most - (float)log(sum), step = (most - least) / STEPS;
    memcpy(w->row, &step, sizeof step);
    memcpy(w->row + 2, &lowest, sizeof lowest);
    for (int32_t i = 0; i < n; i++) {
        const bool above = step > 0 && logits[i] > least;
        w->row[ROW_HEAD + i] = (uint16_t)(above ? lrintf((logits[i] - least) / step) : 0);
    }
    return new_file_write(&w->file, w->row, row_length(&w->shape) * sizeof *w->row, e);
}

enum status logits_writer_commit(struct logits_writer *w, struct err *e) {
    return new_file_commit(&w->file, e);
}

void logits_writer_close(struct logits_writer *w) {
    new_file_close(&w->file);
    mem_free(w->row);
    *w = (struct logits_writer){0};
}
