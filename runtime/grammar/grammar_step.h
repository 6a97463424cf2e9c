/* grammar_step.h: one character of a text: what grammar_state.c and grammar_walk.c have in common.
 *
 * Owns nothing. One thread, that of the state. Tested by tests/runtime/test_grammar.c.
 */
#ifndef TANDEM_RUNTIME_GRAMMAR_GRAMMAR_STEP_H
#define TANDEM_RUNTIME_GRAMMAR_GRAMMAR_STEP_H

#include "runtime/grammar/grammar.h"

// Begins or continues the character of *p; *whole: it is complete, and p->partial is its code
// point. False for a byte that cannot be there.
bool grammar_take_byte(struct grammar_position *p, uint8_t byte, bool *whole);
// True if the unfinished character of *p may still become one that is allowed.
bool grammar_partial_fits(const struct grammar_state *s, const struct grammar_position *p);
// Fills *out with what follows the character after *in, and pushes nodes. False if nothing does, or
// s->too_large.
bool grammar_step(struct grammar_state *s, const struct grammar_position *in, uint32_t code,
                  struct grammar_position *out);
// Forgets all nodes from n on, which were pushed last.
void grammar_roll_back(struct grammar_state *s, uint32_t n);

#endif
