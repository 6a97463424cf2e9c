/* mutate_gguf.c: see mutate_gguf.h. */
#include "tests/lib/mutate_gguf.h"

#include <string.h>

enum { HEADER_REACH = 4096 };

// splitmix64: any seed is a good one.
static uint64_t next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static size_t below(uint64_t *state, size_t limit) { return limit ? next(state) % limit : 0; }

// Half of all positions lie in the first bytes, where the header is.
static size_t position(uint64_t *state, size_t size_bytes) {
    bool early = next(state) & 1;
    return below(state, early && size_bytes > HEADER_REACH ? HEADER_REACH : size_bytes);
}

static void flip_bits(struct gguf_bytes *file, uint64_t *state) {
    for (size_t n = 1 + below(state, 8); n > 0 && file->size > 0; n--)
        file->bytes[position(state, file->size)] ^= (uint8_t)(1 << below(state, 8));
}

static void overwrite_integer(struct gguf_bytes *file, uint64_t *state) {
    static const uint64_t NUMBERS[] = {
        0,          1,         2,          4,          9,          13,
        31,         63,        64,         127,        255,        0x7fff,
        0xffff,     0x10000,   0x7fffffff, 0x80000000, 0xffffffff, 1ull << 32,
        1ull << 62, INT64_MAX, 1ull << 63, UINT64_MAX, 1ull << 40, 0x2000000000000001};
    size_t at = position(state, file->size), width = (size_t)1 << below(state, 4);
    size_t pick = below(state, sizeof NUMBERS / sizeof *NUMBERS + 1);
    uint64_t number = pick < sizeof NUMBERS / sizeof *NUMBERS ? NUMBERS[pick] : file->size;
    if (next(state) % 4 == 0) number += next(state) % 3 - 1;
    if (at + width <= file->size) memcpy(file->bytes + at, &number, width);
}

static void cut(struct gguf_bytes *file, uint64_t *state) {
    file->size = position(state, file->size);
}

static void delete_chunk(struct gguf_bytes *file, uint64_t *state) {
    size_t at = position(state, file->size), length = below(state, 64);
    if (at + length > file->size) return;
    memmove(file->bytes + at, file->bytes + at + length, file->size - at - length);
    file->size -= length;
}

static void duplicate_chunk(struct gguf_bytes *file, uint64_t *state) {
    size_t at = position(state, file->size), length = below(state, 256);
    if (at + length > file->size) return;
    uint8_t chunk[256];
    memcpy(chunk, file->bytes + at, length);
    gguf_bytes_raw(file, chunk, length);
    memmove(file->bytes + at + length, file->bytes + at, file->size - at - length);
}

void mutate_gguf(struct gguf_bytes *file, uint64_t seed) {
    static void (*const OPERATIONS[])(struct gguf_bytes *, uint64_t *) = {
        flip_bits, overwrite_integer, overwrite_integer, delete_chunk, duplicate_chunk, cut};
    uint64_t state = seed;
    for (size_t n = 1 + below(&state, 4); n > 0; n--)
        OPERATIONS[below(&state, sizeof OPERATIONS / sizeof *OPERATIONS)](file, &state);
}
