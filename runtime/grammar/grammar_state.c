/* grammar_state.c: the stacks of a text. See grammar.h. */
#include "runtime/grammar/grammar.h"

#include "base/mem.h"
#include "runtime/grammar/grammar_step.h"

#include <string.h>

// ---- Nodes --------------------------------------------------------------------------------------

static uint32_t bucket_of(uint32_t element, uint32_t parent) {
    const uint64_t h = ((uint64_t)element << 32 | parent) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32) % GRAMMAR_BUCKETS;
}

// The node of that stack, made if there is none; 0 if there is no room.
static uint32_t push(struct grammar_state *s, uint32_t element, uint32_t parent) {
    uint32_t *bucket = &s->buckets[bucket_of(element, parent)];
    for (uint32_t i = *bucket; i; i = s->nodes[i].same_bucket)
        if (s->nodes[i].element == element && s->nodes[i].parent == parent) return i;
    if (s->n_nodes == GRAMMAR_NODES) {
        s->too_large = true;
        return 0;
    }
    s->nodes[s->n_nodes] = (struct grammar_node){element, parent, *bucket};
    s->seen[s->n_nodes] = 0;
    return *bucket = s->n_nodes++;
}

void grammar_roll_back(struct grammar_state *s, uint32_t n) {
    while (s->n_nodes > n) {
        const struct grammar_node *node = &s->nodes[--s->n_nodes];
        s->buckets[bucket_of(node->element, node->parent)] = node->same_bucket;
    }
}

// Keeps only what the position needs, in the same order.
static void compact(struct grammar_state *s, struct grammar_position *p) {
    uint32_t *places = s->seen, kept = 1; // the new index of each node, or 0
    memset(places, 0, s->n_nodes * sizeof *places);
    for (uint32_t i = 0; i < p->n_tops; i++) places[p->tops[i]] = 1;
    for (uint32_t i = s->n_nodes; i-- > 1;)
        if (places[i] && s->nodes[i].parent) places[s->nodes[i].parent] = 1;
    memset(s->buckets, 0, GRAMMAR_BUCKETS * sizeof *s->buckets);
    for (uint32_t i = 1; i < s->n_nodes; i++) {
        if (!places[i]) continue;
        struct grammar_node node = s->nodes[i];
        if (node.parent) node.parent = places[node.parent];
        uint32_t *bucket = &s->buckets[bucket_of(node.element, node.parent)];
        node.same_bucket = *bucket;
        s->nodes[kept] = node;
        *bucket = places[i] = kept++;
    }
    for (uint32_t i = 0; i < p->n_tops; i++) p->tops[i] = places[p->tops[i]];
    s->n_nodes = kept;
    memset(s->seen, 0, GRAMMAR_NODES * sizeof *s->seen);
    s->pass = 0;
}

// ---- Expansion ----------------------------------------------------------------------------------

// Stacks that wait to be expanded, on the way to a position.
struct expansion {
    struct grammar_state *state;
    struct grammar_position *out;
    uint32_t n_work;
};

static void add_top(struct expansion *x, uint32_t node) {
    if (x->out->n_tops == GRAMMAR_TOPS)
        x->state->too_large = true;
    else
        x->out->tops[x->out->n_tops++] = node;
}

// Adds the stack that goes on with element, and then with parent.
static void add_stack(struct expansion *x, uint32_t element, uint32_t parent) {
    struct grammar_state *s = x->state;
    while (!element && parent) { // the rule has ended
        element = s->nodes[parent].element;
        parent = s->nodes[parent].parent;
    }
    if (!element) {
        x->out->can_end = true;
        return;
    }
    const uint32_t node = push(s, element, parent);
    if (!node || s->seen[node] == s->pass) return;
    s->seen[node] = s->pass;
    if (!s->grammar->elements[element].is_rule)
        add_top(x, node);
    else if (x->n_work == GRAMMAR_TOPS)
        s->too_large = true;
    else
        s->work[x->n_work++] = node;
}

