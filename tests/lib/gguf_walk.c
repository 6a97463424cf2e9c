/* gguf_walk.c: see gguf_walk.h. */
#include "tests/lib/gguf_walk.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool inside(const struct gguf *g, const void *bytes, uint64_t size_bytes) {
    const uint8_t *first = bytes;
    for (uint32_t i = 0; i < g->n_parts; i++) {
        const struct file *part = &g->parts[i];
        if (first >= part->map && first <= part->map + part->size_bytes)
            return size_bytes <= (uint64_t)(part->map + part->size_bytes - first);
    }
    return false;
}

static uint64_t sum_text(const struct gguf *g, struct gguf_text text) {
    ASSERT(inside(g, text.bytes, text.length));
    uint64_t sum = text.length;
    for (uint64_t i = 0; i < text.length; i++) sum += (uint8_t)text.bytes[i];
    return sum;
}

static uint64_t sum_elements(const struct gguf *g, const struct gguf_value *value) {
    uint64_t sum = 0, n_texts = 0;
    struct gguf_text text;
    const uint8_t *cursor = NULL;
    switch (value->element) {
    case GGUF_STRING:
        while (gguf_next_text(value, &cursor, &text)) {
            sum += sum_text(g, text);
            n_texts++;
        }
        ASSERT(n_texts == value->count);
        break;
    case GGUF_F32:
    case GGUF_F64:
        for (uint64_t i = 0; i < value->count; i++) sum += gguf_array_float(value, i) > 0;
        break;
    default:
        for (uint64_t i = 0; i < value->count; i++) sum += (uint64_t)gguf_array_int(value, i);
    }
    return sum;
}

// Each reader gives the value or an error that names the key; never both.
static uint64_t sum_scalar(const struct gguf *g, const char *key) {
    struct err e = {.status = OK};
    uint64_t number = 0;
    float real = 0;
    bool flag = false;
    struct gguf_text text = {"", 0};
    if (gguf_read_u64(g, key, 1, 1 << 20, &number, &e) != OK) ASSERT(strstr(e.what, "key "));
    if (gguf_read_f32(g, key, &real, &e) != OK) ASSERT(strstr(e.what, "key "));
    if (gguf_read_bool(g, key, &flag, &e) != OK) ASSERT(strstr(e.what, "key "));
    if (gguf_read_text(g, key, &text, &e) != OK) ASSERT(strstr(e.what, "key "));
    ASSERT(number <= 1 << 20);
    return number + (real > 0) + flag + text.length;
}

static uint64_t sum_value(const struct gguf *g, const struct gguf_value *value) {
    char type[32];
    ASSERT(inside(g, value->data, value->size_bytes));
    ASSERT(value->key.length > 0);
    uint64_t sum = sum_text(g, value->key) + sum_elements(g, value);
    gguf_type_text(value, type, sizeof type);
    // A key with a zero byte cannot be asked for; all others must be found.
    char *key = mem_text(value->key.bytes, value->key.length);
    ASSERT(key);
    if (strlen(key) == value->key.length) ASSERT(gguf_find(g, key) == value);
    sum += sum_scalar(g, key);
    mem_free(key);
    return sum + (uint8_t)type[0];
}

static uint64_t sum_tensor(const struct gguf *g, const struct gguf_tensor *t) {
    char name[64] = "";
    uint64_t elements = 1;
    ASSERT(t->name.length > 0);
    ASSERT(t->name.length < sizeof name);
    memcpy(name, t->name.bytes, t->name.length);
    if (strlen(name) == t->name.length) ASSERT(gguf_find_tensor(g, name) == t);
    ASSERT(t->n_dims >= 0 && t->n_dims <= 4);
    for (int d = 0; d < 4; d++) {
        ASSERT(t->ne[d] > 0);
        ASSERT(d < t->n_dims || t->ne[d] == 1);
        ASSERT(mul_size(elements, t->ne[d], &elements));
    }
    ASSERT(t->size_bytes > 0);
    ASSERT(t->size_bytes == dtype_bytes(t->type, elements));
    ASSERT(t->part < g->n_parts);
    ASSERT(t->data == g->parts[t->part].map + t->file_offset);
    ASSERT(inside(g, t->data, t->size_bytes));
    return sum_text(g, t->name) + t->data[0] + t->data[t->size_bytes - 1];
}

// Every pair, for files small enough: the reader sorts instead.
static void check_apart(const struct gguf *g) {
    if (g->n_tensors > 256) return;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        for (uint32_t k = 0; k < i; k++) {
            const struct gguf_tensor *a = &g->tensors[i], *b = &g->tensors[k];
            ASSERT(a->part != b->part || a->data + a->size_bytes <= b->data ||
                   b->data + b->size_bytes <= a->data);
        }
    }
}

uint64_t gguf_walk(const struct gguf *g) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < g->n_values; i++) sum += sum_value(g, &g->values[i]);
    for (uint32_t i = 0; i < g->n_tensors; i++) sum += sum_tensor(g, &g->tensors[i]);
    check_apart(g);
    return sum;
}

static void check_error(const struct err *e) {
    char text[1024];
    err_text(e, text, sizeof text);
    ASSERT(e->status != OK);
    ASSERT(e->what[0]);
    for (const char *p = text; *p; p++) ASSERT((uint8_t)*p >= 0x20 || *p == '\t');
}

static enum status walk_path(const char *path) {
    struct gguf g;
    struct err e;
    enum status status = gguf_open(&g, path, &e);
    if (status == OK)
        gguf_walk(&g);
    else
        check_error(&e);
    gguf_close(&g);
    return status;
}

enum status gguf_walk_bytes(const uint8_t *bytes, size_t size_bytes) {
    char path[32];
    int descriptor = memfd_create("walk.gguf", MFD_CLOEXEC);
    ASSERT(descriptor >= 0);
    ASSERT(write(descriptor, bytes, size_bytes) == (ssize_t)size_bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    enum status status = walk_path(path);
    close(descriptor);
    return status;
}
