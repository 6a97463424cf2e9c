/* jinja_value.c: see jinja_value.h. */
#include "runtime/jinja/jinja_value.h"

#include "base/utf8.h"

#include <string.h>

// ---- Making values ------------------------------------------------------------------------------

struct jinja_value jinja_none(void) {
    return (struct jinja_value){.kind = JINJA_NONE};
}

struct jinja_value jinja_bool(bool truth) {
    return (struct jinja_value){.kind = JINJA_BOOL, .truth = truth};
}

struct jinja_value jinja_int(int64_t whole) {
    return (struct jinja_value){.kind = JINJA_INT, .whole = whole};
}

struct jinja_value jinja_float(double real) {
    return (struct jinja_value){.kind = JINJA_FLOAT, .real = real};
}

struct jinja_value jinja_of_text(struct jinja_text text) {
    return (struct jinja_value){.kind = JINJA_TEXT, .text = text};
}

struct jinja_text jinja_text(const char *bytes, size_t length, bool data) {
    ASSERT(length <= UINT32_MAX);
    return (struct jinja_text){bytes, NULL, (uint32_t)length, data, false};
}

struct jinja_value jinja_literal(const char *bytes) {
    return jinja_of_text(jinja_text(bytes, strlen(bytes), false));
}

struct jinja_value jinja_list_new(struct jinja_heap *h, enum jinja_kind kind) {
    struct jinja_value v = {.kind = kind, .list = jinja_heap_take(h, sizeof *v.list)};
    return v.list ? v : (struct jinja_value){0};
}

struct jinja_value jinja_dict_new(struct jinja_heap *h, enum jinja_kind kind) {
    struct jinja_value v = {.kind = kind, .dict = jinja_heap_take(h, sizeof *v.dict)};
    return v.dict ? v : (struct jinja_value){0};
}

void jinja_list_add(struct jinja_heap *h, struct jinja_value list, struct jinja_value item) {
    if (list.kind == JINJA_UNDEFINED) return;
    struct jinja_list *l = list.list;
    if (l->count == l->capacity) {
        struct jinja_value *items = jinja_heap_grow(h, l->items, &l->capacity, sizeof *items);
        if (!items) return;
        l->items = items;
    }
    l->items[l->count++] = item;
}

static bool has_pairs(struct jinja_value v) {
    return v.kind == JINJA_DICT || v.kind == JINJA_NAMESPACE;
}

struct jinja_value *jinja_dict_find(struct jinja_heap *h, struct jinja_value dict,
                                    struct jinja_value key) {
    if (!has_pairs(dict)) return NULL;
    for (uint32_t i = 0; i < dict.dict->count && !jinja_failed(h); i++)
        if (jinja_equal(h, dict.dict->pairs[i].key, key)) return &dict.dict->pairs[i].value;
    return NULL;
}

void jinja_dict_put(struct jinja_heap *h, struct jinja_value dict, struct jinja_value key,
                    struct jinja_value value) {
    if (!has_pairs(dict)) return;
    struct jinja_value *old = jinja_dict_find(h, dict, key);
    struct jinja_dict *d = dict.dict;
    if (old) *old = value;
    if (old || jinja_failed(h)) return;
    if (d->count == d->capacity) {
        struct jinja_pair *pairs = jinja_heap_grow(h, d->pairs, &d->capacity, sizeof *pairs);
        if (!pairs) return;
        d->pairs = pairs;
    }
    d->pairs[d->count++] = (struct jinja_pair){key, value};
}

// ---- Arguments ----------------------------------------------------------------------------------

struct jinja_value jinja_argument(struct jinja_heap *h, const struct jinja_arguments *a, uint32_t i,
                                  const char *name, struct jinja_value fallback) {
    struct jinja_value out = {0};
    const struct jinja_value *named = jinja_dict_find(h, a->named, jinja_literal(name));
    if (i < a->values->count)
        out = a->values->items[i];
    else if (named)
        out = *named;
    return out.kind == JINJA_UNDEFINED ? fallback : out;
}

struct jinja_text jinja_argument_text(struct jinja_heap *h, const struct jinja_arguments *a,
                                      uint32_t i, const char *name) {
    const struct jinja_value v = jinja_argument(h, a, i, name, (struct jinja_value){0});
    if (v.kind == JINJA_TEXT) return v.text;
    jinja_fail(h, "argument %s must be a str, got %s", name, jinja_kind_name(v.kind));
    return jinja_text("", 0, false);
}

int64_t jinja_argument_int(struct jinja_heap *h, const struct jinja_arguments *a, uint32_t i,
                           const char *name, int64_t fallback) {
    const struct jinja_value v = jinja_argument(h, a, i, name, jinja_int(fallback));
    if (v.kind == JINJA_BOOL) return v.truth;
    if (v.kind == JINJA_INT) return v.whole;
    jinja_fail(h, "argument %s must be an int, got %s", name, jinja_kind_name(v.kind));
    return 0;
}

