/* gguf_build.c: see gguf_build.h. */
#include "tests/lib/gguf_build.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

void gguf_bytes_raw(struct gguf_bytes *b, const void *bytes, size_t size_bytes) {
    if (b->capacity - b->size < size_bytes) {
        b->capacity = (b->size + size_bytes) * 2;
        b->bytes = mem_resize(b->bytes, b->capacity, 1);
        ASSERT(b->bytes);
    }
    if (size_bytes) memcpy(b->bytes + b->size, bytes, size_bytes);
    b->size += size_bytes;
}

void gguf_bytes_int(struct gguf_bytes *b, uint64_t number, size_t size_bytes) {
    ASSERT(size_bytes <= sizeof number);
    gguf_bytes_raw(b, &number, size_bytes);
}

void gguf_bytes_f32(struct gguf_bytes *b, float number) {
    gguf_bytes_raw(b, &number, sizeof number);
}

void gguf_bytes_f64(struct gguf_bytes *b, double number) {
    gguf_bytes_raw(b, &number, sizeof number);
}

void gguf_bytes_text(struct gguf_bytes *b, const char *text) {
    gguf_bytes_int(b, strlen(text), 8);
    gguf_bytes_raw(b, text, strlen(text));
}

void gguf_bytes_close(struct gguf_bytes *b) {
    mem_free(b->bytes);
    *b = (struct gguf_bytes){0};
}

static void pad(struct gguf_bytes *b, uint32_t alignment) {
    while (alignment && b->size % alignment) gguf_bytes_int(b, 0, 1);
}

void gguf_build_init(struct gguf_build *b) {
    *b = (struct gguf_build){.version = 3, .alignment = 32};
}

void gguf_build_close(struct gguf_build *b) {
    gguf_bytes_close(&b->values);
    gguf_bytes_close(&b->tensors);
    gguf_bytes_close(&b->data);
    gguf_bytes_close(&b->file);
    *b = (struct gguf_build){0};
}

void gguf_build_key(struct gguf_build *b, const char *key, uint32_t type) {
    gguf_bytes_text(&b->values, key);
    gguf_bytes_int(&b->values, type, 4);
    b->n_values++;
}

void gguf_build_array(struct gguf_build *b, const char *key, uint32_t element, uint64_t count) {
    gguf_build_key(b, key, GGUF_ARRAY);
    gguf_bytes_int(&b->values, element, 4);
    gguf_bytes_int(&b->values, count, 8);
}

void gguf_build_int(struct gguf_build *b, const char *key, enum gguf_type type, uint64_t number) {
    gguf_build_key(b, key, type);
    gguf_bytes_int(&b->values, number, gguf_type_bytes(type));
}

void gguf_build_f32(struct gguf_build *b, const char *key, float number) {
    gguf_build_key(b, key, GGUF_F32);
    gguf_bytes_f32(&b->values, number);
}

void gguf_build_text(struct gguf_build *b, const char *key, const char *text) {
    gguf_build_key(b, key, GGUF_STRING);
    gguf_bytes_text(&b->values, text);
}

void gguf_build_texts(struct gguf_build *b, const char *key, const char *const *texts,
                      uint64_t count) {
    gguf_build_array(b, key, GGUF_STRING, count);
    for (uint64_t i = 0; i < count; i++) gguf_bytes_text(&b->values, texts[i]);
}

void gguf_build_ints(struct gguf_build *b, const char *key, const int32_t *numbers,
                     uint64_t count) {
    gguf_build_array(b, key, GGUF_I32, count);
    gguf_bytes_raw(&b->values, numbers, count * sizeof *numbers);
}

void gguf_build_floats(struct gguf_build *b, const char *key, const float *numbers,
                       uint64_t count) {
    gguf_build_array(b, key, GGUF_F32, count);
    gguf_bytes_raw(&b->values, numbers, count * sizeof *numbers);
}

void gguf_build_record(struct gguf_build *b, const char *name, uint32_t n_dims, const uint64_t *ne,
                       uint32_t type, uint64_t offset) {
    gguf_bytes_text(&b->tensors, name);
    gguf_bytes_int(&b->tensors, n_dims, 4);
    for (uint32_t d = 0; d < n_dims; d++) gguf_bytes_int(&b->tensors, ne[d], 8);
    gguf_bytes_int(&b->tensors, type, 4);
    gguf_bytes_int(&b->tensors, offset, 8);
    b->n_tensors++;
}

void gguf_build_tensor(struct gguf_build *b, const char *name, int n_dims, const uint64_t *ne,
                       enum dtype type, const void *data) {
    uint64_t elements = 1;
    for (int d = 0; d < n_dims; d++) elements *= ne[d];
    uint64_t size = dtype_bytes(type, elements);
    ASSERT(size > 0);
    pad(&b->data, b->alignment);
    gguf_build_record(b, name, (uint32_t)n_dims, ne, type, b->data.size);
    if (data)
        gguf_bytes_raw(&b->data, data, size);
    else
        for (uint64_t i = 0; i < size; i++) gguf_bytes_int(&b->data, i + b->n_tensors, 1);
}

void gguf_build_split(struct gguf_build *b, uint64_t number, uint64_t count, uint64_t n_tensors) {
    gguf_build_int(b, "split.no", GGUF_U16, number);
    gguf_build_int(b, "split.count", GGUF_U16, count);
    gguf_build_int(b, "split.tensors.count", GGUF_I32, n_tensors);
}

void gguf_build_finish(struct gguf_build *b) {
    gguf_bytes_close(&b->file);
    gguf_bytes_raw(&b->file, "GGUF", 4);
    gguf_bytes_int(&b->file, b->version, 4);
    gguf_bytes_int(&b->file, b->n_tensors, 8);
    gguf_bytes_int(&b->file, b->n_values, 8);
    gguf_bytes_raw(&b->file, b->values.bytes, b->values.size);
    gguf_bytes_raw(&b->file, b->tensors.bytes, b->tensors.size);
    if (b->n_tensors) pad(&b->file, b->alignment);
    gguf_bytes_raw(&b->file, b->data.bytes, b->data.size);
}

void gguf_build_patch(struct gguf_build *b, size_t position, uint64_t number, size_t size_bytes) {
    ASSERT(position + size_bytes <= b->file.size);
    memcpy(b->file.bytes + position, &number, size_bytes);
}

void gguf_build_write(const struct gguf_build *b, const char *path) {
    FILE *out = fopen(path, "wb");
    ASSERT(out);
    ASSERT(fwrite(b->file.bytes, 1, b->file.size, out) == b->file.size);
    ASSERT(fclose(out) == 0);
}
