/* grammar_schema.c: see grammar_schema.h. Each schema becomes a rule with a number; a schema that
 * refers to itself refers to its rule. */
#include "runtime/grammar/grammar_schema.h"

#include "base/mem.h"
#include "runtime/grammar/grammar.h"
#include "runtime/grammar/schema_join.h"
#include "runtime/grammar/schema_number.h"
#include "runtime/grammar/schema_text.h"
#include "runtime/grammar/schema_words.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NODES_MOST = 4096, DEPTH_MOST = 64, MERGED_MOST = 1024 };
// A rule has one $ref at most, and is a choice of one other at most.
enum { LINKS_MOST = 2 * NODES_MOST };

struct schema {
    const json_t *root;
    const json_t *nodes[NODES_MOST]; // that have a rule, by its number
    uint32_t n_nodes, rule;          // the number of the rule that is being written
    struct {
        uint32_t from, to;
    } links[LINKS_MOST]; // rules that are another rule, alone or as a choice
    uint32_t n_links;
    json_t *merged[MERGED_MOST]; // joined schemas and properties; owned
    uint32_t n_merged;
    int depth;
    struct schema_text *out;
    struct schema_words words;
    struct err *e;
};

static enum status write_node(struct schema *s, const json_t *node, struct schema_text *line);

// The number of a schema's rule, or n_nodes.
static uint32_t rule_of(const struct schema *s, const json_t *node) {
    uint32_t rule = 0;
    while (rule < s->n_nodes && s->nodes[rule] != node) rule++;
    return rule;
}

// Writes the rule of a schema unless it is written, and its name to line.
static enum status refer(struct schema *s, const json_t *node, struct schema_text *line) {
    const uint32_t rule = rule_of(s, node), outer = s->rule;
    schema_text_add(line, "r%u", rule);
    if (rule < s->n_nodes) return OK;
    if (s->n_nodes == NODES_MOST || s->depth == DEPTH_MOST)
        return err_set(s->e, ERR_LIMIT, "the schema is too large or nested too deeply");
    s->nodes[s->n_nodes++] = node;
    s->rule = rule;
    s->depth++;
    struct schema_text own = {0};
    const enum status status = write_node(s, node, &own);
    if (!status) schema_text_add(s->out, "r%u ::= %s\n", rule, own.bytes ? own.bytes : "");
    s->out->refused |= own.refused;
    schema_text_close(&own);
    s->depth--;
    s->rule = outer;
    return status;
}

// ---- Loops --------------------------------------------------------------------------------------

// Refers to a schema in place of the one that is being written.
static enum status refer_instead(struct schema *s, const json_t *node, struct schema_text *line) {
    if (refer(s, node, line)) return s->e->status;
    if (json_is_boolean(node)) return OK; // one node for many places, and it ends there
    ASSERT(s->n_links < LINKS_MOST);
    s->links[s->n_links].from = s->rule;
    s->links[s->n_links++].to = rule_of(s, node);
    return OK;
}

// The rule to which the first link leads that does not end.
static uint32_t next_endless(const struct schema *s, const bool *ends, uint32_t rule) {
    uint32_t i = 0;
    while (i < s->n_links && (s->links[i].from != rule || ends[s->links[i].to])) i++;
    ASSERT(i < s->n_links);
    return s->links[i].to;
}

// Refuses schemas that lead back to themselves before anything is written, as {"$ref": "#"} does:
// no text would be known to meet them.
static enum status check_loops(const struct schema *s) {
    bool ends[NODES_MOST] = {false}; // all links from there lead to rules that end
    uint32_t rule = 0;
    for (bool more = true; more;) {
        bool waits[NODES_MOST] = {false};
        more = false;
        for (uint32_t i = 0; i < s->n_links; i++) waits[s->links[i].from] |= !ends[s->links[i].to];
        for (uint32_t r = 0; r < s->n_nodes; r++)
            if (!ends[r] && !waits[r]) ends[r] = more = true;
    }
    while (rule < s->n_nodes && ends[rule]) rule++;
    if (rule == s->n_nodes) return OK;
    for (uint32_t i = 0; i < s->n_nodes; i++) rule = next_endless(s, ends, rule); // into the loop
    while (!json_object_get(s->nodes[rule], "$ref")) rule = next_endless(s, ends, rule);
    return schema_refuse_loop(s->nodes[rule], s->e);
}

// ---- Values -------------------------------------------------------------------------------------

