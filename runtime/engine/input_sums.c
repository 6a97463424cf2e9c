/* input_sums.c: see input_sums.h. */
#include "runtime/engine/input_sums.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

// Op calls whose inputs are still to be looked at; when all are in use, the stream is flushed.
enum { LOOKS = 256 };

struct look {
    struct input_sum *sum;
    bool waits;      // until its stream passes it
    bool of_experts; // which of the next two it is of
    struct matmul_args matmul;
    struct matmul_experts_args experts;
};

struct input_sums {
    struct op_table ops; // of the device, first: the device's pointer to it leads to the rest
    const struct op_table *own;
    struct device *device;
    struct input_sum *sums; // [n], owned, by address
    uint32_t n;
    struct look *looks; // [LOOKS], owned
    uint32_t next;
};

static struct input_sums *sums_of(const struct stream *s) {
    return (struct input_sums *)(uintptr_t)s->device->ops;
}

static int compare(const void *a, const void *b) {
    const struct input_sum *x = a, *y = b;
    const uintptr_t p = (uintptr_t)x->tensor->data, q = (uintptr_t)y->tensor->data;
    return (p > q) - (p < q);
}

// Finds the matrix that begins at that address and has so many columns. NULL: no layer's.
static struct input_sum *find(struct input_sums *s, const void *weight, int32_t n_columns) {
    const struct gguf_tensor t = {.data = weight};
    const struct input_sum key = {.tensor = &t};
    struct input_sum *sum = bsearch(&key, s->sums, s->n, sizeof key, compare);
    return sum && sum->n_columns == (uint64_t)n_columns ? sum : NULL;
}

// ---- Adding up ----------------------------------------------------------------------------------

static void add_row(float *sums, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) sums[i] += x[i] * x[i];
}

static void add_matmul(struct input_sum *sum, const struct matmul_args *a) {
    for (int64_t t = 0; t < a->n_tokens; t++) add_row(sum->sums, a->x + t * a->n_cols, a->n_cols);
    sum->counts[0] += (uint64_t)a->n_tokens;
}

static const float *pair_input(const struct matmul_experts_args *a, int64_t pair) {
    return a->x + (a->x_per_pair ? pair : pair / a->n_used) * a->n_cols;
}

// Every token goes to every head.
static void add_heads(struct input_sum *sum, const struct matmul_experts_args *a) {
    for (int64_t pair = 0; pair < (int64_t)a->n_tokens * a->n_used; pair++)
        add_row(sum->sums + pair % a->n_used * a->n_cols, pair_input(a, pair), a->n_cols);
    sum->counts[0] += (uint64_t)a->n_tokens;
}

static void add_experts(struct input_sum *sum, const struct matmul_experts_args *a) {
    for (int64_t expert = 0; expert < a->n_experts; expert++) {
        for (int64_t i = a->starts[expert]; i < a->starts[expert + 1]; i++)
            add_row(sum->sums + expert * a->n_cols, pair_input(a, a->order[i]), a->n_cols);
        sum->counts[expert] += (uint64_t)(a->starts[expert + 1] - a->starts[expert]);
    }
}

static void run_look(void *context) {
    struct look *look = context;
    look->waits = false;
    if (!look->of_experts)
        add_matmul(look->sum, &look->matmul);
    else if (look->sum->by_expert)
        add_experts(look->sum, &look->experts);
    else
        add_heads(look->sum, &look->experts);
}

// ---- The op table -------------------------------------------------------------------------------

// A look that does not wait. The device works in the calling thread: a flush ends all that wait.
static struct look *next_look(struct input_sums *s, struct stream *stream) {
    struct look *look = &s->looks[s->next++ % LOOKS];
    if (look->waits) stream_flush(stream);
    ASSERT(!look->waits || stream->failure.status != OK);
    look->waits = true;
    return look;
}

