/* knapsack.h: finds, for every number of bytes on the accelerator, the units that are best placed
 * there, whole or in part.
 *
 * A knapsack of groups: each unit takes one of its ways, which have a time and bytes on the
 * accelerator. Copies between neighbours cost nothing here; among units with equal gain the first
 * ones go to the accelerator, so that they are adjacent. Must not know limits. Owns nothing. Any
 * thread. Tested by tests/planner/test_solver.c.
 */
#ifndef TANDEM_PLANNER_SEARCH_KNAPSACK_H
#define TANDEM_PLANNER_SEARCH_KNAPSACK_H

#include "planner/shape/shape.h"

// Ways of a unit: the first takes no bytes.
enum knapsack_way { WAY_HOST, WAY_SPLIT, WAY_WHOLE, KNAPSACK_WAYS };

struct knapsack_item {
    double us[KNAPSACK_WAYS], bytes[KNAPSACK_WAYS]; // us INFINITY: not allowed
};

// The fastest choice found so far whose bytes fall into a cell.
struct label {
    double us, bytes; // us INFINITY: none
};

enum { KNAPSACK_CELLS = 2048 };

struct knapsack {
    int32_t n_units, n_cells; // n_cells: at most KNAPSACK_CELLS
    double cell_bytes;
    struct knapsack_item items[MAX_UNITS];
    struct label labels[2][KNAPSACK_CELLS]; // of the units up to one; two sets that take turns
    uint16_t came_from[MAX_UNITS][KNAPSACK_CELLS]; // the cell of the units before, and the way
};

// Fills the labels and came_from. Cells are equal ranges of bytes from 0 on; a cell does not depend
// on later ones. n_units * n_cells * KNAPSACK_WAYS steps.
void knapsack_solve(struct knapsack *k);
// True if a choice of ways falls into the cell; then ways[u] is that of unit u.
bool knapsack_take(const struct knapsack *k, int32_t cell, enum knapsack_way ways[]);

#endif
