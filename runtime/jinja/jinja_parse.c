/* jinja_parse.c: see jinja_parse.h. The functions from parse_or down follow the precedence of
 * operators, the weakest first.
 */
#include "runtime/jinja/jinja_parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// ---- Tokens -------------------------------------------------------------------------------------

struct jinja_node *jinja_parse_node(struct jinja_parse *p, enum jinja_node_kind kind) {
    struct jinja_node *node = jinja_heap_take(p->heap, sizeof *node);
    if (!node) return NULL;
    node->kind = kind;
    node->line = p->heap->line = p->token->line;
    return node;
}

bool jinja_parse_sees(const struct jinja_parse *p, enum jinja_token_kind kind, const char *text) {
    return p->token->kind == kind && (!text || jinja_text_equal(p->token->text, text));
}

bool jinja_parse_accept(struct jinja_parse *p, enum jinja_token_kind kind, const char *text) {
    if (!jinja_parse_sees(p, kind, text)) return false;
    if (p->token->kind != LEX_END) p->token++;
    return true;
}

bool jinja_parse_expect(struct jinja_parse *p, enum jinja_token_kind kind, const char *text) {
    static const char *const names[] = {
        [LEX_END] = "the end",    [LEX_OUTSIDE] = "text",         [LEX_PRINT_BEGIN] = "{{",
        [LEX_PRINT_END] = "}}",   [LEX_BLOCK_BEGIN] = "{%",       [LEX_BLOCK_END] = "%}",
        [LEX_NAME] = "a name",    [LEX_STRING] = "a text",        [LEX_INT] = "a number",
        [LEX_FLOAT] = "a number", [LEX_OPERATOR] = "an operator",
    };
    if (jinja_parse_accept(p, kind, text)) return !jinja_failed(p->heap);
    const struct jinja_text got = p->token->text;
    p->heap->line = p->token->line;
    jinja_fail(p->heap, "%s is expected, got %s %.*s", text ? text : names[kind],
               names[p->token->kind], (int)(got.length < 40 ? got.length : 40), got.bytes);
    return false;
}

struct jinja_text jinja_parse_name(struct jinja_parse *p) {
    const struct jinja_text name = p->token->text;
    jinja_parse_expect(p, LEX_NAME, NULL);
    return name;
}

static bool sees(const struct jinja_parse *p, const char *operator) {
    return jinja_parse_sees(p, LEX_OPERATOR, operator);
}
static bool accept(struct jinja_parse *p, const char *operator) {
    return jinja_parse_accept(p, LEX_OPERATOR, operator);
}
static bool sees_word(const struct jinja_parse *p, const char *word) {
    return jinja_parse_sees(p, LEX_NAME, word);
}
static bool accept_word(struct jinja_parse *p, const char *word) {
    return jinja_parse_accept(p, LEX_NAME, word);
}

// Links node behind *last, the next member of the one before or the head of the list.
static const struct jinja_node **link(const struct jinja_node **last, struct jinja_node *node) {
    *last = node;
    return node ? &node->next : last;
}

static struct jinja_node *binary(struct jinja_parse *p, enum jinja_node_kind kind,
                                 struct jinja_node *a, struct jinja_node *b) {
    struct jinja_node *node = jinja_parse_node(p, kind);
    if (!node || !a || !b) return NULL;
    node->a = a;
    node->b = b;
    return node;
}

// ---- Primaries ----------------------------------------------------------------------------------

static struct jinja_node *literal(struct jinja_parse *p, struct jinja_value value) {
    struct jinja_node *node = jinja_parse_node(p, NODE_LITERAL);
    if (node) node->value = value;
    return node;
}

static struct jinja_node *parse_number(struct jinja_parse *p) {
    char text[64] = "";
    const struct jinja_token *t = p->token++;
    if (t->text.length >= sizeof text) {
        jinja_fail(p->heap, "a number is too long");
        return NULL;
    }
    memcpy(text, t->text.bytes, t->text.length);
    errno = 0;
    const struct jinja_value value =
        t->kind == LEX_FLOAT ? jinja_float(strtod(text, NULL)) : jinja_int(strtoll(text, NULL, 10));
    if (errno) jinja_fail(p->heap, "the number %s is too large", text);
    return literal(p, value);
}

