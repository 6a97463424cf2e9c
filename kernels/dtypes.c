/* dtypes.c: see dtypes.h. */
#include "kernels/dtypes.h"

#include <stddef.h>

static const struct dtype_info INFO[DTYPE_COUNT] = {
#define DTYPE(NAME, number, elements, bytes) [DTYPE_##NAME] = {#NAME, elements, bytes},
#include "kernels/dtypes.def"
#undef DTYPE
};

static const enum dtype WEIGHT_DTYPES[] = {
#define WEIGHT(NAME, ...) DTYPE_##NAME,
#include "kernels/weights.def"
#undef WEIGHT
};

static const enum dtype KV_DTYPES[] = {
#define KV_TYPE(NAME, name) DTYPE_##NAME,
#include "kernels/kv_types.def"
#undef KV_TYPE
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

const char *weight_names(void) {
    static const char names[] =
#define WEIGHT(NAME, ...) " " #NAME
#include "kernels/weights.def"
#undef WEIGHT
        ;
    return names + 1;
}

bool dtype_kv(enum dtype type, enum kv_type *out) {
    for (int i = 0; i < KV_TYPES; i++)
        if (KV_DTYPES[i] == type) return *out = (enum kv_type)i, true;
    return false;
}

enum dtype kv_dtype(enum kv_type type) { return KV_DTYPES[type]; }

const char *kv_names(void) {
    static const char names[] =
#define KV_TYPE(NAME, name) ", " #NAME
#include "kernels/kv_types.def"
#undef KV_TYPE
        ;
    return names + 2;
}

enum weight_kind weight_kind(enum weight_type type) {
    static const enum weight_kind kinds[] = {
#define WEIGHT(NAME, name, KIND, ...) KIND_##KIND,
#include "kernels/weights.def"
#undef WEIGHT
    };
    return kinds[type];
}
