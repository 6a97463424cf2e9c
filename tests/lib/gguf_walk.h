/* gguf_walk.h: reads everything of an open GGUF file through the public API, and checks what the
 * reader promises. Shared by tests/runtime/test_gguf.c, tests/fuzz/fuzz_gguf.c and
 * tests/lib/mutate_gguf.c, so that an accepted file is one that a caller can use without further
 * checks. A broken promise ends the process. One thread.
 */
#ifndef TANDEM_TESTS_LIB_GGUF_WALK_H
#define TANDEM_TESTS_LIB_GGUF_WALK_H

#include "runtime/gguf/gguf.h"

#include <stddef.h>
#include <stdint.h>

// Touches every key, element and name, and both ends of every tensor. Returns a sum over what was
// read, so that no read can be optimised away.
uint64_t gguf_walk(const struct gguf *g);

// Opens the bytes as a file in memory, walks it if it is accepted, and checks that an error says
// what is wrong, in printable text. Returns what gguf_open did.
enum status gguf_walk_bytes(const uint8_t *bytes, size_t size_bytes);

#endif
