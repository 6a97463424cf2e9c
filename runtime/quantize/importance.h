/* importance.h: reads how much each column of a matrix matters, as llama-imatrix measured it.
 *
 * The file is a GGUF file, or of the older form .dat. A struct importance owns its numbers and
 * names. Opened by one thread; then any thread may read. Tested by
 * tests/runtime/test_quantize_file.c.
 */
#ifndef TANDEM_RUNTIME_QUANTIZE_IMPORTANCE_H
#define TANDEM_RUNTIME_QUANTIZE_IMPORTANCE_H

#include "base/err.h"
#include "base/log.h"
#include "base/strmap.h"
#include "runtime/gguf/gguf.h"
#include "runtime/quantize/pruning.h"

struct importance_entry {
    char *name;    // of the matrix, owned
    float *values; // [n_matrices, n_columns], owned
    uint64_t n_values;
};

struct importance {
    struct importance_entry *entries; // owned
    uint32_t n_entries;
    struct strmap index;
    char *dataset;     // the text that was measured with, owned; NULL: the file does not say
    uint64_t n_chunks; // of that text; 0: it does not say
};

// ERR_FILE, ERR_FORMAT for what is no such file, or has a number below 0 or none; ERR_MEMORY. On
// failure *m is closed.
enum status importance_open(struct importance *m, const char *path, struct err *e);
void importance_close(struct importance *m); // accepts a zeroed one; leaves it zeroed

// The entries that count, of all that the file has.
struct importance_choice {
    const char *const *names; // [n], borrowed: texts that an entry's name holds; n 0: all count
    int32_t n;
    bool excludes; // the other ones count
};

// Removes the entries that do not count, and warns of a text that no name holds. ERR_USAGE for an
// empty text, or if nothing is left; ERR_MEMORY.
enum status importance_choose(struct importance *m, const struct importance_choice *choice,
                              const struct log *log, struct err *e);

// Gives the values the names that tensors have in the pruned model. ERR_FORMAT, ERR_MEMORY.
enum status importance_prune(struct importance *m, const struct pruning *p, struct err *e);

// Finds the values of a tensor, [ne[2], ne[0]] or, for all of its matrices, [ne[0]]: *per_matrix
// says which. *values is NULL without an entry. ERR_FORMAT if there are other numbers of values.
enum status importance_find(const struct importance *m, const struct gguf_tensor *t,
                            const float **values, bool *per_matrix, struct err *e);

#endif
