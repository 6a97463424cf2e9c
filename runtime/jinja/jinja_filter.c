/* jinja_filter.c: see jinja_filter.h. */
#include "runtime/jinja/jinja_filter.h"

#include "runtime/jinja/jinja_access.h"
#include "runtime/jinja/jinja_json.h"
#include "runtime/jinja/jinja_method.h"
#include "runtime/jinja/jinja_operator.h"
#include "runtime/jinja/jinja_test.h"
#include "runtime/jinja/jinja_text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MOST = 64 };

static const struct jinja_value UNDEFINED = {.kind = JINJA_UNDEFINED};

static bool argument_is_true(struct jinja_heap *h, const struct jinja_arguments *a, uint32_t i,
                             const char *name, bool fallback) {
    return jinja_is_true(jinja_argument(h, a, i, name, jinja_bool(fallback)));
}

static struct jinja_value call_method(struct jinja_heap *h, struct jinja_value self,
                                      const char *name, const struct jinja_arguments *a) {
    const struct jinja_value method =
        jinja_method_find(h, self, jinja_text(name, strlen(name), false));
    return method.kind == JINJA_METHOD ? jinja_method_call(h, method.method, a) : UNDEFINED;
}

// ---- Texts --------------------------------------------------------------------------------------

static struct jinja_value filter_string(struct jinja_heap *h, struct jinja_value v,
                                        const struct jinja_arguments *a) {
    (void)a;
    return jinja_str(h, v);
}

static struct jinja_value filter_safe(struct jinja_heap *h, struct jinja_value v,
                                      const struct jinja_arguments *a) {
    struct jinja_value out = jinja_str(h, v);
    (void)a;
    if (out.kind == JINJA_TEXT) out.text.safe = true;
    return out;
}

static struct jinja_value filter_trim(struct jinja_heap *h, struct jinja_value v,
                                      const struct jinja_arguments *a) {
    return call_method(h, jinja_str(h, v), "strip", a);
}
static struct jinja_value filter_upper(struct jinja_heap *h, struct jinja_value v,
                                       const struct jinja_arguments *a) {
    return call_method(h, jinja_str(h, v), "upper", a);
}
static struct jinja_value filter_lower(struct jinja_heap *h, struct jinja_value v,
                                       const struct jinja_arguments *a) {
    return call_method(h, jinja_str(h, v), "lower", a);
}
static struct jinja_value filter_capitalize(struct jinja_heap *h, struct jinja_value v,
                                            const struct jinja_arguments *a) {
    return call_method(h, jinja_str(h, v), "capitalize", a);
}
static struct jinja_value filter_replace(struct jinja_heap *h, struct jinja_value v,
                                         const struct jinja_arguments *a) {
    return call_method(h, jinja_str(h, v), "replace", a);
}

static struct jinja_value filter_indent(struct jinja_heap *h, struct jinja_value v,
                                        const struct jinja_arguments *a) {
    const int64_t width = jinja_argument_int(h, a, 0, "width", 4);
    return jinja_text_indent(h, jinja_str(h, v).text, width,
                             argument_is_true(h, a, 1, "first", false),
                             argument_is_true(h, a, 2, "blank", false));
}

static struct jinja_value filter_tojson(struct jinja_heap *h, struct jinja_value v,
                                        const struct jinja_arguments *a) {
    const struct jinja_value indent = jinja_argument(h, a, 1, "indent", jinja_none());
    const struct jinja_value separators = jinja_argument(h, a, 2, "separators", jinja_none());
    const bool lines = indent.kind == JINJA_INT;
    struct jinja_json_form form = {
        .indent = lines ? indent.whole : -1,
        .ascii = argument_is_true(h, a, 0, "ensure_ascii", false),
        .sorted = argument_is_true(h, a, 3, "sort_keys", false),
        .item = jinja_text(lines ? "," : ", ", lines ? 1 : 2, true),
        .key = jinja_text(": ", 2, true),
    };
    const struct jinja_value first = jinja_item(h, separators, jinja_int(0));
    const struct jinja_value second = jinja_item(h, separators, jinja_int(1));
    if (first.kind == JINJA_TEXT) form.item = first.text;
    if (second.kind == JINJA_TEXT) form.key = second.text;
    return jinja_to_json(h, v, &form);
}