// ---- Texts that grow ----------------------------------------------------------------------------

static bool make_room(struct jinja_heap *h, struct jinja_builder *b, size_t size_bytes) {
    if (b->capacity - b->length >= size_bytes) return !jinja_failed(h);
    if (b->length + size_bytes > JINJA_TEXT_BYTES) {
        jinja_fail(h, "a text grows above %d MiB", JINJA_TEXT_BYTES >> 20);
        return false;
    }
    const size_t capacity = 2 * (b->length + size_bytes) + 32;
    char *bytes = jinja_heap_take(h, capacity);
    uint8_t *marks = jinja_heap_take(h, capacity);
    if (!bytes || !marks) return false;
    if (b->length > 0) {
        memcpy(bytes, b->bytes, b->length);
        memcpy(marks, b->marks, b->length);
    }
    *b = (struct jinja_builder){bytes, marks, b->length, (uint32_t)capacity};
    return true;
}

void jinja_builder_add(struct jinja_heap *h, struct jinja_builder *b, struct jinja_text text) {
    if (text.length == 0 || !jinja_heap_spend(h, text.length) || !make_room(h, b, text.length))
        return;
    memcpy(b->bytes + b->length, text.bytes, text.length);
    if (text.marks)
        memcpy(b->marks + b->length, text.marks, text.length);
    else
        memset(b->marks + b->length, text.data, text.length);
    b->length += text.length;
}

void jinja_builder_put(struct jinja_heap *h, struct jinja_builder *b, const char *text, bool data) {
    jinja_builder_add(h, b, jinja_text(text, strlen(text), data));
}

struct jinja_value jinja_builder_text(const struct jinja_builder *b) {
    return jinja_of_text(
        (struct jinja_text){b->length ? b->bytes : "", b->marks, b->length, false, false});
}

struct jinja_text jinja_text_part(struct jinja_text text, size_t first, size_t length) {
    ASSERT(first <= text.length);
    ASSERT(length <= text.length - first);
    return (struct jinja_text){text.bytes + first, text.marks ? text.marks + first : NULL,
                               (uint32_t)length, text.data, text.safe};
}

bool jinja_text_is_data(struct jinja_text text) {
    if (!text.marks) return text.data && text.length > 0;
    return memchr(text.marks, 1, text.length) != NULL;
}

// ---- Questions ----------------------------------------------------------------------------------

const char *jinja_kind_name(enum jinja_kind kind) {
    static const char *const names[] = {
        [JINJA_UNDEFINED] = "undefined", [JINJA_NONE] = "None",
        [JINJA_BOOL] = "bool",           [JINJA_INT] = "int",
        [JINJA_FLOAT] = "float",         [JINJA_TEXT] = "str",
        [JINJA_LIST] = "list",           [JINJA_TUPLE] = "tuple",
        [JINJA_DICT] = "dict",           [JINJA_NAMESPACE] = "namespace",
        [JINJA_LOOP] = "loop",           [JINJA_MACRO] = "macro",
        [JINJA_METHOD] = "method",       [JINJA_FUNCTION] = "function",
    };
    return names[kind];
}

bool jinja_is_true(struct jinja_value v) {
    switch (v.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE: return false;
    case JINJA_BOOL: return v.truth;
    case JINJA_INT: return v.whole != 0;
    case JINJA_FLOAT: return v.real != 0;
    case JINJA_TEXT: return v.text.length > 0;
    case JINJA_LIST:
    case JINJA_TUPLE: return v.list->count > 0;
    case JINJA_DICT: return v.dict->count > 0;
    default: return true;
    }
}

bool jinja_is_number(struct jinja_value v) {
    return v.kind == JINJA_BOOL || v.kind == JINJA_INT || v.kind == JINJA_FLOAT;
}

double jinja_number(struct jinja_value v) {
    if (v.kind == JINJA_FLOAT) return v.real;
    return v.kind == JINJA_BOOL ? v.truth : (double)v.whole;
}

bool jinja_text_equal(struct jinja_text text, const char *other) {
    return text.length == strlen(other) && memcmp(text.bytes, other, text.length) == 0;
}

// -1, 0 or 1.
static int order(struct jinja_value a, struct jinja_value b) {
    if (a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT) {
        const double x = jinja_number(a), y = jinja_number(b);
        return x < y ? -1 : x > y;
    }
    const int64_t x = a.kind == JINJA_BOOL ? a.truth : a.whole;
    const int64_t y = b.kind == JINJA_BOOL ? b.truth : b.whole;
    return x < y ? -1 : x > y;
}

