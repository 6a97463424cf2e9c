/* vocab_build.h: small vocabularies for tests of the tokenizer, valid ones and broken ones.
 *
 * A struct vocab_build owns nothing but itself: texts are borrowed. Fields may be changed freely
 * before vocab_write. A refused allocation ends the test. One thread.
 */
#ifndef TANDEM_TESTS_LIB_VOCAB_BUILD_H
#define TANDEM_TESTS_LIB_VOCAB_BUILD_H

#include "runtime/text/tokenizer.h"
#include "tests/lib/gguf_build.h"

enum { VOCAB_ROOM = 512 };

struct vocab_key {
    const char *key;
    enum gguf_type type; // an integer type, bool or string
    int64_t number;
    const char *text;
};

struct vocab_build {
    const char *model, *pre; // NULL: no such key
    const char *tokens[VOCAB_ROOM];
    int32_t types[VOCAB_ROOM];
    float scores[VOCAB_ROOM];
    bool whole_scores; // they are written as i32
    const char *merges[VOCAB_ROOM];
    uint64_t n_tokens, n_types, n_scores, n_merges; // 0: no such key
    struct vocab_key keys[16];
    int n_keys;
    const uint8_t *charsmap; // NULL: no such key
    uint64_t n_charsmap;
    char byte_texts[256][8];
};

// Byte-level BPE, pre-tokenizer "gpt-2": ids 0 to 255 are the bytes.
void vocab_init_bpe(struct vocab_build *v);
// SentencePiece: <unk>, <s>, </s>, then the bytes from id 3 on. No space prefix.
void vocab_init_spm(struct vocab_build *v);

// Each returns the id of the token.
int32_t vocab_add(struct vocab_build *v, const char *text, enum token_kind kind, float score);
// Adds the merge "A B" and the token AB, whose text is given.
int32_t vocab_merge(struct vocab_build *v, const char *merge, const char *text);
void vocab_key(struct vocab_build *v, struct vocab_key key);

// The GGUF file.
void vocab_write(const struct vocab_build *v, struct gguf_build *b);

#endif
