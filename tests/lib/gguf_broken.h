/* gguf_broken.h: one GGUF file, or split set, for each check of the reader: the table of broken
 * files with what must be said about them.
 *
 * Constant. tests/runtime/test_gguf.c opens every one, and writes them to a folder for tests of the
 * whole program. One thread.
 */
#ifndef TANDEM_TESTS_LIB_GGUF_BROKEN_H
#define TANDEM_TESTS_LIB_GGUF_BROKEN_H

#include "base/err.h"
#include "tests/lib/gguf_build.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf_broken {
    const char *name; // of the file, without .gguf
    // Fills and finishes one file, or one part from 0 on. False: this part is not written.
    bool (*build)(struct gguf_build *b, uint32_t part, const struct gguf_broken *row);
    const char *says;    // must be in the message
    enum status status;  // that gguf_open must give
    uint32_t n_parts;    // 0: no split set
    uint32_t opened;     // the part that is opened, from 0
    const char *text;    // for the builder: a key, a name or raw bytes
    uint64_t numbers[6]; // for the builder
};

const struct gguf_broken *gguf_broken_rows(size_t *count);

// A small valid file with keys and three tensors (a: F32 [4, 3], b: Q8_0 [32, 2], c: a scalar F16),
// not finished yet.
void gguf_broken_base(struct gguf_build *b);

// Writes the file or files of row into folder; path gets the one to open.
void gguf_broken_write(const struct gguf_broken *row, const char *folder, char *path,
                       size_t path_bytes);

#endif
