/* vocabulary.h: the tables behind struct tokenizer: pieces by text, special tokens in text.
 *
 * struct tokenizer owns the members that say so; tokenizer_load.c fills it, tokenizer_close frees
 * it. Must not encode or decode. Included by the tokenizer's own files only. Everything here is
 * read-only after tokenizer_open: any thread. Tested by tests/runtime/test_tokenizer.c through
 * tokenizer.h.
 */
#ifndef TANDEM_RUNTIME_TEXT_VOCABULARY_H
#define TANDEM_RUNTIME_TEXT_VOCABULARY_H

#include "base/log.h"
#include "runtime/gguf/gguf.h"
#include "runtime/text/charsmap.h"
#include "runtime/text/pretokenize.h"
#include "runtime/text/token_list.h"

enum token_flags { // bits of tokenizer.flags above the kind
    TOKEN_KIND_MASK = 7,
    TOKEN_ENDS = 8,        // ends a generation
    TOKEN_SHOWN = 16,      // a control token that is printed
    TOKEN_EATS_SPACE = 32, // white space to its right vanishes
};

// Maps a piece to its id: open addressing, at most half full. Pieces of up to 12 bytes, which are
// most, are compared without reading their text elsewhere; this makes loading three times faster.
struct piece_slot {
    char head[12];    // the front of the piece, zeros behind
    uint32_t id_size; // (id + 1) << 8 | bytes of the piece, at most 255; 0: free
};
enum { MAX_TOKENS = (1 << 24) - 1, MAX_PIECE_BYTES = 1 << 16 };

// Maps a pair of ids to their merge. Open addressing, at most two thirds full.
struct merge_slot {
    uint64_t pair;        // left << 32 | right
    uint32_t rank_plus_1; // 0: free
    int32_t result;
};

struct special_set {      // tokens that are found in text, not only special ones
    int32_t *ids;         // owned; by text, bytewise
    uint32_t starts[257]; // ids[starts[b]..starts[b+1]) begin with byte b
};

struct tokenizer {
    const struct log *log; // borrowed, for warnings while opening
    bool spm;              // SentencePiece, else BPE
    bool unigram;          // SentencePiece finds the likeliest pieces, else it merges
    bool characters;       // BPE merges characters, and spaces are U+2581, else bytes

    uint32_t count;
    struct gguf_text *pieces; // owned table of borrowed texts
    char *spaced_texts;       // owned: pieces of which a space became U+2581 (SentencePiece)
    uint8_t *flags;           // owned: enum token_kind | enum token_flags
    float *scores;            // owned; SentencePiece only
    uint64_t longest_piece;   // bytes
    struct piece_slot *slots; // owned
    uint32_t slot_mask;

    int32_t bos, eos, unknown; // -1: none
    bool add_bos, add_eos, add_space_prefix;
    struct special_set always; // user-defined tokens
    struct special_set parsed; // user-defined and control tokens, for parse_special

    int32_t byte_ids[256]; // the token of one byte, -1 where it is missing

    // BPE; code_bytes for bytes.
    struct pretokenizer *pretokenizer; // owned
    struct merge_slot *merges;         // owned
    uint64_t merge_mask;
    int16_t code_bytes[324]; // the byte that a character below U+0144 stands for, or -1

    // SentencePiece: user-defined tokens, found after spaces became U+2581.
    struct special_set frozen;

    // SentencePiece unigram.
    struct charsmap charsmap;      // of the normaliser; borrows the file
    bool squeezes;                 // runs of spaces become one, and those at the ends none
    struct special_set candidates; // normal and user-defined tokens
    float least_score, most_score; // of normal tokens
};

static inline enum token_kind kind_of(const struct tokenizer *t, int32_t id) {
    return (enum token_kind)(t->flags[id] & TOKEN_KIND_MASK);
}

// Finds the longest token of the set at the front of text, or -1.
int32_t special_set_match(const struct tokenizer *t, const struct special_set *set,
                          const char *text, size_t length);
// A walk along a text, with all tokens of a set that begin as the text does; zeroed at first.
struct set_walk {
    uint32_t first, last; // ids[first..last) are longer than depth
    size_t depth;         // bytes of the text so far
};
// Goes on by one byte. Returns the token that ends there, or -1. The walk is at its end when first
// is no longer below last.
int32_t special_set_step(const struct tokenizer *t, const struct special_set *set,
                         struct set_walk *w, uint8_t byte);
// Collects the tokens that wanted() accepts into *set.
enum status special_set_build(const struct tokenizer *t, struct special_set *set,
                              bool (*wanted)(const struct tokenizer *t, int32_t id), struct err *e);

// Enters the pieces into the table behind vocabulary_find. Needs pieces and flags.
enum status piece_map_build(struct tokenizer *t, struct err *e);
// Returns the id of a stored piece, or -1.
int32_t vocabulary_find(const struct tokenizer *t, const char *piece, size_t length);
// vocabulary_find in two steps, so that the slot can be fetched in between. length is at least 1.
uint32_t piece_hash(const char *text, size_t length);
static inline void piece_prefetch(const struct tokenizer *t, uint32_t hash) {
    __builtin_prefetch(&t->slots[hash & t->slot_mask]);
}
int32_t piece_find(const struct tokenizer *t, const char *text, size_t length, uint32_t hash);

#endif