static struct jinja_value filter_from_json(struct jinja_heap *h, struct jinja_value v,
                                           const struct jinja_arguments *a) {
    (void)a;
    const struct jinja_text text = jinja_str(h, v).text;
    return jinja_failed(h) ? UNDEFINED : jinja_from_json(h, text.bytes, text.length);
}

static struct jinja_value filter_join(struct jinja_heap *h, struct jinja_value v,
                                      const struct jinja_arguments *a) {
    struct jinja_builder b = {0};
    const struct jinja_text between =
        jinja_str(h, jinja_argument(h, a, 0, "d", jinja_literal(""))).text;
    const struct jinja_value path = jinja_argument(h, a, 1, "attribute", jinja_none());
    const struct jinja_list *list = jinja_items(h, v);
    for (uint32_t i = 0; list && i < list->count && !jinja_failed(h); i++) {
        struct jinja_value item = list->items[i];
        if (path.kind != JINJA_NONE) item = jinja_path(h, item, path);
        if (i > 0) jinja_builder_add(h, &b, between);
        jinja_builder_add(h, &b, jinja_str(h, item).text);
    }
    return jinja_builder_text(&b);
}

// ---- Numbers ------------------------------------------------------------------------------------

// Copies a text without the white space around it and single _ between digits, which Python takes.
// False if it is no text, or longer than any number.
static bool copy_digits(struct jinja_heap *h, struct jinja_value v, char out[DIGITS_MOST]) {
    size_t n = 0;
    if (v.kind != JINJA_TEXT) return false;
    const struct jinja_text text = jinja_text_trim(h, v.text, NULL, JINJA_BOTH);
    if (text.length == 0 || text.length >= DIGITS_MOST) return false;
    for (size_t i = 0; i < text.length; i++) {
        const bool between = i > 0 && i + 1 < text.length && isalnum((uint8_t)text.bytes[i - 1]) &&
                             isalnum((uint8_t)text.bytes[i + 1]);
        if (text.bytes[i] != '_' || !between) out[n++] = text.bytes[i];
    }
    out[n] = 0;
    return true;
}

// Reads a number that takes up all of the text but white space. It is decimal, inf or nan.
static bool parse_number(struct jinja_heap *h, struct jinja_value v, double *out) {
    char digits[DIGITS_MOST];
    if (jinja_is_number(v)) {
        *out = jinja_number(v);
        return true;
    }
    if (!copy_digits(h, v, digits) || strpbrk(digits, "xX(")) return false;
    char *end;
    *out = strtod(digits, &end);
    return !*end && end > digits;
}

// Reads a whole number that takes up all of the text, in base 2 to 36, or 0: by its first digits.
static bool parse_whole(struct jinja_heap *h, struct jinja_value v, int64_t base, int64_t *out) {
    char digits[DIGITS_MOST], *end;
    if (base < 0 || base == 1 || base > 36 || !copy_digits(h, v, digits)) return false;
    const size_t sign = *digits == '-' || *digits == '+';
    const char low = digits[sign] == '0' ? (char)(digits[sign + 1] | 0x20) : 0;
    const int64_t named = low == 'x' ? 16 : low == 'o' ? 8 : low == 'b' ? 2 : 0;
    const bool prefix = named && (base == named || base == 0);
    if (prefix) memmove(digits + sign, digits + sign + 2, strlen(digits + sign + 2) + 1);
    if (!isalnum((uint8_t)digits[sign])) return false;
    errno = 0;
    *out = strtoll(digits, &end, prefix ? (int)named : base == 0 ? 10 : (int)base);
    if (errno == ERANGE) jinja_fail(h, "a number is too large");
    return !*end;
}

static struct jinja_value filter_int(struct jinja_heap *h, struct jinja_value v,
                                     const struct jinja_arguments *a) {
    double number;
    int64_t whole;
    const int64_t base = jinja_argument_int(h, a, 1, "base", 10);
    if (v.kind == JINJA_INT) return v;
    if (parse_whole(h, v, base, &whole)) return jinja_int(whole);
    if (!parse_number(h, v, &number) || isnan(number) || isinf(number))
        return jinja_argument(h, a, 0, "default", jinja_int(0));
    if (fabs(number) < 9.2e18) return jinja_int((int64_t)number);
    jinja_fail(h, "a number is too large");
    return UNDEFINED;
}

