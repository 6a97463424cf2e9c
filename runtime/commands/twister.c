/* twister.c: see twister.h. */
#include "runtime/commands/twister.h"

enum { AHEAD = 397 };
static const uint32_t TOP = 0x80000000, MATRIX = 0x9908b0df;

void twister_init(struct twister *t, uint32_t seed) {
    t->words[0] = seed;
    for (uint32_t i = 1; i < TWISTER_WORDS; i++) {
        const uint32_t last = t->words[i - 1];
        t->words[i] = 1812433253U * (last ^ last >> 30) + i;
    }
    t->at = 0;
}

uint32_t twister_next(struct twister *t) {
    uint32_t *word = &t->words[t->at];
    const uint32_t next = t->words[(t->at + 1) % TWISTER_WORDS];
    const uint32_t mixed = (*word & TOP) | (next & ~TOP);
    *word = t->words[(t->at + AHEAD) % TWISTER_WORDS] ^ mixed >> 1 ^ (mixed & 1 ? MATRIX : 0);
    t->at = (t->at + 1) % TWISTER_WORDS;
    uint32_t value = *word;
    value ^= value >> 11;
    value ^= value << 7 & 0x9d2c5680;
    value ^= value << 15 & 0xefc60000;
    return value ^ value >> 18;
}
