/* cuda_fuse.c: see cuda_fuse.h. */
#include "kernels/cuda/cuda_fuse.h"

#include <assert.h>
#include <string.h>

bool cuda_overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes) {
    return (uintptr_t)a < (uintptr_t)b + b_bytes && (uintptr_t)b < (uintptr_t)a + a_bytes;
}

// Takes the list's last launch back and appends one that does its work too.
static void replace(struct cuda_stream *s, enum cuda_kernel kernel, struct cuda_grid grid,
                    const void *params, uint32_t params_bytes) {
    cuda_queue_take_back(&s->queue);
    cuda_add(s, kernel, grid, params, params_bytes);
}

// ---- Quantising --------------------------------------------------------------------------------

// True if the quantised rows lie where the op reads or writes: count floats from p on, if there are
// any.
static bool hits(const struct quantize_params *q, const float *p, int64_t count) {
    const uint64_t acts_bytes = (uint64_t)q->n_tokens * (uint64_t)q->acts_stride;
    return p && cuda_overlap(q->out, acts_bytes, p, (uint64_t)count * sizeof *p);
}

static bool aligned(const float *p) { return (uintptr_t)p % 16 == 0; }

static bool quantize_norm(struct cuda_stream *s, const struct quantize_params *q,
                          const struct cuda_launch *last) {
    struct norm_quantize_params p = {.acts = q->out, .acts_stride = q->acts_stride};
    memcpy(&p.a, cuda_queue_last_params(&s->queue), sizeof p.a);
    const struct rms_norm_args *a = &p.a;
    const int64_t count = (int64_t)a->n_rows * a->n_cols;
    if (a->out != q->x || a->n_rows != q->n_tokens || a->n_cols != q->n_cols ||
        hits(q, a->out, count) || hits(q, a->x, count) || hits(q, a->residual, count) ||
        hits(q, a->weight, a->n_cols) || hits(q, a->bias, a->n_cols) || hits(q, a->scale, 1))
        return false;
    replace(s, KERNEL_rms_norm_quantize, last->grid, &p, sizeof p);
    return true;
}

static bool quantize_swiglu(struct cuda_stream *s, const struct quantize_params *q) {
    struct swiglu_quantize_params p = {.acts = q->out, .acts_stride = q->acts_stride};
    memcpy(&p.a, cuda_queue_last_params(&s->queue), sizeof p.a);
    const struct swiglu_args *a = &p.a;
    const int64_t count = (int64_t)a->n_rows * a->n_cols;
    const int64_t up_count = (int64_t)(a->n_rows - 1) * a->up_stride + a->n_cols;
    if (a->out != q->x || a->n_rows != q->n_tokens || a->n_cols != q->n_cols ||
        a->stride != a->n_cols || (a->row_gate && a->row_form != ROW_SIGMOID) || a->up_stride % 4 ||
        !aligned(a->out) || !aligned(a->gate) || !aligned(a->up) || hits(q, a->out, count) ||
        hits(q, a->gate, count) || hits(q, a->up, up_count) || hits(q, a->row_gate, a->n_rows))
        return false;
    const uint32_t n_chunks =
        ((uint32_t)a->n_cols + SWIGLU_QUANTIZE_COLS - 1) / SWIGLU_QUANTIZE_COLS;
    replace(s, KERNEL_swiglu_quantize,
            (struct cuda_grid){(uint32_t)a->n_rows, n_chunks, 1, SWIGLU_THREADS, 0}, &p, sizeof p);
    return true;
}

static bool quantize_merge(struct cuda_stream *s, const struct quantize_params *q,
                           const struct cuda_launch *last) {
    struct merge_quantize_params p = {.acts = q->out, .acts_stride = q->acts_stride};
    memcpy(&p.p, cuda_queue_last_params(&s->queue), sizeof p.p);
    const struct attention_args *a = &p.p.a;
    if (a->out != q->x || a->n_tokens != q->n_tokens || a->n_heads * a->head_dim != q->n_cols ||
        a->head_dim % 32 || hits(q, a->out, (int64_t)q->n_tokens * q->n_cols) ||
        hits(q, p.p.partial, CUDA_PARTIAL_BYTES / (int)sizeof *p.p.partial))
        return false;
    replace(s, KERNEL_attention_merge_quantize, last->grid, &p, sizeof p);
    return true;
}

bool cuda_fuse_quantize(struct cuda_stream *s, const struct quantize_params *p) {
    const struct cuda_launch *last = cuda_queue_last(&s->queue);
    if (!last || p->n_tokens > MATVEC_TOKENS) return false;
    const struct cuda_launch copy = *last;
    switch (copy.kernel) {
    case KERNEL_rms_norm: return quantize_norm(s, p, &copy);
    case KERNEL_swiglu: return quantize_swiglu(s, p);
    case KERNEL_attention_merge: return quantize_merge(s, p, &copy);
    default: return false;
    }
}

// ---- Storing -----------------------------------------------------------------------------------

// True if what rope turns holds any of size_bytes from p on. The caches are memory of their own.
static bool turns(const struct rope_args *r, const void *p, uint64_t size_bytes) {
    const uint64_t row_bytes = (uint64_t)r->n_tokens * (uint64_t)r->head_dim * sizeof *r->q;
    return cuda_overlap(r->q, row_bytes * (uint64_t)r->n_heads, p, size_bytes) ||
           cuda_overlap(r->k, row_bytes * (uint64_t)r->n_kv_heads, p, size_bytes);
}

