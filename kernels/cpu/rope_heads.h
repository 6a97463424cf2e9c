/* rope_heads.h: which heads one table of rope turns.
 *
 * A pure inline function; any thread. Included by the ops files of x86 and NEON. Tested by
 * tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_ROPE_HEADS_H
#define TANDEM_KERNELS_CPU_ROPE_HEADS_H

#include "kernels/ops.h"

// n heads of dim floats, side by side, of one token, which all turn by its table [n_rot/2, 2].
struct rope_heads {
    float *first;
    const float *table;
    int32_t n, dim;
};

// The heads from item on, before item last, that belong to the same token and to the same of q and
// k; item counts the heads of q and then those of k, token by token. n is at least 1.
static inline struct rope_heads rope_heads_at(const struct rope_args *a, int64_t item,
                                              int64_t last) {
    const int64_t all = a->n_heads + a->n_kv_heads, t = item / all, head = item - t * all;
    const bool is_q = head < a->n_heads;
    const int64_t end = is_q ? a->n_heads : all, left = last - item;
    float *first = is_q ? a->q + (t * a->n_heads + head) * a->head_dim
                        : a->k + (t * a->n_kv_heads + head - a->n_heads) * a->head_dim;
    return (struct rope_heads){
        .first = first,
        .table = a->table + t * a->n_rot,
        .n = (int32_t)(end - head < left ? end - head : left),
        .dim = a->head_dim,
    };
}

#endif