static enum status write_constant(struct schema *s, const json_t *value, struct schema_text *line) {
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text) return err_set(s->e, ERR_FORMAT, "schema: a constant cannot be written");
    schema_text_literal(line, text, strlen(text));
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(text);
    return OK;
}

static enum status refuse_no_choices(struct schema *s) {
    return err_set(s->e, ERR_FORMAT, "schema: enum, anyOf or oneOf without choices");
}

static enum status refuse_unmet(struct schema *s) {
    return err_set(s->e, ERR_FORMAT, "schema: nothing meets all of it");
}

static enum status write_choices(struct schema *s, const json_t *list, struct schema_text *line) {
    size_t i;
    json_t *choice;
    if (!json_is_array(list) || json_array_size(list) == 0) return refuse_no_choices(s);
    json_array_foreach(list, i, choice) {
        schema_text_add(line, i ? " | " : "");
        if (refer_instead(s, choice, line)) return s->e->status;
    }
    return OK;
}

// Writes those values of enum, or that of const, that the words beside them allow.
static enum status write_values(struct schema *s, const json_t *node, struct schema_text *line) {
    const json_t *list = json_object_get(node, "enum"), *constant = json_object_get(node, "const");
    const json_t *value;
    size_t i, n = 0;
    schema_words_check_values(&s->words, node);
    if (list && (!json_is_array(list) || json_array_size(list) == 0)) return refuse_no_choices(s);
    if (!list)
        return schema_may_be(node, constant) ? write_constant(s, constant, line) : refuse_unmet(s);
    json_array_foreach(list, i, value) {
        if (!schema_may_be(node, value)) continue;
        schema_text_add(line, n++ ? " | " : "");
        if (write_constant(s, value, line)) return s->e->status;
    }
    return n > 0 ? OK : refuse_unmet(s);
}

// A whole number from 0 on in node, or usual.
static int64_t count_of(const json_t *node, const char *name, int64_t usual) {
    const json_t *value = json_object_get(node, name);
    return schema_is_count(value) ? (int64_t)json_number_value(value) : usual;
}

// Refuses a least count that no repetition of a grammar has.
static enum status check_least(const json_t *node, const char *name, struct err *e) {
    const int64_t least = count_of(node, name, 0);
    if (least <= GRAMMAR_REPEATS) return OK;
    err_set(e, ERR_LIMIT, "schema: %s", name);
    err_expected(e, "at most %d", GRAMMAR_REPEATS);
    return err_actual(e, "%lld", (long long)least);
}

// Repeats what stands before, as word says. A bound that no grammar can count to is told.
static void write_times(struct schema *s, struct schema_text *line, const char *word, int64_t least,
                        int64_t most) {
    if (most > GRAMMAR_REPEATS) schema_words_tell(&s->words, word);
    if (most < 0 || most > GRAMMAR_REPEATS)
        schema_text_add(line, "{%lld,}", (long long)least);
    else
        schema_text_add(line, "{%lld,%lld}", (long long)least, (long long)most);
}

static void warn_of(struct schema *s, const json_t *node, const char *word) {
    if (json_object_get(node, word)) schema_words_tell(&s->words, word);
}

// The name of a format that has a rule, or NULL. Fills *unknown with true if JSON Schema names it,
// but it has none.
static const char *known_format(const json_t *node, bool *unknown) {
    static const char *const formats[] = {
        "date",     "time",         "date-time",     "uuid", // these have rules
        "duration", "email",        "idn-email",     "hostname",     "idn-hostname",
        "ipv4",     "ipv6",         "uri",           "uri-template", "uri-reference",
        "iri",      "json-pointer", "iri-reference", "regex",        "relative-json-pointer"};
    enum { RULES = 4 };
    const char *format = json_string_value(json_object_get(node, "format"));
    size_t i = 0;
    while (format && i < sizeof formats / sizeof *formats && strcmp(format, formats[i]) != 0) i++;
    *unknown = format && i >= RULES && i < sizeof formats / sizeof *formats;
    return format && i < RULES ? formats[i] : NULL;
}

