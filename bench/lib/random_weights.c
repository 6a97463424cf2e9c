/* random_weights.c: see random_weights.h. */
#include "bench/lib/random_weights.h"

#include "kernels/cpu/cpu.h"
#include "tests/lib/block_scales.h"

#include <string.h>

// xorshift64*, Vigna 2016.
static uint64_t next(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

static void fill_plain(enum weight_type type, void *out, uint64_t count, float deviation,
                       uint64_t *state) {
    const float factor = deviation * 1.732F / 2147483648.0F; // evenly spread
    for (uint64_t i = 0; i < count; i++) {
        float value = factor * (float)(int32_t)(next(state) >> 32);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (type == WEIGHT_F32)
            ((float *)out)[i] = value;
        else
            ((uint16_t *)out)[i] =
                type == WEIGHT_F16 ? float_to_half(value) : (uint16_t)(bits >> 16);
    }
}

void random_weights(enum weight_type type, void *out, uint64_t count, float deviation,
                    uint64_t *state) {
    const struct dtype_info *info = dtype_find((uint32_t)weight_dtype(type));
    if (info->block_elements == 1) {
        fill_plain(type, out, count, deviation, state);
        return;
    }
    const struct block_scales scales = block_scales_of(type);
    const uint64_t size_bytes = count / info->block_elements * info->block_bytes;
    uint8_t *bytes = out;
    for (uint64_t i = 0; i < size_bytes; i += 8) {
        uint64_t word = next(state);
        memcpy(bytes + i, &word, size_bytes - i < 8 ? size_bytes - i : 8);
    }
    const float values[2] = {deviation * scales.factor[0], deviation * scales.factor[1]};
    for (uint64_t i = 0; i < size_bytes; i += info->block_bytes)
        block_scales_put(&scales, values, bytes + i);
}
