/* paging.h: reads the CPU's weights of cold units from the disk for each pass, and drops them
 * behind it.
 *
 * A struct pager owns a table of units; it borrows the plan, the model's files, which stay mapped,
 * and the weights. Its calls run in the thread that computes on the CPU, between the
 * ops of its stream. Routed experts are left to the system: a token reads a few, and those that are
 * read often stay. Tested by tests/runtime/test_paging.c and tests/cli/cli_paging.sh.
 */
#ifndef TANDEM_RUNTIME_ENGINE_PAGING_H
#define TANDEM_RUNTIME_ENGINE_PAGING_H

#include "runtime/engine/weights.h"

struct paged_range { // bytes of a file
    const struct file *file;
    uint64_t offset, size_bytes;
};

struct paged_unit {
    struct pager *pager; // borrowed; NULL: the unit is not paged
    int32_t unit, next;  // next: the paged unit that is computed after it
    int32_t n_ranges;    // 0 before the first pass: weights have no addresses when it is opened
    struct paged_range ranges[MAX_UNIT_TENSORS]; // in the order of the file, neighbours as one
    bool expected;                               // it is being read
};

struct pager {
    const struct plan *plan; // borrowed, as the next two
    const struct gguf *gguf;
    const struct weights *weights;
    struct paged_unit *units; // owned, [plan->n_units]; NULL: all weights stay in RAM
};

// Without cold units nothing is done. ERR_MEMORY. Close accepts a zeroed one.
enum status pager_open(struct pager *pager, const struct placed_model *placed,
                       const struct weights *weights, struct err *e);
void pager_close(struct pager *pager);

// Encodes on the CPU's stream, before the unit's ops: read its weights, and begin to read those of
// the next cold unit.
void pager_read(const struct pager *pager, int32_t unit, struct stream *s);
// Encodes, behind them: drop its weights.
void pager_drop(const struct pager *pager, int32_t unit, struct stream *s);

#endif
