/* pretokenize.h: cuts text into words before byte-level BPE, as the regular expressions of the
 * original tokenizers do.
 *
 * A pretokenizer owns compiled PCRE2 patterns and is read-only after opening: any number of threads
 * may split at once. Must not know a vocabulary. Words are ranges of the text: nothing is dropped
 * and nothing is changed. Tested by tests/runtime/test_tokenizer.c and tests/fuzz/fuzz_tokenizer.c.
 */
#ifndef TANDEM_RUNTIME_TEXT_PRETOKENIZE_H
#define TANDEM_RUNTIME_TEXT_PRETOKENIZE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct pretokenizer; // opaque

// Further behaviour of the original tokenizer with that pre-tokenizer name.
struct pretokenizer_traits {
    bool ignore_merges; // a word that is a token is taken whole, before any merge
    bool add_bos;       // BOS comes first unless the file says otherwise
    bool nfc;           // text is put into Unicode normal form C first
    bool characters;    // BPE merges characters, and spaces are U+2581, else bytes
};

struct split_list {       // where each word ends, ascending; the caller owns it
    size_t *ends, *spare; // spare holds the words of the previous pattern while one runs
    size_t count, capacity;
};

// Compiles the patterns of name ("llama-bpe", "qwen2", ...: tokenizer.ggml.pre). ERR_UNSUPPORTED
// for a name that is not known.
enum status pretokenizer_open(struct pretokenizer **p, const char *name, size_t length,
                              struct err *e);
void pretokenizer_close(struct pretokenizer *p); // NULL is allowed
const struct pretokenizer_traits *pretokenizer_traits(const struct pretokenizer *p);

// Replaces the words of *out by those of text[length]. A byte that is not part of a UTF-8 character
// counts as one control character.
enum status pretokenizer_split(const struct pretokenizer *p, const char *text, size_t length,
                               struct split_list *out, struct err *e);
void split_list_close(struct split_list *list);

#endif
