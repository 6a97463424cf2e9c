/* knapsack.c: the fastest placements of a chain of units, for every number of bytes on the
 * accelerator at once.
 *
 * Dynamic programming along the chain (0-1 knapsack with a price for changing device; units may be
 * split between both devices as well). The bytes on
 * the accelerator are divided into cells of equal size; each cell keeps, for each device that the
 * last unit may be on, the fastest placement whose exact bytes fall into it. Cells do not depend on
 * any limit, and what a cell holds does not depend on later cells, so a higher limit only adds
 * placements. That, and that prices do not come from the link, makes the planner monotone (see
 * search.c). n_units * 4 * n_cells steps (6 with splits). Owns nothing; any thread. Tested by
 * tests/test_solver.c.
 */
#include "planner/plan_internal.h"

#include <math.h>

// labels: two halves that take turns, each [MAX_DEVICES, n_cells].
static struct label *half(const struct knapsack *k, int u) {
    return k->labels + (size_t)(u & 1) * 2 * (size_t)k->n_cells;
}

static uint16_t *came_from(const struct knapsack *k, int u, int d) {
    return k->came_from + ((size_t)u * MAX_DEVICES + (size_t)d) * (size_t)k->n_cells;
}

// Extends the labels of units up to u - 1 that end on device from by unit u with an option.
static void extend(struct knapsack *k, int u, int from, enum option option) {
    const size_t n_cells = (size_t)k->n_cells;
    const int to = option == OPTION_HOST ? HOST : GPU;
    const struct label *source = half(k, u - 1) + (size_t)from * n_cells;
    struct label *target = half(k, u) + (size_t)to * n_cells;
    uint16_t *origin = came_from(k, u, to);
    const uint32_t n_crossings = option == OPTION_SPLIT ? 2 : from != to;
    const double us = k->us[option][u] + n_crossings * k->price_us;
    const float bytes = (float)k->bytes[option][u];
    const float per_byte = (float)(1 / k->cell_bytes);
    for (size_t i = 0; i < k->n_used; i++) {
        if (source[i].us == (double)INFINITY) continue;
        const struct label next = {source[i].us + us, source[i].bytes + bytes,
                                   source[i].n_crossings + n_crossings};
        const float cell = next.bytes * per_byte;
        if (cell >= (float)n_cells) continue;
        const size_t j = (size_t)cell;
        if (next.us >= target[j].us) continue;
        target[j] = next;
        origin[j] = (uint16_t)((i * OPTIONS + option) * MAX_DEVICES + (size_t)from);
    }
}

// The first unit, which cannot be split.
static void begin(struct knapsack *k, enum option option) {
    const double cell = k->bytes[option][0] / k->cell_bytes;
    if (cell >= (double)k->n_cells) return;
    half(k, 0)[(size_t)option * (size_t)k->n_cells + (size_t)cell] =
        (struct label){k->us[option][0], (float)k->bytes[option][0], 0};
}

void knapsack_solve(struct knapsack *k) {
    const size_t n_cells = (size_t)k->n_cells;
    ASSERT(n_cells >= 1 && n_cells * MAX_DEVICES * OPTIONS <= UINT16_MAX);
    double most_bytes = 0;
    for (int u = 0; u < k->n_units; u++) {
        struct label *labels = half(k, u);
        for (size_t i = 0; i < MAX_DEVICES * n_cells; i++) labels[i].us = (double)INFINITY;
        const double used = most_bytes / k->cell_bytes + 1; // by the units so far
        k->n_used = used < (double)n_cells ? (size_t)used + 1 : n_cells;
        k->n_used = k->n_used < n_cells ? k->n_used : n_cells;
        most_bytes += k->bytes[OPTION_GPU][u]; // no option has more
        for (int option = 0; option < OPTIONS; option++) {
            if (!(k->allowed[u] >> option & 1)) continue;
            if (u == 0) {
                begin(k, (enum option)option);
                continue;
            }
            extend(k, u, HOST, (enum option)option);
            extend(k, u, GPU, (enum option)option);
        }
    }
}

double knapsack_units_us(const struct knapsack *k, int32_t cell, int last) {
    const struct label *label =
        half(k, k->n_units - 1) + (size_t)last * (size_t)k->n_cells + (size_t)cell;
    return label->us - label->n_crossings * k->price_us;
}

void knapsack_placement(const struct knapsack *k, int32_t cell, int last, uint8_t option[]) {
    for (int u = k->n_units - 1; u > 0; u--) {
        const uint16_t origin = came_from(k, u, last)[cell];
        option[u] = (uint8_t)(origin / MAX_DEVICES % OPTIONS);
        last = origin % MAX_DEVICES;
        cell = origin / (MAX_DEVICES * OPTIONS);
    }
    option[0] = (uint8_t)last;
}
