/* draft.h: guesses the next tokens of a text, so that the model can check several in one pass, and
 * finds out whether that saves time.
 *
 * A guess is no more than that: generate.c draws every token by itself, and the first that was not
 * guessed ends the draft. A struct draft_pace is plain numbers that own nothing; nothing here
 * allocates, reads a clock or calls the engine. One thread. Tested by tests/runtime/test_draft.c.
 */
#ifndef TANDEM_RUNTIME_GENERATE_DRAFT_H
#define TANDEM_RUNTIME_GENERATE_DRAFT_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

// The defaults and the range of llama.cpp for --spec-ngram-simple-size-n and -m.
enum { DRAFT_SIZE_N = 12, DRAFT_SIZE_M = 48, DRAFT_SIZE_MOST = 1024 };

// A text: tokens[n], then last.
struct draft_text {
    const int32_t *tokens; // [n], borrowed during a call
    int32_t n;
    int32_t last;
    double one_ns;  // that a pass of one token takes, which each right guess saves; 0: not known
    double more_ns; // that each guess adds to a pass
};

struct draft_guess {
    int32_t n;         // tokens
    double planned_us; // that guessing takes by a plan; 0: not known
};

struct draft_options {
    int32_t size_n; // so many last tokens must have stood in the text before; 0: no drafts
    int32_t size_m; // tokens of a draft, at most
    bool always;    // also drafts that cost more time than they save
    // Fills out with at most most next tokens of the text; with most 0 it only gets ready for texts
    // that go on from this one. Errors end the text, ERR_CANCELLED as the sink does. NULL:
    // draft_find.
    enum status (*guess)(void *context, const struct draft_text *text, int32_t most, int32_t *out,
                         struct draft_guess *guess, struct err *e);
    void *context; // borrowed as long as the generator is open
};

// Finds the last earlier place where the last size_n tokens of the text stand. Fills out with the
// tokens behind it, at most most, as if the text repeated itself from there, and returns how many;
// 0 if there is no such place. Reads the text once.
int32_t draft_find(const struct draft_text *text, int32_t size_n, int32_t most, int32_t *out);

// Passes without a draft that are a rest: what makes drafts reads what they wrote before the next.
enum { DRAFT_REST = 8 };

// How long drafts are, by how many of their tokens were drawn and the time that passes and guesses
// took.
//
// A draft is twice as long after one that was drawn whole, and one token longer than what was drawn
// of one that was not, at least 2. The balance adds up the time that drafts saved: that of a pass
// of one token for each token they gave, less their own and that of guessing. When they have lost
// the time of 4 tokens, none is made for 16 passes, then for 32 and so on up to 1024, until they
// have saved as much. So a text that drafts do not help loses few tokens' time. After 16 passes
// with drafts one has none, for its time is what drafts are judged by.
struct draft_pace {
    int32_t length;    // tokens of the next draft, at most; 0: the first
    int32_t n_skipped; // passes that go on without drafts
    int32_t pause;     // n_skipped of the next pause; 0: the shortest
    int32_t n_drafts;  // passes with a draft since the last one without
    bool cut;          // the last pass had tokens that were not drawn
    double one_ns;     // of a pass of one token, smoothed; 0: none was measured
    double more_ns;    // that each token of a draft added, smoothed
    double balance_ns; // saved by drafts; below 0: lost
};

// Tokens of the next draft, at most most. The first pass of all has none, as there is nothing to
// compare a draft with.
int32_t draft_pace_length(const struct draft_pace *p, int32_t most);
// Notes a pass of one token and n_drafted ones, of which n_accepted were drawn afterwards: the pass
// took ns, and guessing before it guess_ns.
void draft_pace_note(struct draft_pace *p, int32_t n_drafted, int32_t n_accepted, double ns,
                     double guess_ns);

#endif
