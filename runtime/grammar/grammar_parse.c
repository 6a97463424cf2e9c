/* grammar_parse.c: reads GBNF. See grammar.h.
 *
 * NAME ::= alternatives; an alternative is a row of "literals", [sets], [^sets], ., names and
 * (groups), each with *, +, ?, {m}, {m,} or {m,n} behind it. Groups, and literals that are
 * repeated, become rules of their own, and so do repetitions. */
#include "runtime/grammar/grammar.h"

#include "base/mem.h"
#include "base/strmap.h"
#include "base/utf8.h"
#include "runtime/grammar/grammar_build.h"

#include <string.h>

enum { DEPTH_MOST = 100, SET_MOST = 1024, UNBOUNDED = -1 };

// A rule or group whose alternatives are being read.
struct level {
    uint32_t rule, alternative;
    uint32_t last;   // element of the alternative, or 0
    uint32_t before; // the last element before the latest symbol, or 0
    bool has_symbol; // that may be repeated
};

struct parser {
    struct grammar_build build;
    const char *text;
    size_t length, at;
    const char *root;
    struct strmap names; // the number of each rule that has a name
    struct level levels[DEPTH_MOST];
    int depth;
};

// ---- Characters ---------------------------------------------------------------------------------

static enum status fail(const struct parser *p, struct err *e, const char *what) {
    size_t line = 1;
    for (size_t i = 0; i < p->at && i < p->length; i++) line += p->text[i] == '\n';
    err_set(e, ERR_FORMAT, "grammar, line %zu: %s", line, what);
    if (p->at < p->length) {
        const size_t left = p->length - p->at;
        err_actual(e, "'%.*s'", (int)(left < 24 ? left : 24), p->text + p->at);
    }
    return e->status;
}

static char peek(const struct parser *p) { return p->at < p->length ? p->text[p->at] : 0; }

static bool take(struct parser *p, char c) {
    if (p->at >= p->length || p->text[p->at] != c) return false;
    p->at++;
    return true;
}

// Skips blanks and comments, and with lines also the ends of lines.
static void skip(struct parser *p, bool lines) {
    for (; p->at < p->length; p->at++) {
        const char c = p->text[p->at];
        if (c == '#')
            while (p->at + 1 < p->length && p->text[p->at + 1] != '\n') p->at++;
        else if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r')))
            return;
    }
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum status take_hex(struct parser *p, int digits, uint32_t *out, struct err *e) {
    *out = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        const int digit = hex_digit(peek(p));
        if (digit < 0) return fail(p, e, "a hexadecimal digit is missing");
        *out = *out << 4 | (uint32_t)digit;
    }
    return *out <= 0x10ffff ? OK : fail(p, e, "no character has this number");
}

static enum status take_escape(struct parser *p, uint32_t *out, struct err *e) {
    static const char from[] = "nrt\\\"[]-", to[] = "\n\r\t\\\"[]-";
    const char c = peek(p);
    const char *known = c ? strchr(from, c) : NULL;
    if (!known && c != 'x' && c != 'u' && c != 'U') return fail(p, e, "an unknown escape");
    p->at++;
    if (!known) return take_hex(p, c == 'x' ? 2 : c == 'u' ? 4 : 8, out, e);
    *out = (uint32_t)(uint8_t)to[known - from];
    return OK;
}

// Takes one character of a literal or a set.
static enum status take_character(struct parser *p, uint32_t *out, struct err *e) {
    size_t length;
    if (p->at >= p->length) return fail(p, e, "the text ends within a literal or a set");
    if (take(p, '\\')) return take_escape(p, out, e);
    if (utf8_look(p->text + p->at, p->length - p->at, &length) != UTF8_WHOLE)
        return fail(p, e, "the text is no UTF-8");
    *out = utf8_code(p->text + p->at, length);
    p->at += length;
    return OK;
}

// ---- Symbols ------------------------------------------------------------------------------------

