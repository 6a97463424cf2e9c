/* jinja_access.c: see jinja_access.h. */
#include "runtime/jinja/jinja_access.h"

#include "base/utf8.h"
#include "runtime/jinja/jinja_method.h"
#include "runtime/jinja/jinja_text.h"

#include <string.h>

// ---- One part -----------------------------------------------------------------------------------

static struct jinja_value loop_attribute(const struct jinja_loop *loop, struct jinja_text name) {
    const int64_t i = loop->i, n = loop->list->count;
    if (jinja_text_equal(name, "index")) return jinja_int(i + 1);
    if (jinja_text_equal(name, "index0")) return jinja_int(i);
    if (jinja_text_equal(name, "revindex")) return jinja_int(n - i);
    if (jinja_text_equal(name, "revindex0")) return jinja_int(n - i - 1);
    if (jinja_text_equal(name, "first")) return jinja_bool(i == 0);
    if (jinja_text_equal(name, "last")) return jinja_bool(i + 1 == n);
    if (jinja_text_equal(name, "length")) return jinja_int(n);
    if (jinja_text_equal(name, "previtem") && i > 0) return loop->list->items[i - 1];
    if (jinja_text_equal(name, "nextitem") && i + 1 < n) return loop->list->items[i + 1];
    return (struct jinja_value){0};
}

struct jinja_value jinja_attribute(struct jinja_heap *h, struct jinja_value v,
                                   struct jinja_text name) {
    if (v.kind == JINJA_LOOP) return loop_attribute(v.loop, name);
    const struct jinja_value method = jinja_method_find(h, v, name);
    if (method.kind != JINJA_UNDEFINED) return method;
    const struct jinja_value *found = jinja_dict_find(h, v, jinja_of_text(name));
    return found ? *found : (struct jinja_value){0};
}

// Character i of a text, counted from the end if it is negative.
static struct jinja_value character(struct jinja_heap *h, struct jinja_text text, int64_t i) {
    if (i < 0) i += jinja_text_count(h, text);
    for (size_t at = 0, n; i >= 0 && at < text.length && jinja_heap_spend(h, 1); at += n, i--) {
        n = utf8_step(text.bytes + at, text.length - at);
        if (i == 0) return jinja_of_text(jinja_text_part(text, at, n));
    }
    return (struct jinja_value){0};
}

struct jinja_value jinja_item(struct jinja_heap *h, struct jinja_value v, struct jinja_value key) {
    const struct jinja_value *found = jinja_dict_find(h, v, key);
    if (found) return *found;
    if (key.kind == JINJA_TEXT) return jinja_attribute(h, v, key.text);
    if (key.kind != JINJA_INT && key.kind != JINJA_BOOL) return (struct jinja_value){0};
    int64_t i = key.kind == JINJA_BOOL ? key.truth : key.whole;
    if (v.kind == JINJA_TEXT) return character(h, v.text, i);
    if (v.kind != JINJA_LIST && v.kind != JINJA_TUPLE) return (struct jinja_value){0};
    if (i < 0) i += v.list->count;
    return i >= 0 && i < v.list->count ? v.list->items[i] : (struct jinja_value){0};
}

// The number that a part of a path is, or its text.
static struct jinja_value path_key(struct jinja_text part) {
    int64_t i = 0;
    for (size_t at = 0; at < part.length; at++) {
        if (part.bytes[at] < '0' || part.bytes[at] > '9' || at > 9) return jinja_of_text(part);
        i = i * 10 + part.bytes[at] - '0';
    }
    return part.length ? jinja_int(i) : jinja_of_text(part);
}

struct jinja_value jinja_path(struct jinja_heap *h, struct jinja_value v, struct jinja_value path) {
    if (path.kind != JINJA_TEXT) return jinja_item(h, v, path);
    for (size_t at = 0; at <= path.text.length && !jinja_failed(h);) {
        const struct jinja_text rest = jinja_text_part(path.text, at, path.text.length - at);
        const char *dot = rest.length ? memchr(rest.bytes, '.', rest.length) : NULL;
        const size_t n = dot ? (size_t)(dot - rest.bytes) : rest.length;
        v = jinja_item(h, v, path_key(jinja_text_part(rest, 0, n)));
        at += n + 1;
    }
    return v;
}

