/* constraint.h: keeps an answer within a grammar: which tokens may come next.
 *
 * A struct constraint owns the grammar, the state of the answer and the texts of all tokens, and
 * borrows the tokenizer; nothing is allocated after constraint_open. Must not draw. One thread.
 * Tested by tests/runtime/test_constraint.c.
 */
#ifndef TANDEM_RUNTIME_GENERATE_CONSTRAINT_H
#define TANDEM_RUNTIME_GENERATE_CONSTRAINT_H

#include "runtime/grammar/grammar.h"
#include "runtime/grammar/grammar_walk.h"
#include "runtime/text/chat_reply.h"
#include "runtime/text/tokenizer.h"

struct constraint_token {
    int32_t token;
    uint8_t shared; // first bytes of its text that are those of the one before, up to 255
    bool is_end;    // it ends the answer
};

struct constraint {
    struct grammar grammar;
    struct grammar_state state;
    struct grammar_walk walk;
    const struct tokenizer *tokenizer; // borrowed; NULL: everything is allowed
    // Tokens in the order of their texts, by their place in it; all lists are owned.
    char *texts;                    // [ends[n_tokens]]
    uint32_t *ends;                 // [n_tokens + 1]: text i is from ends[i] to ends[i + 1]
    struct constraint_token *order; // [n_tokens]
    int32_t *places;                // [n_tokens]: the place of each token
    float *logits;                  // [n_vocab], owned
    int32_t n_tokens, n_vocab;
    bool ignores_end;        // tokens that end the answer may never come; set by the owner
    struct chat_style style; // in whose thoughts no answer ends; set by the owner, and borrowed
    struct chat_reply reply; // tells where the answer is, if the style has thoughts
};

// Reads the grammar, of which answers obey the rule root. Errors as grammar_parse's; on failure *c
// is closed.
enum status constraint_open(struct constraint *c, const char *grammar, const char *root,
                            const struct tokenizer *t, int32_t n_vocab, struct err *e);
void constraint_close(struct constraint *c); // accepts a zeroed one; leaves it zeroed
// Begins a new answer, of which opening is there already. ERR_LIMIT, ERR_FORMAT.
enum status constraint_begin(struct constraint *c, const char *opening, struct err *e);

// True if the token may come next: its text does, or it ends the answer and the answer may end.
// Control tokens have no text and may not come.
bool constraint_allows(struct constraint *c, int32_t token);
// Returns the logits [n_vocab] with -inf for every token that may not come next, valid until the
// next call; NULL if none may.
const float *constraint_mask(struct constraint *c, const float *logits);
// True if the answer may end: the grammar says so, and no thought is open.
bool constraint_can_end(const struct constraint *c);
// Takes a token that does not end the answer. ERR_LIMIT, ERR_FORMAT if it may not come.
enum status constraint_accept(struct constraint *c, int32_t token, struct err *e);

#endif
