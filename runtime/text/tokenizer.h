/* tokenizer.h: converts text to token ids and back, with the vocabulary in a GGUF file.
 *
 * A struct tokenizer owns its tables and borrows piece texts from the GGUF mapping: the gguf must
 * stay open. Read-only after tokenizer_open: any number of threads may encode at once. Must not
 * know the model. Four families: BPE of bytes (tokenizer.ggml.model "gpt2") or of characters
 * ("gemma4"), and SentencePiece BPE ("llama") and unigram ("t5"). Tested by
 * tests/runtime/test_tokenizer.c, tests/fuzz/fuzz_tokenizer.c and the goldens of the original
 * tokenizers.
 */
#ifndef TANDEM_RUNTIME_TEXT_TOKENIZER_H
#define TANDEM_RUNTIME_TEXT_TOKENIZER_H

#include "base/err.h"
#include "base/log.h"
#include "runtime/gguf/gguf.h"
#include "runtime/text/token_list.h"

#include <stdbool.h>
#include <stdint.h>

struct tokenizer; // opaque

struct tokenizer_flags {
    bool add_special; // BOS first and EOS last where the vocabulary asks for it
    bool
        parse_special; // control tokens in the text become their ids; otherwise they are plain text
    const uint8_t *data; // with parse_special: [length], 1: no control token may take this byte;
                         // NULL: every byte is free; borrowed
};

// Builds the tables from g, which is borrowed until tokenizer_close. ERR_FORMAT or ERR_UNSUPPORTED
// name the key and the fix. Warnings (missing or approximated pre-tokenizer, ignored ids) go to
// log, which may be NULL.
enum status tokenizer_open(struct tokenizer **t, const struct gguf *g, const struct log *log,
                           struct err *e);
void tokenizer_close(struct tokenizer *t); // NULL is allowed

// Appends the ids of text[length] to *out; a failure leaves *out unchanged. The text may hold any
// bytes, also zeros and bytes that are not UTF-8: each of those is separated from its neighbours
// like a control character and keeps its value. ERR_UNSUPPORTED names the first character or byte
// for which the vocabulary has no token, not even an unknown one. The Qwen families convert the
// text to Unicode normal form C, unigram models by the map in their file. Control tokens come out
// only with parse_special, user-defined tokens always. ERR_LIMIT above 512 MiB.
enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t length,
                             struct tokenizer_flags flags, struct token_list *out, struct err *e);

uint32_t tokenizer_count(const struct tokenizer *t); // tokens in the vocabulary
enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id);
int32_t tokenizer_bos(const struct tokenizer *t); // -1: none
int32_t tokenizer_eos(const struct tokenizer *t); // -1: none
bool tokenizer_adds_bos(const struct tokenizer *t);
bool tokenizer_is_end(const struct tokenizer *t, int32_t id); // ends a generation
// As stored in the vocabulary, borrowed until tokenizer_close; spaces in user-defined tokens of
// SentencePiece are U+2581. Empty if there is no such id.
struct gguf_text tokenizer_piece(const struct tokenizer *t, int32_t id);
int32_t tokenizer_find(const struct tokenizer *t, const char *piece,
                       size_t length); // id of a stored piece, or -1

// Converts one token to text, without buffering: at most capacity bytes are written, the full
// length is returned. Control tokens give no text unless special is set. first: the token starts
// the text (SentencePiece drops a space).
size_t tokenizer_decode(const struct tokenizer *t, int32_t id, bool first, bool special, char *out,
                        size_t capacity);

// A streaming detokenizer: holds back the tail of a UTF-8 character until it is whole. Caller owns
// it, on the stack.
struct token_stream {
    const struct tokenizer *tokenizer; // borrowed
    char held[8];                      // bytes of an unfinished character
    uint32_t n_held;
    bool started, special;
};
void token_stream_init(struct token_stream *s, const struct tokenizer *t, bool special);
// Takes one token and writes all whole characters to out[capacity]; returns their bytes. capacity
// must be at least 8 + the longest piece (tokenizer_longest). Bytes that can never become UTF-8 are
// written as U+FFFD.
size_t token_stream_push(struct token_stream *s, int32_t id, char *out, size_t capacity);
// Writes the held bytes as U+FFFD, at the end of a text.
size_t token_stream_finish(struct token_stream *s, char *out, size_t capacity);
// The most bytes that one token can become, with U+FFFD for each byte that is not UTF-8.
size_t tokenizer_longest(const struct tokenizer *t);

#endif