// ---- Slices -------------------------------------------------------------------------------------

static bool is_given(struct jinja_value v) {
    return v.kind != JINJA_UNDEFINED && v.kind != JINJA_NONE;
}

struct bounds {
    int64_t first, end, step;
};

static int64_t clamp(int64_t i, int64_t low, int64_t high) {
    return i < low ? low : i > high ? high : i;
}

static int64_t whole(struct jinja_heap *h, struct jinja_value v) {
    if (v.kind == JINJA_INT) return v.whole;
    jinja_fail(h, "a slice has a position that is %s", jinja_kind_name(v.kind));
    return 0;
}

// A position, which counts from the end if it is negative.
static int64_t position(struct jinja_heap *h, struct jinja_value v, int64_t count, int64_t low,
                        int64_t high) {
    const int64_t i = whole(h, v);
    return clamp(i < 0 ? clamp(i, -count - 1, -1) + count : i, low, high);
}

static struct bounds find_bounds(struct jinja_heap *h, const struct jinja_range *range,
                                 int64_t count) {
    const int64_t step = is_given(range->step) ? whole(h, range->step) : 1;
    const bool back = step < 0;
    const int64_t low = back ? -1 : 0, high = back ? count - 1 : count;
    struct bounds b = {back ? high : low, back ? low : high, clamp(step, -count - 1, count + 1)};
    if (step == 0) jinja_fail(h, "a slice has step 0");
    if (is_given(range->first)) b.first = position(h, range->first, count, low, high);
    if (is_given(range->end)) b.end = position(h, range->end, count, low, high);
    return b;
}

// The byte where character i of the text begins.
static size_t byte_of(struct jinja_heap *h, struct jinja_text text, int64_t i) {
    size_t at = 0;
    for (; i > 0 && at < text.length; i--) at += utf8_step(text.bytes + at, text.length - at);
    jinja_heap_spend(h, at);
    return at;
}

static struct jinja_value slice_text(struct jinja_heap *h, struct jinja_text text,
                                     const struct jinja_range *range) {
    const struct bounds b = find_bounds(h, range, jinja_text_count(h, text));
    if (jinja_failed(h)) return (struct jinja_value){0};
    if (b.step == 1) {
        const size_t first = byte_of(h, text, b.first), end = byte_of(h, text, b.end);
        return jinja_of_text(jinja_text_part(text, first, end > first ? end - first : 0));
    }
    struct jinja_builder out = {0};
    const struct jinja_list *all = jinja_items(h, jinja_of_text(text));
    for (int64_t i = b.first; all && !jinja_failed(h) && (b.step < 0 ? i > b.end : i < b.end);
         i += b.step)
        jinja_builder_add(h, &out, all->items[i].text);
    return jinja_builder_text(&out);
}

struct jinja_value jinja_slice(struct jinja_heap *h, struct jinja_value v,
                               const struct jinja_range *range) {
    if (v.kind == JINJA_TEXT) return slice_text(h, v.text, range);
    if (v.kind != JINJA_LIST && v.kind != JINJA_TUPLE) {
        jinja_fail(h, "%s has no slices", jinja_kind_name(v.kind));
        return (struct jinja_value){0};
    }
    const struct jinja_value out = jinja_list_new(h, v.kind);
    const struct bounds b = find_bounds(h, range, v.list->count);
    for (int64_t i = b.first; !jinja_failed(h) && (b.step < 0 ? i > b.end : i < b.end); i += b.step)
        jinja_list_add(h, out, v.list->items[i]);
    return out;
}

bool jinja_contains(struct jinja_heap *h, struct jinja_value v, struct jinja_value item) {
    if (v.kind == JINJA_TEXT) {
        if (item.kind == JINJA_TEXT)
            return item.text.length == 0 || jinja_text_find(h, v.text, item.text, 0) >= 0;
        jinja_fail(h, "a str can only contain a str, not %s", jinja_kind_name(item.kind));
        return false;
    }
    if (v.kind == JINJA_DICT || v.kind == JINJA_NAMESPACE)
        return jinja_dict_find(h, v, item) != NULL;
    const struct jinja_list *list = jinja_items(h, v);
    for (uint32_t i = 0; list && i < list->count && !jinja_failed(h); i++)
        if (jinja_equal(h, list->items[i], item)) return true;
    return false;
}
