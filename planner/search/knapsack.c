/* knapsack.c: see knapsack.h.
 *
 * Dynamic programming over the units. A label has its exact bytes, so cells round the index of a
 * choice and never its size. One label per cell is an approximation: the fastest choice displaces a
 * slower one that is a little smaller.
 */
#include "planner/search/knapsack.h"

#include <math.h>

// Labels of the units up to u; two sets that take turns.
static struct label *labels_of(const struct knapsack *k, int32_t u) {
    return k->labels + (size_t)(u & 1) * (size_t)k->n_cells;
}

static int32_t *came_from(const struct knapsack *k, int32_t u) {
    return k->came_from + (size_t)u * (size_t)k->n_cells;
}

// Extends the labels of the units before u by unit u on one side.
static void extend(const struct knapsack *k, int32_t u, bool on_gpu) {
    const struct label *source = labels_of(k, u - 1);
    struct label *target = labels_of(k, u);
    int32_t *origin = came_from(k, u);
    const double us = on_gpu ? k->gpu_us[u] : k->host_us[u], bytes = on_gpu ? k->bytes[u] : 0;
    if (us == (double)INFINITY) return;
    for (int32_t i = 0; i < k->n_cells; i++) {
        if (source[i].us == (double)INFINITY) continue;
        const struct label next = {source[i].us + us, source[i].bytes + bytes};
        const int32_t cell = (int32_t)(next.bytes / k->cell_bytes);
        if (cell >= k->n_cells || next.us >= target[cell].us) continue;
        target[cell] = next;
        origin[cell] = i * 2 + on_gpu;
    }
}

static void clear(const struct knapsack *k, int32_t u) {
    struct label *labels = labels_of(k, u);
    for (int32_t i = 0; i < k->n_cells; i++) labels[i] = (struct label){(double)INFINITY, 0};
}

void knapsack_solve(struct knapsack *k) {
    clear(k, -1);
    labels_of(k, -1)[0] = (struct label){0, 0};
    for (int32_t u = 0; u < k->n_units; u++) {
        clear(k, u);
        extend(k, u, false);
        extend(k, u, true);
    }
}

bool knapsack_take(const struct knapsack *k, int32_t cell, bool on_gpu[]) {
    if (labels_of(k, k->n_units - 1)[cell].us == (double)INFINITY) return false;
    for (int32_t u = k->n_units - 1; u >= 0; u--) {
        const int32_t origin = came_from(k, u)[cell];
        on_gpu[u] = origin & 1;
        cell = origin >> 1;
    }
    return true;
}
