/* gguf_shape.h: the planner's view of any GGUF file, also of models that the runtime cannot run.
 *
 * If the runtime knows the family (families.h), model_read makes the shape. Otherwise it is made
 * from keys and tensor names alone: which unit a tensor belongs to, caches, windows, states,
 * experts. Reads headers, never weights. Owns nothing. Any thread. Tested by
 * tests/runtime/test_gguf_shape.c and tests/fuzz/fuzz_gguf.c.
 */
#ifndef TANDEM_RUNTIME_MODEL_GGUF_SHAPE_H
#define TANDEM_RUNTIME_MODEL_GGUF_SHAPE_H

#include "planner/planner.h"
#include "runtime/gguf/gguf.h"

// Fills *out, which has passed shape_check. out->can_run says whether the runtime knows the model.
// ERR_FORMAT and ERR_UNSUPPORTED name the key or tensor. An unknown tensor counts to the unit that
// the beginning of its name suggests (attn_, ssm_, ffn_, ...); a tensor without such a beginning is
// refused. Rope factors, MTP blocks and their likes, and tensors that a known model does not use
// are not counted. If the file does not say which layers have a window and the architecture is
// unknown, all layers are planned without one.
enum status gguf_shape(struct shape *out, const struct gguf *g, struct err *e);
// The same of the file at path, of which only the header is read. Errors as gguf_open's too.
enum status gguf_shape_of_file(struct shape *out, const char *path, struct err *e);

// Makes the shape of any model from keys and names; can_run is false. For tests.
enum status gguf_shape_by_names(struct shape *out, const struct gguf *g, struct err *e);

#endif
