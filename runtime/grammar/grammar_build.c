/* grammar_build.c: see grammar_build.h. */
#include "runtime/grammar/grammar_build.h"

#include "base/mem.h"

#include <stdlib.h>

enum { LIST_MOST = 1 << 20, FIRST_ROOM = 64, LAST_CODE = 0x10ffff };

// Makes room for one more of *n; index 0 of a list stands for none.
static bool grow(struct grammar_build *b, void **list, uint32_t n, uint32_t *room, size_t size) {
    if (n < *room) return true;
    if (b->refused || b->too_large) return false;
    if (n >= LIST_MOST) return b->too_large = true, false;
    const uint32_t bigger = *room ? 2 * *room : FIRST_ROOM;
    void *memory = mem_resize(*list, bigger, size);
    if (!memory) return b->refused = true, false;
    *list = memory;
    *room = bigger;
    return true;
}

void grammar_build_open(struct grammar_build *b) {
    *b = (struct grammar_build){.grammar = {.n_elements = 1, .n_alternatives = 1}};
}

void grammar_build_close(struct grammar_build *b) {
    grammar_close(&b->grammar);
    *b = (struct grammar_build){0};
}

uint32_t grammar_build_rule(struct grammar_build *b) {
    struct grammar *g = &b->grammar;
    if (!grow(b, (void **)&g->rules, g->n_rules, &b->n_rules, sizeof *g->rules)) return 0;
    g->rules[g->n_rules] = 0;
    return g->n_rules++;
}

uint32_t grammar_build_alternative(struct grammar_build *b, uint32_t rule) {
    struct grammar *g = &b->grammar;
    const uint32_t i = g->n_alternatives;
    if (!grow(b, (void **)&g->alternatives, i, &b->n_alternatives, sizeof *g->alternatives) ||
        rule >= g->n_rules)
        return 0;
    g->alternatives[i] = (struct grammar_alternative){0, g->rules[rule]};
    g->n_alternatives++;
    return g->rules[rule] = i;
}

void grammar_build_append(struct grammar_build *b, uint32_t alternative, uint32_t *last,
                          struct grammar_element element) {
    struct grammar *g = &b->grammar;
    const uint32_t i = g->n_elements;
    if (!grow(b, (void **)&g->elements, i, &b->n_elements, sizeof *g->elements) || !alternative)
        return;
    element.next = 0;
    g->elements[i] = element;
    g->n_elements++;
    if (*last)
        g->elements[*last].next = i;
    else
        g->alternatives[alternative].first = i;
    *last = i;
}

// ---- Sets ---------------------------------------------------------------------------------------