static bool lists_equal(struct jinja_heap *h, const struct jinja_list *a,
                        const struct jinja_list *b) {
    if (a->count != b->count) return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!jinja_equal(h, a->items[i], b->items[i])) return false;
    return true;
}

static bool dicts_equal(struct jinja_heap *h, struct jinja_value a, struct jinja_value b) {
    if (a.dict->count != b.dict->count) return false;
    for (uint32_t i = 0; i < a.dict->count; i++) {
        const struct jinja_pair *pair = &a.dict->pairs[i];
        const struct jinja_value *other = jinja_dict_find(h, b, pair->key);
        if (!other || !jinja_equal(h, pair->value, *other)) return false;
    }
    return true;
}

static bool texts_equal(struct jinja_heap *h, struct jinja_text a, struct jinja_text b) {
    if (a.length != b.length || !jinja_heap_spend(h, a.length)) return false;
    return memcmp(a.bytes, b.bytes, a.length) == 0;
}

// Compares two values of one kind that are neither numbers nor texts.
static bool same_kind_equal(struct jinja_heap *h, struct jinja_value a, struct jinja_value b) {
    switch (a.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE: return true;
    case JINJA_LIST:
    case JINJA_TUPLE: return lists_equal(h, a.list, b.list);
    case JINJA_DICT: return dicts_equal(h, a, b);
    case JINJA_FUNCTION: return a.function == b.function;
    default: return a.dict == b.dict; // the same object
    }
}

bool jinja_equal(struct jinja_heap *h, struct jinja_value a, struct jinja_value b) {
    if (!jinja_heap_spend(h, sizeof a)) return false;
    if (jinja_is_number(a) && jinja_is_number(b)) return order(a, b) == 0;
    if (a.kind != b.kind) return false;
    if (a.kind == JINJA_TEXT) return texts_equal(h, a.text, b.text);
    const bool equal = jinja_heap_enter(h, JINJA_DEPTH) && same_kind_equal(h, a, b);
    jinja_heap_leave(h);
    return equal;
}

static int compare_lists(struct jinja_heap *h, const struct jinja_list *a,
                         const struct jinja_list *b) {
    for (uint32_t i = 0; i < a->count && i < b->count && !jinja_failed(h); i++) {
        const int result = jinja_compare(h, a->items[i], b->items[i]);
        if (result) return result;
    }
    return a->count < b->count ? -1 : a->count > b->count;
}

static int compare_texts(struct jinja_heap *h, struct jinja_text a, struct jinja_text b) {
    const uint32_t shorter = a.length < b.length ? a.length : b.length;
    if (!jinja_heap_spend(h, shorter + 16)) return 0;
    const int result = memcmp(a.bytes, b.bytes, shorter);
    return result ? result : a.length < b.length ? -1 : a.length > b.length;
}

int jinja_compare(struct jinja_heap *h, struct jinja_value a, struct jinja_value b) {
    int result = 0;
    if (jinja_is_number(a) && jinja_is_number(b)) return order(a, b);
    if (a.kind == JINJA_TEXT && b.kind == JINJA_TEXT) return compare_texts(h, a.text, b.text);
    if (a.kind != b.kind || (a.kind != JINJA_LIST && a.kind != JINJA_TUPLE)) {
        jinja_fail(h, "%s and %s have no order", jinja_kind_name(a.kind), jinja_kind_name(b.kind));
        return 0;
    }
    if (jinja_heap_enter(h, JINJA_DEPTH)) result = compare_lists(h, a.list, b.list);
    jinja_heap_leave(h);
    return result;
}

// ---- Iterating ----------------------------------------------------------------------------------

static void add_characters(struct jinja_heap *h, struct jinja_value out, struct jinja_text text) {
    for (size_t at = 0, n; at < text.length && !jinja_failed(h); at += n) {
        n = utf8_step(text.bytes + at, text.length - at);
        jinja_list_add(h, out, jinja_of_text(jinja_text_part(text, at, n)));
    }
}

const struct jinja_list *jinja_items(struct jinja_heap *h, struct jinja_value v) {
    if (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE) return jinja_failed(h) ? NULL : v.list;
    const struct jinja_value out = jinja_list_new(h, JINJA_LIST);
    if (v.kind == JINJA_TEXT)
        add_characters(h, out, v.text);
    else if (v.kind == JINJA_DICT)
        for (uint32_t i = 0; i < v.dict->count; i++) jinja_list_add(h, out, v.dict->pairs[i].key);
    else if (v.kind != JINJA_UNDEFINED)
        jinja_fail(h, "%s cannot be iterated", jinja_kind_name(v.kind));
    return jinja_failed(h) ? NULL : out.list;
}
