/* jinja_function.c: see jinja_function.h. */
#include "runtime/jinja/jinja_function.h"

#include "runtime/jinja/jinja_json.h"

#include <string.h>

enum { MAX_RANGE = 100000, TIME_CHARS = 256 };

static struct jinja_value raise_exception(struct jinja_heap *h, const struct tm *now,
                                          const struct jinja_arguments *a) {
    (void)now;
    const struct jinja_text text =
        jinja_str(h, jinja_argument(h, a, 0, "message", jinja_literal(""))).text;
    jinja_fail(h, "it refuses the conversation: %.*s", (int)(text.length < 200 ? text.length : 200),
               text.bytes);
    return (struct jinja_value){0};
}

static struct jinja_value range(struct jinja_heap *h, const struct tm *now,
                                const struct jinja_arguments *a) {
    const bool both = a->values->count > 1;
    const int64_t first = both ? jinja_argument_int(h, a, 0, "start", 0) : 0;
    const int64_t end = jinja_argument_int(h, a, both, "stop", 0);
    const int64_t step = jinja_argument_int(h, a, 2, "step", 1);
    const struct jinja_value out = jinja_list_new(h, JINJA_LIST);
    (void)now;
    if (step == 0) jinja_fail(h, "range() has step 0");
    int64_t next = first;
    while (!jinja_failed(h) && (step > 0 ? next < end : next > end)) {
        if (out.list->count == MAX_RANGE) jinja_fail(h, "range() is longer than %d", MAX_RANGE);
        jinja_list_add(h, out, jinja_int(next));
        if (__builtin_add_overflow(next, step, &next)) break;
    }
    return out;
}

static struct jinja_value strftime_now(struct jinja_heap *h, const struct tm *now,
                                       const struct jinja_arguments *a) {
    char format[TIME_CHARS] = "", *out = jinja_heap_take(h, TIME_CHARS);
    const struct jinja_text text = jinja_argument_text(h, a, 0, "format");
    if (text.length >= sizeof format) jinja_fail(h, "a format of time is too long");
    if (jinja_failed(h)) return (struct jinja_value){0};
    memcpy(format, text.bytes, text.length);
    const size_t length = strftime(out, TIME_CHARS, format, now);
    if (length == 0 && format[0]) jinja_fail(h, "a time is too long");
    return jinja_of_text(jinja_text(out, length, false));
}

static void copy_dict(struct jinja_heap *h, struct jinja_value from, struct jinja_value to) {
    for (uint32_t i = 0; !jinja_failed(h) && i < from.dict->count; i++)
        jinja_dict_put(h, to, from.dict->pairs[i].key, from.dict->pairs[i].value);
}

// Makes pairs of a list of lists of two.
static void copy_list(struct jinja_heap *h, struct jinja_value from, struct jinja_value to) {
    const struct jinja_list *list = jinja_items(h, from);
    for (uint32_t i = 0; list && i < list->count && !jinja_failed(h); i++) {
        const struct jinja_list *pair = jinja_items(h, list->items[i]);
        if (pair && pair->count == 2)
            jinja_dict_put(h, to, pair->items[0], pair->items[1]);
        else
            jinja_fail(h, "an item of a dict is no pair");
    }
}

static struct jinja_value copy_pairs(struct jinja_heap *h, const struct jinja_arguments *a,
                                     enum jinja_kind kind) {
    const struct jinja_value out = jinja_dict_new(h, kind);
    const struct jinja_value first = jinja_argument(h, a, 0, "", a->named);
    if (jinja_failed(h)) return out;
    if (first.kind == JINJA_DICT)
        copy_dict(h, first, out);
    else
        copy_list(h, first, out);
    copy_dict(h, a->named, out);
    return out;
}

static struct jinja_value namespace(struct jinja_heap *h, const struct tm *now,
                                    const struct jinja_arguments *a) {
    (void)now;
    return copy_pairs(h, a, JINJA_NAMESPACE);
}

static struct jinja_value dict(struct jinja_heap *h, const struct tm *now,
                               const struct jinja_arguments *a) {
    (void)now;
    return copy_pairs(h, a, JINJA_DICT);
}

static const struct {
    const char *name;
    struct jinja_value (*call)(struct jinja_heap *h, const struct tm *now,
                               const struct jinja_arguments *a);
} FUNCTIONS[] = {
    {"raise_exception", raise_exception},
    {"range", range},
    {"strftime_now", strftime_now},
    {"namespace", namespace},
    {"dict", dict},
};

const char *jinja_function_name(int i) {
    return i < (int)(sizeof FUNCTIONS / sizeof *FUNCTIONS) ? FUNCTIONS[i].name : NULL;
}

struct jinja_value jinja_function(int i) {
    return (struct jinja_value){.kind = JINJA_FUNCTION, .function = i};
}

struct jinja_value jinja_function_call(struct jinja_heap *h, int i, const struct tm *now,
                                       const struct jinja_arguments *a) {
    return FUNCTIONS[i].call(h, now, a);
}
