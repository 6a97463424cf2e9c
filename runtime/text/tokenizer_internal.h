/* tokenizer_internal.h: the functions that the files of the tokenizer share.
 *
 * tokenizer_load.c fills the tables of vocabulary.h, tokenizer.c splits at special tokens and
 * decodes, tokenizer_bpe.c, tokenizer_spm.c and tokenizer_unigram.c turn the text between special
 * tokens into ids.
 * Included by those files only. The working memory of one call of tokenizer_encode is a struct
 * encode_scratch, which that call owns. Tested through tokenizer.h.
 */
#ifndef TANDEM_RUNTIME_TEXT_TOKENIZER_INTERNAL_H
#define TANDEM_RUNTIME_TEXT_TOKENIZER_INTERNAL_H

#include "runtime/text/pretokenize.h"
#include "runtime/text/vocabulary.h"

struct bpe_symbol {
    int32_t id;
    int32_t result;          // of merging with next
    uint32_t rank;           // of that merge; NO_RANK: none
    uint32_t previous, next; // NO_SYMBOL at the ends
};

struct bpe_candidate {
    uint32_t rank, left;
};

struct spm_symbol {
    uint32_t start, length;  // bytes of the normalised text; length 0: merged away
    uint32_t previous, next; // NO_SYMBOL at the ends
    bool frozen;             // never merged
};

struct spm_candidate {
    float score;
    uint32_t left;   // symbol
    uint32_t length; // of both sides together when it was found
};

struct unigram_node { // the best way to a byte of the text
    float score;
    int32_t id;           // of the last piece; -1: a character without a token
    uint32_t start, next; // bytes where that piece begins, and where the next one ends
};

struct encode_scratch { // zeroed at the start of an encode call
    struct split_list words;
    struct token_buffer symbols, heap;
    struct token_buffer text;   // normalised
    struct token_buffer marked; // with U+2581 for spaces
    struct token_buffer codes;  // code points, for normal form C
    struct token_buffer splits; // SentencePiece: the splits of unused tokens, by id
    struct token_buffer stack;  // SentencePiece: pieces to be split again
    struct gguf_text lost;      // the character or byte without a token that ended the call
};
// Notes what has no token, in memory of the scratch or of the text, and returns ERR_UNSUPPORTED,
// whose message tokenizer_encode writes.
static inline enum status encode_lose(struct encode_scratch *scratch, struct gguf_text character,
                                      struct err *e) {
    scratch->lost = character;
    return err_set(e, ERR_UNSUPPORTED, "no token of the model stands for a part of the text");
}

#define NO_SYMBOL UINT32_MAX
#define NO_RANK   UINT32_MAX

// Appends the ids of text[length], which has no special tokens in it.
enum status bpe_encode(const struct tokenizer *t, struct encode_scratch *scratch,
                       struct gguf_text text, struct token_list *out, struct err *e);

// Does the same with SentencePiece; prefix: a space is put in front.
enum status spm_encode(const struct tokenizer *t, struct encode_scratch *scratch,
                       struct gguf_text text, bool prefix, struct token_list *out, struct err *e);

// Does the same with the likeliest pieces of a unigram model.
enum status unigram_encode(const struct tokenizer *t, struct encode_scratch *scratch,
                           struct gguf_text text, bool prefix, struct token_list *out,
                           struct err *e);

// Writes characters without a token as their bytes, or as the unknown token, once for a run of
// them. Without an unknown token they are lost. *after_unknown: the last id written is the
// unknown token.
enum status spm_emit_bytes(const struct tokenizer *t, struct encode_scratch *scratch,
                           struct gguf_text text, bool *after_unknown, struct token_list *out,
                           struct err *e);

// Called before the pieces are entered: converts them to the normalised form of text, and sets the
// default ids.
enum status spm_prepare(struct tokenizer *t, struct err *e);

// Loads the family's other tables, after pieces, kinds and ids.
enum status bpe_load(struct tokenizer *t, const struct gguf *g, struct err *e);
enum status spm_load(struct tokenizer *t, const struct gguf *g, struct err *e);
// Called after spm_load for a unigram model.
enum status unigram_load(struct tokenizer *t, const struct gguf *g, struct err *e);

// Loads all tables from the file; on failure the caller closes t.
enum status tokenizer_load(struct tokenizer *t, const struct gguf *g, struct err *e);

#endif
