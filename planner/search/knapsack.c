/* knapsack.c: see knapsack.h.
 *
 * Dynamic programming over the units. A label has its exact bytes, so cells round the index of a
 * choice and never its size. One label per cell is an approximation: the fastest choice displaces a
 * slower one that is a little smaller.
 */
#include "planner/search/knapsack.h"

#include <assert.h>
#include <math.h>

static_assert(KNAPSACK_CELLS * KNAPSACK_WAYS <= UINT16_MAX, "came_from holds a cell and a way");

// Extends the labels of the units before u, all in the first n cells, by one way of unit u.
static void extend(struct knapsack *k, int32_t u, enum knapsack_way way, int32_t n) {
    const struct label *source = k->labels[(u + 1) % 2];
    struct label *target = k->labels[u % 2];
    const double us = k->items[u].us[way], bytes = k->items[u].bytes[way];
    if (us == (double)INFINITY) return;
    for (int32_t i = 0; i < n; i++) {
        if (source[i].us == (double)INFINITY) continue;
        const struct label next = {source[i].us + us, source[i].bytes + bytes};
        const int32_t cell = (int32_t)(next.bytes / k->cell_bytes);
        if (cell >= k->n_cells || next.us >= target[cell].us) continue;
        target[cell] = next;
        k->came_from[u][cell] = (uint16_t)(i * KNAPSACK_WAYS + (int32_t)way);
    }
}

static void clear(struct knapsack *k, int32_t set) {
    for (int32_t i = 0; i < k->n_cells; i++)
        k->labels[set][i] = (struct label){(double)INFINITY, 0};
}

void knapsack_solve(struct knapsack *k) {
    double bytes = 0; // at most, of the units so far
    clear(k, 1);
    k->labels[1][0] = (struct label){0, 0};
    for (int32_t u = 0; u < k->n_units; u++) {
        const double reached = fmin(bytes / k->cell_bytes + 2, k->n_cells);
        clear(k, u % 2);
        for (int way = 0; way < KNAPSACK_WAYS; way++)
            extend(k, u, (enum knapsack_way)way, (int32_t)reached);
        bytes += fmax(k->items[u].bytes[WAY_SPLIT], k->items[u].bytes[WAY_WHOLE]);
    }
}

bool knapsack_take(const struct knapsack *k, int32_t cell, enum knapsack_way ways[]) {
    if (k->labels[(k->n_units - 1) % 2][cell].us == (double)INFINITY) return false;
    for (int32_t u = k->n_units - 1; u >= 0; u--) {
        const int32_t origin = k->came_from[u][cell];
        ways[u] = (enum knapsack_way)(origin % KNAPSACK_WAYS);
        cell = origin / KNAPSACK_WAYS;
    }
    return true;
}
