/* families.h: reads a model with the family that its GGUF names.
 *
 * Takes every value by name with a range, every tensor by role, type and exact shape. Knows the
 * families only through their names in arch_*.c. Owns nothing. Any thread. Tested by
 * tests/runtime/test_model.c.
 */
#ifndef TANDEM_RUNTIME_MODEL_FAMILIES_H
#define TANDEM_RUNTIME_MODEL_FAMILIES_H

#include "runtime/model/model.h"

// Reads and checks everything; fills *shape with the units in forward order. ERR_UNSUPPORTED
// (architecture, tensor type), ERR_FORMAT (key or tensor, expected, got). Both structs are big: put
// them on the heap.
enum status model_read(struct model *m, struct shape *shape, const struct gguf *g, struct err *e);

#endif