// Expands rules until every stack has a set of characters on top. A rule that ends its alternative
// leaves nothing on the stack, so that lists do not make it deeper.
static void expand(struct expansion *x) {
    struct grammar_state *s = x->state;
    const struct grammar *g = s->grammar;
    while (x->n_work > 0 && !s->too_large) {
        const struct grammar_node node = s->nodes[s->work[--x->n_work]];
        const struct grammar_element *rule = &g->elements[node.element];
        const uint32_t parent = rule->next ? push(s, rule->next, node.parent) : node.parent;
        for (uint32_t a = g->rules[rule->value]; a; a = g->alternatives[a].next)
            add_stack(x, g->alternatives[a].first, parent);
    }
}

static struct expansion begin(struct grammar_state *s, struct grammar_position *out) {
    out->n_tops = 0;
    out->can_end = false;
    s->pass++;
    return (struct expansion){s, out, 0};
}

// ---- Characters ---------------------------------------------------------------------------------

// True if the set has a code point from first to last.
static bool set_meets(const struct grammar *g, const struct grammar_element *set, uint32_t first,
                      uint32_t last) {
    if (set->count == 0) return false; // and there may be no ranges at all
    const struct grammar_range *ranges = g->ranges + set->value;
    uint32_t low = 0, high = set->count;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (ranges[middle].last < first)
            low = middle + 1;
        else
            high = middle;
    }
    return low < set->count && ranges[low].first <= last;
}

bool grammar_step(struct grammar_state *s, const struct grammar_position *in, uint32_t code,
                  struct grammar_position *out) {
    const struct grammar *g = s->grammar;
    struct expansion x = begin(s, out);
    for (uint32_t i = 0; i < in->n_tops && !s->too_large; i++) {
        const struct grammar_node node = s->nodes[in->tops[i]];
        if (set_meets(g, &g->elements[node.element], code, code))
            add_stack(&x, g->elements[node.element].next, node.parent);
    }
    expand(&x);
    return !s->too_large && (out->n_tops > 0 || out->can_end);
}

bool grammar_partial_fits(const struct grammar_state *s, const struct grammar_position *p) {
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000}; // by the bytes behind the first
    const uint32_t shift = 6 * p->n_missing;
    uint32_t first = p->partial << shift, last = first | ((1u << shift) - 1);
    if (p->after_lead && first < least[p->n_missing]) first = least[p->n_missing];
    if (last > 0x10ffff) last = 0x10ffff;
    for (uint32_t i = 0; i < p->n_tops; i++) {
        const struct grammar_element *set = &s->grammar->elements[s->nodes[p->tops[i]].element];
        if (set_meets(s->grammar, set, first, last)) return true;
    }
    return false;
}

// False for the first two bytes of an overlong form, of a surrogate, or above U+10FFFF; n_missing
// bytes are still to come.
static bool begins_character(uint32_t bits, uint32_t n_missing) {
    if (n_missing == 1) return bits >= 0x20 && (bits < 0x360 || bits > 0x37f);
    return n_missing == 0 || (bits >= 0x10 && bits <= 0x10f);
}

bool grammar_take_byte(struct grammar_position *p, uint8_t byte, bool *whole) {
    *whole = false;
    if (p->n_missing > 0) {
        if ((byte & 0xc0) != 0x80) return false;
        p->partial = p->partial << 6 | (byte & 0x3f);
        *whole = --p->n_missing == 0;
        const bool fits = !p->after_lead || begins_character(p->partial, p->n_missing);
        p->after_lead = false;
        return fits;
    }
    *whole = byte < 0x80;
    p->n_missing = byte < 0x80 ? 0 : byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
    p->partial = byte < 0x80 ? byte : byte & (0x3fu >> p->n_missing);
    p->after_lead = !*whole;
    return byte < 0x80 || (byte >= 0xc2 && byte <= 0xf4);
}

// ---- Texts --------------------------------------------------------------------------------------

static void copy_position(struct grammar_position *to, const struct grammar_position *from) {
    uint32_t *tops = to->tops;
    memcpy(tops, from->tops, from->n_tops * sizeof *tops);
    *to = *from;
    to->tops = tops;
}