// One grammar cannot count what another one takes: a pattern or a format goes before a length.
static enum status write_string(struct schema *s, const json_t *node, struct schema_text *line) {
    const char *pattern = json_string_value(json_object_get(node, "pattern"));
    bool unknown;
    const char *format = known_format(node, &unknown);
    if (unknown || (pattern && format)) warn_of(s, node, "format");
    if (pattern || format) {
        warn_of(s, node, "minLength");
        warn_of(s, node, "maxLength");
    }
    if (pattern) return schema_text_pattern(line, pattern, s->e);
    if (format) {
        schema_text_add(line, "\"\\\"\" %s \"\\\"\"", format);
        return OK;
    }
    const int64_t least = count_of(node, "minLength", 0), most = count_of(node, "maxLength", -1);
    if (check_least(node, "minLength", s->e)) return s->e->status;
    if (most >= 0 && most < least)
        return err_set(s->e, ERR_FORMAT, "schema: maxLength is below minLength");
    schema_text_add(line, "\"\\\"\" char");
    write_times(s, line, "maxLength above 2000", least, most);
    schema_text_add(line, " \"\\\"\"");
    return OK;
}

// The tighter one of two bounds. Drafts before the sixth say with true that the first is exclusive.
static struct schema_bound bound_of(const json_t *node, const char *name, const char *exclusive,
                                    bool is_low) {
    const json_t *value = json_object_get(node, name), *other = json_object_get(node, exclusive);
    const double here = json_number_value(value), there = json_number_value(other);
    struct schema_bound out = {json_is_number(value), json_is_true(other), here};
    if (json_is_number(other) && (!out.exists || (is_low ? there >= here : there <= here)))
        out = (struct schema_bound){true, true, there};
    return out;
}

static void read_bounds(const json_t *node, struct schema_bound *low, struct schema_bound *high) {
    *low = bound_of(node, "minimum", "exclusiveMinimum", true);
    *high = bound_of(node, "maximum", "exclusiveMaximum", false);
}

// The whole number next to a bound, on its inner side.
static double whole_within(const struct schema_bound *bound, bool is_low) {
    const double value = is_low ? ceil(bound->value) : floor(bound->value);
    const bool itself = value >= bound->value && value <= bound->value;
    return bound->exclusive && itself ? value + (is_low ? 1 : -1) : value;
}

// Refuses a bound beyond 2^53 - 1, where a double may stand for two whole numbers.
static enum status check_whole(const struct schema_bound *bound, struct err *e) {
    static const double most = 9007199254740991;
    if (!bound->exists || fabs(bound->value) <= most) return OK;
    err_set(e, ERR_UNSUPPORTED, "schema: a bound of an integer beyond 2^53 - 1");
    err_expected(e, "%.0f to %.0f", -most, most);
    return err_actual(e, "%.17g", bound->value);
}

static enum status write_integer(struct schema *s, const json_t *node, struct schema_text *line) {
    struct schema_bound low, high;
    read_bounds(node, &low, &high);
    if (!low.exists && !high.exists) {
        schema_text_add(line, "integer");
        return OK;
    }
    if (check_whole(&low, s->e) || check_whole(&high, s->e)) return s->e->status;
    const double first = low.exists ? whole_within(&low, true) : 0;
    const double last = high.exists ? whole_within(&high, false) : 0;
    if (low.exists && high.exists && first > last)
        return err_set(s->e, ERR_FORMAT, "schema: maximum is below minimum");
    schema_text_range(line, low.exists, (int64_t)first, high.exists, (int64_t)last);
    return OK;
}

static enum status write_number(struct schema *s, const json_t *node, struct schema_text *line) {
    struct schema_bound low, high;
    read_bounds(node, &low, &high);
    if (low.exists || high.exists) return schema_text_number(line, &low, &high, s->e);
    schema_text_add(line, "number");
    return OK;
}

// ---- Arrays -------------------------------------------------------------------------------------

