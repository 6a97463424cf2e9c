/* importance_write.c: see importance_write.h. */
#include "runtime/quantize/importance_write.h"

#include "base/mem.h"
#include "runtime/gguf/gguf_write.h"

#include <math.h>
#include <stdio.h>

enum { ALIGNMENT = 32, NAME_MOST = 1024 };

static enum status check_sums(const struct importance_sums *s, struct err *e) {
    for (uint64_t i = 0; i < s->n_columns * s->n_counts; i++) {
        if (s->sums[i] < INFINITY) continue;
        err_set(e, ERR_FORMAT, "the inputs of %.*s, column %llu, are no numbers",
                (int)s->name.length, s->name.bytes, (unsigned long long)(i % s->n_columns));
        return err_fix(e, "the model may be broken; see what 'tandem run' makes of it");
    }
    return OK;
}

// Adds the record of one of the two tensors of a matrix, and moves *offset behind its data.
static void add_record(struct gguf_head *h, const struct importance_sums *s, const char *ending,
                       uint64_t n_columns, uint64_t *offset) {
    char name[NAME_MOST + 16];
    const int length =
        snprintf(name, sizeof name, "%.*s%s", (int)s->name.length, s->name.bytes, ending);
    const struct gguf_tensor t = {.name = {name, (uint64_t)length},
                                  .n_dims = s->n_counts > 1 ? 2 : 1,
                                  .ne = {n_columns, s->n_counts, 1, 1}};
    gguf_head_tensor(h, &t, DTYPE_F32, *offset);
    *offset += round_up(n_columns * s->n_counts * sizeof(float), ALIGNMENT);
}

static void add_all(struct gguf_head *h, const struct importance_file *file) {
    uint64_t offset = 0;
    gguf_head_text(h, "general.type", "imatrix");
    gguf_head_texts(h, "imatrix.datasets", &file->dataset, 1);
    gguf_head_u32(h, "imatrix.chunk_count", file->n_chunks);
    gguf_head_u32(h, "imatrix.chunk_size", file->chunk_tokens);
    for (uint32_t i = 0; i < file->n; i++) {
        ASSERT(file->list[i].name.length <= NAME_MOST);
        add_record(h, &file->list[i], ".in_sum2", file->list[i].n_columns, &offset);
        add_record(h, &file->list[i], ".counts", 1, &offset);
    }
}

static enum status write_floats(struct new_file *out, const float *values, uint64_t n,
                                struct err *e) {
    static const uint8_t zeros[ALIGNMENT];
    const uint64_t size = n * sizeof *values;
    if (new_file_write(out, values, size, e)) return e->status;
    return new_file_write(out, zeros, round_up(size, ALIGNMENT) - size, e);
}

static enum status write_matrix(struct new_file *out, const struct importance_sums *s,
                                struct err *e) {
    float *counts = mem_alloc(s->n_counts, sizeof *counts);
    if (!counts) return err_memory(e, s->n_counts * sizeof *counts, "the counts of a matrix");
    for (uint64_t i = 0; i < s->n_counts; i++) counts[i] = (float)s->counts[i];
    enum status status = write_floats(out, s->sums, s->n_columns * s->n_counts, e);
    if (!status) status = write_floats(out, counts, s->n_counts, e);
    mem_free(counts);
    return status;
}

enum status importance_write(struct new_file *out, const struct importance_file *file,
                             struct err *e) {
    struct gguf_head head;
    for (uint32_t i = 0; i < file->n; i++)
        if (check_sums(&file->list[i], e)) return e->status;
    gguf_head_open(&head);
    add_all(&head, file);
    enum status status = gguf_head_finish(&head, ALIGNMENT, e);
    if (!status) status = new_file_write(out, head.bytes, head.size, e);
    gguf_head_close(&head);
    for (uint32_t i = 0; i < file->n && !status; i++) status = write_matrix(out, &file->list[i], e);
    return status;
}
