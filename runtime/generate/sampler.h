/* sampler.h: picks the next token from logits, by the chain of llama.cpp.
 *
 * The chain is: logit bias, penalties, DRY, top-n-sigma, top-k, typical, top-p, min-p, XTC,
 * temperature, draw, where all between the bias and the draw may come in another order; a
 * temperature of 0 or less takes the likeliest token that is left. Mirostat is: bias, temperature,
 * cut, draw. A struct sampler owns its candidate list, its window of recent tokens and its random
 * numbers, and borrows the sequence breakers; nothing is allocated after sampler_init. The same
 * seed, logits and history give the same tokens. One thread per sampler. Tested by
 * tests/runtime/test_sampler.c.
 */
#ifndef TANDEM_RUNTIME_GENERATE_SAMPLER_H
#define TANDEM_RUNTIME_GENERATE_SAMPLER_H

#include "base/err.h"
#include "runtime/generate/candidates.h"
#include "runtime/generate/penalties.h"
#include "runtime/generate/sampler_order.h"

#include <stdbool.h>
#include <stdint.h>

struct logit_bias {
    int32_t token;
    float bias; // added to the logit; -inf: never draw it
};

struct sampler_options {
    float temp;                                // 0 or less: greedy
    int32_t top_k;                             // 0 or less: off
    float top_p;                               // 1 or more: off
    float min_p;                               // 0 or less: off
    float repeat_penalty;                      // 1: off; above 0
    int32_t repeat_last_n;                     // tokens of the window; -1: n_ctx
    int64_t seed;                              // -1: random
    float frequency_penalty, presence_penalty; // 0: off; over the same window
    float typical_p;                           // 0, or 1 and more: off
    float top_n_sigma;                         // 0 or less: off
    float xtc_probability, xtc_threshold;      // 0, or a threshold above 0.5: off
    float dynatemp_range, dynatemp_exponent;   // a range of 0: off
    struct dry_options dry;
    int32_t mirostat; // 0: off, 1 or 2: its version
    float mirostat_tau, mirostat_eta;
    struct sampler_order order;
    const struct logit_bias *biases; // [n_biases], borrowed as long as the sampler is
    int32_t n_biases;
};

// The values that users of llama.cpp expect, with a random seed.
struct sampler_options sampler_defaults(void);

struct sampler {
    struct sampler_options options; // seed is the one in use, order is filled
    int32_t n_vocab;
    struct candidate *memory;     // [n_vocab], owned
    struct candidates candidates; // in memory: those that the last sampler_apply left
    struct penalties penalties;
    bool greedy, cuts; // takes the likeliest; cuts decide which one that is, or the draw is free
    float mu;          // of mirostat: the surprise that it aims at
    uint64_t state[4];
};

// n_ctx is the longest window. ERR_USAGE for a bias of a token beyond n_vocab or one that is no
// number below +inf, ERR_MEMORY. On failure *s is closed.
enum status sampler_init(struct sampler *s, const struct sampler_options *options, int32_t n_vocab,
                         int32_t n_ctx, struct err *e);
void sampler_close(struct sampler *s); // accepts a zeroed one; leaves it zeroed

// Puts a token of the text, given or drawn, into the window of the penalties.
void sampler_accept(struct sampler *s, int32_t token);
void sampler_forget_text(struct sampler *s); // empties the window
void sampler_forget(struct sampler *s);      // the same, and mirostat begins anew

// Runs the chain up to the draw on logits[n_vocab]: leaves s->candidates with probabilities, by
// which one would be drawn; a greedy sampler leaves the likeliest among others. ERR_DEVICE if a
// logit is NaN or +inf, or if all are -inf: whatever computed them is broken. ERR_USAGE if the
// biases leave no token.
enum status sampler_apply(struct sampler *s, const float *logits, struct err *e);

// Fills *token from logits[n_vocab]. -inf is never drawn. The lowest token wins among equal logits.
// Errors as sampler_apply's.
enum status sampler_draw(struct sampler *s, const float *logits, int32_t *token, struct err *e);

// Draws a number in [0, 1) from the random numbers of s. Public for its test.
double sampler_uniform(struct sampler *s);

#endif
