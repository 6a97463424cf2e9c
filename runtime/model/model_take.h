/* model_take.h: takes one tensor or one number of a model from its GGUF, checked, into the model
 * and its shape.
 *
 * Owns nothing: tensors are borrowed from the gguf. Must not know a model family. Any thread.
 * Tested by tests/runtime/test_model.c.
 */
#ifndef TANDEM_RUNTIME_MODEL_MODEL_TAKE_H
#define TANDEM_RUNTIME_MODEL_MODEL_TAKE_H

#include "runtime/model/model.h"

// Starts the next unit of m->shape.
struct unit *model_take_unit(struct model *m, enum unit_kind kind, int32_t layer);

// True if the file has a tensor of that role in the layer, under any of its names.
bool model_layer_has(const struct model *m, int32_t layer, enum tensor_role role);

// True if the unit's tensor of that role is made of rows of a tensor that holds more. Latent
// attention: head after head the rows of keys, of which it is the transposed, then those of values,
// in F32. A delta net: by key head the rows of a query, a key, values and gates.
bool model_is_joined(const struct model *m, const struct unit *unit, enum tensor_role role);

// Finds an expert's matrix in files that have a tensor for each expert, as those of before 2024-04;
// NULL if there is none. Such matrices are taken together: as one tensor, whose data are those of
// the first, with m->strides.
const struct gguf_tensor *model_find_expert(const struct model *m, int32_t layer,
                                            enum tensor_role role, int32_t expert);

// A tensor that a unit needs, with its required dimensions. Matrices may have any weight type.
// Others (norms, biases, routers) are F32 in the unit and F32, F16 or BF16 in the file.
struct tensor_want {
    enum tensor_role role;
    int64_t n_cols, n_rows; // in the file; the unit gets a vector as one row
    int32_t n_experts;      // experts that have such a matrix each; 0: a single matrix
    int32_t n_heads;        // attention heads that do, all in one matrix of the unit; else 0
    bool optional;
};
// Adds the tensor to the last unit. ERR_FORMAT if it is missing unless it is optional.
enum status model_take_tensor(struct model *m, const struct tensor_want *want, struct err *e);
// Takes a tensor that belongs to no unit; *out is NULL if the file lacks it.
enum status model_take_global(const struct model *m, const struct tensor_want *want,
                              const struct gguf_tensor **out, struct err *e);

// Reads the key "<architecture>.<key>" in 0..high; a missing key leaves *out unchanged.
enum status model_take_count(const struct model *m, const char *key, int32_t high, int32_t *out,
                             struct err *e);
// Reads the key "<architecture>.<key>" in 1..high. *out holds the default before the call; 0 means
// that the key is required.
enum status model_take_int(const struct model *m, const char *key, int32_t high, int32_t *out,
                           struct err *e);
// Reads such a key as a float; a missing key leaves *out unchanged.
enum status model_take_float(const struct model *m, const char *key, float *out, struct err *e);
enum status model_take_bool(const struct model *m, const char *key, bool *out, struct err *e);
enum status model_take_text(const struct model *m, const char *key, struct gguf_text *out,
                            struct err *e);

#endif
