/* gguf_split.h: finds and joins the parts of a model that was split over several GGUF files.
 *
 * Moves the mappings and tensors of the other parts into the struct gguf of part 1, which then owns
 * them. Parts are named PREFIX-00001-of-00003.gguf and carry split.no (from 0), split.count and
 * split.tensors.count. Must not change the keys: those of part 1 count. Called by gguf_open's
 * thread. Tested by tests/runtime/test_gguf.c.
 */
#ifndef TANDEM_RUNTIME_GGUF_GGUF_SPLIT_H
#define TANDEM_RUNTIME_GGUF_GGUF_SPLIT_H

#include "runtime/gguf/gguf.h"

// Does nothing unless g, one open file, says that it is split. The caller closes *g on failure.
enum status gguf_split_join(struct gguf *g, struct err *e);

#endif
