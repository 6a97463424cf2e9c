/* dtypes.c: see dtypes.h. The block sizes are those of the GGUF format. */
#include "kernels/dtypes.h"

#include <stddef.h>

static const struct dtype_info INFO[DTYPE_COUNT] = {
    [DTYPE_F32] = {"F32", 1, 4},
    [DTYPE_F16] = {"F16", 1, 2},
    [DTYPE_Q4_0] = {"Q4_0", 32, 18},
    [DTYPE_Q4_1] = {"Q4_1", 32, 20},
    [DTYPE_Q5_0] = {"Q5_0", 32, 22},
    [DTYPE_Q5_1] = {"Q5_1", 32, 24},
    [DTYPE_Q8_0] = {"Q8_0", 32, 34},
    [DTYPE_Q8_1] = {"Q8_1", 32, 36},
    [DTYPE_Q2_K] = {"Q2_K", 256, 84},
    [DTYPE_Q3_K] = {"Q3_K", 256, 110},
    [DTYPE_Q4_K] = {"Q4_K", 256, 144},
    [DTYPE_Q5_K] = {"Q5_K", 256, 176},
    [DTYPE_Q6_K] = {"Q6_K", 256, 210},
    [DTYPE_Q8_K] = {"Q8_K", 256, 292},
    [DTYPE_IQ2_XXS] = {"IQ2_XXS", 256, 66},
    [DTYPE_IQ2_XS] = {"IQ2_XS", 256, 74},
    [DTYPE_IQ3_XXS] = {"IQ3_XXS", 256, 98},
    [DTYPE_IQ1_S] = {"IQ1_S", 256, 50},
    [DTYPE_IQ4_NL] = {"IQ4_NL", 32, 18},
    [DTYPE_IQ3_S] = {"IQ3_S", 256, 110},
    [DTYPE_IQ2_S] = {"IQ2_S", 256, 82},
    [DTYPE_IQ4_XS] = {"IQ4_XS", 256, 136},
    [DTYPE_I8] = {"I8", 1, 1},
    [DTYPE_I16] = {"I16", 1, 2},
    [DTYPE_I32] = {"I32", 1, 4},
    [DTYPE_I64] = {"I64", 1, 8},
    [DTYPE_F64] = {"F64", 1, 8},
    [DTYPE_IQ1_M] = {"IQ1_M", 256, 56},
    [DTYPE_BF16] = {"BF16", 1, 2},
    [DTYPE_TQ1_0] = {"TQ1_0", 256, 54},
    [DTYPE_TQ2_0] = {"TQ2_0", 256, 66},
    [DTYPE_MXFP4] = {"MXFP4", 32, 17},
    [DTYPE_NVFP4] = {"NVFP4", 64, 36},
    [DTYPE_Q1_0] = {"Q1_0", 128, 18},
    [DTYPE_Q2_0] = {"Q2_0", 64, 18},
};

static const enum dtype WEIGHT_DTYPES[] = {
#define WEIGHT(NAME, name) DTYPE_##NAME,
#include "kernels/weights.def"
#undef WEIGHT
};

const struct dtype_info *dtype_find(uint32_t number) {
    return number < DTYPE_COUNT && INFO[number].name ? &INFO[number] : NULL;
}

const char *dtype_name(enum dtype type) {
    const struct dtype_info *info = dtype_find((uint32_t)type);
    return info ? info->name : "unknown";
}

uint64_t dtype_bytes(enum dtype type, uint64_t n_elements) {
    const struct dtype_info *info = dtype_find((uint32_t)type);
    if (!info || n_elements % info->block_elements) return 0;
    return n_elements / info->block_elements * info->block_bytes;
}

bool dtype_weight(enum dtype type, enum weight_type *out) {
    for (int i = 0; i < WEIGHT_COUNT; i++)
        if (WEIGHT_DTYPES[i] == type) return *out = (enum weight_type)i, true;
    return false;
}

enum dtype weight_dtype(enum weight_type type) { return WEIGHT_DTYPES[type]; }
