/* grammar_walk.c: see grammar_walk.h. */
#include "runtime/grammar/grammar_walk.h"

#include "base/mem.h"
#include "runtime/grammar/grammar_step.h"

#include <stdlib.h>
#include <string.h>

enum { NEXT_MOST = 1 << 18, ASCII = 128, LAST_CODE = 0x10ffff };
static const uint32_t WALK_REFUSED = UINT32_MAX;

// ---- Classes ------------------------------------------------------------------------------------

static int ascending(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t class_of(const struct grammar_walk *w, uint32_t code) {
    uint32_t low = 0, high = w->n_classes;
    if (code >= w->classes[high - 1]) return high - 1; // so are most that are no ASCII
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (w->classes[middle] <= code)
            low = middle;
        else
            high = middle;
    }
    return low;
}

// Each end of a range begins a class.
static enum status make_classes(struct grammar_walk *w, const struct grammar *g, struct err *e) {
    const size_t most = 2 * (size_t)g->n_ranges + 1;
    uint32_t n = 0;
    w->classes = mem_alloc(most, sizeof *w->classes);
    if (!w->classes) return err_memory(e, most * sizeof *w->classes, "the grammar's characters");
    w->classes[n++] = 0;
    for (uint32_t i = 0; i < g->n_ranges; i++) {
        w->classes[n++] = g->ranges[i].first;
        if (g->ranges[i].last < LAST_CODE) w->classes[n++] = g->ranges[i].last + 1;
    }
    qsort(w->classes, n, sizeof *w->classes, ascending);
    w->n_classes = 1;
    for (uint32_t i = 1; i < n; i++)
        if (w->classes[i] != w->classes[w->n_classes - 1])
            w->classes[w->n_classes++] = w->classes[i];
    for (uint32_t c = 0; c < ASCII; c++) w->ascii[c] = class_of(w, c);
    return OK;
}

// ---- Positions ----------------------------------------------------------------------------------

static uint32_t bucket_of(const struct grammar_position *p) {
    uint64_t h = p->n_tops;
    for (uint32_t i = 0; i < p->n_tops; i++) h = (h ^ p->tops[i]) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32) % GRAMMAR_WALK_POSITIONS;
}

// The number of the position, which gets one if it has none; 0 and full if there is no room. Never
// 0 else: the first position stands for the accepted text, which may end within a character.
static uint32_t intern(struct grammar_walk *w, const struct grammar_position *p) {
    uint32_t *bucket = &w->buckets[bucket_of(p)];
    const size_t size = p->n_tops * sizeof *p->tops;
    for (uint32_t i = *bucket; i; i = w->positions[i - 1].same_bucket) {
        const struct grammar_walk_position *known = &w->positions[i - 1];
        if (known->n_tops == p->n_tops && memcmp(w->tops + known->first, p->tops, size) == 0)
            return i - 1;
    }
    if (w->n_positions == w->most_positions || w->n_tops + p->n_tops > GRAMMAR_WALK_TOPS) {
        w->full = true;
        return 0;
    }
    const uint32_t at = w->n_positions++;
    w->positions[at] = (struct grammar_walk_position){w->n_tops, p->n_tops, *bucket};
    if (at > 0) *bucket = at + 1;
    memcpy(w->tops + w->n_tops, p->tops, size);
    w->n_tops += p->n_tops;
    memset(w->next + (size_t)at * w->n_classes, 0, w->n_classes * sizeof *w->next);
    return at;
}

static void restart(struct grammar_walk *w) {
    const struct grammar_position *now = &w->state->now;
    grammar_roll_back(w->state, w->n_nodes);
    memset(w->buckets, 0, sizeof w->buckets);
    w->n_positions = w->n_tops = 0;
    w->full = false;
    w->places[0] =
        (struct grammar_walk_place){intern(w, now), now->partial, now->n_missing, now->after_lead};
    w->n_places = 1;
}

static struct grammar_position view(const struct grammar_walk *w,
                                    const struct grammar_walk_place *place) {
    const struct grammar_walk_position *p = &w->positions[place->position];
    return (struct grammar_position){.tops = w->tops + p->first,
                                     .n_tops = p->n_tops,
                                     .partial = place->partial,
                                     .n_missing = place->n_missing,
                                     .after_lead = place->after_lead};
}

