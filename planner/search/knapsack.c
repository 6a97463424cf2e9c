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

// Extends the labels of the units before u by one way of unit u.
static void extend(const struct knapsack *k, int32_t u, enum knapsack_way way) {
    const struct label *source = labels_of(k, u - 1);
    struct label *target = labels_of(k, u);
    int32_t *origin = came_from(k, u);
    const double us = k->items[u].us[way], bytes = k->items[u].bytes[way];
    if (us == (double)INFINITY) return;
    for (int32_t i = 0; i < k->n_cells; i++) {
        if (source[i].us == (double)INFINITY) continue;
        const struct label next = {source[i].us + us, source[i].bytes + bytes};
        const int32_t cell = (int32_t)(next.bytes / k->cell_bytes);
        if (cell >= k->n_cells || next.us >= target[cell].us) continue;
        target[cell] = next;
        origin[cell] = i * KNAPSACK_WAYS + (int32_t)way;
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
        for (int way = 0; way < KNAPSACK_WAYS; way++) extend(k, u, (enum knapsack_way)way);
    }
}

bool knapsack_take(const struct knapsack *k, int32_t cell, enum knapsack_way ways[]) {
    if (labels_of(k, k->n_units - 1)[cell].us == (double)INFINITY) return false;
    for (int32_t u = k->n_units - 1; u >= 0; u--) {
        const int32_t origin = came_from(k, u)[cell];
        ways[u] = (enum knapsack_way)(origin % KNAPSACK_WAYS);
        cell = origin / KNAPSACK_WAYS;
    }
    return true;
}
