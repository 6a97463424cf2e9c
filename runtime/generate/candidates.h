/* candidates.h: the tokens that may be drawn, and the steps of sampling that cut or reweigh them.
 *
 * A struct candidates borrows its list; a step drops candidates or changes logits in place and
 * allocates nothing. Every step leaves at least one candidate whose logit is above -inf if there
 * was one; among equals the lower token goes first. Must not draw random numbers. One thread.
 * Tested by tests/runtime/test_sampler.c. Source: the formulas of llama.cpp, for equal results.
 */
#ifndef TANDEM_RUNTIME_GENERATE_CANDIDATES_H
#define TANDEM_RUNTIME_GENERATE_CANDIDATES_H

#include <stdint.h>

struct candidate {
    float logit; // -inf: never drawn
    float p;     // as the last candidates_softmax made it
    int32_t token;
};

struct candidates {
    struct candidate *list; // [n], in any order
    int32_t n;              // above 0
};

void candidates_softmax(struct candidates *c); // fills the probabilities

// The index of the likeliest.
int32_t candidates_best(const struct candidates *c);

// Each keeps what its name says. k of 0 or less and p of 1 or more keep all.
void candidates_top_k(struct candidates *c, int32_t k);
void candidates_top_p(struct candidates *c, float p);
void candidates_typical(struct candidates *c, float p); // 0 or less keeps all too
void candidates_min_p(struct candidates *c, float p);   // 0 or less keeps all

// Gives -inf to those more than n standard deviations of the logits below the best; 0 or less: off.
void candidates_top_n_sigma(struct candidates *c, float n);

// Where two or more reach the threshold, drops all of these but the least likely.
void candidates_exclude_top(struct candidates *c, float threshold);

// Divide the logits by a temperature above 0; the second one by low to high, as the entropy of the
// candidates is low or high. A temperature that comes out as 0, or so low that the best logit would
// become infinite, leaves the best alone.
void candidates_temper(struct candidates *c, float temp);
void candidates_temper_by_entropy(struct candidates *c, float low, float high, float exponent);

// Cut by the surprise mu, in bits, that a token may have. Mirostat 1 estimates from the likeliest
// how the probabilities of n_vocab tokens fall off. Source: Basu et al. 2021.
void candidates_mirostat_1(struct candidates *c, float mu, int32_t n_vocab);
void candidates_mirostat_2(struct candidates *c, float mu);

#endif
