/* jinja_method.c: see jinja_method.h. */
#include "runtime/jinja/jinja_method.h"

#include "base/utf8.h"
#include "runtime/jinja/jinja_json.h"
#include "runtime/jinja/jinja_text.h"

#include <string.h>

// ---- Texts --------------------------------------------------------------------------------------

static struct jinja_value strip(struct jinja_heap *h, struct jinja_text self,
                                const struct jinja_arguments *a, enum jinja_ends ends) {
    const struct jinja_value set = jinja_argument(h, a, 0, "chars", jinja_none());
    return jinja_of_text(jinja_text_trim(h, self, set.kind == JINJA_TEXT ? &set.text : NULL, ends));
}

static struct jinja_value text_strip(struct jinja_heap *h, struct jinja_value self,
                                     const struct jinja_arguments *a) {
    return strip(h, self.text, a, JINJA_BOTH);
}
static struct jinja_value text_lstrip(struct jinja_heap *h, struct jinja_value self,
                                      const struct jinja_arguments *a) {
    return strip(h, self.text, a, JINJA_LEFT);
}
static struct jinja_value text_rstrip(struct jinja_heap *h, struct jinja_value self,
                                      const struct jinja_arguments *a) {
    return strip(h, self.text, a, JINJA_RIGHT);
}

static struct jinja_value split(struct jinja_heap *h, struct jinja_text self,
                                const struct jinja_arguments *a, bool right) {
    const struct jinja_value separator = jinja_argument(h, a, 0, "sep", jinja_none());
    const int64_t limit = jinja_argument_int(h, a, 1, "maxsplit", -1);
    const bool spaces = separator.kind == JINJA_NONE;
    if (!spaces && separator.kind != JINJA_TEXT) jinja_fail(h, "split() needs a str");
    if (spaces && right && limit >= 0) jinja_fail(h, "rsplit() needs a separator");
    if (jinja_failed(h)) return (struct jinja_value){0};
    return jinja_text_split(h, self, spaces ? NULL : &separator.text, limit, right);
}

static struct jinja_value text_split(struct jinja_heap *h, struct jinja_value self,
                                     const struct jinja_arguments *a) {
    return split(h, self.text, a, false);
}
static struct jinja_value text_rsplit(struct jinja_heap *h, struct jinja_value self,
                                      const struct jinja_arguments *a) {
    return split(h, self.text, a, true);
}
static struct jinja_value text_splitlines(struct jinja_heap *h, struct jinja_value self,
                                          const struct jinja_arguments *a) {
    return jinja_text_lines(h, self.text,
                            jinja_is_true(jinja_argument(h, a, 0, "keepends", jinja_bool(false))));
}

// The byte where character i of the text begins; i counts from the end if it is negative.
static size_t byte_of(struct jinja_heap *h, struct jinja_text text, int64_t i) {
    size_t at = 0;
    if (i < 0) i += jinja_text_count(h, text);
    for (; i > 0 && at < text.length; i--) at += utf8_step(text.bytes + at, text.length - at);
    jinja_heap_spend(h, at);
    return at;
}

// The part of a text between the characters that arguments 1 and 2 name. *first: its first byte, or
// -1 if there is no such part.
static struct jinja_text window(struct jinja_heap *h, struct jinja_text text,
                                const struct jinja_arguments *a, int64_t *first) {
    const struct jinja_value none = jinja_none();
    const struct jinja_value from = jinja_argument(h, a, 1, "start", none);
    const struct jinja_value to = jinja_argument(h, a, 2, "end", none);
    const size_t start =
        from.kind == JINJA_NONE ? 0 : byte_of(h, text, jinja_argument_int(h, a, 1, "start", 0));
    const size_t end = to.kind == JINJA_NONE
                           ? text.length
                           : byte_of(h, text, jinja_argument_int(h, a, 2, "end", 0));
    const bool behind = from.kind == JINJA_INT && from.whole > jinja_text_count(h, text);
    *first = start > end || behind ? -1 : (int64_t)start;
    return *first < 0 ? jinja_text("", 0, false) : jinja_text_part(text, start, end - start);
}

typedef bool (*part_fn)(struct jinja_text text, struct jinja_text part);

// The part may be a tuple, of which one must fit.
static struct jinja_value has_part(struct jinja_heap *h, struct jinja_text self,
                                   const struct jinja_arguments *a, part_fn fits) {
    const struct jinja_value part = jinja_argument(h, a, 0, "prefix", (struct jinja_value){0});
    int64_t first;
    self = window(h, self, a, &first);
    if (part.kind != JINJA_TUPLE)
        return jinja_bool(fits(self, jinja_argument_text(h, a, 0, "prefix")) && first >= 0);
    for (uint32_t i = 0; i < part.list->count && first >= 0; i++)
        if (part.list->items[i].kind == JINJA_TEXT && fits(self, part.list->items[i].text))
            return jinja_bool(true);
    return jinja_bool(false);
}

