/* breakers.h: texts at which the search for repetitions stops, as sequences of tokens.
 *
 * A text begins within a token, or is inside it; what is left of it behind that token is a tail of
 * tokens. A struct breakers owns its tables and copies the texts' tokens; nothing is allocated
 * after breakers_open. Must not know a sampler. Opened by one thread, then read by any. Tested by
 * tests/runtime/test_sampler.c.
 */
#ifndef TANDEM_RUNTIME_GENERATE_BREAKERS_H
#define TANDEM_RUNTIME_GENERATE_BREAKERS_H

#include "runtime/text/tokenizer.h"

enum { BREAKER_TAIL = 20 }; // tokens of the longest tail

struct breaker {
    int32_t head, n_tail;
    int32_t tail[BREAKER_TAIL]; // [n_tail]
};

struct breakers {
    struct breaker *list; // [n], by ascending head; owned
    int32_t n, capacity;
};

// Finds every token of the vocabulary in which one of texts[n] begins. Empty texts are ERR_USAGE,
// as are those beyond 40 bytes; ERR_MEMORY. On failure *b is closed.
enum status breakers_open(struct breakers *b, const struct tokenizer *t, const char *const *texts,
                          int32_t n, struct err *e);
void breakers_close(struct breakers *b); // accepts a zeroed one; leaves it zeroed

// The breakers with that head, from the returned one on; *n is their number, which may be 0.
const struct breaker *breakers_of(const struct breakers *b, int32_t head, int32_t *n);

#endif
