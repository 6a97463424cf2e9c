/* logits_file.h: files of the logarithms of probabilities that a model gave to all tokens of a
 * vocabulary, as llama-perplexity --kl-divergence-base writes and reads them.
 *
 * The bytes "_logits_", n_window, n_vocab and n_windows as int32, the tokens of all windows, and
 * for each token of the second half of a window that has a next one a row: the step and the least
 * value as float32, then a uint16 for each token of the vocabulary, how many steps it lies above
 * the least one, and one more if n_vocab is odd. All little-endian. An open file owns its mapping
 * and lends rows of it. One thread. Tested by tests/cli/cli_perplexity.sh.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_LOGITS_FILE_H
#define TANDEM_RUNTIME_COMMANDS_LOGITS_FILE_H

#include "base/file.h"
#include "base/new_file.h"

struct logits_shape {
    int32_t n_window, n_vocab, n_windows;
};

// Scored tokens of a window: those of its second half but the last.
int32_t logits_file_scored(const struct logits_shape *s);

struct logits_row {
    float step, least;
    const uint16_t *steps; // [n_vocab], borrowed
};

struct logits_file {
    struct file file;
    struct logits_shape shape;
    const int32_t *tokens; // [n_windows, n_window], borrowed from the mapping
};

// ERR_FILE; ERR_FORMAT if the size is not the one that the head tells.
enum status logits_file_open(struct logits_file *f, const char *path, struct err *e);
void logits_file_close(struct logits_file *f); // accepts a zeroed one
// Row i of all. ERR_FORMAT if its numbers are none that a writer makes: the step finite and at
// least 0, the least value finite and at most 0.
enum status logits_file_row(const struct logits_file *f, int64_t i, struct logits_row *out,
                            struct err *e);

struct logits_writer {
    struct new_file file;
    struct logits_shape shape;
    uint16_t *row; // owned
};

// Begins a file that appears at path with logits_writer_commit. ERR_FILE, ERR_MEMORY.
enum status logits_writer_open(struct logits_writer *w, const char *path,
                               const struct logits_shape *shape, const int32_t *tokens,
                               struct err *e);
enum status logits_writer_add(struct logits_writer *w, const float *logits, struct err *e);
enum status logits_writer_commit(struct logits_writer *w, struct err *e);
void logits_writer_close(struct logits_writer *w); // accepts a zeroed one

#endif
