/* schema_words.c: see schema_words.h. */
#include "runtime/grammar/schema_words.h"

#include "runtime/grammar/schema_join.h"

#include <math.h>
#include <string.h>

void schema_words_tell(struct schema_words *w, const char *word) {
    for (uint32_t i = 0; i < w->n_told; i++)
        if (w->told[i] == word) return;
    if (w->n_told < SCHEMA_WORDS_MOST) w->told[w->n_told++] = word;
    log_line(w->log, LOG_WARN, "schema: %s is not obeyed", word);
}

bool schema_is_count(const json_t *value) {
    const double number = json_number_value(value);
    return json_is_number(value) && number >= 0 && number <= 1e15 && floor(number) >= number;
}

// ---- Words ------------------------------------------------------------------------------------

enum kind { OBEYED_NEVER, COUNT, NUMBER, LIMIT, TEXT, LIST, OBJECT, SCHEMA };

static const struct {
    const char *name;
    enum kind kind; // of the values that are obeyed
} WORDS[] = {
    {"not", OBEYED_NEVER},
    {"patternProperties", OBEYED_NEVER},
    {"uniqueItems", OBEYED_NEVER},
    {"contains", OBEYED_NEVER}, // minContains and maxContains go with it
    {"multipleOf", OBEYED_NEVER},
    {"minProperties", OBEYED_NEVER},
    {"maxProperties", OBEYED_NEVER},
    {"dependencies", OBEYED_NEVER},
    {"dependentRequired", OBEYED_NEVER},
    {"dependentSchemas", OBEYED_NEVER},
    {"propertyNames", OBEYED_NEVER},
    {"$dynamicRef", OBEYED_NEVER},
    {"$recursiveRef", OBEYED_NEVER},
    {"minItems", COUNT},
    {"maxItems", COUNT},
    {"minLength", COUNT},
    {"maxLength", COUNT},
    {"minimum", NUMBER},
    {"maximum", NUMBER},
    {"exclusiveMinimum", LIMIT},
    {"exclusiveMaximum", LIMIT},
    {"pattern", TEXT},
    {"$ref", TEXT},
    {"allOf", LIST},
    {"prefixItems", LIST},
    {"required", LIST},
    {"properties", OBJECT},
    {"additionalProperties", SCHEMA},
    {"unevaluatedProperties", SCHEMA},
};

static bool is_of_kind(const json_t *value, enum kind kind) {
    switch (kind) {
    case COUNT: return schema_is_count(value);
    case NUMBER: return json_is_number(value);
    case LIMIT: return json_is_number(value) || json_is_boolean(value);
    case TEXT: return json_is_string(value);
    case LIST: return json_is_array(value);
    case OBJECT: return json_is_object(value);
    case SCHEMA: return json_is_object(value) || json_is_boolean(value);
    default: return json_is_false(value); // not and uniqueItems ask for nothing then
    }
}

static void check_words(struct schema_words *w, const json_t *node) {
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++) {
        const json_t *value = json_object_get(node, WORDS[i].name);
        if (value && !is_of_kind(value, WORDS[i].kind)) schema_words_tell(w, WORDS[i].name);
    }
    if (json_object_get(node, "if") &&
        (json_object_get(node, "then") || json_object_get(node, "else")))
        schema_words_tell(w, "if");
}

void schema_words_check_values(struct schema_words *w, const json_t *node) {
    static const struct {
        const char *name;
        json_type type; // of values that it may exclude
    } words[] = {
        {"pattern", JSON_STRING},
        {"format", JSON_STRING},
        {"items", JSON_ARRAY},
        {"prefixItems", JSON_ARRAY},
        {"additionalItems", JSON_ARRAY},
        {"unevaluatedItems", JSON_ARRAY},
        {"properties", JSON_OBJECT},
        {"additionalProperties", JSON_OBJECT},
        {"unevaluatedProperties", JSON_OBJECT},
    };
    const json_t *list = json_object_get(node, "enum"), *value;
    const json_t *constant = json_object_get(node, "const");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        bool may_exclude = constant && json_typeof(constant) == words[i].type;
        size_t k;
        json_array_foreach(list, k, value) { may_exclude |= json_typeof(value) == words[i].type; }
        if (may_exclude && json_object_get(node, words[i].name))
            schema_words_tell(w, words[i].name);
    }
}

// ---- Choices that exclude one another -----------------------------------------------------------

enum { CHOICES_MOST = 64, DEPTH_MOST = 32 };

// True if no text meets a, b and the words beside them.
static bool are_apart(struct schema_words *w, const json_t *root, const json_t *beside,
                      const json_t *a, const json_t *b) {
    struct err e;
    if (w->n_looks <= 0) return false;
    w->n_looks--;
    json_t *all = json_object();
    const bool apart = all && !schema_join(root, all, beside, &e) &&
                       !schema_join(root, all, a, &e) && !schema_join(root, all, b, &e) &&
                       schema_meets_nothing(root, all, (struct schema_looks){&w->n_looks, 0});
    json_decref(all);
    return apart;
}

static void check_one_of(struct schema_words *w, const json_t *root, const json_t *node) {
    const json_t *choices = json_object_get(node, "oneOf");
    const size_t n = json_array_size(choices);
    bool apart = n <= CHOICES_MOST;
    json_t *beside = n > 1 ? json_copy((json_t *)(uintptr_t)node) : NULL;
    if (!beside) return;
    json_object_del(beside, "oneOf");
    for (size_t i = 0; apart && i < n; i++)
        for (size_t k = i + 1; apart && k < n; k++)
            apart =
                are_apart(w, root, beside, json_array_get(choices, i), json_array_get(choices, k));
    if (!apart) schema_words_tell(w, "oneOf, where several of its choices are met,");
    json_decref(beside);
}

// ---- A schema -----------------------------------------------------------------------------------

// Returns false if the schema is nested too deeply, which joining it refuses.
static bool check_part(struct schema_words *w, const json_t *root, const json_t *node, int depth) {
    const char *reference = json_string_value(json_object_get(node, "$ref"));
    const json_t *target, *each;
    struct err e;
    size_t i;
    if (depth == DEPTH_MOST) return false;
    check_words(w, node);
    check_one_of(w, root, node);
    // They are obeyed as if they saw all that is joined.
    static const char *const words[] = {"unevaluatedProperties", "unevaluatedItems"};
    for (size_t k = 0; depth > 0 && k < 2; k++)
        if (json_object_get(node, words[k])) schema_words_tell(w, words[k]);
    if (reference && schema_has_beside(node, "$ref") &&
        !schema_find(root, reference, &target, &e) && !check_part(w, root, target, depth + 1))
        return false;
    json_array_foreach(json_object_get(node, "allOf"), i, each) {
        if (!check_part(w, root, each, depth + 1)) return false;
    }
    return true;
}

void schema_words_check(struct schema_words *w, const json_t *root, const json_t *node) {
    if (w->log) check_part(w, root, node, 0);
}