// Strings next to each other are one.
static struct jinja_node *parse_strings(struct jinja_parse *p) {
    const struct jinja_text first = p->token++->text;
    if (p->token->kind != LEX_STRING) return literal(p, jinja_of_text(first));
    struct jinja_builder b = {0};
    jinja_builder_add(p->heap, &b, first);
    while (p->token->kind == LEX_STRING) jinja_builder_add(p->heap, &b, p->token++->text);
    const struct jinja_text all = jinja_builder_text(&b).text;
    return literal(p, jinja_of_text(jinja_text(all.bytes, all.length, false)));
}

static struct jinja_node *parse_word(struct jinja_parse *p) {
    static const struct {
        const char *text;
        struct jinja_value value;
    } words[] = {
        {"true", {.kind = JINJA_BOOL, .truth = true}},
        {"True", {.kind = JINJA_BOOL, .truth = true}},
        {"false", {.kind = JINJA_BOOL}},
        {"False", {.kind = JINJA_BOOL}},
        {"none", {.kind = JINJA_NONE}},
        {"None", {.kind = JINJA_NONE}},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (accept_word(p, words[i].text)) return literal(p, words[i].value);
    struct jinja_node *node = jinja_parse_node(p, NODE_NAME);
    if (node) node->name = p->token->text;
    p->token++;
    return node;
}

static struct jinja_node *parse_list(struct jinja_parse *p) {
    struct jinja_node *node = jinja_parse_node(p, NODE_LIST);
    if (!node) return NULL;
    const struct jinja_node **last = &node->list;
    while (!jinja_failed(p->heap) && !sees(p, "]")) {
        if (last != &node->list && !jinja_parse_expect(p, LEX_OPERATOR, ",")) break;
        if (!sees(p, "]")) last = link(last, jinja_parse_expression(p));
    }
    return jinja_parse_expect(p, LEX_OPERATOR, "]") ? node : NULL;
}

static struct jinja_node *parse_dict(struct jinja_parse *p) {
    struct jinja_node *node = jinja_parse_node(p, NODE_DICT);
    if (!node) return NULL;
    const struct jinja_node **last = &node->list;
    while (!jinja_failed(p->heap) && !sees(p, "}")) {
        if (last != &node->list && !jinja_parse_expect(p, LEX_OPERATOR, ",")) break;
        if (sees(p, "}")) break;
        last = link(last, jinja_parse_expression(p));
        if (!jinja_parse_expect(p, LEX_OPERATOR, ":")) break;
        last = link(last, jinja_parse_expression(p));
    }
    return jinja_parse_expect(p, LEX_OPERATOR, "}") ? node : NULL;
}

static struct jinja_node *parse_parentheses(struct jinja_parse *p) {
    struct jinja_node *node =
        sees(p, ")") ? jinja_parse_node(p, NODE_TUPLE) : jinja_parse_tuple(p, true);
    return jinja_parse_expect(p, LEX_OPERATOR, ")") ? node : NULL;
}

static struct jinja_node *parse_primary(struct jinja_parse *p) {
    p->heap->line = p->token->line;
    if (p->token->kind == LEX_NAME) return parse_word(p);
    if (p->token->kind == LEX_STRING) return parse_strings(p);
    if (p->token->kind == LEX_INT || p->token->kind == LEX_FLOAT) return parse_number(p);
    if (accept(p, "(")) return parse_parentheses(p);
    if (accept(p, "[")) return parse_list(p);
    if (accept(p, "{")) return parse_dict(p);
    jinja_fail(p->heap, "an expression is expected, got %.*s",
               (int)(p->token->text.length < 40 ? p->token->text.length : 40),
               p->token->text.bytes);
    return NULL;
}

// ---- What follows a primary ---------------------------------------------------------------------

// Reads arguments up to the closing bracket, which is behind p.
static const struct jinja_node *parse_arguments(struct jinja_parse *p) {
    const struct jinja_node *list = NULL, **last = &list;
    while (!jinja_failed(p->heap) && !sees(p, ")")) {
        if (list && !jinja_parse_expect(p, LEX_OPERATOR, ",")) break;
        if (sees(p, ")")) break;
        struct jinja_node *node = jinja_parse_node(p, NODE_ARGUMENT);
        if (!node) break;
        if (p->token->kind == LEX_NAME && p->token[1].kind == LEX_OPERATOR &&
            jinja_text_equal(p->token[1].text, "=")) {
            node->name = p->token->text;
            p->token += 2;
        }
        node->a = jinja_parse_expression(p);
        last = link(last, node);
    }
    jinja_parse_expect(p, LEX_OPERATOR, ")");
    return list;
}

static struct jinja_node *parse_call(struct jinja_parse *p, struct jinja_node *a) {
    struct jinja_node *node = jinja_parse_node(p, NODE_CALL);
    if (!node) return NULL;
    node->a = a;
    node->list = parse_arguments(p);
    return node;
}

static bool ends_slice(const struct jinja_parse *p) { return sees(p, ":") || sees(p, "]"); }

static struct jinja_node *parse_item(struct jinja_parse *p, struct jinja_node *a) {
    struct jinja_node *node = jinja_parse_node(p, NODE_ITEM);
    if (!node) return NULL;
    node->a = a;
    if (!ends_slice(p)) node->b = jinja_parse_expression(p);
    if (accept(p, ":")) {
        node->kind = NODE_SLICE;
        if (!ends_slice(p)) node->c = jinja_parse_expression(p);
        if (accept(p, ":") && !ends_slice(p)) node->d = jinja_parse_expression(p);
    } else if (!node->b) {
        jinja_fail(p->heap, "an index is missing");
    }
    return jinja_parse_expect(p, LEX_OPERATOR, "]") ? node : NULL;
}

static struct jinja_node *parse_attribute(struct jinja_parse *p, struct jinja_node *a) {
    struct jinja_node *node;
    if (p->token->kind == LEX_INT) return binary(p, NODE_ITEM, a, parse_number(p));
    node = jinja_parse_node(p, NODE_ATTRIBUTE);
    if (!node) return NULL;
    node->a = a;
    node->name = jinja_parse_name(p);
    return node;
}

static struct jinja_node *parse_postfix(struct jinja_parse *p, struct jinja_node *a) {
    while (!jinja_failed(p->heap)) {
        if (accept(p, "."))
            a = parse_attribute(p, a);
        else if (accept(p, "["))
            a = parse_item(p, a);
        else if (accept(p, "("))
            a = parse_call(p, a);
        else
            return a;
    }
    return NULL;
}

static struct jinja_node *parse_filter(struct jinja_parse *p, struct jinja_node *a) {
    struct jinja_node *node = jinja_parse_node(p, NODE_FILTER);
    if (!node) return NULL;
    node->a = a;
    node->name = jinja_parse_name(p);
    if (accept(p, "(")) node->list = parse_arguments(p);
    return node;
}

struct jinja_node *jinja_parse_filters(struct jinja_parse *p, struct jinja_node *a) {
    while (!jinja_failed(p->heap) && accept(p, "|")) a = parse_filter(p, a);
    return a;
}

// True if an operand of a test begins here: `is divisibleby 3`, but not `is defined and`.
static bool sees_operand(const struct jinja_parse *p) {
    static const char *const words[] = {"else", "or", "and", "is", "if", "in", "not"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (sees_word(p, words[i])) return false;
    return p->token->kind == LEX_NAME || p->token->kind == LEX_STRING ||
           p->token->kind == LEX_INT || p->token->kind == LEX_FLOAT || sees(p, "[") || sees(p, "{");
}

static struct jinja_node *parse_test(struct jinja_parse *p, struct jinja_node *a) {
    const bool negated = accept_word(p, "not");
    struct jinja_node *node = jinja_parse_node(p, NODE_TEST);
    if (!node) return NULL;
    node->a = a;
    if (accept(p, "=="))
        node->name = jinja_text("==", 2, false);
    else
        node->name = jinja_parse_name(p);
    if (accept(p, "(")) {
        node->list = parse_arguments(p);
    } else if (sees_operand(p)) {
        struct jinja_node *operand = jinja_parse_node(p, NODE_ARGUMENT);
        if (!operand) return NULL;
        operand->a = parse_postfix(p, parse_primary(p));
        node->list = operand;
    }
    if (!negated) return node;
    struct jinja_node *opposite = jinja_parse_node(p, NODE_NOT);
    if (opposite) opposite->a = node;
    return opposite;
}

static struct jinja_node *parse_filters_and_tests(struct jinja_parse *p, struct jinja_node *a) {
    while (!jinja_failed(p->heap)) {
        if (accept(p, "|"))
            a = parse_filter(p, a);
        else if (accept_word(p, "is"))
            a = parse_test(p, a);
        else if (accept(p, "("))
            a = parse_call(p, a);
        else
            return a;
    }
    return NULL;
}

// ---- Operators ----------------------------------------------------------------------------------

static struct jinja_node *parse_unary(struct jinja_parse *p, bool filters) {
    struct jinja_node *node = NULL;
    if (!jinja_heap_enter(p->heap, JINJA_NESTING)) {
        jinja_heap_leave(p->heap);
        return NULL;
    }
    if (accept(p, "-")) {
        node = jinja_parse_node(p, NODE_NEGATE);
        if (node) node->a = parse_unary(p, false);
    } else if (accept(p, "+")) {
        node = parse_unary(p, false);
    } else {
        node = parse_primary(p);
    }
    jinja_heap_leave(p->heap);
    node = parse_postfix(p, node);
    return filters ? parse_filters_and_tests(p, node) : node;
}

typedef struct jinja_node *(*level_fn)(struct jinja_parse *p);

// Parses operands of the next level with one of the operators between them, from left to right.
static struct jinja_node *parse_level(struct jinja_parse *p, const char *const *operators,
                                      level_fn next) {
    struct jinja_node *a = next(p);
    while (!jinja_failed(p->heap)) {
        const char *const *name = operators;
        while (*name && !accept(p, *name)) name++;
        if (!*name) return a;
        a = binary(p, NODE_BINARY, a, next(p));
        if (a) a->name = jinja_text(*name, strlen(*name), false);
    }
    return NULL;
}

static struct jinja_node *parse_operand(struct jinja_parse *p) { return parse_unary(p, true); }

static struct jinja_node *parse_power(struct jinja_parse *p) {
    static const char *const operators[] = {"**", NULL};
    return parse_level(p, operators, parse_operand);
}

static struct jinja_node *parse_product(struct jinja_parse *p) {
    static const char *const operators[] = {"*", "/", "//", "%", NULL};
    return parse_level(p, operators, parse_power);
}

static struct jinja_node *parse_concatenation(struct jinja_parse *p) {
    static const char *const operators[] = {"~", NULL};
    return parse_level(p, operators, parse_product);
}

static struct jinja_node *parse_sum(struct jinja_parse *p) {
    static const char *const operators[] = {"+", "-", NULL};
    return parse_level(p, operators, parse_concatenation);
}

// The comparison that is next, or NULL.
static const char *accept_comparison(struct jinja_parse *p) {
    static const char *const operators[] = {"==", "!=", "<", "<=", ">", ">="};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (accept(p, operators[i])) return operators[i];
    if (accept_word(p, "in")) return "in";
    if (!sees_word(p, "not") || p->token[1].kind != LEX_NAME ||
        !jinja_text_equal(p->token[1].text, "in"))
        return NULL;
    p->token += 2;
    return "not in";
}

// a < b < c is a < b and b < c.
static struct jinja_node *parse_comparison(struct jinja_parse *p) {
    struct jinja_node *left = parse_sum(p), *all = NULL;
    for (const char *name; !jinja_failed(p->heap) && (name = accept_comparison(p));) {
        struct jinja_node *right = parse_sum(p);
        struct jinja_node *one = binary(p, NODE_COMPARE, left, right);
        if (one) one->name = jinja_text(name, strlen(name), false);
        all = all ? binary(p, NODE_AND, all, one) : one;
        left = right;
    }
    return all ? all : left;
}

static struct jinja_node *parse_not(struct jinja_parse *p) {
    if (!accept_word(p, "not")) return parse_comparison(p);
    struct jinja_node *node = jinja_parse_node(p, NODE_NOT);
    if (!node) return NULL;
    if (jinja_heap_enter(p->heap, JINJA_NESTING)) node->a = parse_not(p);
    jinja_heap_leave(p->heap);
    return node;
}

static struct jinja_node *parse_and(struct jinja_parse *p) {
    struct jinja_node *a = parse_not(p);
    while (!jinja_failed(p->heap) && accept_word(p, "and"))
        a = binary(p, NODE_AND, a, parse_not(p));
    return a;
}

static struct jinja_node *parse_or(struct jinja_parse *p) {
    struct jinja_node *a = parse_and(p);
    while (!jinja_failed(p->heap) && accept_word(p, "or")) a = binary(p, NODE_OR, a, parse_and(p));
    return a;
}

struct jinja_node *jinja_parse_expression(struct jinja_parse *p) {
    struct jinja_node *a = NULL;
    if (jinja_heap_enter(p->heap, JINJA_NESTING)) a = parse_or(p);
    while (!jinja_failed(p->heap) && accept_word(p, "if")) {
        a = binary(p, NODE_CHOICE, a, parse_or(p));
        if (a && accept_word(p, "else")) a->c = jinja_parse_expression(p);
    }
    jinja_heap_leave(p->heap);
    return a;
}

struct jinja_node *jinja_parse_tuple(struct jinja_parse *p, bool choice) {
    struct jinja_node *first = choice ? jinja_parse_expression(p) : parse_or(p);
    if (jinja_failed(p->heap) || !sees(p, ",")) return first;
    struct jinja_node *node = jinja_parse_node(p, NODE_TUPLE);
    if (!node) return NULL;
    const struct jinja_node **last = link(&node->list, first);
    while (!jinja_failed(p->heap) && accept(p, ",")) {
        if (p->token->kind == LEX_BLOCK_END || p->token->kind == LEX_PRINT_END || sees(p, ")") ||
            sees(p, "="))
            break;
        last = link(last, choice ? jinja_parse_expression(p) : parse_or(p));
    }
    return node;
}

// ---- Targets ------------------------------------------------------------------------------------

static struct jinja_node *parse_one_target(struct jinja_parse *p, bool attributes) {
    struct jinja_node *name = jinja_parse_node(p, NODE_NAME);
    if (!name) return NULL;
    name->name = jinja_parse_name(p);
    return attributes && accept(p, ".") ? parse_attribute(p, name) : name;
}

struct jinja_node *jinja_parse_target(struct jinja_parse *p, bool attributes) {
    const bool bracket = accept(p, "(");
    struct jinja_node *first = parse_one_target(p, attributes), *tuple = NULL;
    const struct jinja_node **last = NULL;
    while (!jinja_failed(p->heap) && accept(p, ",")) {
        if (!tuple) {
            tuple = jinja_parse_node(p, NODE_TUPLE);
            if (!tuple) return NULL;
            last = link(&tuple->list, first);
        }
        if (p->token->kind == LEX_NAME && !sees_word(p, "in"))
            last = link(last, parse_one_target(p, attributes));
    }
    if (bracket) jinja_parse_expect(p, LEX_OPERATOR, ")");
    return tuple ? tuple : first;
}
