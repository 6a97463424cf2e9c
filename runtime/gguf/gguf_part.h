/* gguf_part.h: parses one GGUF file; gguf_open.c makes a model of one or more.
 *
 * Fills a struct gguf that owns the one mapping and its tables. Every check that needs no other
 * file is made here; the order is header, keys, tensor records, placement of the tensors. Reads the
 * header in place and never touches a byte of the data section. Opened by one thread. Tested by
 * tests/runtime/test_gguf.c and tests/fuzz/fuzz_gguf.c.
 */
#ifndef TANDEM_RUNTIME_GGUF_GGUF_PART_H
#define TANDEM_RUNTIME_GGUF_GGUF_PART_H

#include "runtime/gguf/gguf.h"

// Opens and checks path alone, even if it is one part of several. The caller closes *g, also on
// failure.
enum status gguf_part_open(struct gguf *g, const char *path, struct err *e);

#endif