static enum status write_array(struct schema *s, const json_t *node, struct schema_text *line) {
    const json_t *first = json_object_get(node, "prefixItems"),
                 *items = json_object_get(node, "items");
    if (!first && json_is_array(items)) { // so drafts before 2020-12 say it
        first = items;
        items = json_object_get(node, "additionalItems");
    }
    if (!items) items = json_object_get(node, "unevaluatedItems");
    const int64_t n_first = (int64_t)json_array_size(first);
    int64_t least = count_of(node, "minItems", 0), most = count_of(node, "maxItems", -1);
    if (check_least(node, "minItems", s->e)) return s->e->status;
    if (json_is_false(items) && (most < 0 || most > n_first)) most = n_first;
    if ((most >= 0 && most < least) || (most >= 0 && n_first > most))
        return err_set(s->e, ERR_FORMAT, "schema: maxItems is too small");
    schema_text_add(line, "\"[\" space ");
    for (int64_t i = 0; i < n_first; i++) { // all of them are written
        schema_text_add(line, i ? "\",\" space " : "");
        if (refer(s, json_array_get(first, (size_t)i), line)) return s->e->status;
        schema_text_add(line, " space ");
    }
    struct schema_text item = {0};
    enum status status = OK;
    if (items && !json_is_boolean(items))
        status = refer(s, items, &item);
    else
        schema_text_add(&item, "value");
    least = least > n_first ? least - n_first : 0;
    most = most < 0 ? -1 : most - n_first;
    if (!status && most != 0 && n_first > 0) {
        schema_text_add(line, "(\",\" space %s space)", item.bytes);
        write_times(s, line, "maxItems above 2000", least, most);
    } else if (!status && most != 0) {
        schema_text_add(line, "(%s space (\",\" space %s space)", item.bytes, item.bytes);
        write_times(s, line, "maxItems above 2000", least > 1 ? least - 1 : 0,
                    most < 0 ? -1 : most - 1);
        schema_text_add(line, ")%s", least > 0 ? "" : "?");
    }
    schema_text_add(line, " \"]\"");
    line->refused |= item.refused;
    schema_text_close(&item);
    return status;
}

// ---- Objects ------------------------------------------------------------------------------------

// The schema of properties that have none by their name, or NULL.
static json_t *additional_of(const json_t *node) {
    json_t *additional = json_object_get(node, "additionalProperties");
    return additional ? additional : json_object_get(node, "unevaluatedProperties");
}

static bool is_required(const json_t *node, const char *name) {
    size_t i;
    const json_t *text;
    json_array_foreach(json_object_get(node, "required"), i, text) {
        const char *one = json_string_value(text);
        if (one && strcmp(one, name) == 0) return true;
    }
    return false;
}

static enum status write_property(struct schema *s, const char *name, const json_t *node,
                                  struct schema_text *line) {
    json_t *key = json_string(name);
    if (!key) return err_memory(s->e, strlen(name), "the schema");
    const enum status status = write_constant(s, key, line);
    json_decref(key);
    schema_text_add(line, " space \":\" space ");
    return status ? status : refer(s, node, line);
}

// Other keys are spelled without escapes, so that they can be told from the known ones.
static enum status write_additional(struct schema *s, const json_t *node, const json_t *known,
                                    struct schema_text *line) {
    const json_t *additional = additional_of(node);
    schema_text_add(line, "\"\\\"\" ");
    const char *names[SCHEMA_KEYS_MOST];
    const char *name;
    json_t *value;
    int n = 0;
    json_object_foreach((json_t *)(uintptr_t)known, name, value) {
        if (n == SCHEMA_KEYS_MOST)
            return err_set(s->e, ERR_LIMIT, "schema: more than %d properties", SCHEMA_KEYS_MOST);
        names[n++] = name;
    }
    if (schema_text_other_keys(line, names, n, s->e)) return s->e->status;
    schema_text_add(line, " \"\\\"\" space \":\" space ");
    if (json_is_object(additional)) return refer(s, additional, line);
    schema_text_add(line, "value");
    return OK;
}

// Writes rules for the properties from the last one back: oI_0 where none came before, oI_1 where
// one did. Each goes on with the rule of the next. No text has a property whose schema is false.
static enum status write_chain(struct schema *s, const json_t *node, const json_t *properties,
                               uint32_t number, struct schema_text *line) {
    const char *name;
    json_t *value;
    uint32_t i = 0;
    json_object_foreach((json_t *)(uintptr_t)properties, name, value) {
        struct schema_text own = {0};
        const bool required = is_required(node, name), may_be = !json_is_false(value);
        if (required && !may_be) return refuse_unmet(s);
        if (may_be && write_property(s, name, value, &own))
            return schema_text_close(&own), s->e->status;
        for (int came = 0; came < 2; came++) {
            schema_text_add(s->out, "o%u-%u-%d ::= ", number, i, came);
            if (may_be)
                schema_text_add(s->out, "%s%s space o%u-%u-1", came ? "\",\" space " : "",
                                own.bytes, number, i + 1);
            if (!required)
                schema_text_add(s->out, "%so%u-%u-%d", may_be ? " | " : "", number, i + 1, came);
            schema_text_add(s->out, "\n");
        }
        s->out->refused |= own.refused;
        schema_text_close(&own);
        i++;
    }
    schema_text_add(line, "\"{\" space o%u-0-0 \"}\"", number);
    const json_t *additional = additional_of(node);
    struct schema_text other = {0};
    enum status status = OK;
    if (additional && !json_is_false(additional)) {
        status = write_additional(s, node, properties, &other);
        schema_text_add(s->out, "p%u ::= %s space\n", number, other.bytes ? other.bytes : "");
        schema_text_add(s->out, "o%u-%u-0 ::= (p%u (\",\" space p%u)*)?\n", number, i, number,
                        number);
        schema_text_add(s->out, "o%u-%u-1 ::= (\",\" space p%u)*\n", number, i, number);
    } else
        for (int came = 0; came < 2; came++)
            schema_text_add(s->out, "o%u-%u-%d ::= \"\"\n", number, i, came);
    s->out->refused |= other.refused;
    schema_text_close(&other);
    return status;
}

