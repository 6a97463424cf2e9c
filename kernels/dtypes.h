/* dtypes.h: element types of tensors, with the numbers and block layouts of the GGUF format.
 *
 * Owns nothing; pure functions over constants; any thread. Must not know a backend. Tested by
 * tests/kernels/test_dtypes.c.
 */
#ifndef TANDEM_KERNELS_DTYPES_H
#define TANDEM_KERNELS_DTYPES_H

#include <stdbool.h>
#include <stdint.h>

// The numbers are those stored in GGUF files (ggml_type).
enum dtype {
#define DTYPE(NAME, number, elements, bytes) DTYPE_##NAME = (number),
#include "kernels/dtypes.def"
#undef DTYPE
    DTYPE_COUNT // rows of the list ascend by number
};

// The layouts as constants: BLOCK_ELEMENTS_Q4_K, BLOCK_BYTES_Q4_K.
enum {
#define DTYPE(NAME, number, elements, bytes) \
    BLOCK_ELEMENTS_##NAME = (elements), BLOCK_BYTES_##NAME = (bytes),
#include "kernels/dtypes.def"
#undef DTYPE
};

// The types that matmul and embed have kernels for, densely numbered: the index into a table's
// rows.
enum weight_type {
#define WEIGHT(NAME, ...) WEIGHT_##NAME,
#include "kernels/weights.def"
#undef WEIGHT
    WEIGHT_COUNT
};

// The types of a KV cache.
enum kv_type {
#define KV_TYPE(NAME, name) KV_##NAME,
#include "kernels/kv_types.def"
#undef KV_TYPE
    KV_TYPES
};

enum weight_kind { KIND_FLOATS, KIND_HALVES, KIND_BYTES }; // see weights.def

struct dtype_info {
    const char *name;        // "Q4_K"; NULL for a removed number
    uint32_t block_elements; // elements in one block, 1 for plain types
    uint32_t block_bytes;    // bytes of one block
};

// NULL if number is no type of the format.
const struct dtype_info *dtype_find(uint32_t number);

// The name, or "unknown".
const char *dtype_name(enum dtype type);

// Bytes of n_elements of that type, a multiple of its block; 0 if it is not a multiple.
uint64_t dtype_bytes(enum dtype type, uint64_t n_elements);

// False if there are no kernels for the type. *out is set on true.
bool dtype_weight(enum dtype type, enum weight_type *out);

// The reverse: the dtype of a weight type.
enum dtype weight_dtype(enum weight_type type);

// The names of all weight types, for messages: "Q4_K Q6_K ...".
const char *weight_names(void);

// False if a KV cache cannot have the type. *out is set on true.
bool dtype_kv(enum dtype type, enum kv_type *out);

// The reverse: the dtype of a KV cache type.
enum dtype kv_dtype(enum kv_type type);

// The names of all KV cache types, for messages: "F32, F16, ...".
const char *kv_names(void);

// How kernels multiply with the type.
enum weight_kind weight_kind(enum weight_type type);

#endif