static struct level *top(struct parser *p) { return &p->levels[p->depth]; }

static void begin_symbol(struct parser *p) {
    top(p)->before = top(p)->last;
    top(p)->has_symbol = true;
}

static void append(struct parser *p, struct grammar_element element) {
    grammar_build_append(&p->build, top(p)->alternative, &top(p)->last, element);
}

static enum status take_literal(struct parser *p, struct err *e) {
    begin_symbol(p);
    while (!take(p, '"')) {
        struct grammar_range one;
        if (take_character(p, &one.first, e)) return e->status;
        one.last = one.first;
        append(p, grammar_build_set(&p->build, &one, 1, false));
    }
    return OK;
}

static enum status take_set(struct parser *p, struct err *e) {
    struct grammar_range ranges[SET_MOST];
    uint32_t n = 0;
    const bool others = take(p, '^');
    begin_symbol(p);
    for (; !take(p, ']'); n++) {
        if (n == SET_MOST) return fail(p, e, "a set of too many ranges");
        struct grammar_range *r = &ranges[n];
        if (take_character(p, &r->first, e)) return e->status;
        r->last = r->first;
        if (peek(p) != '-' || p->at + 1 >= p->length || p->text[p->at + 1] == ']') continue;
        p->at++;
        if (take_character(p, &r->last, e)) return e->status;
        if (r->last < r->first) return fail(p, e, "a range that ends before it begins");
    }
    append(p, grammar_build_set(&p->build, ranges, n, others));
    return OK;
}

// The rule of the name that comes next.
static uint32_t take_name(struct parser *p) {
    const size_t first = p->at;
    uint32_t rule;
    while (is_word(peek(p))) p->at++;
    const uint32_t length = (uint32_t)(p->at - first);
    if (!strmap_get(&p->names, p->text + first, length, &rule)) {
        rule = grammar_build_rule(&p->build);
        strmap_put(&p->names, p->text + first, length, rule);
    }
    return rule;
}

static enum status begin_group(struct parser *p, struct err *e) {
    if (p->depth + 1 == DEPTH_MOST) return fail(p, e, "groups are nested too deeply");
    const uint32_t rule = grammar_build_rule(&p->build);
    p->levels[++p->depth] =
        (struct level){.rule = rule, .alternative = grammar_build_alternative(&p->build, rule)};
    return OK;
}

static enum status end_group(struct parser *p, struct err *e) {
    if (p->depth == 0) return fail(p, e, "a group ends that did not begin");
    const uint32_t rule = p->levels[p->depth--].rule;
    begin_symbol(p);
    append(p, grammar_build_reference(rule));
    return OK;
}

// ---- Repetitions --------------------------------------------------------------------------------

// Takes the latest symbol out of its alternative, as one element. False if it is empty.
static bool detach(struct parser *p, struct grammar_element *unit) {
    struct grammar *g = &p->build.grammar;
    struct level *l = top(p);
    if (p->build.refused || p->build.too_large || l->last == l->before) return false;
    uint32_t *link =
        l->before ? &g->elements[l->before].next : &g->alternatives[l->alternative].first;
    const uint32_t first = *link;
    *link = 0;
    l->last = l->before;
    *unit = g->elements[first];
    if (!unit->next) return true;
    const uint32_t rule = grammar_build_rule(&p->build);
    const uint32_t alternative = grammar_build_alternative(&p->build, rule);
    if (alternative) p->build.grammar.alternatives[alternative].first = first;
    *unit = grammar_build_reference(rule);
    return true;
}

// A rule of either nothing or the unit, and then of what follows, unless that is NULL.
static uint32_t make_optional(struct parser *p, struct grammar_element unit, const uint32_t *then) {
    struct grammar_build *b = &p->build;
    const uint32_t rule = grammar_build_rule(b);
    uint32_t last = 0;
    (void)grammar_build_alternative(b, rule);
    const uint32_t some = grammar_build_alternative(b, rule);
    grammar_build_append(b, some, &last, unit);
    if (then) grammar_build_append(b, some, &last, grammar_build_reference(*then));
    return rule;
}

