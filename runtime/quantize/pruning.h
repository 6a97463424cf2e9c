/* pruning.h: leaves layers out of a model, and gives those behind them the numbers in between.
 *
 * A struct pruning owns the new names of tensors, which an open model then borrows. A name has its
 * layer in "blk.N.". One thread. Tested by tests/runtime/test_quantize_file.c and
 * tests/cli/cli_quantize.sh.
 */
#ifndef TANDEM_RUNTIME_QUANTIZE_PRUNING_H
#define TANDEM_RUNTIME_QUANTIZE_PRUNING_H

#include "runtime/gguf/gguf.h"

struct pruning {
    uint64_t n_layers, n_gone; // of the model as it was; 0: nothing is pruned
    bool *gone;                // owned, [n_layers]
    char *names;               // owned
    char key[128];             // that says how many layers there are
};

// Takes the layers of a list such as "3,7,8" out of g. NULL prunes nothing. ERR_USAGE for a list
// that cannot be read, that names a layer that there is not, or all; ERR_UNSUPPORTED for a model
// with keys that have a value for each layer; ERR_FORMAT, ERR_MEMORY.
enum status pruning_open(struct pruning *p, const char *list, struct gguf *g, struct err *e);
void pruning_close(struct pruning *p); // accepts a zeroed one; g must not be used any more

// Writes the new name of a tensor, no longer than the old one, to out. Returns its length, 0 if the
// tensor goes.
size_t pruning_rename(const struct pruning *p, struct gguf_text name, char *out);

#endif
