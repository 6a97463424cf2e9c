/* gguf.c: see gguf.h. gguf_open is in gguf_open.c, the parser of one file is gguf_part.c. */
#include "runtime/gguf/gguf.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_PATH = 120 }; // last bytes of a path that messages show

static const struct {
    const char *name;
    uint8_t size_bytes;
    bool integer;
} TYPES[] = {
    [GGUF_U8] = {"u8", 1, true},          [GGUF_I8] = {"i8", 1, true},
    [GGUF_U16] = {"u16", 2, true},        [GGUF_I16] = {"i16", 2, true},
    [GGUF_U32] = {"u32", 4, true},        [GGUF_I32] = {"i32", 4, true},
    [GGUF_F32] = {"f32", 4, false},       [GGUF_BOOL] = {"bool", 1, false},
    [GGUF_STRING] = {"string", 0, false}, [GGUF_ARRAY] = {"array", 0, false},
    [GGUF_U64] = {"u64", 8, true},        [GGUF_I64] = {"i64", 8, true},
    [GGUF_F64] = {"f64", 8, false},
};
_Static_assert(sizeof TYPES / sizeof *TYPES == GGUF_TYPE_COUNT, "one row for each type");

void gguf_close(struct gguf *g) {
    strmap_close(&g->value_index);
    strmap_close(&g->tensor_index);
    mem_free(g->values);
    mem_free(g->tensors);
    for (uint32_t i = 0; i < g->n_parts; i++) file_close(&g->parts[i]);
    mem_free(g->parts);
    *g = (struct gguf){0};
}

const char *gguf_part_name(const struct file *file) {
    size_t length = strlen(file->path);
    return length > SHOWN_PATH ? file->path + length - SHOWN_PATH : file->path;
}

const struct gguf_value *gguf_find(const struct gguf *g, const char *key) {
    uint32_t i;
    return strmap_get(&g->value_index, key, (uint32_t)strlen(key), &i) ? &g->values[i] : NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name) {
    uint32_t i;
    return strmap_get(&g->tensor_index, name, (uint32_t)strlen(name), &i) ? &g->tensors[i] : NULL;
}

// Returns the bits of element i, zero-extended.
static uint64_t load(const struct gguf_value *value, uint64_t i) {
    uint64_t bits = 0;
    size_t size = TYPES[value->element].size_bytes;
    ASSERT(i < value->count);
    ASSERT(size > 0);
    memcpy(&bits, value->data + i * size, size);
    return bits;
}

int64_t gguf_array_int(const struct gguf_value *value, uint64_t i) {
    uint64_t bits = load(value, i);
    switch (value->element) {
    case GGUF_I8: return (int8_t)bits;
    case GGUF_I16: return (int16_t)bits;
    case GGUF_I32: return (int32_t)bits;
    case GGUF_I64: return (int64_t)bits;
    case GGUF_BOOL: return bits != 0;
    default:
        ASSERT(TYPES[value->element].integer);
        return (int64_t)(bits < INT64_MAX ? bits : INT64_MAX);
    }
}

uint64_t gguf_array_u64(const struct gguf_value *value, uint64_t i) {
    ASSERT(value->element == GGUF_U64);
    return load(value, i);
}

double gguf_array_float(const struct gguf_value *value, uint64_t i) {
    ASSERT(value->element == GGUF_F32 || value->element == GGUF_F64);
    uint64_t bits = load(value, i);
    uint32_t low_bits = (uint32_t)bits;
    float single;
    double number;
    memcpy(&single, &low_bits, sizeof single);
    memcpy(&number, &bits, sizeof number);
    return value->element == GGUF_F32 ? (double)single : number;
}

// Starts the error "file: key name" with the type in the file. The caller adds the expected type.
static enum status wrong_value(const struct gguf *g, const struct gguf_value *value,
                               const char *what, struct err *e) {
    int shown = value->key.length < 80 ? (int)value->key.length : 80;
    return err_set(e, ERR_FORMAT, "%s: key %.*s: %s", gguf_part_name(&g->parts[0]), shown,
                   value->key.bytes, what);
}

static enum status wrong_type(const struct gguf *g, const struct gguf_value *value,
                              const char *expected, struct err *e) {
    char type[32];
    wrong_value(g, value, "wrong value type", e);
    err_expected(e, "%s", expected);
    return err_actual(e, "%s", gguf_type_text(value, type, sizeof type));
}

enum status gguf_read_u64(const struct gguf *g, const char *key, uint64_t low, uint64_t high,
                          uint64_t *out, struct err *e) {
    const struct gguf_value *value = gguf_find(g, key);
    if (!value) return OK;
    if (!TYPES[value->type].integer) return wrong_type(g, value, "an integer", e);
    uint64_t number = load(value, 0);
    bool negative = value->type != GGUF_U64 && gguf_array_int(value, 0) < 0;
    if (!negative && number >= low && number <= high) {
        *out = number;
        return OK;
    }
    wrong_value(g, value, "out of range", e);
    err_expected(e, "%" PRIu64 " to %" PRIu64, low, high);
    if (negative) return err_actual(e, "%" PRId64, gguf_array_int(value, 0));
    return err_actual(e, "%" PRIu64, number);
}

enum status gguf_read_f32(const struct gguf *g, const char *key, float *out, struct err *e) {
    const struct gguf_value *value = gguf_find(g, key);
    if (!value) return OK;
    if (value->type != GGUF_F32 && value->type != GGUF_F64)
        return wrong_type(g, value, "f32 or f64", e);
    double number = gguf_array_float(value, 0);
    if (isfinite(number) && fabs(number) > (double)3.402823466e38f) {
        wrong_value(g, value, "out of range", e);
        err_expected(e, "a number that fits f32");
        return err_actual(e, "%g", number);
    }
    *out = (float)number;
    return OK;
}

enum status gguf_read_bool(const struct gguf *g, const char *key, bool *out, struct err *e) {
    const struct gguf_value *value = gguf_find(g, key);
    if (!value) return OK;
    if (value->type != GGUF_BOOL) return wrong_type(g, value, "bool", e);
    *out = value->data[0] != 0;
    return OK;
}

enum status gguf_read_text(const struct gguf *g, const char *key, struct gguf_text *out,
                           struct err *e) {
    const struct gguf_value *value = gguf_find(g, key);
    if (!value) return OK;
    if (value->type != GGUF_STRING) return wrong_type(g, value, "string", e);
    const uint8_t *cursor = NULL;
    gguf_next_text(value, &cursor, out);
    return OK;
}

bool gguf_next_text(const struct gguf_value *value, const uint8_t **cursor, struct gguf_text *out) {
    ASSERT(value->element == GGUF_STRING);
    const uint8_t *at = *cursor ? *cursor : value->data;
    if (at == value->data + value->size_bytes) return false;
    uint64_t length;
    memcpy(&length, at, sizeof length);
    *out = (struct gguf_text){(const char *)at + sizeof length, length};
    *cursor = at + sizeof length + length;
    return true;
}

uint32_t gguf_type_bytes(enum gguf_type type) {
    ASSERT((uint32_t)type < GGUF_TYPE_COUNT);
    return TYPES[type].size_bytes;
}

char *gguf_type_text(const struct gguf_value *value, char *out, size_t size_bytes) {
    snprintf(out, size_bytes, "%s%s", value->type == GGUF_ARRAY ? "array of " : "",
             TYPES[value->element].name);
    return out;
}