// A rule of any number of units.
static uint32_t make_list(struct parser *p, struct grammar_element unit) {
    const uint32_t rule = make_optional(p, unit, NULL);
    struct grammar *g = &p->build.grammar;
    if (p->build.refused || p->build.too_large) return 0;
    uint32_t last = g->alternatives[g->rules[rule]].first;
    grammar_build_append(&p->build, g->rules[rule], &last, grammar_build_reference(rule));
    return rule;
}

// Repeats the latest symbol from least to most times, or without bound.
static void repeat(struct parser *p, int32_t least, int32_t most) {
    struct grammar_element unit;
    uint32_t rest = 0;
    if (!detach(p, &unit)) return;
    for (int32_t i = 0; i < least; i++) append(p, unit);
    if (most == UNBOUNDED)
        rest = make_list(p, unit);
    else
        for (int32_t i = least; i < most; i++)
            rest = make_optional(p, unit, i > least ? &rest : NULL);
    if (most == UNBOUNDED || most > least) append(p, grammar_build_reference(rest));
}

static enum status take_number(struct parser *p, int32_t *out, struct err *e) {
    *out = 0;
    if (peek(p) < '0' || peek(p) > '9') return fail(p, e, "a number is missing");
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++)
        if (*out <= 1000000) *out = 10 * *out + (peek(p) - '0');
    skip(p, false);
    return OK;
}

// {m}, {m,} or {m,n} behind its brace.
static enum status take_bounds(struct parser *p, int32_t *least, int32_t *most, struct err *e) {
    skip(p, false);
    if (take_number(p, least, e)) return e->status;
    *most = *least;
    if (take(p, ',')) {
        skip(p, false);
        *most = UNBOUNDED;
        if (peek(p) != '}' && take_number(p, most, e)) return e->status;
    }
    if (*most != UNBOUNDED && *most < *least) return fail(p, e, "more repetitions than allowed");
    if (*least > GRAMMAR_REPEATS || *most > GRAMMAR_REPEATS)
        return fail(p, e, "more than 2000 repetitions");
    return take(p, '}') ? OK : fail(p, e, "a repetition does not end with }");
}

static enum status take_repetition(struct parser *p, char c, struct err *e) {
    int32_t least = c == '+', most = c == '?' ? 1 : UNBOUNDED;
    if (!top(p)->has_symbol) return fail(p, e, "nothing stands before a repetition");
    if (c == '{' && take_bounds(p, &least, &most, e)) return e->status;
    repeat(p, least, most);
    top(p)->has_symbol = false; // one repetition for each symbol
    return OK;
}

// ---- Rules --------------------------------------------------------------------------------------

static void next_alternative(struct parser *p) {
    const uint32_t rule = top(p)->rule;
    *top(p) =
        (struct level){.rule = rule, .alternative = grammar_build_alternative(&p->build, rule)};
}

static enum status take_symbol(struct parser *p, struct err *e) {
    const char c = peek(p);
    if (is_word(c)) {
        begin_symbol(p);
        append(p, grammar_build_reference(take_name(p)));
        return OK;
    }
    p->at++;
    switch (c) {
    case '"': return take_literal(p, e);
    case '[': return take_set(p, e);
    case '(': return begin_group(p, e);
    case ')': return end_group(p, e);
    case '.':
        begin_symbol(p);
        append(p, grammar_build_set(&p->build, NULL, 0, true));
        return OK;
    case '|': next_alternative(p); return OK;
    case '*':
    case '+':
    case '?':
    case '{': return take_repetition(p, c, e);
    default:
        p->at--;
        return fail(p, e,
                    c == '<' || c == '!' ? "tokens in grammars are not supported"
                                         : "no symbol begins with this");
    }
}