static enum status write_object(struct schema *s, const json_t *node, struct schema_text *line) {
    const json_t *properties = json_object_get(node, "properties");
    json_t *other = additional_of(node);
    const uint32_t number = s->n_nodes;
    size_t i;
    const json_t *name;
    if (!properties && !other && !json_object_get(node, "required")) {
        schema_text_add(line, "object");
        return OK;
    }
    if (!json_is_object(other) && !json_is_false(other)) other = json_true();
    json_t *all = properties ? json_copy((json_t *)(uintptr_t)properties) : json_object();
    if (!all || s->n_merged == MERGED_MOST) {
        json_decref(all);
        return err_set(s->e, ERR_LIMIT, "the schema is too large");
    }
    s->merged[s->n_merged++] = all;
    json_array_foreach(json_object_get(node, "required"), i,
                       name) if (json_string_value(name) &&
                                 !json_object_get(all, json_string_value(name)))
        json_object_set(all, json_string_value(name), other);
    return write_chain(s, node, all, number, line);
}

// ---- Any schema ---------------------------------------------------------------------------------

static enum status write_type(struct schema *s, const json_t *node, const char *type,
                              struct schema_text *line) {
    if (strcmp(type, "object") == 0) return write_object(s, node, line);
    if (strcmp(type, "array") == 0) return write_array(s, node, line);
    if (strcmp(type, "string") == 0) return write_string(s, node, line);
    if (strcmp(type, "integer") == 0) return write_integer(s, node, line);
    if (strcmp(type, "number") == 0) return write_number(s, node, line);
    if (strcmp(type, "boolean") != 0 && strcmp(type, "null") != 0)
        return err_set(s->e, ERR_FORMAT, "schema: no type '%.40s'", type);
    schema_text_add(line, "%s", type);
    return OK;
}

