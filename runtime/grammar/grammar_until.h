/* grammar_until.h: writes rules of GBNF for a text that goes on until a mark comes.
 *
 * Owns nothing. One thread. Tested by tests/runtime/test_reply_grammar.c.
 */
#ifndef TANDEM_RUNTIME_GRAMMAR_GRAMMAR_UNTIL_H
#define TANDEM_RUNTIME_GRAMMAR_GRAMMAR_UNTIL_H

#include "runtime/grammar/schema_text.h"

enum { GRAMMAR_MARK_MOST = 64, GRAMMAR_ENDS_MOST = 3 };
struct grammar_end {
    const char *mark, *then;
};

// Adds rules NAME-0, NAME-1, ...: NAME-0 is any text up to the first mark, the mark, and what then
// (rules, or an empty text) describes. may_end: or any text without a mark. mark is UTF-8 of 1 to
// GRAMMAR_MARK_MOST characters.
void grammar_add_until(struct schema_text *out, const char *name, const char *mark,
                       const char *then, bool may_end);
// The same for several marks, the first of which to come ends the text; each has its own then. None
// may begin another one.
void grammar_add_until_either(struct schema_text *out, const char *name,
                              const struct grammar_end *ends, int n_ends, bool may_end);

#endif
