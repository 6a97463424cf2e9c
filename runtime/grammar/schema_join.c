/* schema_join.c: see schema_join.h. */
#include "runtime/grammar/schema_join.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MOST = 32, CHOICES_MOST = 64 };
enum { LOOKS_DEEP = 8 }; // properties within properties that a look goes to

// ---- References ---------------------------------------------------------------------------------

// Turns the escapes of a part of a path into what they stand for: those of an address, %3C for <,
// then ~1 for a slash and ~0 for a tilde.
static void read_escapes(char *part) {
    char *to = part;
    for (const char *from = part; *from; from++) {
        const bool escaped =
            *from == '%' && isxdigit((uint8_t)from[1]) && isxdigit((uint8_t)from[2]);
        const char digits[] = {escaped ? from[1] : 0, escaped ? from[2] : 0, 0};
        *to++ = escaped ? (char)strtoul(digits, NULL, 16) : *from;
        from += escaped ? 2 : 0;
    }
    *to = 0;
    to = part;
    for (const char *from = part; *from; from++) {
        const bool escaped = from[0] == '~' && (from[1] == '0' || from[1] == '1');
        *to++ = !escaped ? *from : *++from == '1' ? '/' : '~';
    }
    *to = 0;
}

enum status schema_find(const json_t *root, const char *path, const json_t **out, struct err *e) {
    char part[256];
    const json_t *at = root;
    if (path[0] == '#') path++;
    while (*path == '/' && at) {
        const size_t length = strcspn(++path, "/");
        if (length >= sizeof part) break;
        memcpy(part, path, length);
        part[length] = 0;
        read_escapes(part);
        at = json_is_array(at) ? json_array_get(at, (size_t)strtoul(part, NULL, 10))
                               : json_object_get(at, part);
        path += length;
    }
    *out = at;
    if (at && !*path) return OK;
    return err_set(e, ERR_UNSUPPORTED, "schema: $ref does not name a part of this schema");
}

// ---- Words --------------------------------------------------------------------------------------

enum rule {
    TAKE_SMALLER,
    TAKE_LARGER,
    TAKE_COMMON_TYPES,
    TAKE_COMMON_VALUES,
    TAKE_SAME,      // the value of both; nothing meets two
    TAKE_BOTH,      // as allOf of the two; false excludes all else
    TAKE_ALL,       // a list: the items of both
    TAKE_PRODUCT,   // choices: every pair of them
    TAKE_NO_SECOND, // two cannot be joined
};

static const struct word {
    const char *name;
    enum rule rule;
} WORDS[] = {
    {"type", TAKE_COMMON_TYPES},
    {"enum", TAKE_COMMON_VALUES},
    {"const", TAKE_SAME},
    {"anyOf", TAKE_PRODUCT},
    {"oneOf", TAKE_PRODUCT},
    {"properties", TAKE_NO_SECOND}, // but for join_properties
    {"required", TAKE_ALL},
    {"additionalProperties", TAKE_BOTH},
    {"unevaluatedProperties", TAKE_BOTH},
    {"items", TAKE_BOTH},
    {"additionalItems", TAKE_BOTH},
    {"unevaluatedItems", TAKE_BOTH},
    {"prefixItems", TAKE_NO_SECOND},
    {"minItems", TAKE_LARGER},
    {"maxItems", TAKE_SMALLER},
    {"minLength", TAKE_LARGER},
    {"maxLength", TAKE_SMALLER},
    {"minimum", TAKE_LARGER},
    {"maximum", TAKE_SMALLER},
    {"exclusiveMinimum", TAKE_LARGER},
    {"exclusiveMaximum", TAKE_SMALLER},
    {"pattern", TAKE_NO_SECOND},
    {"format", TAKE_NO_SECOND},
};
enum { N_WORDS = sizeof WORDS / sizeof *WORDS };

bool schema_has_beside(const json_t *node, const char *word) {
    for (int i = 0; i < N_WORDS; i++)
        if (strcmp(WORDS[i].name, word) != 0 && json_object_get(node, WORDS[i].name)) return true;
    return json_object_get(node, "allOf") ||
           (strcmp(word, "$ref") != 0 && json_object_get(node, "$ref"));
}

