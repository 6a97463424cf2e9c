/* jinja_operator.c: see jinja_operator.h. */
#include "runtime/jinja/jinja_operator.h"

#include "runtime/jinja/jinja_access.h"
#include "runtime/jinja/jinja_json.h"
#include "runtime/jinja/jinja_text.h"

#include <math.h>
#include <string.h>

// ---- Numbers ------------------------------------------------------------------------------------

static struct jinja_value too_large(struct jinja_heap *h) {
    jinja_fail(h, "a number is too large");
    return (struct jinja_value){0};
}

static struct jinja_value power(struct jinja_heap *h, int64_t a, int64_t b) {
    int64_t out = 1;
    if (b < 0) return jinja_float(pow((double)a, (double)b));
    if (b > 64 && a != 0 && a != 1 && a != -1) return too_large(h);
    if (a == -1 || a == 0 || a == 1) return jinja_int(b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a);
    for (; b > 0; b--)
        if (__builtin_mul_overflow(out, a, &out)) return too_large(h);
    return jinja_int(out);
}

// Rounds down, as Python does; the remainder has the sign of b.
static struct jinja_value divide_whole(struct jinja_heap *h, int64_t a, int64_t b, bool remainder) {
    if (b == -1 && a == INT64_MIN) return remainder ? jinja_int(0) : too_large(h);
    const int64_t rest = a % b;
    const bool down = rest != 0 && (rest < 0) != (b < 0);
    return jinja_int(remainder ? rest + (down ? b : 0) : a / b - down);
}

static struct jinja_value operate_int(struct jinja_heap *h, struct jinja_text name, int64_t a,
                                      int64_t b) {
    int64_t out = 0;
    bool overflow = false;
    switch (name.bytes[0]) {
    case '+': overflow = __builtin_add_overflow(a, b, &out); break;
    case '-': overflow = __builtin_sub_overflow(a, b, &out); break;
    case '*':
        if (name.length == 2) return power(h, a, b);
        overflow = __builtin_mul_overflow(a, b, &out);
        break;
    default:
        if (jinja_text_equal(name, "/")) return jinja_float((double)a / (double)b);
        return divide_whole(h, a, b, name.bytes[0] == '%');
    }
    return overflow ? too_large(h) : jinja_int(out);
}

static struct jinja_value operate_float(struct jinja_text name, double a, double b) {
    switch (name.bytes[0]) {
    case '+': return jinja_float(a + b);
    case '-': return jinja_float(a - b);
    case '*': return jinja_float(name.length == 2 ? pow(a, b) : a * b);
    case '%': return jinja_float(a - b * floor(a / b));
    default: return jinja_float(name.length == 2 ? floor(a / b) : a / b);
    }
}

static struct jinja_value operate_numbers(struct jinja_heap *h, struct jinja_text name,
                                          struct jinja_value a, struct jinja_value b) {
    const bool divides = name.bytes[0] == '/' || name.bytes[0] == '%';
    if (divides && jinja_number(b) == 0) {
        jinja_fail(h, "a number is divided by 0");
        return (struct jinja_value){0};
    }
    if (a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT)
        return operate_float(name, jinja_number(a), jinja_number(b));
    return operate_int(h, name, a.kind == JINJA_BOOL ? a.truth : a.whole,
                       b.kind == JINJA_BOOL ? b.truth : b.whole);
}

// ---- Texts and lists ----------------------------------------------------------------------------

static struct jinja_value join(struct jinja_heap *h, struct jinja_text a, struct jinja_text b) {
    struct jinja_builder out = {0};
    if (b.length == 0) return jinja_of_text(a);
    if (a.length == 0) return jinja_of_text(b);
    jinja_builder_add(h, &out, a);
    jinja_builder_add(h, &out, b);
    return jinja_builder_text(&out);
}