static struct jinja_value text_startswith(struct jinja_heap *h, struct jinja_value self,
                                          const struct jinja_arguments *a) {
    return has_part(h, self.text, a, jinja_text_starts);
}
static struct jinja_value text_endswith(struct jinja_heap *h, struct jinja_value self,
                                        const struct jinja_arguments *a) {
    return has_part(h, self.text, a, jinja_text_ends);
}

static struct jinja_value text_removeprefix(struct jinja_heap *h, struct jinja_value self,
                                            const struct jinja_arguments *a) {
    const struct jinja_text part = jinja_argument_text(h, a, 0, "prefix");
    if (!jinja_text_starts(self.text, part)) return self;
    return jinja_of_text(jinja_text_part(self.text, part.length, self.text.length - part.length));
}
static struct jinja_value text_removesuffix(struct jinja_heap *h, struct jinja_value self,
                                            const struct jinja_arguments *a) {
    const struct jinja_text part = jinja_argument_text(h, a, 0, "suffix");
    if (!jinja_text_ends(self.text, part)) return self;
    return jinja_of_text(jinja_text_part(self.text, 0, self.text.length - part.length));
}

static struct jinja_value text_replace(struct jinja_heap *h, struct jinja_value self,
                                       const struct jinja_arguments *a) {
    return jinja_text_replace(h, self.text, jinja_argument_text(h, a, 0, "old"),
                              jinja_argument_text(h, a, 1, "new"),
                              jinja_argument_int(h, a, 2, "count", -1));
}

static struct jinja_value text_find(struct jinja_heap *h, struct jinja_value self,
                                    const struct jinja_arguments *a) {
    const struct jinja_text part = jinja_argument_text(h, a, 0, "sub");
    int64_t first;
    const struct jinja_text text = window(h, self.text, a, &first);
    const int64_t at = part.length == 0 ? 0 : jinja_text_find(h, text, part, 0);
    if (first < 0 || at < 0) return jinja_int(-1);
    return jinja_int(jinja_text_count(h, jinja_text_part(self.text, 0, (size_t)(first + at))));
}

static struct jinja_value text_count(struct jinja_heap *h, struct jinja_value self,
                                     const struct jinja_arguments *a) {
    const struct jinja_text part = jinja_argument_text(h, a, 0, "sub");
    int64_t n = 0, first;
    const struct jinja_text text = window(h, self.text, a, &first);
    if (first < 0) return jinja_int(0);
    if (part.length == 0) return jinja_int(jinja_text_count(h, text) + 1);
    for (int64_t at = 0; (at = jinja_text_find(h, text, part, (size_t)at)) >= 0; n++)
        at += part.length;
    return jinja_int(n);
}

static struct jinja_value text_upper(struct jinja_heap *h, struct jinja_value self,
                                     const struct jinja_arguments *a) {
    (void)a;
    return jinja_text_letters(h, self.text, JINJA_UPPER);
}
static struct jinja_value text_lower(struct jinja_heap *h, struct jinja_value self,
                                     const struct jinja_arguments *a) {
    (void)a;
    return jinja_text_letters(h, self.text, JINJA_LOWER);
}
static struct jinja_value text_title(struct jinja_heap *h, struct jinja_value self,
                                     const struct jinja_arguments *a) {
    (void)a;
    return jinja_text_letters(h, self.text, JINJA_TITLE);
}
static struct jinja_value text_capitalize(struct jinja_heap *h, struct jinja_value self,
                                          const struct jinja_arguments *a) {
    (void)a;
    return jinja_text_letters(h, self.text, JINJA_CAPITALIZE);
}

static struct jinja_value text_join(struct jinja_heap *h, struct jinja_value self,
                                    const struct jinja_arguments *a) {
    struct jinja_builder b = {0};
    const struct jinja_value v = jinja_argument(h, a, 0, "iterable", (struct jinja_value){0});
    const struct jinja_list *list = jinja_items(h, v);
    for (uint32_t i = 0; list && i < list->count && !jinja_failed(h); i++) {
        if (i > 0) jinja_builder_add(h, &b, self.text);
        if (list->items[i].kind != JINJA_TEXT)
            jinja_fail(h, "join() joins str, not %s", jinja_kind_name(list->items[i].kind));
        else
            jinja_builder_add(h, &b, list->items[i].text);
    }
    return jinja_builder_text(&b);
}