static struct jinja_value filter_float(struct jinja_heap *h, struct jinja_value v,
                                       const struct jinja_arguments *a) {
    double number;
    if (!parse_number(h, v, &number)) return jinja_argument(h, a, 0, "default", jinja_float(0));
    return jinja_float(number);
}

static struct jinja_value filter_abs(struct jinja_heap *h, struct jinja_value v,
                                     const struct jinja_arguments *a) {
    (void)a;
    if (!jinja_is_number(v)) jinja_fail(h, "%s has no absolute value", jinja_kind_name(v.kind));
    if (v.kind == JINJA_FLOAT) return jinja_float(fabs(v.real));
    if (v.kind != JINJA_INT) return jinja_int(v.kind == JINJA_BOOL && v.truth);
    if (v.whole == INT64_MIN) jinja_fail(h, "a number is too large");
    return jinja_failed(h) ? UNDEFINED : jinja_int(v.whole < 0 ? -v.whole : v.whole);
}

// The number next to v of so many decimals, an even last digit where two are as near.
static double round_even(double v, int64_t digits) {
    char text[400];
    if (digits < -22) return 0;
    if (digits < 0) {
        const double scale = pow(10, -(double)digits);
        return rint(v / scale) * scale;
    }
    if (digits > 22 || fabs(v) > 1e22) return v; // a double has no such decimals to round
    snprintf(text, sizeof text, "%.*f", (int)digits, v);
    return strtod(text, NULL);
}

static struct jinja_value filter_round(struct jinja_heap *h, struct jinja_value v,
                                       const struct jinja_arguments *a) {
    const int64_t digits = jinja_argument_int(h, a, 0, "precision", 0);
    const struct jinja_text method =
        jinja_str(h, jinja_argument(h, a, 1, "method", jinja_literal("common"))).text;
    const bool up = jinja_text_equal(method, "ceil"), down = jinja_text_equal(method, "floor");
    if (!jinja_is_number(v)) jinja_fail(h, "%s cannot be rounded", jinja_kind_name(v.kind));
    if (!up && !down && !jinja_text_equal(method, "common"))
        jinja_fail(h, "a number is rounded by common, ceil or floor");
    if (jinja_failed(h)) return UNDEFINED;
    const double scale = pow(10, (double)digits), number = jinja_number(v);
    if (up || down) return jinja_float((up ? ceil(number * scale) : floor(number * scale)) / scale);
    if (v.kind == JINJA_FLOAT) return jinja_float(round_even(number, digits));
    if (digits >= 0) return jinja_int(v.kind == JINJA_INT ? v.whole : v.truth);
    const double rounded = round_even(number, digits);
    if (fabs(rounded) >= 9.2e18) jinja_fail(h, "a number is too large");
    return jinja_failed(h) ? UNDEFINED : jinja_int((int64_t)rounded);
}

// ---- Any value ----------------------------------------------------------------------------------

static struct jinja_value filter_default(struct jinja_heap *h, struct jinja_value v,
                                         const struct jinja_arguments *a) {
    const bool falsy = argument_is_true(h, a, 1, "boolean", false);
    if (v.kind != JINJA_UNDEFINED && !(falsy && !jinja_is_true(v))) return v;
    return jinja_argument(h, a, 0, "default_value", jinja_literal(""));
}

static struct jinja_value filter_length(struct jinja_heap *h, struct jinja_value v,
                                        const struct jinja_arguments *a) {
    (void)a;
    switch (v.kind) {
    case JINJA_UNDEFINED: return jinja_int(0);
    case JINJA_TEXT: return jinja_int(jinja_text_count(h, v.text));
    case JINJA_LIST:
    case JINJA_TUPLE: return jinja_int(v.list->count);
    case JINJA_DICT: return jinja_int(v.dict->count);
    default: jinja_fail(h, "%s has no length", jinja_kind_name(v.kind)); return UNDEFINED;
    }
}

static struct jinja_value filter_items(struct jinja_heap *h, struct jinja_value v,
                                       const struct jinja_arguments *a) {
    if (v.kind == JINJA_UNDEFINED) return jinja_list_new(h, JINJA_LIST);
    if (v.kind != JINJA_DICT) jinja_fail(h, "%s has no items", jinja_kind_name(v.kind));
    return jinja_failed(h) ? UNDEFINED : call_method(h, v, "items", a);
}

