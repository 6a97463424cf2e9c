/* rope_heads.h: which heads one table of rope turns, and the turning of what is left of a head
 * behind whole vectors.
 *
 * Inline functions over the caller's memory; any thread. Included by the ops files of x86 and NEON.
 * Tested by tests/kernels/check_ops.c.
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

// Rotates pairs (2i, 2i+1) of the heads, from element 2i = from on.
static inline void rope_turn_rest_adjacent(const struct rope_heads *heads, int32_t from,
                                           int32_t n_rot) {
    const float *const table = heads->table;
    float *head = heads->first;
    for (int32_t h = 0; h < heads->n; h++, head += heads->dim) {
        for (int32_t i = from; i < n_rot; i += 2) {
            const float x = head[i], y = head[i + 1];
            head[i] = x * table[i] - y * table[i + 1];
            head[i + 1] = x * table[i + 1] + y * table[i];
        }
    }
}

// Rotates pairs (i, i + n_rot/2) of the heads, from i = from on.
static inline void rope_turn_rest_halves(const struct rope_heads *heads, int32_t from,
                                         int32_t n_rot) {
    const float *const table = heads->table;
    const int32_t n_pairs = n_rot / 2;
    float *head = heads->first;
    for (int32_t h = 0; h < heads->n; h++, head += heads->dim) {
        for (int32_t i = from; i < n_pairs; i++) {
            const float x = head[i], y = head[n_pairs + i];
            head[i] = x * table[2 * i] - y * table[2 * i + 1];
            head[n_pairs + i] = x * table[2 * i + 1] + y * table[2 * i];
        }
    }
}

#endif