static struct jinja_value text_isdigit(struct jinja_heap *h, struct jinja_value self,
                                       const struct jinja_arguments *a) {
    (void)a;
    bool all = self.text.length > 0;
    for (size_t i = 0; i < self.text.length && all && jinja_heap_spend(h, 1); i++)
        all = self.text.bytes[i] >= '0' && self.text.bytes[i] <= '9';
    return jinja_bool(all);
}

// Fills {} with the arguments in their order; {{ and }} are brackets.
static struct jinja_value text_format(struct jinja_heap *h, struct jinja_value self,
                                      const struct jinja_arguments *a) {
    struct jinja_builder b = {0};
    uint32_t next = 0;
    const struct jinja_text t = self.text;
    for (size_t i = 0; i < t.length && !jinja_failed(h); i++) {
        const char c = t.bytes[i], then = i + 1 < t.length ? t.bytes[i + 1] : 0;
        if (c == '{' && then == '}' && next < a->values->count)
            jinja_builder_add(h, &b, jinja_str(h, a->values->items[next++]).text);
        else if ((c == '{' || c == '}') && then != c)
            jinja_fail(h, "format() knows only {} with an argument");
        else
            jinja_builder_add(h, &b, jinja_text_part(t, i, 1));
        i += c == '{' || c == '}';
    }
    return jinja_builder_text(&b);
}

// ---- Dicts and lists ----------------------------------------------------------------------------

static struct jinja_value dict_get(struct jinja_heap *h, struct jinja_value self,
                                   const struct jinja_arguments *a) {
    const struct jinja_value key = jinja_argument(h, a, 0, "key", (struct jinja_value){0});
    const struct jinja_value *found = jinja_dict_find(h, self, key);
    return found ? *found : jinja_argument(h, a, 1, "default", jinja_none());
}

static struct jinja_value dict_keys(struct jinja_heap *h, struct jinja_value self,
                                    const struct jinja_arguments *a) {
    (void)a;
    const struct jinja_value out = jinja_list_new(h, JINJA_LIST);
    for (uint32_t i = 0; i < self.dict->count; i++) jinja_list_add(h, out, self.dict->pairs[i].key);
    return out;
}

static struct jinja_value dict_values(struct jinja_heap *h, struct jinja_value self,
                                      const struct jinja_arguments *a) {
    (void)a;
    const struct jinja_value out = jinja_list_new(h, JINJA_LIST);
    for (uint32_t i = 0; i < self.dict->count; i++)
        jinja_list_add(h, out, self.dict->pairs[i].value);
    return out;
}

static struct jinja_value dict_items(struct jinja_heap *h, struct jinja_value self,
                                     const struct jinja_arguments *a) {
    (void)a;
    const struct jinja_value out = jinja_list_new(h, JINJA_LIST);
    for (uint32_t i = 0; i < self.dict->count && !jinja_failed(h); i++) {
        const struct jinja_value pair = jinja_list_new(h, JINJA_TUPLE);
        jinja_list_add(h, pair, self.dict->pairs[i].key);
        jinja_list_add(h, pair, self.dict->pairs[i].value);
        jinja_list_add(h, out, pair);
    }
    return out;
}

static struct jinja_value dict_update(struct jinja_heap *h, struct jinja_value self,
                                      const struct jinja_arguments *a) {
    const struct jinja_value other = jinja_argument(h, a, 0, "other", jinja_none());
    if (other.kind != JINJA_DICT) jinja_fail(h, "update() needs a dict");
    for (uint32_t i = 0; !jinja_failed(h) && i < other.dict->count; i++)
        jinja_dict_put(h, self, other.dict->pairs[i].key, other.dict->pairs[i].value);
    return jinja_none();
}

static struct jinja_value dict_pop(struct jinja_heap *h, struct jinja_value self,
                                   const struct jinja_arguments *a) {
    struct jinja_dict *d = self.dict;
    const struct jinja_value key = jinja_argument(h, a, 0, "key", (struct jinja_value){0});
    for (uint32_t i = 0; i < d->count && !jinja_failed(h); i++) {
        if (!jinja_equal(h, d->pairs[i].key, key)) continue;
        const struct jinja_value out = d->pairs[i].value;
        memmove(d->pairs + i, d->pairs + i + 1, (--d->count - i) * sizeof *d->pairs);
        return out;
    }
    return jinja_argument(h, a, 1, "default", jinja_none());
}

static struct jinja_value list_append(struct jinja_heap *h, struct jinja_value self,
                                      const struct jinja_arguments *a) {
    jinja_list_add(h, self, jinja_argument(h, a, 0, "object", (struct jinja_value){0}));
    return jinja_none();
}