static int compare_ranges(const void *a, const void *b) {
    const struct grammar_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

// Puts ranges[n] in order and joins those that touch. Returns how many are left.
static uint32_t join(struct grammar_range *ranges, uint32_t n) {
    uint32_t kept = 0;
    if (n > 1) qsort(ranges, n, sizeof *ranges, compare_ranges);
    for (uint32_t i = 0; i < n; i++) {
        if (kept > 0 && ranges[i].first <= ranges[kept - 1].last + 1) {
            if (ranges[i].last > ranges[kept - 1].last) ranges[kept - 1].last = ranges[i].last;
        } else
            ranges[kept++] = ranges[i];
    }
    return kept;
}

static void add_range(struct grammar_build *b, uint32_t first, uint32_t last) {
    struct grammar *g = &b->grammar;
    if (!grow(b, (void **)&g->ranges, g->n_ranges, &b->n_ranges, sizeof *g->ranges)) return;
    g->ranges[g->n_ranges++] = (struct grammar_range){first, last};
}

struct grammar_element grammar_build_set(struct grammar_build *b, struct grammar_range *ranges,
                                         uint32_t n, bool others) {
    struct grammar_element set = {.value = b->grammar.n_ranges};
    uint32_t next = 0; // the first code point that is not decided yet
    n = join(ranges, n);
    for (uint32_t i = 0; i < n; i++) {
        if (!others) add_range(b, ranges[i].first, ranges[i].last);
        if (others && ranges[i].first > next) add_range(b, next, ranges[i].first - 1);
        next = ranges[i].last + 1;
    }
    if (others && next <= LAST_CODE) add_range(b, next, LAST_CODE);
    set.count = b->grammar.n_ranges - set.value;
    return set;
}

struct grammar_element grammar_build_reference(uint32_t rule) {
    return (struct grammar_element){.is_rule = true, .value = rule};
}

// ---- The whole ----------------------------------------------------------------------------------

enum status grammar_build_finish(struct grammar_build *b, struct grammar *out, struct err *e) {
    if (b->refused) return err_memory(e, (size_t)b->grammar.n_elements * 16, "the grammar");
    if (b->too_large)
        return err_set(e, ERR_LIMIT, "the grammar is too large: more than %d parts", LIST_MOST);
    *out = b->grammar;
    b->grammar = (struct grammar){0};
    return OK;
}

void grammar_close(struct grammar *g) {
    mem_free(g->elements);
    mem_free(g->alternatives);
    mem_free(g->rules);
    mem_free(g->ranges);
    *g = (struct grammar){0};
}

// True if the alternative can be empty, as far as nullable knows.
static bool can_be_empty(const struct grammar *g, uint32_t alternative, const bool *nullable) {
    uint32_t i = g->alternatives[alternative].first;
    while (i && g->elements[i].is_rule && nullable[g->elements[i].value]) i = g->elements[i].next;
    return i == 0;
}

static bool rule_can_be_empty(const struct grammar *g, uint32_t rule, const bool *nullable) {
    for (uint32_t a = g->rules[rule]; a; a = g->alternatives[a].next)
        if (can_be_empty(g, a, nullable)) return true;
    return false;
}

// The rules that can begin with a rule are the ones that wait for it: a rule is done when all that
// it can begin with are. What is left at the end begins with itself, or with one that does.
struct waiting {
    uint32_t rule, next; // that begins with another; the next one of that other's list, 0: the last
};

struct order {
    struct waiting *waits; // [n_elements + 1], from 1 on
    uint32_t *first;       // [n_rules]: who waits for it
    uint32_t *open;        // [n_rules]: how many it waits for
    uint32_t *done;        // [n_rules]: a queue
    uint32_t n_waits;
};

// Notes for each element that the rule can begin with that the rule waits for it.
static void note_beginnings(const struct grammar *g, uint32_t rule, const bool *nullable,
                            struct order *o) {
    for (uint32_t a = g->rules[rule]; a; a = g->alternatives[a].next)
        for (uint32_t i = g->alternatives[a].first; i && g->elements[i].is_rule;
             i = g->elements[i].next) {
            const uint32_t other = g->elements[i].value;
            o->waits[++o->n_waits] = (struct waiting){rule, o->first[other]};
            o->first[other] = o->n_waits;
            o->open[rule]++;
            if (!nullable[other]) break;
        }
}

static void find_left(const struct grammar *g, struct order *o, bool *begins) {
    uint32_t n_done = 0;
    for (uint32_t r = 0; r < g->n_rules; r++) {
        begins[r] = o->open[r] > 0;
        if (!begins[r]) o->done[n_done++] = r;
    }
    for (uint32_t i = 0; i < n_done; i++)
        for (uint32_t w = o->first[o->done[i]]; w; w = o->waits[w].next)
            if (--o->open[o->waits[w].rule] == 0) {
                begins[o->waits[w].rule] = false;
                o->done[n_done++] = o->waits[w].rule;
            }
}

enum status grammar_build_recursion(const struct grammar *g, bool *begins, struct err *e) {
    struct order o = {.waits = mem_alloc((size_t)g->n_elements + 1, sizeof *o.waits),
                      .first = mem_alloc(g->n_rules, sizeof *o.first),
                      .open = mem_alloc(g->n_rules, sizeof *o.open),
                      .done = mem_alloc(g->n_rules, sizeof *o.done)};
    bool *nullable = mem_alloc(g->n_rules, sizeof *nullable);
    enum status status = OK;
    if (!o.waits || !o.first || !o.open || !o.done || !nullable) {
        status = err_memory(e, (size_t)g->n_elements * sizeof *o.waits, "the grammar");
    } else {
        for (bool more = true; more;) {
            more = false;
            for (uint32_t r = g->n_rules; r-- > 0;) // later rules are parts of earlier ones
                if (!nullable[r] && rule_can_be_empty(g, r, nullable)) nullable[r] = more = true;
        }
        for (uint32_t r = 0; r < g->n_rules; r++) note_beginnings(g, r, nullable, &o);
        find_left(g, &o, begins);
    }
    mem_free(o.waits);
    mem_free(o.first);
    mem_free(o.open);
    mem_free(o.done);
    mem_free(nullable);
    return status;
}
