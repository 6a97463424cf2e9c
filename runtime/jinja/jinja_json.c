/* jinja_json.c: see jinja_json.h. */
#include "runtime/jinja/jinja_json.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

// ---- Numbers ------------------------------------------------------------------------------------

// Writes the shortest digits that give the number again, as Python's repr does.
static void print_float(double value, bool json, char out[40]) {
    char text[40];
    if (isnan(value) || isinf(value)) {
        const char *names[] = {"nan", "inf", "-inf"},
                   *json_names[] = {"NaN", "Infinity", "-Infinity"};
        const int i = isnan(value) ? 0 : value > 0 ? 1 : 2;
        snprintf(out, 40, "%s", json ? json_names[i] : names[i]);
        return;
    }
    int digits = 1;
    do snprintf(text, sizeof text, "%.*e", digits - 1, value);
    while (strtod(text, NULL) != value && digits++ < 17);
    const char *e = strchr(text, 'e');
    const int exponent = e ? atoi(e + 1) : 0;
    if (exponent < -4 || exponent >= 16)
        snprintf(out, 40, "%.*s%s%02d", (int)(e - text), text, exponent < 0 ? "e-" : "e+",
                 abs(exponent));
    else
        snprintf(out, 40, "%.*f", digits - 1 - exponent > 1 ? digits - 1 - exponent : 1, value);
}

// Numbers, truth values and none; false for all else.
static bool print_plain(struct jinja_value v, bool json, char out[40]) {
    switch (v.kind) {
    case JINJA_NONE: snprintf(out, 40, "%s", json ? "null" : "None"); return true;
    case JINJA_BOOL:
        snprintf(out, 40, "%s", json ? (v.truth ? "true" : "false") : (v.truth ? "True" : "False"));
        return true;
    case JINJA_INT: snprintf(out, 40, "%" PRId64, v.whole); return true;
    case JINJA_FLOAT: print_float(v.real, json, out); return true;
    default: return false;
    }
}

// ---- Strings in quotes --------------------------------------------------------------------------

