/* importance_write.h: writes how much each column of a matrix matters, as llama-imatrix does.
 *
 * The file is a GGUF file, which importance.h and llama-quantize read. Owns nothing; borrows all
 * that it is given. One thread. Tested by tests/runtime/test_input_sums.c and
 * tests/cli/cli_imatrix.sh.
 */
#ifndef TANDEM_RUNTIME_QUANTIZE_IMPORTANCE_WRITE_H
#define TANDEM_RUNTIME_QUANTIZE_IMPORTANCE_WRITE_H

#include "base/new_file.h"
#include "runtime/gguf/gguf.h"

struct importance_sums {
    struct gguf_text name;  // of the tensor
    const float *sums;      // [n_counts, n_columns]: of the squares of inputs
    const uint64_t *counts; // [n_counts]: rows that were added up; one for each expert, or one
    uint64_t n_columns, n_counts;
};

struct importance_file {
    const struct importance_sums *list; // [n]
    uint32_t n;
    const char *dataset; // the text that was measured with
    uint32_t n_chunks, chunk_tokens;
};

// Writes the whole file, which the caller then commits. ERR_FILE, ERR_MEMORY; ERR_FORMAT for a sum
// that is no number.
enum status importance_write(struct new_file *out, const struct importance_file *file,
                             struct err *e);

#endif
