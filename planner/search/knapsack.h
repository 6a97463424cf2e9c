/* knapsack.h: the fastest placement of a chain of units for every number of bytes.
 *
 * The caller owns every array. Any thread. Tested by tests/planner/test_solver.c.
 */
#ifndef TANDEM_PLANNER_SEARCH_KNAPSACK_H
#define TANDEM_PLANNER_SEARCH_KNAPSACK_H

#include "planner/machine/machine.h"
#include "planner/plan/pair.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// How a unit is placed: on a device, or split between both.
enum option { OPTION_HOST = HOST, OPTION_GPU = GPU, OPTION_SPLIT, OPTIONS };

// A chain of units, each of which takes one of several options.
struct knapsack {
    int32_t n_units, n_cells;
    double cell_bytes;
    double price_us;              // of one crossing; a split unit has two
    const uint8_t *allowed;       // [n_units], bit o: option o
    const double *bytes[OPTIONS]; // [n_units], on the accelerator
    const double *us[OPTIONS];    // [n_units]
    // What is known to be added to any placement's time by a unit, and by a crossing to a unit that
    // is not split. Decides nothing, but is summed up along the way.
    const double *least_us[OPTIONS]; // [n_units]
    double least_crossing_us;
    const bool *returns;  // [n_units], see knapsack_least_us
    struct label *labels; // room for knapsack_labels(n_cells)
    int32_t n_used;       // cells that may hold placements, of n_cells
    double least_unit_us; // of a label's least time
    uint16_t *came_from;  // [n_units, MAX_DEVICES, n_cells]
};
struct label {
    double us;
    uint64_t rest; // bytes, 32 bits in fixed point, above them 31 of the least time, and RETURNS
};
static inline size_t knapsack_labels(int32_t n_cells) { return 4 * (size_t)n_cells; }
// Finds for each of n_cells ranges of bytes on the accelerator, of which n_used are reached, the
// fastest placement, as far as one placement per range, last device and unit tells.
void knapsack_solve(struct knapsack *k);
// What the placement of a cell below n_used whose last unit is on device last takes at least;
// INFINITY if there is none. *returns: it comes back from the accelerator to a unit of k->returns.
double knapsack_least_us(const struct knapsack *k, int32_t cell, int last, bool *returns);
// That placement.
void knapsack_placement(const struct knapsack *k, int32_t cell, int last, uint8_t option[]);

#endif