// The position behind a whole character, plus 1, or WALK_REFUSED.
static uint32_t compute(struct grammar_walk *w, const struct grammar_walk_place *place,
                        uint32_t code) {
    const struct grammar_position in = view(w, place);
    struct grammar_state *s = w->state;
    s->too_large = false;
    const bool goes_on = grammar_step(s, &in, code, &s->next[0]);
    w->full |= s->too_large;
    return goes_on ? intern(w, &s->next[0]) + 1 : WALK_REFUSED;
}

// ---- Texts --------------------------------------------------------------------------------------

// Fills *out with the place behind a whole character after *in. False if it is refused or a table
// is full.
static bool walk_character(struct grammar_walk *w, const struct grammar_walk_place *in,
                           uint32_t class, uint32_t code, struct grammar_walk_place *out) {
    uint32_t *next = w->next + (size_t)in->position * w->n_classes + class;
    if (!*next) {
        const uint32_t computed = compute(w, in, code);
        if (w->full) return false;
        *next = computed;
    }
    out->position = *next - 1;
    out->partial = out->n_missing = 0;
    out->after_lead = false;
    return *next != WALK_REFUSED;
}

static bool walk_byte(struct grammar_walk *w, const struct grammar_walk_place *in, uint8_t byte,
                      struct grammar_walk_place *out) {
    if (byte < ASCII && in->n_missing == 0) return walk_character(w, in, w->ascii[byte], byte, out);
    struct grammar_position at = view(w, in);
    bool whole;
    if (!grammar_take_byte(&at, byte, &whole)) return false;
    if (whole) return walk_character(w, in, class_of(w, at.partial), at.partial, out);
    out->position = in->position;
    out->partial = at.partial;
    out->n_missing = at.n_missing;
    out->after_lead = at.after_lead;
    return true;
}

static size_t walk(struct grammar_walk *w, const char *text, size_t length, size_t shared) {
    size_t i = shared < w->n_places ? shared : w->n_places - 1;
    struct grammar_walk_place far[2]; // behind the bytes that places has no room for, in turn
    const struct grammar_walk_place *in = &w->places[i];
    w->n_places = i + 1;
    for (; i < length; i++) {
        const bool kept = i < GRAMMAR_WALK_DEPTH;
        struct grammar_walk_place *out = kept ? &w->places[i + 1] : &far[i % 2];
        if (!walk_byte(w, in, (uint8_t)text[i], out)) return i;
        w->n_places += kept;
        in = out;
    }
    if (in->n_missing == 0) return length;
    const struct grammar_position end = view(w, in);
    return grammar_partial_fits(w->state, &end) ? length : length - 1;
}

size_t grammar_walk_prefix(struct grammar_walk *w, const char *text, size_t length, size_t shared) {
    size_t fits = walk(w, text, length, shared);
    if (!w->full) return fits;
    restart(w);
    fits = walk(w, text, length, 0);
    if (!w->full) return fits;
    restart(w); // this text alone takes all room
    return grammar_prefix(w->state, text, length);
}

// ---- Begin and end ------------------------------------------------------------------------------

enum status grammar_walk_open(struct grammar_walk *w, struct grammar_state *s, struct err *e) {
    *w = (struct grammar_walk){.state = s};
    if (make_classes(w, s->grammar, e)) return e->status;
    w->most_positions = NEXT_MOST / w->n_classes;
    if (w->most_positions > GRAMMAR_WALK_POSITIONS) w->most_positions = GRAMMAR_WALK_POSITIONS;
    if (w->most_positions < GRAMMAR_WALK_DEPTH) w->most_positions = GRAMMAR_WALK_DEPTH;
    w->next = mem_alloc((size_t)w->most_positions * w->n_classes, sizeof *w->next);
    w->tops = mem_alloc(GRAMMAR_WALK_TOPS, sizeof *w->tops);
    if (w->next && w->tops) return OK;
    const size_t size = (size_t)w->most_positions * w->n_classes * sizeof *w->next;
    grammar_walk_close(w);
    return err_memory(e, size, "the positions in a grammar");
}

void grammar_walk_close(struct grammar_walk *w) {
    mem_free(w->classes);
    mem_free(w->next);
    mem_free(w->tops);
    *w = (struct grammar_walk){0};
}

void grammar_walk_begin(struct grammar_walk *w) {
    w->n_nodes = w->state->n_nodes;
    restart(w);
}

void grammar_walk_end(struct grammar_walk *w) { grammar_roll_back(w->state, w->n_nodes); }
