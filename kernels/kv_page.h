/* kv_page.h: where the rows of a KV cache lie, in either order of ops.h.
 *
 * A view borrows the cache. Pure inline functions; any thread. Used by the CPU's kernels and by
 * what copies sessions. Tested by tests/kernels/check_attention.c.
 */
#ifndef TANDEM_KERNELS_KV_PAGE_H
#define TANDEM_KERNELS_KV_PAGE_H

#include "kernels/ops.h"

// A cache of keys, or of values.
struct kv_view {
    char *base; // of the first page
    enum dtype type;
    int32_t n_heads, head_dim;
    int64_t page_bytes, head_bytes, row_bytes; // to the next page, head of a page, row of a head
    // To the next element of a row; 0: elements, or blocks of them, lie side by side.
    int64_t element_bytes;
};

// Values: head_dim elements of each of n_heads are a row.
static inline struct kv_view kv_values(enum kv_order order, const void *base, enum dtype type,
                                       int32_t n_heads, int32_t head_dim) {
    const int64_t head_bytes = (int64_t)dtype_bytes(type, (uint64_t)head_dim);
    const int64_t row_bytes = (int64_t)dtype_bytes(type, (uint64_t)n_heads * (uint64_t)head_dim);
    const bool by_head = order == KV_BY_HEAD;
    return (struct kv_view){.base = (char *)(uintptr_t)base,
                            .type = type,
                            .n_heads = n_heads,
                            .head_dim = head_dim,
                            .page_bytes = KV_PAGE * row_bytes,
                            .head_bytes = by_head ? KV_PAGE * head_bytes : head_bytes,
                            .row_bytes = by_head ? head_bytes : row_bytes};
}

// Keys, which are turned in a page by head.
static inline struct kv_view kv_keys(enum kv_order order, const void *base, enum dtype type,
                                     int32_t n_heads, int32_t head_dim) {
    struct kv_view view = kv_values(order, base, type, n_heads, head_dim);
    if (order == KV_BY_ROW) return view;
    view.row_bytes = (int64_t)dtype_bytes(type, 1);
    view.element_bytes = KV_PAGE * view.row_bytes;
    return view;
}

// The order for caches of these types on a device that reads floats and halves fastest in that one.
// Blocks by head are slower than by row (kernels/cpu/x86/attention_x86.inc).
static inline enum kv_order kv_order_of(enum kv_order fastest, enum dtype k_type,
                                        enum dtype v_type) {
    const bool blocks =
        dtype_find(k_type)->block_elements > 1 || dtype_find(v_type)->block_elements > 1;
    return blocks ? KV_BY_ROW : fastest;
}

// Bytes from the start of the cache to a head of a row.
static inline int64_t kv_place(const struct kv_view *view, int64_t row, int64_t head) {
    return row / KV_PAGE * view->page_bytes + head * view->head_bytes +
           row % KV_PAGE * view->row_bytes;
}

#endif