bool cuda_fuse_store(struct cuda_stream *s, const struct kv_store_args *a) {
    const struct cuda_launch *last = cuda_queue_last(&s->queue);
    if (!last || last->kernel != KERNEL_rope) return false;
    const struct cuda_grid grid = last->grid;
    struct rope_store_params p = {.store = *a};
    memcpy(&p.rope, cuda_queue_last_params(&s->queue), sizeof p.rope);
    const uint64_t n = (uint64_t)a->n_tokens, v_bytes = n * (uint64_t)a->n_cols * sizeof *a->v;
    if (p.rope.k != a->k || p.rope.n_tokens != a->n_tokens ||
        p.rope.n_kv_heads * p.rope.head_dim != a->n_cols || p.rope.head_dim % 32 ||
        turns(&p.rope, a->cache_rows, n * sizeof *a->cache_rows) ||
        (a->v && turns(&p.rope, a->v, v_bytes)))
        return false;
    replace(s, KERNEL_rope_store, grid, &p, sizeof p);
    return true;
}

// ---- Products of one token ---------------------------------------------------------------------

static enum cuda_kernel kernel_of(enum weight_type type) {
    static const enum cuda_kernel kernels[] = {
#define WEIGHT(NAME, name, ...) KERNEL_matmul_one_##name,
#include "kernels/weights.def"
#undef WEIGHT
    };
    return kernels[type];
}

// True if matmul_mixed computes such weights.
static bool mixes(int32_t type) {
    switch (type) {
#define MIXED(NAME, name) case WEIGHT_##NAME:
        MATMUL_MIXED(MIXED)
#undef MIXED
        return true;
    default: return false;
    }
}

// Reads the last launch if it computes products of one token. Returns their number, else 0.
static int read_products(const struct cuda_queue *queue, struct products_params *out) {
    const struct cuda_launch *last = cuda_queue_last(queue);
    bool found = last && last->kernel == KERNEL_matmul_mixed;
    for (int t = 0; last && t < WEIGHT_COUNT; t++)
        found |= last->kernel == kernel_of((enum weight_type)t);
    if (!found) return 0;
    int n = 1;
    memcpy(out, cuda_queue_last_params(queue), sizeof *out);
    while (n < MATMUL_PARTS && out->starts[n] != INT32_MAX) n++;
    return n;
}

// True if the product writes any of size_bytes from p on.
static bool writes(const struct matmul_params *by, const void *p, int64_t size_bytes) {
    const struct matmul_args *a = &by->a;
    return cuda_overlap(a->out + a->row_first, (uint64_t)a->row_count * sizeof *a->out, p,
                        (uint64_t)size_bytes);
}

// True if the second product writes what the first reads or writes.
static bool depends(const struct matmul_params *p, const struct matmul_params *on) {
    const struct matmul_args *a = &p->a;
    const int64_t first = a->row_first, out_bytes = a->row_count * (int64_t)sizeof *a->out;
    return writes(on, a->x, a->n_cols * (int64_t)sizeof *a->x) ||
           writes(on, a->out + first, out_bytes) ||
           writes(on, (const char *)a->weight + first * p->weight_stride,
                  a->row_count * p->weight_stride) ||
           (a->bias && writes(on, a->bias + first, out_bytes)) ||
           (a->residual && writes(on, a->residual + first, out_bytes));
}

// True if a product can be computed beside the n of a launch.
static bool joins(const struct products_params *all, int n, enum weight_type type,
                  const struct matmul_params *p) {
    if (n == 0 || n == MATMUL_PARTS) return false;
    for (int i = 0; i < n; i++) {
        const struct matmul_params *other = &all->parts[i];
        if (other->a.x != p->a.x || other->a.n_cols != p->a.n_cols ||
            other->a.scratch != p->a.scratch || depends(p, other) || depends(other, p))
            return false;
        const int32_t own = (int32_t)type, of = all->types[i];
        if (of != own && !(mixes(own) && mixes(of))) return false;
    }
    return true;
}

void cuda_multiply_one(struct cuda_stream *s, enum weight_type type,
                       const struct matmul_params *p) {
    const int32_t rows = MATVEC_THREADS / 32 * MATVEC_ONE_ROWS;
    const uint32_t n_blocks = (uint32_t)((p->a.row_count + rows - 1) / rows);
    struct products_params all;
    const int n = read_products(&s->queue, &all);
    if (!joins(&all, n, type, p)) {
        all = (struct products_params){
            .parts = {*p}, .types = {(int32_t)type}, .starts = {0, INT32_MAX, INT32_MAX}};
        cuda_add(s, kernel_of(type), (struct cuda_grid){n_blocks, 1, 1, MATVEC_THREADS, 0}, &all,
                 sizeof all);
        return;
    }
    bool same = true;
    for (int i = 0; i < n; i++) same &= all.types[i] == (int32_t)type;
    const uint32_t start = cuda_queue_last(&s->queue)->grid.x;
    all.parts[n] = *p, all.types[n] = (int32_t)type, all.starts[n] = (int32_t)start;
    replace(s, same ? kernel_of(type) : KERNEL_matmul_mixed,
            (struct cuda_grid){start + n_blocks, 1, 1, MATVEC_THREADS, 0}, &all, sizeof all);
}
static_assert(MATMUL_PARTS == 3, "starts are written out");
static_assert(sizeof(struct products_params) ==
                  MATMUL_PARTS * (sizeof(struct matmul_params) + 2 * sizeof(int32_t)),
              "no padding: equal launches are equal bytes");
