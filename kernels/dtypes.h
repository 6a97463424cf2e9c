/* dtypes.h: element types of tensors, with the numbers and block layouts of the GGUF format.
 *
 * Owns nothing; pure functions over constants; any thread. Must not know a backend. Tested by
 * tests/kernels/test_dtypes.c.
 */
#ifndef TANDEM_KERNELS_DTYPES_H
#define TANDEM_KERNELS_DTYPES_H

#include <stdbool.h>
#include <stdint.h>

// The numbers are those stored in GGUF files (ggml_type). Gaps are types that were removed from the
// format.
enum dtype {
    DTYPE_F32 = 0,
    DTYPE_F16 = 1,
    DTYPE_Q4_0 = 2,
    DTYPE_Q4_1 = 3,
    DTYPE_Q5_0 = 6,
    DTYPE_Q5_1 = 7,
    DTYPE_Q8_0 = 8,
    DTYPE_Q8_1 = 9,
    DTYPE_Q2_K = 10,
    DTYPE_Q3_K = 11,
    DTYPE_Q4_K = 12,
    DTYPE_Q5_K = 13,
    DTYPE_Q6_K = 14,
    DTYPE_Q8_K = 15,
    DTYPE_IQ2_XXS = 16,
    DTYPE_IQ2_XS = 17,
    DTYPE_IQ3_XXS = 18,
    DTYPE_IQ1_S = 19,
    DTYPE_IQ4_NL = 20,
    DTYPE_IQ3_S = 21,
    DTYPE_IQ2_S = 22,
    DTYPE_IQ4_XS = 23,
    DTYPE_I8 = 24,
    DTYPE_I16 = 25,
    DTYPE_I32 = 26,
    DTYPE_I64 = 27,
    DTYPE_F64 = 28,
    DTYPE_IQ1_M = 29,
    DTYPE_BF16 = 30,
    DTYPE_TQ1_0 = 34,
    DTYPE_TQ2_0 = 35,
    DTYPE_MXFP4 = 39,
    DTYPE_NVFP4 = 40,
    DTYPE_Q1_0 = 41,
    DTYPE_Q2_0 = 42,
    DTYPE_COUNT = 43,
};

// The types that matmul and embed have kernels for, densely numbered: the index into a table's
// rows.
enum weight_type {
#define WEIGHT(NAME, name) WEIGHT_##NAME,
#include "kernels/weights.def"
#undef WEIGHT
    WEIGHT_COUNT
};

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

#endif