static const char *implied_type(const json_t *node) {
    static const char *const words[][2] = {
        {"properties", "object"},      {"additionalProperties", "object"},
        {"unevaluatedItems", "array"}, {"unevaluatedProperties", "object"},
        {"required", "object"},        {"items", "array"},
        {"prefixItems", "array"},      {"minItems", "array"},
        {"maxItems", "array"},         {"pattern", "string"},
        {"format", "string"},          {"minLength", "string"},
        {"maxLength", "string"},       {"minimum", "number"},
        {"maximum", "number"},         {"exclusiveMinimum", "number"},
        {"exclusiveMaximum", "number"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (json_object_get(node, words[i][0])) return words[i][1];
    return NULL;
}

static enum status write_types(struct schema *s, const json_t *node, struct schema_text *line) {
    const json_t *type = json_object_get(node, "type"), *one;
    const char *name = type ? json_string_value(type) : implied_type(node);
    size_t i;
    if (json_is_array(type) && json_array_size(type) > 0) {
        json_array_foreach(type, i, one) {
            schema_text_add(line, i ? " | " : "");
            if (!json_is_string(one)) return err_set(s->e, ERR_FORMAT, "schema: a type is no text");
            if (write_type(s, node, json_string_value(one), line)) return s->e->status;
        }
        return OK;
    }
    if (type && !name) return err_set(s->e, ERR_FORMAT, "schema: a type is no text");
    if (name) return write_type(s, node, name, line);
    schema_text_add(line, "value");
    return OK;
}

// An empty schema that s owns, or NULL.
static json_t *new_node(struct schema *s) {
    json_t *node = s->n_merged < MERGED_MOST ? json_object() : NULL;
    if (node)
        s->merged[s->n_merged++] = node;
    else
        err_set(s->e, ERR_LIMIT, "the schema is too large");
    return node;
}

// Writes choices of a joined schema, each joined with what stands beside them. Those that nothing
// can meet are left out.
static enum status write_joined_choices(struct schema *s, json_t *all, struct schema_text *line) {
    json_t *any = json_incref(json_object_get(all, "anyOf")), *choice;
    const struct schema_looks looks = {&s->words.n_looks, 0};
    size_t i, n = 0;
    json_object_del(all, "anyOf");
    enum status status = json_is_array(any) ? OK : refuse_no_choices(s);
    json_array_foreach(any, i, choice) {
        json_t *each = status ? NULL : new_node(s);
        if (!each || schema_join(s->root, each, all, s->e) ||
            schema_join(s->root, each, choice, s->e)) {
            status = s->e->status;
            break;
        }
        if (schema_meets_nothing(s->root, each, looks)) continue;
        schema_text_add(line, n++ ? " | " : "");
        status = refer(s, each, line);
    }
    json_decref(any);
    return status || n > 0 ? status : refuse_unmet(s);
}

// Writes a schema with allOf, or with words beside $ref or its choices.
static enum status write_joined(struct schema *s, const json_t *node, struct schema_text *line) {
    json_t *all = new_node(s);
    if (!all || schema_join(s->root, all, node, s->e)) return s->e->status;
    if (schema_meets_nothing(s->root, all, (struct schema_looks){&s->words.n_looks, 0}))
        return refuse_unmet(s);
    return json_object_get(all, "anyOf") ? write_joined_choices(s, all, line)
                                         : write_node(s, all, line);
}

static enum status write_node(struct schema *s, const json_t *node, struct schema_text *line) {
    const char *reference = json_string_value(json_object_get(node, "$ref"));
    const json_t *target;
    const char *choices = json_object_get(node, "anyOf") ? "anyOf" : "oneOf";
    const json_t *any = json_object_get(node, choices);
    if (json_is_true(node)) return schema_text_add(line, "value"), OK;
    if (!json_is_object(node)) return err_set(s->e, ERR_FORMAT, "schema: a part is no object");
    schema_words_check(&s->words, s->root, node);
    if (reference && !schema_has_beside(node, "$ref"))
        return schema_find(s->root, reference, &target, s->e) ? s->e->status
                                                              : refer_instead(s, target, line);
    if (any && !schema_has_beside(node, choices)) return write_choices(s, any, line);
    if (reference || any || json_object_get(node, "allOf")) return write_joined(s, node, line);
    if (json_object_get(node, "enum") || json_object_get(node, "const"))
        return write_values(s, node, line);
    return write_types(s, node, line);
}

// ---- The whole ----------------------------------------------------------------------------------

static enum status add_part(struct schema *s, size_t i, const struct grammar_part *part) {
    struct schema_text line = {0};
    s->root = part->root;
    const enum status status = refer(s, part->node, &line);
    if (!status) schema_text_add(s->out, "schema%zu ::= %s\n", i, line.bytes ? line.bytes : "");
    s->out->refused |= line.refused;
    schema_text_close(&line);
    return status;
}

enum status grammar_add_schemas(struct schema_text *out, const struct grammar_part *parts, size_t n,
                                const struct log *log, struct err *e) {
    struct schema *s = mem_alloc(1, sizeof *s);
    enum status status = OK;
    if (!s) return err_memory(e, sizeof *s, "the schema");
    s->words = (struct schema_words){.log = log, .n_looks = SCHEMA_LOOKS_MOST};
    s->e = e;
    s->out = out;
    for (size_t i = 0; i < n && !status; i++) status = add_part(s, i, &parts[i]);
    if (!status) status = check_loops(s);
    schema_text_primitives(out);
    if (!status && out->refused) status = err_memory(e, out->length, "the grammar of a schema");
    while (s->n_merged > 0) json_decref(s->merged[--s->n_merged]);
    mem_free(s);
    return status;
}

enum status grammar_from_schema(char **out, const char *json, size_t length, const struct log *log,
                                struct err *e) {
    json_error_t where;
    struct schema_text text = {0};
    *out = NULL;
    json_t *root = json_loadb(json, length, JSON_REJECT_DUPLICATES, &where);
    if (!root) return err_set(e, ERR_FORMAT, "schema, line %d: %s", where.line, where.text);
    const struct grammar_part part = {root, root};
    schema_text_add(&text, "root ::= schema0\n");
    const enum status status = grammar_add_schemas(&text, &part, 1, log, e);
    if (status)
        schema_text_close(&text);
    else
        *out = text.bytes;
    json_decref(root);
    return status;
}
