/* widen_gguf.c: a tool of the scripts: writes a GGUF file again, with F32 in place of every other
 * type, so that nothing is rounded any more but activations.
 *
 *   widen_gguf FILE NEW_FILE
 */
#include "base/mem.h"
#include "kernels/cpu/cpu.h"
#include "runtime/gguf/gguf.h"

#include <stdio.h>
#include <stdlib.h>

static void put(FILE *out, const void *bytes, uint64_t size_bytes) {
    if (fwrite(bytes, 1, size_bytes, out) == size_bytes) return;
    perror("widen_gguf");
    exit(1);
}

static void pad(FILE *out, uint64_t to) {
    while ((uint64_t)ftell(out) % to) put(out, "", 1);
}

static uint64_t elements_of(const struct gguf_tensor *t) {
    return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
}

// Writes the entry of a tensor whose data begin at offset.
static void put_entry(FILE *out, const struct gguf_tensor *t, uint64_t offset) {
    const uint32_t n_dims = (uint32_t)t->n_dims, type = DTYPE_F32;
    put(out, &t->name.length, sizeof t->name.length);
    put(out, t->name.bytes, t->name.length);
    put(out, &n_dims, sizeof n_dims);
    put(out, t->ne, n_dims * sizeof *t->ne);
    put(out, &type, sizeof type);
    put(out, &offset, sizeof offset);
}

static void put_data(FILE *out, const struct gguf_tensor *t) {
    const uint64_t n = elements_of(t);
    enum weight_type type;
    float *values = mem_alloc(n, sizeof *values);
    if (!values || !dtype_weight(t->type, &type)) {
        fprintf(stderr, "widen_gguf: no memory, or a tensor that is no weight\n");
        exit(1);
    }
    dequantize_row(type, t->data, values, (int64_t)n);
    put(out, values, n * sizeof *values);
    mem_free(values);
}

// Keys stay as they are: they lie between the file's first bytes and its first tensor's entry.
static void write_wide(const struct gguf *g, FILE *out) {
    const uint8_t *start = g->parts[0].map, *end = start + g->parts[0].size_bytes;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const uint8_t *entry = (const uint8_t *)g->tensors[i].name.bytes - sizeof(uint64_t);
        if (entry < end) end = entry;
    }
    put(out, start, (uint64_t)(end - start));
    uint64_t offset = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        put_entry(out, &g->tensors[i], offset);
        const uint64_t size_bytes = elements_of(&g->tensors[i]) * sizeof(float);
        offset += (size_bytes + g->alignment - 1) / g->alignment * g->alignment;
    }
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        pad(out, g->alignment);
        put_data(out, &g->tensors[i]);
    }
    pad(out, g->alignment);
}

int main(int argc, char **argv) {
    struct gguf g;
    struct err e;
    if (argc != 3) {
        fprintf(stderr, "usage: widen_gguf FILE NEW_FILE\n");
        return 2;
    }
    if (gguf_open(&g, argv[1], &e)) {
        fprintf(stderr, "widen_gguf: %s\n", e.what);
        return 1;
    }
    FILE *out = fopen(argv[2], "wb");
    if (!out) {
        perror("widen_gguf");
        return 1;
    }
    write_wide(&g, out);
    gguf_close(&g);
    return fclose(out) != 0;
}