static struct jinja_value list_extend(struct jinja_heap *h, struct jinja_value self,
                                      const struct jinja_arguments *a) {
    const struct jinja_list *more =
        jinja_items(h, jinja_argument(h, a, 0, "iterable", (struct jinja_value){0}));
    const uint32_t count = more ? more->count : 0; // the list may be its own argument
    for (uint32_t i = 0; i < count && !jinja_failed(h); i++)
        jinja_list_add(h, self, more->items[i]);
    return jinja_none();
}

static struct jinja_value list_pop(struct jinja_heap *h, struct jinja_value self,
                                   const struct jinja_arguments *a) {
    struct jinja_list *l = self.list;
    int64_t i = jinja_argument_int(h, a, 0, "index", -1);
    if (i < 0) i += l->count;
    if (i < 0 || i >= l->count) jinja_fail(h, "pop() from outside a list");
    if (jinja_failed(h)) return (struct jinja_value){0};
    const struct jinja_value out = l->items[i];
    memmove(l->items + i, l->items + i + 1, (--l->count - (size_t)i) * sizeof *l->items);
    jinja_heap_spend(h, (l->count - (size_t)i) * sizeof *l->items);
    return out;
}

static struct jinja_value list_index(struct jinja_heap *h, struct jinja_value self,
                                     const struct jinja_arguments *a) {
    const struct jinja_value item = jinja_argument(h, a, 0, "value", (struct jinja_value){0});
    for (uint32_t i = 0; i < self.list->count && !jinja_failed(h); i++)
        if (jinja_equal(h, self.list->items[i], item)) return jinja_int(i);
    jinja_fail(h, "index() finds no such item");
    return (struct jinja_value){0};
}

// ---- The table ----------------------------------------------------------------------------------

typedef struct jinja_value (*method_fn)(struct jinja_heap *h, struct jinja_value self,
                                        const struct jinja_arguments *a);

static const struct {
    enum jinja_kind kind; // LIST stands for tuples too
    const char *name;
    method_fn call;
} METHODS[] = {
    {JINJA_TEXT, "strip", text_strip},
    {JINJA_TEXT, "lstrip", text_lstrip},
    {JINJA_TEXT, "rstrip", text_rstrip},
    {JINJA_TEXT, "split", text_split},
    {JINJA_TEXT, "rsplit", text_rsplit},
    {JINJA_TEXT, "splitlines", text_splitlines},
    {JINJA_TEXT, "startswith", text_startswith},
    {JINJA_TEXT, "endswith", text_endswith},
    {JINJA_TEXT, "removeprefix", text_removeprefix},
    {JINJA_TEXT, "removesuffix", text_removesuffix},
    {JINJA_TEXT, "replace", text_replace},
    {JINJA_TEXT, "find", text_find},
    {JINJA_TEXT, "count", text_count},
    {JINJA_TEXT, "upper", text_upper},
    {JINJA_TEXT, "lower", text_lower},
    {JINJA_TEXT, "title", text_title},
    {JINJA_TEXT, "capitalize", text_capitalize},
    {JINJA_TEXT, "join", text_join},
    {JINJA_TEXT, "isdigit", text_isdigit},
    {JINJA_TEXT, "format", text_format},
    {JINJA_DICT, "get", dict_get},
    {JINJA_DICT, "keys", dict_keys},
    {JINJA_DICT, "values", dict_values},
    {JINJA_DICT, "items", dict_items},
    {JINJA_DICT, "update", dict_update},
    {JINJA_DICT, "pop", dict_pop},
    {JINJA_LIST, "append", list_append},
    {JINJA_LIST, "extend", list_extend},
    {JINJA_LIST, "pop", list_pop},
    {JINJA_LIST, "index", list_index},
};

struct jinja_value jinja_method_find(struct jinja_heap *h, struct jinja_value self,
                                     struct jinja_text name) {
    const enum jinja_kind kind = self.kind == JINJA_TUPLE ? JINJA_LIST : self.kind;
    for (int i = 0; i < (int)(sizeof METHODS / sizeof *METHODS); i++) {
        if (METHODS[i].kind != kind || !jinja_text_equal(name, METHODS[i].name)) continue;
        struct jinja_method *method = jinja_heap_take(h, sizeof *method);
        if (!method) break;
        *method = (struct jinja_method){self, i};
        return (struct jinja_value){.kind = JINJA_METHOD, .method = method};
    }
    return (struct jinja_value){0};
}

struct jinja_value jinja_method_call(struct jinja_heap *h, const struct jinja_method *method,
                                     const struct jinja_arguments *a) {
    return METHODS[method->name].call(h, method->self, a);
}
