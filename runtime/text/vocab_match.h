/* vocab_match.h: tells whether two models mean the same tokens by the same ids.
 *
 * Reads the headers of their files alone, and owns nothing. Any thread. Tested by
 * tests/runtime/test_draft_model.c.
 */
#ifndef TANDEM_RUNTIME_TEXT_VOCAB_MATCH_H
#define TANDEM_RUNTIME_TEXT_VOCAB_MATCH_H

#include "base/err.h"
#include "runtime/gguf/gguf.h"

// Compares two vocabularies as llama.cpp does: they are of one kind, one has at most 128 tokens
// more than the other, and from id 5 on every token that both have is the same text. ERR_USAGE
// names the first difference, ERR_FORMAT a file without a vocabulary.
enum status vocab_match(const struct gguf *target, const struct gguf *draft, struct err *e);
// The same with the files at two paths. Errors as gguf_open's too.
enum status vocab_match_files(const char *target, const char *draft, struct err *e);

#endif
