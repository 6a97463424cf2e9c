/* shape_gguf.h: writes the GGUF header of a shape, with room for weights that are never written.
 *
 * The reverse of runtime/model/gguf_shape.c: a file of tens of gigabytes that takes kilobytes of
 * disk, to read headers of big models without having them. Owns nothing: writes a file. One thread.
 */
#ifndef TANDEM_TESTS_LIB_SHAPE_GGUF_H
#define TANDEM_TESTS_LIB_SHAPE_GGUF_H

#include "planner/planner.h"
#include "tests/lib/gguf_build.h"

// All keys and tensor records, not yet finished. *size_bytes gets the bytes of all tensors.
void shape_gguf_build(struct gguf_build *b, const struct shape *shape, uint64_t *size_bytes);
// Builds, writes, and lengthens the file so that all tensors are inside. *header_bytes gets where
// they start.
void shape_gguf_write(const char *path, const struct shape *shape, uint64_t *header_bytes);

#endif