// The input of a matrix that is multiplied by parts is looked at once.
static void encode_matmul(struct stream *stream, enum weight_type type,
                          const struct matmul_args *args) {
    struct input_sums *s = sums_of(stream);
    struct input_sum *sum = args->row_first == 0 ? find(s, args->weight, args->n_cols) : NULL;
    if (sum && !sum->by_expert) {
        struct look *look = next_look(s, stream);
        look->sum = sum;
        look->of_experts = false;
        look->matmul = *args;
        stream_call(stream, run_look, look);
    }
    s->own->matmul(stream, type, args);
}

static bool fits(const struct input_sum *sum, const struct matmul_experts_args *args) {
    return sum->n_matrices == (uint64_t)args->n_experts && sum->by_expert == (args->starts != NULL);
}

static void encode_matmul_experts(struct stream *stream, enum weight_type type,
                                  const struct matmul_experts_args *args) {
    struct input_sums *s = sums_of(stream);
    struct input_sum *sum = args->row_first == 0 ? find(s, args->weight, args->n_cols) : NULL;
    if (sum && fits(sum, args)) {
        struct look *look = next_look(s, stream);
        look->sum = sum;
        look->of_experts = true;
        look->experts = *args;
        stream_call(stream, run_look, look);
    }
    s->own->matmul_experts(stream, type, args);
}

// ---- All of it ----------------------------------------------------------------------------------

static bool has(const struct gguf_tensor *t, const char *text) {
    return memmem(t->name.bytes, t->name.length, text, strlen(text)) != NULL;
}

static bool is_matrix_of_layer(const struct gguf_tensor *t) {
    return t->name.length > 4 && memcmp(t->name.bytes, "blk.", 4) == 0 && t->ne[1] > 1;
}

static enum status make_sum(struct input_sum *sum, const struct gguf_tensor *t, struct err *e) {
    sum->tensor = t;
    sum->n_columns = t->ne[0];
    sum->n_matrices = t->ne[2] * t->ne[3];
    sum->by_expert = has(t, "_exps.");
    sum->sums = mem_alloc(sum->n_columns * sum->n_matrices, sizeof *sum->sums);
    sum->counts = mem_alloc(sum->by_expert ? sum->n_matrices : 1, sizeof *sum->counts);
    if (sum->sums && sum->counts) return OK;
    return err_memory(e, sum->n_columns * sum->n_matrices * sizeof *sum->sums, "sums of inputs");
}

static enum status make_sums(struct input_sums *s, const struct gguf *g, struct err *e) {
    s->sums = mem_alloc(g->n_tensors, sizeof *s->sums);
    if (!s->sums) return err_memory(e, g->n_tensors * sizeof *s->sums, "sums of inputs");
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (is_matrix_of_layer(&g->tensors[i]) && make_sum(&s->sums[s->n++], &g->tensors[i], e))
            return e->status;
    qsort(s->sums, s->n, sizeof *s->sums, compare);
    return OK;
}

enum status input_sums_open(struct input_sums **out, struct device *d, const struct gguf *g,
                            struct err *e) {
    ASSERT(d->info.is_host);
    *out = NULL;
    struct input_sums *s = mem_alloc(1, sizeof *s);
    if (!s) return err_memory(e, sizeof *s, "sums of inputs");
    s->device = d;
    s->own = d->ops;
    s->looks = mem_alloc(LOOKS, sizeof *s->looks);
    if (!s->looks) (void)err_memory(e, LOOKS * sizeof *s->looks, "sums of inputs");
    if (!s->looks || make_sums(s, g, e)) {
        input_sums_close(s);
        return e->status;
    }
    s->ops = *s->own;
    s->ops.matmul = encode_matmul;
    s->ops.matmul_experts = encode_matmul_experts;
    d->ops = &s->ops;
    *out = s;
    return OK;
}

void input_sums_close(struct input_sums *s) {
    if (!s) return;
    s->device->ops = s->own;
    for (uint32_t i = 0; i < s->n; i++) {
        mem_free(s->sums[i].sums);
        mem_free(s->sums[i].counts);
    }
    mem_free(s->sums);
    mem_free(s->looks);
    mem_free(s);
}

uint32_t input_sums_count(const struct input_sums *s) { return s->n; }

const struct input_sum *input_sums_at(const struct input_sums *s, uint32_t i) {
    ASSERT(i < s->n);
    return &s->sums[i];
}
