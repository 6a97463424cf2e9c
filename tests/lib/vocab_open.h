/* vocab_open.h: opens a small vocabulary, or any GGUF file of bytes, without a file on a disk.
 *
 * It needs memfd_create, so programs that are also built for macOS leave it out: they take
 * vocab_build.h alone. One thread.
 */
#ifndef TANDEM_TESTS_LIB_VOCAB_OPEN_H
#define TANDEM_TESTS_LIB_VOCAB_OPEN_H

#include "tests/lib/vocab_build.h"

// Opens bytes as a file in memory. On failure *g is closed.
enum status vocab_open_bytes(const void *bytes, size_t size_bytes, struct gguf *g, struct err *e);
// Both at once, and the tokenizer. On failure *g is closed. On success the caller closes both.
enum status vocab_open(const struct vocab_build *v, struct gguf *g, struct tokenizer **t,
                       const struct log *log, struct err *e);

#endif
