/* cuda_fuse.c: see cuda_fuse.h. */
#include "kernels/cuda/cuda_fuse.h"

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
        a->stride != a->n_cols || a->up_stride % 4 || !aligned(a->out) || !aligned(a->gate) ||
        !aligned(a->up) || hits(q, a->out, count) || hits(q, a->gate, count) ||
        hits(q, a->up, up_count) || hits(q, a->row_gate, a->n_rows))
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