static enum status take_rule(struct parser *p, struct err *e) {
    if (!is_word(peek(p))) return fail(p, e, "the name of a rule is missing");
    const uint32_t rule = take_name(p);
    if (!p->build.refused && !p->build.too_large && p->build.grammar.rules[rule])
        return fail(p, e, "the rule before this is defined twice");
    skip(p, false);
    if (p->length - p->at < 3 || memcmp(p->text + p->at, "::=", 3) != 0)
        return fail(p, e, "::= is missing");
    p->at += 3;
    p->depth = 0;
    p->levels[0].rule = rule;
    next_alternative(p);
    skip(p, true);
    while (p->at < p->length && (p->depth > 0 || (peek(p) != '\n' && peek(p) != '\r'))) {
        const char c = peek(p);
        if (take_symbol(p, e)) return e->status;
        if (p->build.refused || p->build.too_large) return OK; // grammar_build_finish says why
        skip(p, p->depth > 0 || c == '|');
    }
    return p->depth == 0 ? OK : fail(p, e, "a group does not end");
}

// Checks that every rule is defined and none begins with itself.
static enum status check(const struct parser *p, struct grammar *g, struct err *e) {
    bool *begins = mem_alloc(g->n_rules, sizeof *begins);
    if (!begins) return err_memory(e, g->n_rules, "the grammar");
    enum status status = grammar_build_recursion(g, begins, e);
    for (uint32_t i = 0; i <= p->names.mask && !status; i++) {
        const struct strmap_slot *slot = &p->names.slots[i];
        const int length = slot->length < 40 ? (int)slot->length : 40;
        if (!slot->key) continue;
        if (!g->rules[slot->value])
            status = err_set(e, ERR_FORMAT, "grammar: rule %.*s is not defined", length, slot->key);
        else if (begins[slot->value])
            status = err_set(e, ERR_FORMAT,
                             "grammar: rule %.*s begins with itself, or with a rule that does",
                             length, slot->key);
    }
    for (uint32_t r = 0; r < g->n_rules && !status; r++)
        if (begins[r])
            status = err_set(e, ERR_FORMAT, "grammar: a repetition of what can be empty");
    if (!status && !strmap_get(&p->names, p->root, (uint32_t)strlen(p->root), &g->root))
        status = err_set(e, ERR_FORMAT, "grammar: there is no rule %s", p->root);
    mem_free(begins);
    return status;
}

// At least as many as there are names in the text.
static uint32_t count_words(const char *text, size_t length) {
    uint32_t n = 1;
    for (size_t i = 0; i < length; i++) n += is_word(text[i]) && (i == 0 || !is_word(text[i - 1]));
    return n;
}

static enum status parse_all(struct parser *p, struct grammar *g, struct err *e) {
    for (skip(p, true); p->at < p->length; skip(p, true)) {
        if (take_rule(p, e)) return e->status;
        if (p->build.refused || p->build.too_large) break;
    }
    if (grammar_build_finish(&p->build, g, e)) return e->status;
    if (check(p, g, e)) {
        grammar_close(g);
        return e->status;
    }
    return OK;
}

enum status grammar_parse(struct grammar *g, const char *text, size_t length, const char *root,
                          struct err *e) {
    enum { TEXT_MOST = 4 << 20 };
    *g = (struct grammar){0};
    if (length > TEXT_MOST)
        return err_set(e, ERR_LIMIT, "the grammar is longer than %d bytes", TEXT_MOST);
    struct parser *p = mem_alloc(1, sizeof *p);
    if (!p) return err_memory(e, sizeof *p, "the grammar");
    p->text = text;
    p->length = length;
    p->root = root;
    grammar_build_open(&p->build);
    enum status status = strmap_init(&p->names, count_words(text, length), e);
    if (!status) status = parse_all(p, g, e);
    grammar_build_close(&p->build);
    strmap_close(&p->names);
    mem_free(p);
    return status;
}
