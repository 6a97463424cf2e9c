/* twister.h: the random numbers of std::mt19937, by which llama-perplexity draws tasks.
 *
 * The caller owns the struct. Source: Matsumoto and Nishimura 1998. One thread. Tested by
 * tests/runtime/test_choice_tasks.c.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_TWISTER_H
#define TANDEM_RUNTIME_COMMANDS_TWISTER_H

#include <stdint.h>

enum { TWISTER_WORDS = 624 };
struct twister {
    uint32_t words[TWISTER_WORDS];
    int32_t at; // of the next word
};

void twister_init(struct twister *t, uint32_t seed);
uint32_t twister_next(struct twister *t);

#endif
