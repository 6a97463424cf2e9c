/* jinja_test.c: see jinja_test.h. */
#include "runtime/jinja/jinja_test.h"

#include "runtime/jinja/jinja_access.h"
#include "runtime/jinja/jinja_text.h"

// ---- Kinds --------------------------------------------------------------------------------------

// A bit for each kind.
#define BIT(kind) (1u << (kind))

static const struct {
    const char *name;
    uint32_t kinds;
} KINDS[] = {
    {"undefined", BIT(JINJA_UNDEFINED)},
    {"defined", ~BIT(JINJA_UNDEFINED)},
    {"none", BIT(JINJA_NONE)},
    {"boolean", BIT(JINJA_BOOL)},
    {"integer", BIT(JINJA_INT)},
    {"float", BIT(JINJA_FLOAT)},
    {"number", BIT(JINJA_BOOL) | BIT(JINJA_INT) | BIT(JINJA_FLOAT)},
    {"string", BIT(JINJA_TEXT)},
    {"mapping", BIT(JINJA_DICT)},
    {"iterable",
     BIT(JINJA_UNDEFINED) | BIT(JINJA_TEXT) | BIT(JINJA_LIST) | BIT(JINJA_TUPLE) | BIT(JINJA_DICT)},
    {"sequence",
     BIT(JINJA_UNDEFINED) | BIT(JINJA_TEXT) | BIT(JINJA_LIST) | BIT(JINJA_TUPLE) | BIT(JINJA_DICT)},
    {"callable", BIT(JINJA_MACRO) | BIT(JINJA_METHOD) | BIT(JINJA_FUNCTION)},
};

// ---- Comparisons --------------------------------------------------------------------------------

enum comparison { EQUAL, UNEQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, INSIDE, SAME };

static const struct {
    const char *name;
    enum comparison comparison;
} COMPARISONS[] = {
    {"==", EQUAL},         {"eq", EQUAL},
    {"equalto", EQUAL},    {"sameas", SAME},
    {"!=", UNEQUAL},       {"ne", UNEQUAL},
    {"<", LESS},           {"lt", LESS},
    {"lessthan", LESS},    {"<=", LESS_EQUAL},
    {"le", LESS_EQUAL},    {">", GREATER},
    {"gt", GREATER},       {"greaterthan", GREATER},
    {">=", GREATER_EQUAL}, {"ge", GREATER_EQUAL},
    {"in", INSIDE},
};

// True if both are the same object of Python, of which there is one for each number and text here.
static bool is_same(struct jinja_heap *h, struct jinja_value a, struct jinja_value b) {
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case JINJA_LIST:
    case JINJA_TUPLE: return a.list == b.list;
    case JINJA_DICT: return a.dict == b.dict;
    default: return jinja_equal(h, a, b);
    }
}

static bool compare(struct jinja_heap *h, enum comparison how, struct jinja_value a,
                    struct jinja_value b) {
    switch (how) {
    case EQUAL: return jinja_equal(h, a, b);
    case UNEQUAL: return !jinja_equal(h, a, b);
    case LESS: return jinja_compare(h, a, b) < 0;
    case LESS_EQUAL: return jinja_compare(h, a, b) <= 0;
    case GREATER: return jinja_compare(h, a, b) > 0;
    case GREATER_EQUAL: return jinja_compare(h, a, b) >= 0;
    case INSIDE: return jinja_contains(h, b, a);
    case SAME: return is_same(h, a, b);
    }
    return false;
}

// ---- Others -------------------------------------------------------------------------------------

static bool is_divisible(struct jinja_heap *h, struct jinja_value v, int64_t by) {
    if (v.kind != JINJA_INT || by == 0) jinja_fail(h, "a test of division needs whole numbers");
    return !jinja_failed(h) && (by == -1 || v.whole % by == 0);
}

static bool has_case(struct jinja_heap *h, struct jinja_value v, enum jinja_letters letters) {
    if (v.kind != JINJA_TEXT) return false;
    const enum jinja_letters other = letters == JINJA_UPPER ? JINJA_LOWER : JINJA_UPPER;
    return jinja_equal(h, jinja_text_letters(h, v.text, letters), v) &&
           !jinja_equal(h, jinja_text_letters(h, v.text, other), v);
}

bool jinja_test(struct jinja_heap *h, struct jinja_text name, struct jinja_value v,
                const struct jinja_arguments *a) {
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (jinja_text_equal(name, KINDS[i].name)) return KINDS[i].kinds & BIT(v.kind);
    if (jinja_text_equal(name, "true")) return v.kind == JINJA_BOOL && v.truth;
    if (jinja_text_equal(name, "false")) return v.kind == JINJA_BOOL && !v.truth;
    if (jinja_text_equal(name, "odd")) return !is_divisible(h, v, 2);
    if (jinja_text_equal(name, "even")) return is_divisible(h, v, 2);
    if (jinja_text_equal(name, "divisibleby"))
        return is_divisible(h, v, jinja_argument_int(h, a, 0, "num", 0));
    if (jinja_text_equal(name, "upper")) return has_case(h, v, JINJA_UPPER);
    if (jinja_text_equal(name, "lower")) return has_case(h, v, JINJA_LOWER);
    for (size_t i = 0; i < sizeof COMPARISONS / sizeof *COMPARISONS; i++) {
        if (!jinja_text_equal(name, COMPARISONS[i].name)) continue;
        return compare(h, COMPARISONS[i].comparison, v,
                       jinja_argument(h, a, 0, "other", (struct jinja_value){0}));
    }
    jinja_fail(h, "there is no test %.*s", (int)(name.length < 40 ? name.length : 40), name.bytes);
    return false;
}
