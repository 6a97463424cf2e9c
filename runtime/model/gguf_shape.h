/* gguf_shape.h: the planner's view of any GGUF file, also of models that the runtime cannot run.
 *
 * Where the runtime knows the family (families.h), the shape is model_read's. Else it is made of
 * keys and tensor names alone: which unit a tensor belongs to, caches, windows, states, experts.
 * Reads headers, never weights. Owns nothing. Any thread. Tested by tests/runtime/test_gguf_shape.c
 * and tests/fuzz/fuzz_gguf.c.
 */
#ifndef TANDEM_RUNTIME_MODEL_GGUF_SHAPE_H
#define TANDEM_RUNTIME_MODEL_GGUF_SHAPE_H

#include "planner/planner.h"
#include "runtime/gguf/gguf.h"

// Fills *out, which has passed shape_check. out->can_run says whether the runtime knows the model.
// ERR_FORMAT and ERR_UNSUPPORTED name the key or tensor. A tensor that nobody knows counts to the
// unit that its name begins like (attn_, ssm_, ffn_, ...); one that begins like none is refused.
// Not counted are rope factors, MTP blocks and what stands for them, and whatever a model that the
// runtime knows does not use. Where the file says nothing of a window's layers and the architecture
// is unknown, all layers are planned to see everything.
enum status gguf_shape(struct shape *out, const struct gguf *g, struct err *e);

// The same from keys and names for every model: can_run is false. For tests.
enum status gguf_shape_by_names(struct shape *out, const struct gguf *g, struct err *e);

#endif
