/* mutate_gguf.h: random mutants of GGUF files, the same ones for the same seed.
 *
 * Changes bytes in place; the caller owns them. Knows nothing of the format but that the header is
 * in front. Used by tests/runtime/test_gguf.c, which can also write a mutant to a file for tests of
 * the whole program. One thread.
 */
#ifndef TANDEM_TESTS_LIB_MUTATE_GGUF_H
#define TANDEM_TESTS_LIB_MUTATE_GGUF_H

#include "tests/lib/gguf_build.h"

#include <stdint.h>

// Applies one to four changes: flipped bits, a telling integer, a chunk that is lost or doubled,
// an early end.
void mutate_gguf(struct gguf_bytes *file, uint64_t seed);

#endif