// Writes the character of n bytes at in as JSON; false if it stays as it is.
static bool escape_json(const char *in, size_t n, bool ascii, char out[16]) {
    static const char names[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    const char *name = n == 1 && in[0] ? strchr(names, in[0]) : NULL;
    const uint32_t code = utf8_code(in, n);
    if (name)
        snprintf(out, 16, "\\%c", letters[name - names]);
    else if (n == 1 && ((uint8_t)in[0] < 0x20 || (ascii && in[0] == 0x7f)))
        snprintf(out, 16, "\\u%04x", (unsigned)in[0]);
    else if (ascii && n > 1 && code >= 0x10000)
        snprintf(out, 16, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                 0xdc00 + ((code - 0x10000) & 0x3ff));
    else if (ascii && n > 1)
        snprintf(out, 16, "\\u%04x", code);
    else
        return false;
    return true;
}

// True for characters that Python's repr shows: letters, marks, digits, signs and the blank.
static bool is_printable(uint32_t code) {
    switch (utf8proc_category((int32_t)code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return code == ' ';
    default: return true;
    }
}

// Does the same as Python's repr in single or double quotes; bytes that are no character stay.
static bool escape_repr(const char *in, size_t n, char quote, char out[16]) {
    static const char names[] = "\\\n\r\t", letters[] = "\\nrt";
    const char *name = n == 1 && in[0] ? strchr(names, in[0]) : NULL;
    const uint32_t code = utf8_code(in, n);
    const bool is_bad = n == 1 && (uint8_t)in[0] >= 0x80;
    if (name)
        snprintf(out, 16, "\\%c", letters[name - names]);
    else if (n == 1 && in[0] == quote)
        snprintf(out, 16, "\\%c", quote);
    else if (is_bad || is_printable(code))
        return false;
    else
        snprintf(out, 16, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
    return true;
}

enum quoting { QUOTE_JSON, QUOTE_ASCII, QUOTE_REPR };

static void add_quoted(struct jinja_heap *h, struct jinja_builder *b, struct jinja_text text,
                       enum quoting quoting) {
    const bool repr = quoting == QUOTE_REPR;
    const bool both =
        memchr(text.bytes, '\'', text.length) && !memchr(text.bytes, '"', text.length);
    const char quote[2] = {repr && !both ? '\'' : '"', 0};
    size_t plain = 0;
    jinja_builder_put(h, b, quote, true);
    for (size_t at = 0, n; at < text.length && jinja_heap_spend(h, 4); at += n) {
        char out[16];
        n = utf8_step(text.bytes + at, text.length - at);
        if (repr ? !escape_repr(text.bytes + at, n, quote[0], out)
                 : !escape_json(text.bytes + at, n, quoting == QUOTE_ASCII, out))
            continue;
        jinja_builder_add(h, b, jinja_text(text.bytes + plain, at - plain, true));
        jinja_builder_put(h, b, out, true);
        plain = at + n;
    }
    jinja_builder_add(h, b, jinja_text(text.bytes + plain, text.length - plain, true));
    jinja_builder_put(h, b, quote, true);
}

// ---- Python -------------------------------------------------------------------------------------

static void add_repr(struct jinja_heap *h, struct jinja_builder *b, struct jinja_value v);

static void add_repr_list(struct jinja_heap *h, struct jinja_builder *b, struct jinja_value v) {
    const bool tuple = v.kind == JINJA_TUPLE;
    jinja_builder_put(h, b, tuple ? "(" : "[", true);
    for (uint32_t i = 0; i < v.list->count && !jinja_failed(h); i++) {
        if (i > 0) jinja_builder_put(h, b, ", ", true);
        add_repr(h, b, v.list->items[i]);
    }
    jinja_builder_put(h, b, tuple ? (v.list->count == 1 ? ",)" : ")") : "]", true);
}

static void add_repr_dict(struct jinja_heap *h, struct jinja_builder *b, struct jinja_value v) {
    jinja_builder_put(h, b, "{", true);
    for (uint32_t i = 0; i < v.dict->count && !jinja_failed(h); i++) {
        if (i > 0) jinja_builder_put(h, b, ", ", true);
        add_repr(h, b, v.dict->pairs[i].key);
        jinja_builder_put(h, b, ": ", true);
        add_repr(h, b, v.dict->pairs[i].value);
    }
    jinja_builder_put(h, b, "}", true);
}

static void add_repr(struct jinja_heap *h, struct jinja_builder *b, struct jinja_value v) {
    char text[64];
    if (!jinja_heap_enter(h, JINJA_DEPTH)) {
        jinja_heap_leave(h);
        return;
    }
    if (v.kind == JINJA_TEXT) {
        add_quoted(h, b, v.text, QUOTE_REPR);
    } else if (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE) {
        add_repr_list(h, b, v);
    } else if (v.kind == JINJA_DICT) {
        add_repr_dict(h, b, v);
    } else {
        if (!print_plain(v, false, text))
            snprintf(text, sizeof text, v.kind ? "<%s>" : "Undefined", jinja_kind_name(v.kind));
        jinja_builder_put(h, b, text, true);
    }
    jinja_heap_leave(h);
}

struct jinja_value jinja_str(struct jinja_heap *h, struct jinja_value v) {
    struct jinja_builder b = {0};
    char text[40];
    if (v.kind == JINJA_TEXT) return v;
    if (v.kind == JINJA_UNDEFINED) return jinja_literal("");
    if (print_plain(v, false, text))
        jinja_builder_put(h, &b, text, false);
    else
        add_repr(h, &b, v);
    return jinja_builder_text(&b);
}

// ---- To JSON ------------------------------------------------------------------------------------

struct json_writer {
    struct jinja_heap *heap;
    struct jinja_builder b;
    const struct jinja_json_form *form;
    int64_t depth;
};

static void add_json(struct json_writer *w, struct jinja_value v);

static void put(struct json_writer *w, const char *text) {
    jinja_builder_put(w->heap, &w->b, text, true);
}

static void put_as_data(struct json_writer *w, struct jinja_text text) {
    jinja_builder_add(w->heap, &w->b, jinja_text(text.bytes, text.length, true));
}

// Begins a line at the present depth, if there are lines.
static void put_line(struct json_writer *w) {
    if (w->form->indent < 0) return;
    put(w, "\n");
    for (int64_t i = 0; i < w->form->indent * w->depth && !jinja_failed(w->heap); i++) put(w, " ");
}

static void put_separator(struct json_writer *w, uint32_t i) {
    if (i > 0) put_as_data(w, w->form->item);
    put_line(w);
}

static void add_json_list(struct json_writer *w, const struct jinja_list *list) {
    put(w, "[");
    w->depth++;
    for (uint32_t i = 0; i < list->count && !jinja_failed(w->heap); i++) {
        put_separator(w, i);
        add_json(w, list->items[i]);
    }
    w->depth--;
    if (list->count > 0) put_line(w);
    put(w, "]");
}

// A key that is no text is written as one.
static void add_json_key(struct json_writer *w, struct jinja_value key) {
    char text[40];
    if (print_plain(key, true, text)) key = jinja_literal(text);
    if (key.kind != JINJA_TEXT) jinja_fail(w->heap, "%s is no key", jinja_kind_name(key.kind));
    if (!jinja_failed(w->heap))
        add_quoted(w->heap, &w->b, key.text, w->form->ascii ? QUOTE_ASCII : QUOTE_JSON);
}

// The next pair in the order of keys behind pair last, or the first if last is NULL.
static const struct jinja_pair *next_pair(struct jinja_heap *h, const struct jinja_dict *dict,
                                          const struct jinja_pair *last) {
    const struct jinja_pair *best = NULL;
    for (uint32_t i = 0; i < dict->count && !jinja_failed(h); i++) {
        const struct jinja_pair *pair = &dict->pairs[i];
        if (last && jinja_compare(h, pair->key, last->key) <= 0) continue;
        if (!best || jinja_compare(h, pair->key, best->key) < 0) best = pair;
    }
    return best;
}

static void add_json_dict(struct json_writer *w, const struct jinja_dict *dict) {
    const struct jinja_pair *sorted = NULL;
    put(w, "{");
    w->depth++;
    for (uint32_t i = 0; i < dict->count && !jinja_failed(w->heap); i++) {
        const struct jinja_pair *pair = &dict->pairs[i];
        if (w->form->sorted) pair = sorted = next_pair(w->heap, dict, sorted);
        if (!pair) break;
        put_separator(w, i);
        add_json_key(w, pair->key);
        put_as_data(w, w->form->key);
        add_json(w, pair->value);
    }
    w->depth--;
    if (dict->count > 0) put_line(w);
    put(w, "}");
}

static void add_json(struct json_writer *w, struct jinja_value v) {
    char text[40];
    if (!jinja_heap_enter(w->heap, JINJA_DEPTH)) {
        jinja_heap_leave(w->heap);
        return;
    }
    if (v.kind == JINJA_TEXT)
        add_quoted(w->heap, &w->b, v.text, w->form->ascii ? QUOTE_ASCII : QUOTE_JSON);
    else if (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE)
        add_json_list(w, v.list);
    else if (v.kind == JINJA_DICT || v.kind == JINJA_NAMESPACE)
        add_json_dict(w, v.dict);
    else if (print_plain(v, true, text))
        put(w, text);
    else
        jinja_fail(w->heap, "%s cannot be written as JSON", jinja_kind_name(v.kind));
    jinja_heap_leave(w->heap);
}

struct jinja_value jinja_to_json(struct jinja_heap *h, struct jinja_value v,
                                 const struct jinja_json_form *form) {
    struct json_writer w = {.heap = h, .form = form};
    add_json(&w, v);
    return jinja_builder_text(&w.b);
}

// ---- From JSON ----------------------------------------------------------------------------------

// Copies text of jansson's, as data.
static struct jinja_value copy_text(struct jinja_heap *h, const char *bytes, size_t length) {
    char *copy = jinja_heap_take(h, length + 1);
    if (!copy) return (struct jinja_value){0};
    memcpy(copy, bytes, length);
    return jinja_of_text(jinja_text(copy, length, true));
}

static struct jinja_value convert(struct jinja_heap *h, json_t *json);

static struct jinja_value convert_many(struct jinja_heap *h, json_t *json) {
    const struct jinja_value out =
        json_is_array(json) ? jinja_list_new(h, JINJA_LIST) : jinja_dict_new(h, JINJA_DICT);
    const char *key; // Jansson refuses those with a byte of 0
    json_t *item;
    for (size_t i = 0; i < json_array_size(json) && !jinja_failed(h); i++)
        jinja_list_add(h, out, convert(h, json_array_get(json, i)));
    json_object_foreach(json, key, item) {
        const struct jinja_value name = copy_text(h, key, strlen(key));
        jinja_dict_put(h, out, name, convert(h, item));
    }
    return out;
}

static struct jinja_value convert(struct jinja_heap *h, json_t *json) {
    struct jinja_value out = {0};
    switch (json_typeof(json)) {
    case JSON_NULL: return jinja_none();
    case JSON_TRUE: return jinja_bool(true);
    case JSON_FALSE: return jinja_bool(false);
    case JSON_INTEGER: return jinja_int(json_integer_value(json));
    case JSON_REAL: return jinja_float(json_real_value(json));
    case JSON_STRING: return copy_text(h, json_string_value(json), json_string_length(json));
    default:
        if (jinja_heap_enter(h, JINJA_DEPTH)) out = convert_many(h, json);
        jinja_heap_leave(h);
        return out;
    }
}

struct jinja_value jinja_from_json(struct jinja_heap *h, const char *text, size_t length) {
    json_error_t error;
    struct jinja_value out = {0};
    if (!jinja_heap_spend(h, 16 * (uint64_t)length)) return out;
    json_t *json = json_loadb(text, length, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (json)
        out = convert(h, json);
    else
        jinja_fail(h, "what should be JSON is none: %s", error.text);
    json_decref(json);
    return out;
}
