/* knapsack.h: finds, for every number of bytes on the accelerator, the units that are best placed
 * there, whole or in part.
 *
 * A knapsack of groups: each unit takes one of its ways, which have a time and bytes on the
 * accelerator. Copies between neighbours cost nothing here; among units with equal gain the first
 * ones go to the accelerator, so that they are adjacent. The caller owns every array. Must not know
 * limits. Any thread. Tested by tests/planner/test_solver.c.
 */
#ifndef TANDEM_PLANNER_SEARCH_KNAPSACK_H
#define TANDEM_PLANNER_SEARCH_KNAPSACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Ways of a unit: the first takes no bytes.
enum knapsack_way { WAY_HOST, WAY_SPLIT, WAY_WHOLE, KNAPSACK_WAYS };

struct knapsack_item {
    double us[KNAPSACK_WAYS], bytes[KNAPSACK_WAYS]; // us INFINITY: not allowed
};

// The fastest choice found so far whose bytes fall into a cell.
struct label {
    double us, bytes; // us INFINITY: none
};

struct knapsack {
    int32_t n_units, n_cells;
    double cell_bytes;
    struct knapsack_item *items; // [n_units]
    struct label *labels;        // room for 2 * n_cells
    int32_t *came_from;          // [n_units, n_cells]: the cell of the units before, and the way
};

// Fills the labels and came_from. Cells are equal ranges of bytes from 0 on; a cell does not depend
// on later ones. n_units * n_cells * KNAPSACK_WAYS steps.
void knapsack_solve(struct knapsack *k);
// True if a choice of ways falls into the cell; then ways[u] is that of unit u.
bool knapsack_take(const struct knapsack *k, int32_t cell, enum knapsack_way ways[]);

#endif
