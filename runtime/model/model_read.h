/* model_read.h: reads one tensor or one number of a model from its GGUF, checked.
 *
 * For arch_*.c, which say what they want. Owns nothing: tensors are borrowed from the gguf. Must
 * not know a model family. Any thread. Tested by tests/runtime/test_model.c.
 */
#ifndef TANDEM_RUNTIME_MODEL_MODEL_READ_H
#define TANDEM_RUNTIME_MODEL_MODEL_READ_H

#include "runtime/model/model.h"

// A tensor by name, with the only shape that is right for it.
struct tensor_want {
    const char *name;
    uint64_t ne0, ne1; // ne1 is 1 for vectors
    bool matrix;       // any weight type; else F32
    bool optional;     // absent: *out is NULL
};
enum status model_find_tensor(struct model *m, const struct tensor_want *want,
                              const struct gguf_tensor **out, struct err *e);

// Key "<architecture>.<key>" in 1..high. *out holds the default before the call; 0 means that the
// key is required.
enum status model_read_int(const struct model *m, const char *key, int32_t high, int32_t *out,
                           struct err *e);
// The same key as a float; an absent one leaves *out.
enum status model_read_float(const struct model *m, const char *key, float *out, struct err *e);

#endif
