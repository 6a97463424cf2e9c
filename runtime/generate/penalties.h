/* penalties.h: makes tokens less likely that the last tokens of the text hold, or that would
 * continue a repetition of their end (DRY).
 *
 * A struct penalties owns its window of recent tokens and its tables; nothing is allocated after
 * penalties_open. Without any penalty it does nothing. Must not draw. One thread. Tested by
 * tests/runtime/test_sampler.c. Source: the formulas of llama.cpp, for equal results.
 */
#ifndef TANDEM_RUNTIME_GENERATE_PENALTIES_H
#define TANDEM_RUNTIME_GENERATE_PENALTIES_H

#include "base/err.h"
#include "runtime/generate/breakers.h"
#include "runtime/generate/candidates.h"

#include <stdbool.h>

struct penalty_options {
    float repeat;    // 1: off; above 0. Logits above 0 are divided by it, others multiplied
    float frequency; // taken from the logit for each time that a token occurs
    float presence;  // taken once
    int32_t last_n;  // tokens that are looked at; 0: off, -1: n_ctx
};

// Takes multiplier * base^(length - allowed_length) from the logit of a token that would continue a
// repetition of length tokens. Source: "Don't repeat yourself", p-e-w 2024.
struct dry_options {
    float multiplier; // 0: off
    float base;       // below 1: off
    int32_t allowed_length;
    int32_t last_n;                  // tokens that are looked at; 0: off, -1: n_ctx
    const struct breakers *breakers; // no repetition reaches across one; borrowed; NULL: none
};

bool dry_is_on(const struct dry_options *o);

struct penalties {
    struct penalty_options repeat;
    struct dry_options dry;
    int32_t *recent; // [n_window], owned: a ring
    int32_t n_window, n_recent, next;
    int32_t *counts;  // [n_vocab], owned, all 0 between calls
    int32_t *lengths; // [n_window], owned: of the repetitions
};

// n_ctx is the longest window. ERR_MEMORY; on failure *p is closed.
enum status penalties_open(struct penalties *p, const struct penalty_options *repeat,
                           const struct dry_options *dry, int32_t n_vocab, int32_t n_ctx,
                           struct err *e);
void penalties_close(struct penalties *p); // accepts a zeroed one; leaves it zeroed

void penalties_accept(struct penalties *p, int32_t token); // the next token of the text
void penalties_forget(struct penalties *p);                // the text is empty

void penalties_repeat(struct penalties *p, struct candidates *c);
void penalties_dry(struct penalties *p, struct candidates *c);

#endif
