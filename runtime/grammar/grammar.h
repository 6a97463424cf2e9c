/* grammar.h: grammars in GBNF, the notation of llama.cpp, and which texts they allow.
 *
 * A struct grammar owns its rules and never changes after grammar_parse, so that any thread may
 * read it. A struct grammar_state owns its memory, borrows the grammar and belongs to one thread;
 * nothing is allocated after grammar_state_open. Must not know tokens. Texts are hostile: sizes,
 * nesting and ambiguity have limits. Tested by tests/runtime/test_grammar.c and
 * tests/fuzz/fuzz_grammar.c.
 */
#ifndef TANDEM_RUNTIME_GRAMMAR_GRAMMAR_H
#define TANDEM_RUNTIME_GRAMMAR_GRAMMAR_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- Rules --------------------------------------------------------------------------------------

struct grammar_range { // of code points
    uint32_t first, last;
};

// A step of an alternative: a character of a set, or a rule.
struct grammar_element {
    bool is_rule;
    uint32_t value; // the rule; or the first range of the set
    uint32_t count; // ranges of the set, ascending and apart
    uint32_t next;  // the following element; 0: the alternative ends
};

struct grammar_alternative {
    uint32_t first; // element; 0: it is empty
    uint32_t next;  // alternative of the same rule; 0: the last
};

struct grammar {
    struct grammar_element *elements;         // from 1 on; all lists are owned
    struct grammar_alternative *alternatives; // from 1 on
    uint32_t *rules;                          // [n_rules]: the first alternative of each
    struct grammar_range *ranges;
    uint32_t n_elements, n_alternatives, n_rules, n_ranges, root;
};

enum { GRAMMAR_REPEATS = 2000 }; // the most that a repetition may ask for

// Reads text[length]; whole texts obey the rule that root names. ERR_FORMAT names the line and what
// is wrong: the syntax, a rule that is not defined or begins with itself, no rule root. ERR_LIMIT
// for what is too large, ERR_MEMORY. On failure *g is closed.
enum status grammar_parse(struct grammar *g, const char *text, size_t length, const char *root,
                          struct err *e);
void grammar_close(struct grammar *g); // accepts a zeroed one; leaves it zeroed

// ---- Texts --------------------------------------------------------------------------------------

enum { GRAMMAR_TOPS = 2048, GRAMMAR_NODES = 1 << 16, GRAMMAR_BUCKETS = 1 << 12 };

// A stack of all that has to follow: an element, and what follows the rule that it is in. Equal
// stacks are one node, and a node's parent is before it.
struct grammar_node {
    uint32_t element, parent; // parent 0: nothing follows
    uint32_t same_bucket;     // the next node of the bucket; 0: none
};

// All ways to go on with a text: stacks whose top is a set of characters.
struct grammar_position {
    uint32_t *tops; // [n_tops] of nodes, different ones
    uint32_t n_tops;
    bool can_end;       // the text may end here
    uint32_t partial;   // bits of an unfinished character
    uint32_t n_missing; // its bytes that are still to come; 0: there is none
    bool after_lead;    // partial comes from the first byte alone: overlong forms are to be refused
};

struct grammar_state {
    const struct grammar *grammar; // borrowed
    struct grammar_node *nodes;    // [GRAMMAR_NODES], from 1 on, owned
    uint32_t *buckets;             // [GRAMMAR_BUCKETS]: the first node of each; owned
    uint32_t *memory;              // of the lists below, owned
    uint32_t *work;                // [GRAMMAR_TOPS]: stacks that are not expanded yet
    uint32_t *seen;                // [GRAMMAR_NODES]: the pass in which a node was expanded
    uint32_t n_nodes, pass;
    struct grammar_position now;     // of the accepted text
    struct grammar_position next[2]; // while a text is tried
    bool too_large;                  // the last try met a limit
};

// Begins with the empty text. ERR_MEMORY, ERR_LIMIT. On failure *s is closed.
enum status grammar_state_open(struct grammar_state *s, const struct grammar *g, struct err *e);
void grammar_state_close(struct grammar_state *s); // accepts a zeroed one; leaves it zeroed
void grammar_state_reset(struct grammar_state *s); // the text is empty again

// True if the text may go on with text[length], which may end within a character. Bytes that are no
// UTF-8 are refused, as is what would exceed the limits.
bool grammar_allows(struct grammar_state *s, const char *text, size_t length);
// The same, but says where the refusal is: length if text is allowed, else no text is that begins
// with the returned number of bytes and the one behind them.
size_t grammar_prefix(struct grammar_state *s, const char *text, size_t length);
// Takes text[length] into the text. ERR_FORMAT if the grammar refuses it, ERR_LIMIT; both leave the
// state as it was.
enum status grammar_accept(struct grammar_state *s, const char *text, size_t length, struct err *e);
// True if the text may end here.
bool grammar_can_end(const struct grammar_state *s);

#endif
