/* grammar_walk.h: tries many texts from one point of a grammar, such as all tokens of a vocabulary.
 *
 * A position that comes again is looked up by its stacks and not computed again, and characters
 * that no set of the grammar tells apart are one class, so that most bytes cost a look into a
 * table. A struct grammar_walk owns its tables, borrows the state and keeps nodes in it between
 * begin and end; nothing is allocated after grammar_walk_open. One thread, that of the state.
 * Tested by tests/runtime/test_grammar.c, tests/runtime/test_constraint.c and
 * tests/fuzz/fuzz_grammar.c.
 */
#ifndef TANDEM_RUNTIME_GRAMMAR_GRAMMAR_WALK_H
#define TANDEM_RUNTIME_GRAMMAR_GRAMMAR_WALK_H

#include "runtime/grammar/grammar.h"

enum { GRAMMAR_WALK_POSITIONS = 1024, GRAMMAR_WALK_TOPS = 1 << 16, GRAMMAR_WALK_DEPTH = 256 };

struct grammar_walk_position {
    uint32_t first, n_tops; // in tops
    uint32_t same_bucket;   // the next position of the bucket, plus 1; 0: none
};

// Where a text is behind one of its bytes.
struct grammar_walk_place {
    uint32_t position, partial, n_missing; // the last ones as in struct grammar_position
    bool after_lead;
};

struct grammar_walk {
    struct grammar_state *state;    // borrowed
    uint32_t *classes;              // [n_classes]: the first code point of each, ascending; owned
    uint32_t n_classes, ascii[128]; // the class of each of the first code points
    uint32_t *next; // [most_positions, n_classes]: the position behind a character of the class,
                    // plus 1; 0: not computed yet; WALK_REFUSED; owned
    uint32_t *tops; // [GRAMMAR_WALK_TOPS] of the positions; owned
    uint32_t n_tops, n_positions, most_positions;
    struct grammar_walk_position positions[GRAMMAR_WALK_POSITIONS]; // the first: the accepted text
    uint32_t buckets[GRAMMAR_WALK_POSITIONS];                       // a position, plus 1; 0: none
    struct grammar_walk_place places[GRAMMAR_WALK_DEPTH + 1];       // behind each byte of the text
    size_t n_places;  // of these, that of an empty text among them
    uint32_t n_nodes; // of the state before the walk
    bool full;        // a table has no room, or the state met a limit
};

// ERR_MEMORY; then *w is closed.
enum status grammar_walk_open(struct grammar_walk *w, struct grammar_state *s, struct err *e);
void grammar_walk_close(struct grammar_walk *w); // accepts a zeroed one; leaves it zeroed

// Between these two the state must not be used but by the walk.
void grammar_walk_begin(struct grammar_walk *w);
void grammar_walk_end(struct grammar_walk *w);

// Says how far text[length] is allowed, as grammar_prefix does. Its first shared bytes are those of
// the text before; 0 is always right.
size_t grammar_walk_prefix(struct grammar_walk *w, const char *text, size_t length, size_t shared);

#endif