// ---- Lists --------------------------------------------------------------------------------------

static struct jinja_value filter_list(struct jinja_heap *h, struct jinja_value v,
                                      const struct jinja_arguments *a) {
    (void)a;
    const struct jinja_value out = jinja_list_new(h, JINJA_LIST);
    const struct jinja_list *list = jinja_items(h, v);
    for (uint32_t i = 0; list && i < list->count; i++) jinja_list_add(h, out, list->items[i]);
    return out;
}

static struct jinja_value filter_first(struct jinja_heap *h, struct jinja_value v,
                                       const struct jinja_arguments *a) {
    (void)a;
    const struct jinja_list *list = jinja_items(h, v);
    return list && list->count ? list->items[0] : UNDEFINED;
}

static struct jinja_value filter_last(struct jinja_heap *h, struct jinja_value v,
                                      const struct jinja_arguments *a) {
    (void)a;
    const struct jinja_list *list = jinja_items(h, v);
    return list && list->count ? list->items[list->count - 1] : UNDEFINED;
}

static struct jinja_value filter_reverse(struct jinja_heap *h, struct jinja_value v,
                                         const struct jinja_arguments *a) {
    (void)a;
    const struct jinja_range back = {.step = jinja_int(-1)};
    return jinja_slice(h, v.kind == JINJA_TEXT ? v : filter_list(h, v, a), &back);
}

static struct jinja_value filter_sum(struct jinja_heap *h, struct jinja_value v,
                                     const struct jinja_arguments *a) {
    const struct jinja_value path = jinja_argument(h, a, 0, "attribute", jinja_none());
    const struct jinja_list *list = jinja_items(h, v);
    struct jinja_value sum = jinja_argument(h, a, 1, "start", jinja_int(0));
    if (sum.kind == JINJA_TEXT) jinja_fail(h, "sum() adds no texts");
    for (uint32_t i = 0; list && i < list->count && !jinja_failed(h); i++) {
        struct jinja_value item = list->items[i];
        if (path.kind != JINJA_NONE) item = jinja_path(h, item, path);
        sum = jinja_operate(h, jinja_text("+", 1, false), sum, item);
    }
    return jinja_failed(h) ? UNDEFINED : sum;
}

// The items of what map, select and reject work on: none of what is false, also of None.
static const struct jinja_list *items_of_true(struct jinja_heap *h, struct jinja_value v) {
    return jinja_items(h, jinja_is_true(v) ? v : UNDEFINED);
}

// The arguments from the nth on, for a filter or a test that an argument names.
static struct jinja_arguments arguments_after(const struct jinja_arguments *a, uint32_t n,
                                              struct jinja_list *room) {
    n = n < a->values->count ? n : a->values->count;
    *room =
        (struct jinja_list){n ? a->values->items + n : a->values->items, a->values->count - n, 0};
    return (struct jinja_arguments){room, a->named};
}

static struct jinja_value filter_map(struct jinja_heap *h, struct jinja_value v,
                                     const struct jinja_arguments *a) {
    struct jinja_list room;
    const struct jinja_value out = jinja_list_new(h, JINJA_LIST);
    const struct jinja_arguments rest = arguments_after(a, 1, &room);
    const struct jinja_value *path = jinja_dict_find(h, a->named, jinja_literal("attribute"));
    const struct jinja_value *other = jinja_dict_find(h, a->named, jinja_literal("default"));
    const struct jinja_text name =
        path ? jinja_text("", 0, false) : jinja_argument_text(h, a, 0, "name");
    const struct jinja_list *list = items_of_true(h, v);
    for (uint32_t i = 0; list && i < list->count && !jinja_failed(h); i++) {
        struct jinja_value item = list->items[i];
        item = path ? jinja_path(h, item, *path) : jinja_filter(h, name, item, &rest);
        if (path && other && item.kind == JINJA_UNDEFINED) item = *other;
        jinja_list_add(h, out, item);
    }
    return out;
}

