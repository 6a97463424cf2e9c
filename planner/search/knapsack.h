/* knapsack.h: finds, for every number of bytes on the accelerator, the units that are best placed
 * there.
 *
 * A 0-1 knapsack: each unit has a time on the host, and a time and bytes on the accelerator. Copies
 * between neighbours cost nothing here; among units with equal gain the first ones go to the
 * accelerator, so that they are adjacent. The caller owns every array. Must not know limits. Any
 * thread. Tested by tests/planner/test_solver.c.
 */
#ifndef TANDEM_PLANNER_SEARCH_KNAPSACK_H
#define TANDEM_PLANNER_SEARCH_KNAPSACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The fastest choice found so far whose bytes fall into a cell.
struct label {
    double us, bytes; // us INFINITY: none
};

struct knapsack {
    int32_t n_units, n_cells;
    double cell_bytes;
    const double *bytes;            // [n_units], on the accelerator
    const double *host_us, *gpu_us; // [n_units], INFINITY: not allowed there
    struct label *labels;           // room for 2 * n_cells
    int32_t *came_from;             // [n_units, n_cells]: the cell of the units before
};

// Fills the labels and came_from. Cells are equal ranges of bytes from 0 on; a cell does not depend
// on later ones. n_units * n_cells * 2 steps.
void knapsack_solve(struct knapsack *k);
// True if a choice of units falls into the cell; then on_gpu[u] says where each unit is.
bool knapsack_take(const struct knapsack *k, int32_t cell, bool on_gpu[]);

#endif
