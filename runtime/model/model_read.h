/* model_read.h: reads a model from a GGUF, with the family that the file names.
 *
 * Takes every number by its key with a range, and every tensor that the blocks of its units ask
 * for, with its type and exact shape. Owns nothing. Any thread. Tested by
 * tests/runtime/test_model.c.
 */
#ifndef TANDEM_RUNTIME_MODEL_MODEL_READ_H
#define TANDEM_RUNTIME_MODEL_MODEL_READ_H

#include "runtime/model/model.h"

// Reads and checks everything; fills *shape with the units in forward order. ERR_UNSUPPORTED
// (architecture, tensor type), ERR_FORMAT (key or tensor, expected, got). Both structs are big: put
// them on the heap.
enum status model_read(struct model *m, struct shape *shape, const struct gguf *g, struct err *e);

// The divisors of the frequencies of rotary positions for contexts of that length; NULL: none.
const struct gguf_tensor *model_rope_divisors(const struct model *m, int32_t n_ctx);

#endif
