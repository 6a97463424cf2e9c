/* input_sums.h: adds up the squares of what the matrices of a model multiply.
 *
 * A struct input_sums owns its sums and an op table that goes before the device's own: it encodes a
 * look at the inputs, and then the op. So other runs are no slower. It borrows the device, which
 * computes on the host, and the file, where the device's weights lie: a matrix is known by its
 * address, and one that is made anew at loading is not. One thread. Tested by
 * tests/runtime/test_input_sums.c.
 */
#ifndef TANDEM_RUNTIME_ENGINE_INPUT_SUMS_H
#define TANDEM_RUNTIME_ENGINE_INPUT_SUMS_H

#include "kernels/device.h"
#include "runtime/gguf/gguf.h"

// A tensor of the layers: one matrix, one for each expert, or one for each head.
struct input_sum {
    const struct gguf_tensor *tensor; // borrowed
    uint64_t n_columns, n_matrices;   // ne[0], and ne[2] of experts and heads
    bool by_expert;                   // its matrices are used apart
    float *sums;                      // [n_matrices, n_columns], owned
    uint64_t *counts; // owned, rows that were added: [n_matrices] if by_expert, else [1]
};

struct input_sums;

// Begins to add up what d computes from now on. ERR_MEMORY.
enum status input_sums_open(struct input_sums **out, struct device *d, const struct gguf *g,
                            struct err *e);
void input_sums_close(struct input_sums *s); // NULL is allowed; d has its own op table again

uint32_t input_sums_count(const struct input_sums *s);
// Borrowed until input_sums_close. By addresses in the file; counts are 0 of one without use.
const struct input_sum *input_sums_at(const struct input_sums *s, uint32_t i);

#endif