// Keeps the items that pass the test that argument n names, or that are true without one. With n 1,
// the attribute that argument 0 names is tested.
static struct jinja_value choose(struct jinja_heap *h, struct jinja_value v,
                                 const struct jinja_arguments *a, uint32_t n, bool keep) {
    struct jinja_list room;
    const struct jinja_value out = jinja_list_new(h, JINJA_LIST);
    const struct jinja_arguments rest = arguments_after(a, n + 1, &room);
    const struct jinja_value path = n ? jinja_argument(h, a, 0, "attribute", UNDEFINED) : UNDEFINED;
    const bool tests = a->values->count > n;
    const struct jinja_text name =
        tests ? jinja_argument_text(h, a, n, "test") : jinja_text("", 0, false);
    const struct jinja_list *list = items_of_true(h, v);
    for (uint32_t i = 0; list && i < list->count && !jinja_failed(h); i++) {
        const struct jinja_value item = list->items[i];
        const struct jinja_value what = n ? jinja_path(h, item, path) : item;
        const bool passes = tests ? jinja_test(h, name, what, &rest) : jinja_is_true(what);
        if (passes == keep) jinja_list_add(h, out, item);
    }
    return out;
}

static struct jinja_value filter_select(struct jinja_heap *h, struct jinja_value v,
                                        const struct jinja_arguments *a) {
    return choose(h, v, a, 0, true);
}
static struct jinja_value filter_reject(struct jinja_heap *h, struct jinja_value v,
                                        const struct jinja_arguments *a) {
    return choose(h, v, a, 0, false);
}
static struct jinja_value filter_selectattr(struct jinja_heap *h, struct jinja_value v,
                                            const struct jinja_arguments *a) {
    return choose(h, v, a, 1, true);
}
static struct jinja_value filter_rejectattr(struct jinja_heap *h, struct jinja_value v,
                                            const struct jinja_arguments *a) {
    return choose(h, v, a, 1, false);
}

// ---- Order --------------------------------------------------------------------------------------

// The key that an item is sorted by: an attribute or itself; texts without their case, unless it
// counts.
static struct jinja_value sort_key(struct jinja_heap *h, struct jinja_value item,
                                   struct jinja_value path, bool case_sensitive) {
    if (path.kind != JINJA_NONE) item = jinja_path(h, item, path);
    if (item.kind != JINJA_TEXT || case_sensitive) return item;
    return jinja_text_letters(h, item.text, JINJA_LOWER);
}

// Sorts the items by their keys, equal ones in their order; by insertion, which is fast enough for
// the lists of templates, and the limits end all else.
static void sort_items(struct jinja_heap *h, struct jinja_list *items, struct jinja_list *keys,
                       bool reverse) {
    for (uint32_t i = 1; i < items->count; i++) {
        const struct jinja_value item = items->items[i], key = keys->items[i];
        uint32_t at = i;
        for (; at > 0 && jinja_heap_spend(h, 2 * sizeof item); at--) {
            const int order = jinja_compare(h, keys->items[at - 1], key);
            if (reverse ? order >= 0 : order <= 0) break;
            items->items[at] = items->items[at - 1];
            keys->items[at] = keys->items[at - 1];
        }
        items->items[at] = item;
        keys->items[at] = key;
        if (jinja_failed(h)) return;
    }
}

static struct jinja_value sorted(struct jinja_heap *h, struct jinja_value list,
                                 struct jinja_value path, bool case_sensitive, bool reverse) {
    const struct jinja_value keys = jinja_list_new(h, JINJA_LIST);
    if (jinja_failed(h)) return UNDEFINED;
    for (uint32_t i = 0; i < list.list->count && !jinja_failed(h); i++)
        jinja_list_add(h, keys, sort_key(h, list.list->items[i], path, case_sensitive));
    if (!jinja_failed(h)) sort_items(h, list.list, keys.list, reverse);
    return list;
}

static struct jinja_value filter_sort(struct jinja_heap *h, struct jinja_value v,
                                      const struct jinja_arguments *a) {
    return sorted(h, filter_list(h, v, a), jinja_argument(h, a, 2, "attribute", jinja_none()),
                  argument_is_true(h, a, 1, "case_sensitive", false),
                  argument_is_true(h, a, 0, "reverse", false));
}

