/* key_overrides.c: see key_overrides.h. */
#include "runtime/quantize/key_overrides.h"

#include "base/mem.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum status refuse(const char *text, const char *expected, struct err *e) {
    err_set(e, ERR_USAGE, "--override-kv '%.120s' cannot be used", text);
    return err_expected(e, "%s", expected);
}

static bool begins_with(const char **text, const char *word) {
    const size_t length = strlen(word);
    if (strncmp(*text, word, length) != 0) return false;
    *text += length;
    return true;
}

static bool read_int(struct key_override *o, const char *value) {
    char *end;
    if (!isdigit((unsigned char)*value)) return false;
    const unsigned long long number = strtoull(value, &end, 10);
    o->type = GGUF_U32;
    o->number = (uint32_t)number;
    return !*end && number <= UINT32_MAX;
}

static bool read_real(struct key_override *o, const char *value) {
    char *end;
    o->type = GGUF_F32;
    o->real = strtof(value, &end);
    return end > value && !*end && isfinite(o->real);
}

static bool read_bool(struct key_override *o, const char *value) {
    o->type = GGUF_BOOL;
    o->number = strcmp(value, "true") == 0;
    return o->number || strcmp(value, "false") == 0;
}

// Reads the type and the value of "KEY=TYPE:VALUE" behind "=".
static enum status read_value(struct key_override *o, const char *text, const char *value,
                              struct err *e) {
    if (begins_with(&value, "int:"))
        return read_int(o, value) ? OK : refuse(text, "a whole number from 0 to 4294967295", e);
    if (begins_with(&value, "float:"))
        return read_real(o, value) ? OK : refuse(text, "a number", e);
    if (begins_with(&value, "bool:"))
        return read_bool(o, value) ? OK : refuse(text, "true or false", e);
    if (!begins_with(&value, "str:"))
        return refuse(text, "KEY=TYPE:VALUE, where TYPE is int, float, bool or str", e);
    o->type = GGUF_STRING;
    o->text = value;
    return OK;
}

// These keys say where tensors are.
static bool is_structure(struct gguf_text key) {
    static const char alignment[] = "general.alignment", split[] = "split.";
    return (key.length == sizeof alignment - 1 && memcmp(key.bytes, alignment, key.length) == 0) ||
           (key.length >= sizeof split - 1 && memcmp(key.bytes, split, sizeof split - 1) == 0);
}

static struct key_override *find(const struct key_overrides *o, struct gguf_text key) {
    for (int32_t i = 0; i < o->n; i++)
        if (strlen(o->list[i].key) == key.length &&
            memcmp(o->list[i].key, key.bytes, key.length) == 0)
            return &o->list[i];
    return NULL;
}

static enum status add_override(struct key_overrides *o, const char *text, struct err *e) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return refuse(text, "KEY=TYPE:VALUE, such as general.name=str:Mine", e);
    const struct gguf_text key = {text, (uint64_t)(equals - text)};
    if (is_structure(key)) return refuse(text, "a key that does not say where tensors are", e);
    struct key_override *place = find(o, key);
    if (place) return read_value(place, text, equals + 1, e);
    place = &o->list[o->n++];
    place->key = mem_text(key.bytes, key.length);
    if (!place->key) return err_memory(e, key.length, "a key");
    return read_value(place, text, equals + 1, e);
}

enum status key_overrides_open(struct key_overrides *o, const char *const *texts, int32_t n,
                               struct err *e) {
    *o = (struct key_overrides){0};
    if (n == 0) return OK;
    o->list = mem_alloc((size_t)n, sizeof *o->list);
    if (!o->list) return err_memory(e, (size_t)n * sizeof *o->list, "keys");
    for (int32_t i = 0; i < n; i++)
        if (add_override(o, texts[i], e)) {
            key_overrides_close(o);
            return e->status;
        }
    return OK;
}

void key_overrides_close(struct key_overrides *o) {
    for (int32_t i = 0; i < o->n; i++) mem_free(o->list[i].key);
    mem_free(o->list);
    *o = (struct key_overrides){0};
}

bool key_overrides_have(const struct key_overrides *o, struct gguf_text key) {
    return find(o, key) != NULL;
}

void key_overrides_write(const struct key_overrides *o, struct gguf_head *h) {
    for (int32_t i = 0; i < o->n; i++) {
        const struct key_override *new = &o->list[i];
        switch (new->type) {
        case GGUF_U32: gguf_head_u32(h, new->key, new->number); break;
        case GGUF_F32: gguf_head_f32(h, new->key, new->real); break;
        case GGUF_BOOL: gguf_head_bool(h, new->key, new->number != 0); break;
        default: gguf_head_text(h, new->key, new->text); break;
        }
    }
}