// Runs through text[length] from the accepted text on. Returns the last position, or NULL; *fits
// gets the bytes that were allowed.
static struct grammar_position *run(struct grammar_state *s, const char *text, size_t length,
                                    size_t *fits) {
    struct grammar_position *in = &s->next[0], *out = &s->next[1];
    copy_position(in, &s->now);
    s->too_large = false;
    for (size_t i = 0; i < length; i++) {
        bool whole;
        *fits = i;
        if (!grammar_take_byte(in, (uint8_t)text[i], &whole)) return NULL;
        if (!whole) continue;
        if (!grammar_step(s, in, in->partial, out)) return NULL;
        out->n_missing = 0;
        struct grammar_position *swapped = in;
        in = out;
        out = swapped;
    }
    if (in->n_missing > 0 && !grammar_partial_fits(s, in)) return NULL;
    *fits = length;
    return in;
}

size_t grammar_prefix(struct grammar_state *s, const char *text, size_t length) {
    const uint32_t n_nodes = s->n_nodes;
    size_t fits = 0;
    (void)run(s, text, length, &fits);
    grammar_roll_back(s, n_nodes);
    return fits;
}

bool grammar_allows(struct grammar_state *s, const char *text, size_t length) {
    return grammar_prefix(s, text, length) == length;
}

enum status grammar_accept(struct grammar_state *s, const char *text, size_t length,
                           struct err *e) {
    const uint32_t n_nodes = s->n_nodes;
    size_t fits;
    const struct grammar_position *end = run(s, text, length, &fits);
    if (end) {
        copy_position(&s->now, end);
        if (s->n_nodes > GRAMMAR_NODES / 2) compact(s, &s->now);
        return OK;
    }
    grammar_roll_back(s, n_nodes);
    if (s->too_large) return err_set(e, ERR_LIMIT, "the grammar has too many ways to go on");
    return err_set(e, ERR_FORMAT, "the grammar does not allow this text");
}

bool grammar_can_end(const struct grammar_state *s) {
    return s->now.can_end && s->now.n_missing == 0;
}

// ---- Opening ------------------------------------------------------------------------------------

void grammar_state_reset(struct grammar_state *s) {
    memset(s->buckets, 0, GRAMMAR_BUCKETS * sizeof *s->buckets);
    memset(s->seen, 0, GRAMMAR_NODES * sizeof *s->seen);
    s->n_nodes = 1;
    s->pass = 0;
    s->too_large = false;
    struct expansion x = begin(s, &s->now);
    s->now.n_missing = 0;
    for (uint32_t a = s->grammar->rules[s->grammar->root]; a; a = s->grammar->alternatives[a].next)
        add_stack(&x, s->grammar->alternatives[a].first, 0);
    expand(&x);
}

enum status grammar_state_open(struct grammar_state *s, const struct grammar *g, struct err *e) {
    enum { LISTS = 4 };
    *s = (struct grammar_state){.grammar = g};
    s->nodes = mem_alloc(GRAMMAR_NODES, sizeof *s->nodes);
    s->seen = mem_alloc(GRAMMAR_NODES, sizeof *s->seen);
    s->buckets = mem_alloc(GRAMMAR_BUCKETS, sizeof *s->buckets);
    s->memory = mem_alloc(LISTS * GRAMMAR_TOPS, sizeof *s->memory);
    if (!s->nodes || !s->seen || !s->buckets || !s->memory) {
        grammar_state_close(s);
        return err_memory(e, GRAMMAR_NODES * sizeof *s->nodes, "the grammar's state");
    }
    s->work = s->memory;
    s->now.tops = s->memory + GRAMMAR_TOPS;
    s->next[0].tops = s->memory + 2 * GRAMMAR_TOPS;
    s->next[1].tops = s->memory + 3 * GRAMMAR_TOPS;
    grammar_state_reset(s);
    if (!s->too_large) return OK;
    grammar_state_close(s);
    return err_set(e, ERR_LIMIT, "the grammar has too many ways to begin");
}

void grammar_state_close(struct grammar_state *s) {
    mem_free(s->nodes);
    mem_free(s->seen);
    mem_free(s->buckets);
    mem_free(s->memory);
    *s = (struct grammar_state){0};
}