static struct jinja_value filter_dictsort(struct jinja_heap *h, struct jinja_value v,
                                          const struct jinja_arguments *a) {
    const struct jinja_value by = jinja_argument(h, a, 1, "by", jinja_literal("key"));
    const bool value = by.kind == JINJA_TEXT && jinja_text_equal(by.text, "value");
    return sorted(h, filter_items(h, v, a), jinja_int(value),
                  argument_is_true(h, a, 0, "case_sensitive", false),
                  argument_is_true(h, a, 2, "reverse", false));
}

static struct jinja_value filter_unique(struct jinja_heap *h, struct jinja_value v,
                                        const struct jinja_arguments *a) {
    const bool case_sensitive = argument_is_true(h, a, 0, "case_sensitive", false);
    const struct jinja_value path = jinja_argument(h, a, 1, "attribute", jinja_none());
    const struct jinja_value out = jinja_list_new(h, JINJA_LIST),
                             keys = jinja_list_new(h, JINJA_LIST);
    const struct jinja_list *list = jinja_items(h, v);
    for (uint32_t i = 0; list && i < list->count && !jinja_failed(h); i++) {
        const struct jinja_value key = sort_key(h, list->items[i], path, case_sensitive);
        if (jinja_contains(h, keys, key)) continue;
        jinja_list_add(h, keys, key);
        jinja_list_add(h, out, list->items[i]);
    }
    return out;
}

static struct jinja_value extreme(struct jinja_heap *h, struct jinja_value v,
                                  const struct jinja_arguments *a, int sign) {
    const bool case_sensitive = argument_is_true(h, a, 0, "case_sensitive", false);
    const struct jinja_value path = jinja_argument(h, a, 1, "attribute", jinja_none());
    const struct jinja_list *list = jinja_items(h, v);
    struct jinja_value best = UNDEFINED, best_key = UNDEFINED;
    for (uint32_t i = 0; list && i < list->count && !jinja_failed(h); i++) {
        const struct jinja_value key = sort_key(h, list->items[i], path, case_sensitive);
        if (i > 0 && jinja_compare(h, key, best_key) * sign <= 0) continue;
        best = list->items[i];
        best_key = key;
    }
    return best;
}

static struct jinja_value filter_min(struct jinja_heap *h, struct jinja_value v,
                                     const struct jinja_arguments *a) {
    return extreme(h, v, a, -1);
}
static struct jinja_value filter_max(struct jinja_heap *h, struct jinja_value v,
                                     const struct jinja_arguments *a) {
    return extreme(h, v, a, 1);
}

// ---- The table ----------------------------------------------------------------------------------

typedef struct jinja_value (*filter_fn)(struct jinja_heap *h, struct jinja_value v,
                                        const struct jinja_arguments *a);

static const struct {
    const char *name;
    filter_fn apply;
} FILTERS[] = {
    {"abs", filter_abs},
    {"capitalize", filter_capitalize},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"float", filter_float},
    {"from_json", filter_from_json},
    {"fromjson", filter_from_json},
    {"indent", filter_indent},
    {"int", filter_int},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"lower", filter_lower},
    {"map", filter_map},
    {"max", filter_max},
    {"min", filter_min},
    {"reject", filter_reject},
    {"rejectattr", filter_rejectattr},
    {"replace", filter_replace},
    {"reverse", filter_reverse},
    {"round", filter_round},
    {"safe", filter_safe},
    {"select", filter_select},
    {"selectattr", filter_selectattr},
    {"sort", filter_sort},
    {"string", filter_string},
    {"sum", filter_sum},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"unique", filter_unique},
    {"upper", filter_upper},
};

struct jinja_value jinja_filter(struct jinja_heap *h, struct jinja_text name, struct jinja_value v,
                                const struct jinja_arguments *a) {
    struct jinja_value out = UNDEFINED;
    for (size_t i = 0; i < sizeof FILTERS / sizeof *FILTERS; i++) {
        if (!jinja_text_equal(name, FILTERS[i].name)) continue;
        // map may name itself as its filter.
        if (jinja_heap_enter(h, JINJA_DEPTH)) out = FILTERS[i].apply(h, v, a);
        jinja_heap_leave(h);
        return out;
    }
    jinja_fail(h, "there is no filter %.*s", (int)(name.length < 40 ? name.length : 40),
               name.bytes);
    return out;
}