// The sum of two texts. One that is safe has the other escaped, and the sum is safe.
static struct jinja_value add_texts(struct jinja_heap *h, struct jinja_text a,
                                    struct jinja_text b) {
    const bool safe = a.safe || b.safe;
    if (safe && !a.safe) a = jinja_text_escape(h, a);
    if (safe && !b.safe) b = jinja_text_escape(h, b);
    struct jinja_value out = join(h, a, b);
    if (out.kind == JINJA_TEXT) out.text.safe = safe;
    return out;
}

static void add_all(struct jinja_heap *h, struct jinja_value out, const struct jinja_list *list) {
    for (uint32_t i = 0; i < list->count && !jinja_failed(h); i++)
        jinja_list_add(h, out, list->items[i]);
}

static struct jinja_value repeat(struct jinja_heap *h, struct jinja_value v, int64_t times) {
    struct jinja_builder b = {0};
    if (v.kind == JINJA_TEXT) {
        for (; times > 0 && v.text.length > 0 && jinja_heap_spend(h, 16); times--)
            jinja_builder_add(h, &b, v.text);
        return jinja_builder_text(&b);
    }
    const struct jinja_value out = jinja_list_new(h, v.kind);
    for (; times > 0 && v.list->count > 0 && jinja_heap_spend(h, 16); times--)
        add_all(h, out, v.list);
    return out;
}

static bool is_list(struct jinja_value v) { return v.kind == JINJA_LIST || v.kind == JINJA_TUPLE; }

struct jinja_value jinja_operate(struct jinja_heap *h, struct jinja_text name, struct jinja_value a,
                                 struct jinja_value b) {
    const bool adds = jinja_text_equal(name, "+"), times = jinja_text_equal(name, "*");
    if (jinja_failed(h)) return (struct jinja_value){0};
    if (name.bytes[0] == '~') {
        struct jinja_value out = join(h, jinja_str(h, a).text, jinja_str(h, b).text);
        if (out.kind == JINJA_TEXT) out.text.safe = false;
        return out;
    }
    if (jinja_is_number(a) && jinja_is_number(b)) return operate_numbers(h, name, a, b);
    if (adds && a.kind == JINJA_TEXT && b.kind == JINJA_TEXT) return add_texts(h, a.text, b.text);
    if (times && (a.kind == JINJA_TEXT || is_list(a)) && b.kind == JINJA_INT)
        return repeat(h, a, b.whole);
    if (times && (b.kind == JINJA_TEXT || is_list(b)) && a.kind == JINJA_INT)
        return repeat(h, b, a.whole);
    if (adds && is_list(a) && a.kind == b.kind) {
        const struct jinja_value out = jinja_list_new(h, a.kind);
        add_all(h, out, a.list);
        add_all(h, out, b.list);
        return out;
    }
    jinja_fail(h, "%.*s is not possible between %s and %s", (int)name.length, name.bytes,
               jinja_kind_name(a.kind), jinja_kind_name(b.kind));
    return (struct jinja_value){0};
}

struct jinja_value jinja_negate(struct jinja_heap *h, struct jinja_value a) {
    if (a.kind == JINJA_FLOAT) return jinja_float(-a.real); // 0 - 0.0 would lose the sign
    return jinja_operate(h, jinja_text("-", 1, false), jinja_int(0), a);
}

bool jinja_relate(struct jinja_heap *h, struct jinja_text name, struct jinja_value a,
                  struct jinja_value b) {
    if (jinja_failed(h)) return false;
    if (jinja_text_equal(name, "==")) return jinja_equal(h, a, b);
    if (jinja_text_equal(name, "!=")) return !jinja_equal(h, a, b);
    if (jinja_text_equal(name, "in")) return jinja_contains(h, b, a);
    if (jinja_text_equal(name, "not in")) return !jinja_contains(h, b, a);
    const int order = jinja_compare(h, a, b);
    if (jinja_text_equal(name, "<")) return order < 0;
    if (jinja_text_equal(name, "<=")) return order <= 0;
    return jinja_text_equal(name, ">") ? order > 0 : order >= 0;
}
