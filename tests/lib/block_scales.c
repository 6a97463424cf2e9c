/* block_scales.c: see block_scales.h. */
#include "tests/lib/block_scales.h"

#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

enum { BLOCKS = 64, BLOCK_BYTES_MAX = 256, BLOCK_ELEMENTS_MAX = 256 };

struct spread {
    double mean, deviation;
};

// Measures the spread of the elements of random blocks with these scales.
static struct spread measure(enum weight_type type, const struct block_scales *s) {
    const struct dtype_info *info = dtype_find((uint32_t)weight_dtype(type));
    const int n = BLOCKS * (int)info->block_elements;
    double sum = 0, squares = 0;
    uint32_t random = 1;
    for (int b = 0; b < BLOCKS; b++) {
        uint8_t block[BLOCK_BYTES_MAX];
        float elements[BLOCK_ELEMENTS_MAX];
        for (uint32_t i = 0; i < info->block_bytes; i++) {
            random = random * 1664525 + 1013904223;
            block[i] = (uint8_t)(random >> 24);
        }
        block_scales_put(s, s->factor, block);
        dequantize_row(type, block, elements, info->block_elements);
        for (uint32_t i = 0; i < info->block_elements; i++) {
            sum += elements[i];
            squares += (double)elements[i] * elements[i];
        }
    }
    const double mean = sum / n;
    return (struct spread){mean, sqrt(squares / n - mean * mean)};
}

struct block_scales block_scales_of(enum weight_type type) {
    enum { SCALE_HALF, SCALE_POWER, SCALE_NIBBLES };
    static const int places[][3] = {
#define WEIGHT(NAME, name, KIND, SCALE, factor_at, offset_at) {factor_at, offset_at, SCALE_##SCALE},
#include "kernels/weights.def"
#undef WEIGHT
    };
    struct block_scales s = {.at = {places[type][0], places[type][1]},
                             .power = places[type][2] == SCALE_POWER,
                             .nibbles = places[type][2] == SCALE_NIBBLES,
                             .factor = {0, 1}};
    if (s.at[0] < 0) return s;
    const double offset_mean = s.at[1] >= 0 ? measure(type, &s).mean : 0;
    s.factor[0] = 1, s.factor[1] = 0;
    const double mean = measure(type, &s).mean;
    if (s.at[1] >= 0) s.factor[1] = (float)(-mean / offset_mean); // takes off the mean
    const float size = (float)(1 / measure(type, &s).deviation);
    for (int i = 0; i < 2; i++) s.factor[i] *= size;
    return s;
}

// Nibble i of the half, from the lowest on, goes to the top of word i.
static void put_nibbles(uint16_t half, uint8_t *words) {
    for (int i = 0; i < 4; i++)
        words[2 * i + 1] = (uint8_t)((words[2 * i + 1] & 15) | (half >> 4 * i & 15) << 4);
}

void block_scales_put(const struct block_scales *s, const float values[2], void *block) {
    for (int i = 0; i < 2; i++) {
        if (s->at[i] < 0) continue;
        const uint16_t half = float_to_half(values[i]);
        if (s->power)
            ((uint8_t *)block)[s->at[i]] = (uint8_t)(128 + lrintf(log2f(fabsf(values[i]))));
        else if (s->nibbles)
            put_nibbles(half, (uint8_t *)block + s->at[i]);
        else
            memcpy((char *)block + s->at[i], &half, sizeof half);
    }
}
