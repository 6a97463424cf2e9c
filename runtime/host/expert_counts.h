/* expert_counts.h: how many different experts the tokens of a text chose, by number of tokens, and
 * the exponent for the planner that follows (struct workload).
 *
 * A plain value without pointers. The pipeline counts for experts on the CPU; what was counted is
 * kept in a file for each model and goes on growing. One thread. Tested by
 * tests/runtime/test_expert_counts.c.
 */
#ifndef TANDEM_RUNTIME_HOST_EXPERT_COUNTS_H
#define TANDEM_RUNTIME_HOST_EXPERT_COUNTS_H

#include "planner/planner.h"

#include <stdbool.h>
#include <stdint.h>

enum { EXPERT_COUNT_TOKENS = 512 }; // micro-batches of more are not counted

struct expert_counts {
    int32_t n_experts, n_used;           // of every layer that is counted; 0 experts: nothing is
    uint64_t n_added;                    // layers and micro-batches since expert_counts_init
    uint64_t n[EXPERT_COUNT_TOKENS + 1]; // layers and micro-batches of so many tokens
    uint64_t chosen[EXPERT_COUNT_TOKENS + 1]; // their different experts together
};

// Begins with nothing counted.
void expert_counts_init(struct expert_counts *c, const struct shape *shape);

// Counts one layer and micro-batch; the pairs of expert k are starts[k] to starts[k + 1] - 1.
void expert_counts_add(struct expert_counts *c, int32_t n_tokens, const int32_t *starts);

// The exponent by which as many experts are expected as were counted; 0 before LEAST counts.
double expert_counts_exponent(const struct expert_counts *c);

// Adds what the folder has of that model; nothing if there is no file, or one that cannot be used.
void expert_counts_load(struct expert_counts *c, const char *folder, const struct shape *shape);
// Writes the file. ERR_FILE, ERR_MEMORY.
enum status expert_counts_store(const struct expert_counts *c, const char *folder,
                                const struct shape *shape, struct err *e);

#endif
