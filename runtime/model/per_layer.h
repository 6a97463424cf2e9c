/* per_layer.h: numbers and tensors that a file gives for each layer, which layers have a window,
 * and which have one norm of the sum of their experts.
 *
 * A key has one number for all layers or a list of them. Owns nothing; tensors are borrowed from
 * the gguf. Any thread. Tested by tests/runtime/test_gguf_shape.c.
 */
#ifndef TANDEM_RUNTIME_MODEL_PER_LAYER_H
#define TANDEM_RUNTIME_MODEL_PER_LAYER_H

#include "base/err.h"
#include "planner/planner.h"
#include "runtime/gguf/gguf.h"

#include <stdint.h>

struct layer_numbers {
    const struct gguf *gguf;
    const char *architecture; // keys are "<architecture>.<name>"
    int32_t n_layers;
};

// Reads the numbers of a key, each in 0..high, into out[n_layers]; all are other if the key is
// missing. ERR_FORMAT names the key.
enum status per_layer_read(const struct layer_numbers *n, const char *name, int32_t high,
                           int32_t other, int32_t *out, struct err *e);

// Reads the floats of a key, whose name is whole, into out[n_layers]: one for all layers or a list.
// ERR_FORMAT if it is missing or not finite.
enum status per_layer_floats(const struct layer_numbers *n, const char *key, float *out,
                             struct err *e);

// Reads how many positions a token sees in each layer, 0: all, into out[n_layers].
enum status per_layer_windows(const struct layer_numbers *n, int32_t *out, struct err *e);

// Finds the tensor of a role in a layer, under any of the role's names; a layer below 0 stands for
// tensors outside layers. NULL: the file has none.
const struct gguf_tensor *per_layer_tensor(const struct gguf *g, int32_t layer,
                                           enum tensor_role role);

// True if a layer that has both a shared expert and routed ones adds one norm of the sum of both:
// there is a norm behind its FFN, and none that the routed experts alone read.
bool per_layer_joint_norm(const struct gguf *g, int32_t layer);

#endif
