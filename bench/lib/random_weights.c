/* random_weights.c: see random_weights.h. */
#include "bench/lib/random_weights.h"

#include "kernels/cpu/cpu.h"

#include <string.h>

// Where the two-byte scales of a block lie, and the factor from a weight's deviation to each: the
// inverse of the deviation of the random whole numbers that they multiply. The second one of types
// with an offset is such that the mean is about 0.
struct scales {
    int count;
    uint32_t at[2];
    float factor[2];
};

static struct scales scales_of(enum weight_type type) {
    switch (type) {
    case WEIGHT_Q8_0: return (struct scales){1, {0}, {1 / 74.0F}};
    case WEIGHT_Q4_0: return (struct scales){1, {0}, {1 / 4.6F}};
    case WEIGHT_Q4_1: return (struct scales){2, {0, 2}, {1 / 4.6F, -7.5F / 4.6F}};
    case WEIGHT_Q5_0: return (struct scales){1, {0}, {1 / 9.2F}};
    case WEIGHT_Q5_1: return (struct scales){2, {0, 2}, {1 / 9.2F, -15.5F / 9.2F}};
    case WEIGHT_Q4_K: return (struct scales){2, {0, 2}, {1 / 245.0F, 7.5F / 245.0F}};
    case WEIGHT_Q5_K: return (struct scales){2, {0, 2}, {1 / 500.0F, 15.5F / 500.0F}};
    case WEIGHT_Q6_K: return (struct scales){1, {208}, {1 / 1370.0F}};
    default: return (struct scales){0};
    }
}

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
    const struct scales scales = scales_of(type);
    const uint64_t size_bytes = count / info->block_elements * info->block_bytes;
    uint8_t *bytes = out;
    for (uint64_t i = 0; i < size_bytes; i += 8) {
        uint64_t word = next(state);
        memcpy(bytes + i, &word, size_bytes - i < 8 ? size_bytes - i : 8);
    }
    for (uint64_t i = 0; i < size_bytes; i += info->block_bytes)
        for (int s = 0; s < scales.count; s++) {
            uint16_t half = float_to_half(deviation * scales.factor[s]);
            memcpy(bytes + i + scales.at[s], &half, sizeof half);
        }
}
