/* knapsack.c: see knapsack.h.
 *
 * Dynamic programming over the units. A label carries its exact bytes, so cells round where a
 * choice is kept and never what it takes. One label for each cell and side of the last unit is an
 * approximation: the fastest choice displaces a slower one that takes a little less.
 */
#include "planner/search/knapsack.h"

#include <math.h>

// Labels of the units up to u whose last one is on that side; two sets that take turns.
static struct label *labels_of(const struct knapsack *k, int32_t u, bool on_gpu) {
    return k->labels + (size_t)((u & 1) * 2 + on_gpu) * (size_t)k->n_cells;
}

static int32_t *came_from(const struct knapsack *k, int32_t u, bool on_gpu) {
    return k->came_from + ((size_t)u * 2 + on_gpu) * (size_t)k->n_cells;
}

// Extends the labels of the units before, the last of them on side from, by unit u on side to.
static void extend(const struct knapsack *k, int32_t u, bool from, bool to) {
    const struct label *source = labels_of(k, u - 1, from);
    struct label *target = labels_of(k, u, to);
    int32_t *origin = came_from(k, u, to);
    const double us = (to ? k->gpu_us[u] : k->host_us[u]) + (from != to ? k->crossing_us : 0);
    const double bytes = to ? k->bytes[u] : 0;
    if (us == (double)INFINITY) return;
    for (int32_t i = 0; i < k->n_cells; i++) {
        if (source[i].us == (double)INFINITY) continue;
        const struct label next = {source[i].us + us, source[i].bytes + bytes};
        const int32_t cell = (int32_t)(next.bytes / k->cell_bytes);
        if (cell >= k->n_cells || next.us >= target[cell].us) continue;
        target[cell] = next;
        origin[cell] = i * 2 + from;
    }
}

static void clear(const struct knapsack *k, int32_t u) {
    for (int to = 0; to < 2; to++) {
        struct label *labels = labels_of(k, u, to);
        for (int32_t i = 0; i < k->n_cells; i++) labels[i] = (struct label){(double)INFINITY, 0};
    }
}

void knapsack_solve(struct knapsack *k) {
    clear(k, -1);
    // Nothing is before the first unit, so that either side of it costs no crossing.
    labels_of(k, -1, false)[0] = labels_of(k, -1, true)[0] = (struct label){0, 0};
    for (int32_t u = 0; u < k->n_units; u++) {
        clear(k, u);
        for (int to = 0; to < 2; to++) {
            extend(k, u, to, to);
            extend(k, u, !to, to);
        }
    }
}

bool knapsack_take(const struct knapsack *k, int32_t cell, bool last_on_gpu, bool on_gpu[]) {
    bool side = last_on_gpu;
    if (labels_of(k, k->n_units - 1, side)[cell].us == (double)INFINITY) return false;
    for (int32_t u = k->n_units - 1; u >= 0; u--) {
        const int32_t origin = came_from(k, u, side)[cell];
        on_gpu[u] = side;
        side = origin & 1;
        cell = origin >> 1;
    }
    return true;
}
