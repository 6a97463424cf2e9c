/* charsmap.h: the map of the normaliser of a SentencePiece model: texts and what becomes of them.
 *
 * The map is a double array as the Darts library writes it, followed by the texts that its values
 * point to. Borrows the bytes of the file; read-only: any thread. Nothing in the bytes is trusted.
 * Must not know a vocabulary. Tested by tests/runtime/test_unigram.c, test_tokenizer_golden.c and
 * tests/fuzz/fuzz_tokenizer.c.
 */
#ifndef TANDEM_RUNTIME_TEXT_CHARSMAP_H
#define TANDEM_RUNTIME_TEXT_CHARSMAP_H

#include "runtime/gguf/gguf.h"

struct charsmap { // zeroed: empty
    const uint8_t *units;
    uint32_t n_units;
    struct gguf_text texts; // each ends with a zero
};

// Reads an array of bytes. ERR_FORMAT if it is none, or is cut off.
enum status charsmap_open(struct charsmap *m, const struct gguf_value *value, struct err *e);

// Finds the longest entry at the front of text and what becomes of it, borrowed. Returns its
// length, or 0.
size_t charsmap_match(const struct charsmap *m, struct gguf_text text, struct gguf_text *out);

#endif
