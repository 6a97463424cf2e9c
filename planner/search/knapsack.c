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
 * tests/planner/test_solver.c.
 */
#include "planner/search/knapsack.h"

#include <math.h>

enum { CELL_BITS = 16 };
static const uint64_t RETURNS = UINT64_C(1) << 63;

// labels: two halves that take turns, each [MAX_DEVICES, n_cells].
static struct label *half(const struct knapsack *k, int u) {
    return k->labels + (size_t)(u & 1) * 2 * (size_t)k->n_cells;
}

static uint16_t *came_from(const struct knapsack *k, int u, int d) {
    return k->came_from + ((size_t)u * MAX_DEVICES + (size_t)d) * (size_t)k->n_cells;
}

// Fixed point: of bytes 16 bits behind the point of a cell, of times what the sum of all may take.
static uint64_t rest_of(const struct knapsack *k, double bytes, double least_us) {
    const uint64_t fraction = (uint64_t)(bytes / k->cell_bytes * (1 << CELL_BITS) + 0.5);
    return (uint64_t)(least_us / k->least_unit_us) << 32 | fraction;
}

static size_t cell_of(uint64_t rest) { return (uint32_t)rest >> CELL_BITS; }

// Extends the labels of units up to u - 1 that end on device from, in the first n_before cells, by
// unit u with an option.
static void extend(struct knapsack *k, int u, int from, enum option option, int32_t n_before) {
    const size_t n_cells = (size_t)k->n_cells;
    const int to = option == OPTION_HOST ? HOST : GPU;
    const struct label *source = half(k, u - 1) + (size_t)from * n_cells;
    struct label *target = half(k, u) + (size_t)to * n_cells;
    uint16_t *origin = came_from(k, u, to);
    const bool crosses = option != OPTION_SPLIT && from != to;
    const double us = k->us[option][u] + (option == OPTION_SPLIT ? 2 : crosses) * k->price_us;
    const uint64_t rest =
        rest_of(k, k->bytes[option][u], k->least_us[option][u] + crosses * k->least_crossing_us);
    const uint64_t returns = from > to && k->returns[u] ? RETURNS : 0;
    uint16_t code = (uint16_t)(option * MAX_DEVICES + (size_t)from);
    for (int32_t i = 0; i < n_before; i++, code += MAX_DEVICES * OPTIONS) {
        if (source[i].us == (double)INFINITY) continue;
        const struct label next = {source[i].us + us, (source[i].rest + rest) | returns};
        const size_t j = cell_of(next.rest);
        if (j >= n_cells || next.us >= target[j].us) continue;
        target[j] = next;
        origin[j] = code;
    }
}

// The first unit, which cannot be split.
static void begin(struct knapsack *k, enum option option) {
    const uint64_t rest = rest_of(k, k->bytes[option][0], k->least_us[option][0]);
    if (cell_of(rest) >= (size_t)k->n_cells) return;
    half(k, 0)[(size_t)option * (size_t)k->n_cells + cell_of(rest)] =
        (struct label){k->us[option][0], rest};
}

// Of a sum over all units, less than half of what 32 bits hold.
static double least_unit_us(const struct knapsack *k) {
    double sum = 1;
    for (int u = 0; u < k->n_units; u++) {
        double most = 0;
        for (int option = 0; option < OPTIONS; option++)
            if (k->allowed[u] >> option & 1) most = fmax(most, k->least_us[option][u]);
        sum += most + k->least_crossing_us;
    }
    return sum / INT32_MAX;
}

// Cells that units of that many bytes may fill, one more for rounding.
static int32_t cells_used(const struct knapsack *k, double bytes) {
    const double used = bytes / k->cell_bytes + 2;
    return used < k->n_cells ? (int32_t)used : k->n_cells;
}

void knapsack_solve(struct knapsack *k) {
    const size_t n_cells = (size_t)k->n_cells;
    ASSERT(n_cells >= 1 && n_cells * MAX_DEVICES * OPTIONS <= UINT16_MAX);
    double most_bytes = 0;
    k->least_unit_us = least_unit_us(k);
    for (int u = 0; u < k->n_units; u++) {
        const int32_t n_before = u == 0 ? 0 : k->n_used;
        most_bytes += k->bytes[OPTION_GPU][u]; // no option has more
        k->n_used = cells_used(k, most_bytes);
        for (int d = 0; d < MAX_DEVICES; d++)
            for (int32_t i = 0; i < k->n_used; i++)
                half(k, u)[d * k->n_cells + i] = (struct label){(double)INFINITY, 0};
        for (int option = 0; option < OPTIONS; option++) {
            if (!(k->allowed[u] >> option & 1)) continue;
            if (u == 0) {
                begin(k, (enum option)option);
                continue;
            }
            extend(k, u, HOST, (enum option)option, n_before);
            extend(k, u, GPU, (enum option)option, n_before);
        }
    }
}

double knapsack_least_us(const struct knapsack *k, int32_t cell, int last, bool *returns) {
    const struct label *label =
        half(k, k->n_units - 1) + (size_t)last * (size_t)k->n_cells + (size_t)cell;
    *returns = label->rest & RETURNS;
    if (label->us == (double)INFINITY) return (double)INFINITY;
    return (double)((label->rest & ~RETURNS) >> 32) * k->least_unit_us * (1 - 1e-9);
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