// ---- Two values of a word -----------------------------------------------------------------------

// The list itself, or a list of the one value; owned by the caller.
static json_t *list_of(json_t *value) {
    if (json_is_array(value)) return json_copy(value);
    json_t *list = json_array();
    json_array_append(list, value);
    return list;
}

static bool is_type(const json_t *value, const char *name) {
    return json_is_string(value) && strcmp(json_string_value(value), name) == 0;
}

// The value that both allow, where an integer is a number too; NULL: none.
static json_t *common(json_t *a, json_t *b, bool types) {
    if (json_equal(a, b)) return a;
    if (types && is_type(a, "integer") && is_type(b, "number")) return a;
    return types && is_type(a, "number") && is_type(b, "integer") ? b : NULL;
}

// Values of two lists that are in both.
static json_t *common_values(json_t *one, json_t *other, bool types) {
    json_t *out = json_array(), *a = list_of(one), *b = list_of(other), *x, *y;
    size_t i, k;
    json_array_foreach(a, i, x) {
        json_array_foreach(b, k, y) {
            json_t *both = common(x, y, types);
            if (both) json_array_append(out, both);
        }
    }
    json_decref(a);
    json_decref(b);
    return out;
}

static json_t *both_of(json_t *a, json_t *b) {
    if (json_is_false(a) || json_is_true(b)) return json_incref(a);
    if (json_is_false(b) || json_is_true(a)) return json_incref(b);
    return json_equal(a, b) ? json_incref(a) : json_pack("{s:[O, O]}", "allOf", a, b);
}

static json_t *product_of(const json_t *a, const json_t *b) {
    json_t *out = json_array(), *x, *y;
    size_t i, k;
    if (json_array_size(a) * json_array_size(b) > CHOICES_MOST) return out;
    json_array_foreach(a, i, x) {
        json_array_foreach(b, k, y) json_array_append_new(out, both_of(x, y));
    }
    return out;
}

// The two values as one, owned by the caller; NULL: they cannot be joined.
static json_t *join_values(enum rule rule, json_t *old, json_t *value) {
    json_t *out = NULL;
    const double a = json_number_value(old), b = json_number_value(value);
    switch (rule) {
    case TAKE_SMALLER: out = json_incref(b < a ? value : old); break;
    case TAKE_LARGER: out = json_incref(b > a ? value : old); break;
    case TAKE_COMMON_TYPES: out = common_values(old, value, true); break;
    case TAKE_COMMON_VALUES: out = common_values(old, value, false); break;
    case TAKE_SAME: out = json_array(); break;
    case TAKE_BOTH:
        out = json_is_array(old) || json_is_array(value) ? NULL : both_of(old, value);
        break;
    case TAKE_ALL: out = json_copy(old), json_array_extend(out, value); break;
    case TAKE_PRODUCT: out = product_of(old, value); break;
    case TAKE_NO_SECOND: break;
    }
    return out;
}

// ---- Values that the other words exclude --------------------------------------------------------

static const char *type_of(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "object";
    case JSON_ARRAY: return "array";
    case JSON_STRING: return "string";
    case JSON_INTEGER: return "integer";
    case JSON_REAL: return "number";
    case JSON_NULL: return "null";
    default: return "boolean";
    }
}

// True if type, a name or a list of names, is not there or names that of the value.
static bool has_type(const json_t *value, json_t *type) {
    const char *name = type_of(value);
    json_t *list = type ? list_of(type) : NULL, *one;
    bool has = !type;
    size_t i;
    json_array_foreach(list, i, one) {
        has |= is_type(one, name) || (json_is_integer(value) && is_type(one, "number"));
    }
    json_decref(list);
    return has;
}

