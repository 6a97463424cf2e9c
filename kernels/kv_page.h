/* kv_page.h: where the rows of a KV cache lie, in either order of ops.h.
 *
 * A view borrows the cache. Pure inline functions; any thread. Used by the CPU's kernels and by
 * what copies sessions. Tested by tests/kernels/check_attention.c.
 */
#ifndef TANDEM_KERNELS_KV_PAGE_H
#define TANDEM_KERNELS_KV_PAGE_H

#include "kernels/ops.h"

#include <string.h>

// A cache of keys, or of values.
struct kv_view {
    char *base; // of the first page
    enum dtype type;
    enum kv_order order;
    bool is_keys;
    int32_t n_heads, head_dim;
    int64_t page_bytes, head_bytes; // to the next page, head of a page
    int64_t row_bytes;              // to the next row of a head, or to its next scale
};

enum {
    KV_SCALE_BYTES = 2, // of a block
    KV_QUAD = 4,        // bytes of a key's numbers that lie together in a page by head
    KV_RUN = 32,        // keys whose quads lie together
};

// Values: head_dim elements of each of n_heads are a row.
static inline struct kv_view kv_values(enum kv_order order, const void *base, enum dtype type,
                                       int32_t n_heads, int32_t head_dim) {
    const int64_t head_bytes = (int64_t)dtype_bytes(type, (uint64_t)head_dim);
    const int64_t row_bytes = (int64_t)dtype_bytes(type, (uint64_t)n_heads * (uint64_t)head_dim);
    struct kv_view view = {.base = (char *)(uintptr_t)base,
                           .type = type,
                           .order = order,
                           .n_heads = n_heads,
                           .head_dim = head_dim,
                           .page_bytes = KV_PAGE * row_bytes,
                           .head_bytes = head_bytes,
                           .row_bytes = row_bytes};
    if (order == KV_BY_ROW) return view;
    view.head_bytes = KV_PAGE * head_bytes;
    view.row_bytes = dtype_find(type)->block_elements > 1 ? KV_SCALE_BYTES : head_bytes;
    return view;
}

// Keys, whose elements are apart in a page by head.
static inline struct kv_view kv_keys(enum kv_order order, const void *base, enum dtype type,
                                     int32_t n_heads, int32_t head_dim) {
    struct kv_view view = kv_values(order, base, type, n_heads, head_dim);
    view.is_keys = true;
    if (order == KV_BY_HEAD && dtype_find(type)->block_elements == 1)
        view.row_bytes = (int64_t)dtype_bytes(type, 1);
    return view;
}

// Bytes from the start of the cache to a head of a row.
static inline int64_t kv_place(const struct kv_view *view, int64_t row, int64_t head) {
    return row / KV_PAGE * view->page_bytes + head * view->head_bytes +
           row % KV_PAGE * view->row_bytes;
}

// Copies n parts of size bytes each, which are stride bytes apart in a page, and none in a row.
static inline char *kv_copy_parts(char *at, int64_t stride, char *row, int64_t n, size_t size,
                                  bool to_page) {
    for (; n > 0; n--, at += stride, row += size) {
        char *to = to_page ? at : row;
        const char *from = to_page ? row : at;
        switch (size) { // the sizes that are many
        case 1: *to = *from; break;
        case 2: memcpy(to, from, 2); break;
        case 4: memcpy(to, from, 4); break;
        default: memcpy(to, from, size);
        }
    }
    return row;
}

// Copies a head of a row of a cache by head from a row whose elements, or blocks, lie side by side,
// or to it.
static inline void kv_copy_row(const struct kv_view *view, int64_t row, int64_t head, char *packed,
                               bool to_page) {
    const struct dtype_info *info = dtype_find(view->type);
    const size_t bytes = info->block_bytes;
    char *at = view->base + kv_place(view, row, head);
    if (info->block_elements == 1) {
        view->is_keys
            ? kv_copy_parts(at, KV_PAGE * (int64_t)bytes, packed, view->head_dim, bytes, to_page)
            : kv_copy_parts(at, 0, packed, 1, bytes * (size_t)view->head_dim, to_page);
        return;
    }
    const int64_t n_blocks = view->head_dim / (int32_t)info->block_elements, place = row % KV_PAGE;
    const int64_t n = (int64_t)bytes - KV_SCALE_BYTES; // of numbers
    char *numbers = at - place * KV_SCALE_BYTES + n_blocks * KV_PAGE * KV_SCALE_BYTES;
    numbers += view->is_keys ? place / KV_RUN * KV_RUN * n_blocks * n + place % KV_RUN * KV_QUAD
                             : place / 2 * 2 * n + place % 2;
    for (int64_t b = 0; b < n_blocks; b++, at += KV_PAGE * KV_SCALE_BYTES) {
        packed = kv_copy_parts(at, 0, packed, 1, KV_SCALE_BYTES, to_page);
        packed = view->is_keys ? kv_copy_parts(numbers, KV_RUN * KV_QUAD, packed, n / KV_QUAD,
                                               KV_QUAD, to_page)
                               : kv_copy_parts(numbers, 2, packed, n, 1, to_page);
        numbers += n * (view->is_keys ? KV_RUN : KV_PAGE);
    }
}

// Converts n elements to a type and stores them side by side.
typedef void kv_store_fn(char *at, enum dtype type, const float *x, int32_t n);

// Stores x[n_heads * head_dim] as a row of a cache.
static inline void kv_store_row(const struct kv_view *cache, int64_t row, const float *x,
                                kv_store_fn *store) {
    for (int32_t h = 0; h < cache->n_heads; h++, x += cache->head_dim) {
        _Alignas(float) char packed[HEAD_DIM_MAX * sizeof(float)];
        if (cache->order == KV_BY_ROW) {
            store(cache->base + kv_place(cache, row, h), cache->type, x, cache->head_dim);
            continue;
        }
        store(packed, cache->type, x, cache->head_dim);
        kv_copy_row(cache, row, h, packed, true);
    }
}

#endif
