/* gguf_write.c: see gguf_write.h. */
#include "runtime/gguf/gguf_write.h"

#include "base/mem.h"

#include <string.h>

enum { COUNTS_AT = 8, FIRST_BYTES = 24, VERSION = 3 };

static void add(struct gguf_head *h, const void *bytes, size_t size_bytes) {
    if (h->refused) return;
    if (size_bytes > h->capacity - h->size) {
        const size_t capacity = 2 * (h->size + size_bytes);
        uint8_t *bigger = mem_resize(h->bytes, capacity, 1);
        h->refused = !bigger;
        if (!bigger) return;
        h->bytes = bigger;
        h->capacity = capacity;
    }
    memcpy(h->bytes + h->size, bytes, size_bytes);
    h->size += size_bytes;
}

static void add_u32(struct gguf_head *h, uint32_t number) { add(h, &number, sizeof number); }
static void add_u64(struct gguf_head *h, uint64_t number) { add(h, &number, sizeof number); }

static void add_text(struct gguf_head *h, const char *text, size_t length) {
    add_u64(h, length);
    add(h, text, length);
}

void gguf_head_open(struct gguf_head *h) {
    *h = (struct gguf_head){0};
    add(h, "GGUF", 4);
    add_u32(h, VERSION);
    add_u64(h, 0); // the counts come last
    add_u64(h, 0);
}

void gguf_head_close(struct gguf_head *h) {
    mem_free(h->bytes);
    *h = (struct gguf_head){0};
}

static void begin_value(struct gguf_head *h, const char *key, size_t length, enum gguf_type type) {
    ASSERT(h->n_tensors == 0);
    add_text(h, key, length);
    add_u32(h, (uint32_t)type);
    h->n_values++;
}

void gguf_head_value(struct gguf_head *h, const struct gguf_value *value) {
    begin_value(h, value->key.bytes, value->key.length, value->type);
    if (value->type == GGUF_ARRAY) {
        add_u32(h, (uint32_t)value->element);
        add_u64(h, value->count);
    }
    add(h, value->data, value->size_bytes);
}

void gguf_head_u16(struct gguf_head *h, const char *key, uint16_t number) {
    begin_value(h, key, strlen(key), GGUF_U16);
    add(h, &number, sizeof number);
}

void gguf_head_i32(struct gguf_head *h, const char *key, int32_t number) {
    begin_value(h, key, strlen(key), GGUF_I32);
    add(h, &number, sizeof number);
}

void gguf_head_u32(struct gguf_head *h, const char *key, uint32_t number) {
    begin_value(h, key, strlen(key), GGUF_U32);
    add_u32(h, number);
}

void gguf_head_f32(struct gguf_head *h, const char *key, float number) {
    begin_value(h, key, strlen(key), GGUF_F32);
    add(h, &number, sizeof number);
}

void gguf_head_bool(struct gguf_head *h, const char *key, bool is) {
    const uint8_t byte = is;
    begin_value(h, key, strlen(key), GGUF_BOOL);
    add(h, &byte, sizeof byte);
}

void gguf_head_text(struct gguf_head *h, const char *key, const char *text) {
    begin_value(h, key, strlen(key), GGUF_STRING);
    add_text(h, text, strlen(text));
}

void gguf_head_texts(struct gguf_head *h, const char *key, const char *const *texts, uint64_t n) {
    begin_value(h, key, strlen(key), GGUF_ARRAY);
    add_u32(h, GGUF_STRING);
    add_u64(h, n);
    for (uint64_t i = 0; i < n; i++) add_text(h, texts[i], strlen(texts[i]));
}

void gguf_head_tensor(struct gguf_head *h, const struct gguf_tensor *t, enum dtype type,
                      uint64_t offset) {
    add_text(h, t->name.bytes, t->name.length);
    add_u32(h, (uint32_t)t->n_dims);
    for (int i = 0; i < t->n_dims; i++) add_u64(h, t->ne[i]);
    add_u32(h, (uint32_t)type);
    add_u64(h, offset);
    h->n_tensors++;
}

enum status gguf_head_finish(struct gguf_head *h, uint32_t alignment, struct err *e) {
    static const uint8_t zeros[64];
    for (size_t left = round_up(h->size, alignment) - h->size; left > 0 && !h->refused;) {
        const size_t part = left < sizeof zeros ? left : sizeof zeros;
        add(h, zeros, part);
        left -= part;
    }
    if (h->refused) return err_memory(e, 2 * h->size, "the keys of the new file");
    ASSERT(h->size >= FIRST_BYTES);
    memcpy(h->bytes + COUNTS_AT, &h->n_tensors, sizeof h->n_tensors);
    memcpy(h->bytes + COUNTS_AT + 8, &h->n_values, sizeof h->n_values);
    return OK;
}
