/* sampler.h: picks the next token from logits.
 *
 * The chain is: repeat penalty, top-k, top-p, min-p, temperature, draw; a temperature of 0 or less
 * takes the likeliest token that the penalty leaves. A struct sampler owns its candidate list, its
 * window of recent tokens and its random numbers; nothing is allocated after sampler_init. The same
 * seed, logits and history give the same tokens. One thread per sampler. Tested by
 * tests/runtime/test_sampler.c.
 */
#ifndef TANDEM_RUNTIME_GENERATE_SAMPLER_H
#define TANDEM_RUNTIME_GENERATE_SAMPLER_H

#include "base/err.h"

#include <stdint.h>

struct sampler_options {
    float temp;            // 0 or less: greedy
    int32_t top_k;         // 0 or less: off
    float top_p;           // 1 or more: off
    float min_p;           // 0 or less: off
    float repeat_penalty;  // 1: off; above 0
    int32_t repeat_last_n; // tokens of the window; -1: n_ctx
    int64_t seed;          // -1: random
};

struct candidate {
    float logit;
    int32_t token;
};

struct sampler {
    struct sampler_options options; // seed is the one in use
    int32_t n_vocab;
    struct candidate *candidates; // [n_vocab], owned
    float *logits;                // [n_vocab], owned: a copy with the penalty; NULL if it is off
    int32_t *recent;              // [n_window], owned: a ring
    int32_t n_window, n_recent, next;
    uint64_t state[4];
};

// n_ctx is the longest window. ERR_MEMORY if refused.
enum status sampler_init(struct sampler *s, const struct sampler_options *options, int32_t n_vocab,
                         int32_t n_ctx, struct err *e);
void sampler_close(struct sampler *s); // accepts a zeroed one; leaves it zeroed

// Puts a token of the text, given or drawn, into the window of the repeat penalty.
void sampler_accept(struct sampler *s, int32_t token);
void sampler_forget(struct sampler *s); // empties the window

// Fills *token from logits[n_vocab]. -inf is never drawn. The lowest token wins among equal logits.
// ERR_DEVICE if a logit is NaN or +inf, or if all are -inf: whatever computed them is broken.
enum status sampler_draw(struct sampler *s, const float *logits, int32_t *token, struct err *e);

// Draws a number in [0, 1) from the random numbers of s. Public for its test.
double sampler_uniform(struct sampler *s);

#endif