// Characters of a text.
static double length_of(const char *text) {
    double n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

// True if a number is not beyond the bounds that words name, as far as they are there.
static bool is_within(double value, const json_t *node, const char *least, const char *most) {
    const json_t *low = json_object_get(node, least), *high = json_object_get(node, most);
    return (!json_is_number(low) || value >= json_number_value(low)) &&
           (!json_is_number(high) || value <= json_number_value(high));
}

// True if a number is not at or beyond a bound that excludes itself. Drafts before the sixth say
// with true that minimum or maximum does.
static bool is_inside(double value, const json_t *node) {
    const json_t *low = json_object_get(node, "exclusiveMinimum"),
                 *high = json_object_get(node, "exclusiveMaximum");
    if (json_is_true(low)) low = json_object_get(node, "minimum");
    if (json_is_true(high)) high = json_object_get(node, "maximum");
    return (!json_is_number(low) || value > json_number_value(low)) &&
           (!json_is_number(high) || value < json_number_value(high));
}

static bool has_required(const json_t *value, const json_t *node) {
    const json_t *name;
    size_t i;
    json_array_foreach(json_object_get(node, "required"), i, name) {
        if (json_is_string(name) && !json_object_get(value, json_string_value(name))) return false;
    }
    return true;
}

bool schema_may_be(const json_t *node, const json_t *value) {
    const json_t *constant = json_object_get(node, "const");
    if ((constant && !json_equal(constant, value)) ||
        !has_type(value, json_object_get(node, "type")))
        return false;
    switch (json_typeof(value)) {
    case JSON_INTEGER:
    case JSON_REAL:
        return is_within(json_number_value(value), node, "minimum", "maximum") &&
               is_inside(json_number_value(value), node);
    case JSON_STRING:
        return is_within(length_of(json_string_value(value)), node, "minLength", "maxLength");
    case JSON_ARRAY: return is_within((double)json_array_size(value), node, "minItems", "maxItems");
    case JSON_OBJECT:
        return has_required(value, node) &&
               is_within((double)json_object_size(value), node, "minProperties", "maxProperties");
    default: return true;
    }
}

// Leaves those values of enum and const, as enum, that the other words allow.
static void keep_possible_values(json_t *all) {
    json_t *constant = json_object_get(all, "const"), *values = json_object_get(all, "enum"),
           *value;
    json_t *kept = json_array();
    size_t i;
    if (values)
        values = json_incref(values);
    else if (constant)
        values = json_pack("[O]", constant);
    json_array_foreach(values, i, value) {
        if (schema_may_be(all, value)) json_array_append(kept, value);
    }
    if (values) json_object_set(all, "enum", kept);
    if (values) json_object_del(all, "const");
    json_decref(values);
    json_decref(kept);
}

// ---- Schemas ------------------------------------------------------------------------------------

static enum status add_word(json_t *all, const char *name, json_t *value, struct err *e) {
    int i = 0;
    while (i < N_WORDS && strcmp(WORDS[i].name, name) != 0) i++;
    const enum rule rule = i < N_WORDS ? WORDS[i].rule : TAKE_NO_SECOND;
    if (rule == TAKE_PRODUCT) name = "anyOf";
    json_t *old = json_object_get(all, name);
    if (i == N_WORDS || !old || json_equal(old, value))
        return json_object_set(all, name, value), OK;
    json_t *joined = join_values(rule, old, value);
    if (!joined || (rule == TAKE_PRODUCT && json_array_size(joined) == 0)) {
        json_decref(joined);
        return err_set(e, ERR_UNSUPPORTED, "schema: %s stands twice for one value", name);
    }
    const bool none =
        rule == TAKE_SAME || (rule == TAKE_COMMON_TYPES && json_array_size(joined) == 0);
    if (none) // nothing meets the schema
        json_object_set_new(all, "enum", joined);
    else
        json_object_set_new(all, name, joined);
    return OK;
}

// Adds the properties of part. One that a single schema names must meet what the other schema says
// of additional ones.
static void join_properties(json_t *all, const json_t *part) {
    json_t *ours = json_object_get(all, "properties"),
           *theirs = json_object_get(part, "properties"),
           *our_other = json_object_get(all, "additionalProperties"),
           *their_other = json_object_get(part, "additionalProperties"), *out = json_object(),
           *value;
    const char *name;
    json_object_foreach(ours, name, value) {
        json_t *beside = json_object_get(theirs, name);
        if (!beside) beside = their_other;
        json_object_set_new(out, name, beside ? both_of(value, beside) : json_incref(value));
    }
    json_object_foreach(theirs, name, value) {
        if (json_object_get(ours, name)) continue;
        json_object_set_new(out, name, our_other ? both_of(value, our_other) : json_incref(value));
    }
    if (ours || theirs) json_object_set(all, "properties", out);
    json_decref(out);
}

enum status schema_refuse_loop(const json_t *part, struct err *e) {
    err_set(e, ERR_FORMAT, "schema: $ref '%.80s' leads back to itself",
            json_string_value(json_object_get(part, "$ref")));
    err_expected(e, "a part that says what a value is, by its type, enum or properties");
    return err_fix(e, "let the $ref name such a part, or take it out");
}

// A part that is being joined, and the one that refers to it or has it in allOf.
struct joining {
    const json_t *part;
    const struct joining *outer;
};

// Refuses a part that is joined within itself, or too deep.
static enum status check_depth(const struct joining *own, struct err *e) {
    const json_t *referring = NULL;
    int depth = 0;
    for (const struct joining *at = own->outer; at; at = at->outer) {
        if (json_is_string(json_object_get(at->part, "$ref"))) referring = at->part;
        if (at->part == own->part) return schema_refuse_loop(referring, e);
        if (++depth == DEPTH_MOST)
            return err_set(e, ERR_LIMIT, "the schema is too large or nested too deeply");
    }
    return OK;
}

static enum status join_part(const json_t *root, json_t *all, const json_t *part,
                             const struct joining *outer, struct err *e) {
    const struct joining own = {part, outer};
    const char *reference = json_string_value(json_object_get(part, "$ref")), *name;
    const json_t *target, *each;
    json_t *value;
    size_t i;
    if (json_is_true(part)) return OK;
    if (json_is_false(part)) return json_object_set_new(all, "enum", json_array()), OK;
    if (!json_is_object(part)) return err_set(e, ERR_FORMAT, "schema: a part is no object");
    if (check_depth(&own, e)) return e->status;
    if (reference &&
        (schema_find(root, reference, &target, e) || join_part(root, all, target, &own, e)))
        return e->status;
    json_array_foreach(json_object_get(part, "allOf"), i, each) {
        if (join_part(root, all, each, &own, e)) return e->status;
    }
    join_properties(all, part);
    json_object_foreach((json_t *)(uintptr_t)part, name, value) {
        if (strcmp(name, "allOf") == 0 || strcmp(name, "$ref") == 0 ||
            strcmp(name, "properties") == 0)
            continue;
        if (add_word(all, name, value, e)) return e->status;
    }
    return OK;
}

enum status schema_join(const json_t *root, json_t *all, const json_t *part, struct err *e) {
    if (join_part(root, all, part, NULL, e)) return e->status;
    if (json_is_object(part)) keep_possible_values(all);
    return OK;
}

static bool is_object_only(const json_t *joined) {
    const json_t *type = json_object_get(joined, "type");
    return is_type(json_array_size(type) == 1 ? json_array_get(type, 0) : type, "object");
}

// True if nothing meets what a schema says of a property that it requires.
static bool lacks_property(const json_t *root, const json_t *joined, const char *name,
                           struct schema_looks looks) {
    const json_t *property = json_object_get(json_object_get(joined, "properties"), name);
    if (!property) property = json_object_get(joined, "additionalProperties");
    json_t *own = property ? json_object() : NULL;
    struct err e;
    const bool lacks =
        own && !schema_join(root, own, property, &e) && schema_meets_nothing(root, own, looks);
    json_decref(own);
    return lacks;
}

// A schema that requires itself twice would be looked at twice as often at every depth.
bool schema_meets_nothing(const json_t *root, const json_t *joined, struct schema_looks looks) {
    const json_t *values = json_object_get(joined, "enum"), *name;
    bool nothing = json_is_array(values) && json_array_size(values) == 0;
    size_t i;
    if (looks.depth++ == LOOKS_DEEP || !is_object_only(joined)) return nothing;
    json_array_foreach(json_object_get(joined, "required"), i, name) {
        if (nothing || *looks.n_left <= 0) break;
        --*looks.n_left;
        nothing =
            json_is_string(name) && lacks_property(root, joined, json_string_value(name), looks);
    }
    return nothing;
}
