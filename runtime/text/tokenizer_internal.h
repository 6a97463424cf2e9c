/* tokenizer_internal.h: the tables behind struct tokenizer, and how its parts divide the work.
 *
 * tokenizer_load.c fills the tables, tokenizer.c splits at special tokens and decodes,
 * tokenizer_bpe.c and tokenizer_spm.c turn the text between special tokens into ids. Included by
 * those files only. Everything here is read-only after tokenizer_open; what one call of
 * tokenizer_encode needs lies in struct encode_scratch. Tested through tokenizer.h.
 */
#ifndef TANDEM_RUNTIME_TEXT_TOKENIZER_INTERNAL_H
#define TANDEM_RUNTIME_TEXT_TOKENIZER_INTERNAL_H

#include "runtime/text/pretokenize.h"
#include "runtime/text/tokenizer.h"

enum token_flags { // bits of tokenizer.flags above the kind
    TOKEN_KIND_MASK = 7,
    TOKEN_ENDS = 8,        // ends a generation
    TOKEN_SHOWN = 16,      // a control token that is printed
    TOKEN_EATS_SPACE = 32, // white space to its right vanishes
};

// From a piece to its id: open addressing, at most half full. Pieces of up to 12 bytes, most of
// them, are told apart without a look at the text elsewhere: that makes loading three times faster.
struct piece_slot {
    char head[12];    // the front of the piece, zeros behind
    uint32_t id_size; // (id + 1) << 8 | bytes of the piece, at most 255; 0: free
};
enum { MAX_TOKENS = (1 << 24) - 1, MAX_PIECE_BYTES = 1 << 16 };

// From a pair of ids to what they merge into. Open addressing, at most two thirds full.
struct merge_slot {
    uint64_t pair;        // left << 32 | right
    uint32_t rank_plus_1; // 0: free
    int32_t result;
};

struct special_set {      // tokens that are found in raw text
    int32_t *ids;         // owned; by text, bytewise
    uint32_t starts[257]; // ids[starts[b]..starts[b+1]) begin with byte b
};

struct tokenizer {
    const struct log *log; // borrowed, for warnings while opening
    bool spm;              // SentencePiece, else byte-level BPE

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
    struct special_set parsed; // those and control tokens, for parse_special

    int32_t byte_ids[256]; // the token of one byte, -1 where it is missing

    // Byte-level BPE.
    struct pretokenizer *pretokenizer; // owned
    struct merge_slot *merges;         // owned
    uint64_t merge_mask;
    int16_t code_bytes[324]; // the byte that a character below U+0144 stands for, or -1

    // SentencePiece: user-defined tokens, found after spaces became U+2581.
    struct special_set frozen;
};

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

struct buffer { // grows; the contents are lost when it does
    void *memory;
    size_t size_bytes;
};

struct encode_scratch { // zeroed at the start of an encode call
    struct split_list words;
    struct buffer symbols, heap;
    struct buffer text;   // normalised
    struct buffer codes;  // code points, for normal form C
    struct buffer splits; // SentencePiece: of unused tokens, by id
    struct buffer stack;  // SentencePiece: pieces to be split again
};
#define NO_SYMBOL UINT32_MAX
#define NO_RANK   UINT32_MAX

// Appends the ids of text[length], which has no special tokens in it.
enum status bpe_encode(const struct tokenizer *t, struct encode_scratch *scratch,
                       struct gguf_text text, struct token_list *out, struct err *e);

// The same; prefix: a space is put in front.
enum status spm_encode(const struct tokenizer *t, struct encode_scratch *scratch,
                       struct gguf_text text, bool prefix, struct token_list *out, struct err *e);

// Before the pieces are entered: puts them into the form that text has when they are looked for,
// and sets the default ids.
enum status spm_prepare(struct tokenizer *t, struct err *e);

// The rest of the family's tables. Pieces, kinds and ids are loaded.
enum status bpe_load(struct tokenizer *t, const struct gguf *g, struct err *e);
enum status spm_load(struct tokenizer *t, const struct gguf *g, struct err *e);

// Everything from the file; on failure the caller closes t.
enum status tokenizer_load(struct tokenizer *t, const struct gguf *g, struct err *e);

// The longest token of the set at the front of text, or -1.
int32_t special_set_match(const struct tokenizer *t, const struct special_set *set,
                          const char *text, size_t length);
// Collects the tokens that wanted() accepts into *set.
enum status special_set_build(const struct tokenizer *t, struct special_set *set,
                              bool (*wanted)(const struct tokenizer *t, int32_t id), struct err *e);

// Enters the pieces into the table behind tokenizer_find. Needs pieces and flags.
enum status piece_map_build(struct tokenizer *t, struct err *e);
// tokenizer_find in two steps, so that the slot can be fetched in between. length is at least 1.
uint32_t piece_hash(const char *text, size_t length);
static inline void piece_prefetch(const struct tokenizer *t, uint32_t hash) {
    __builtin_prefetch(&t->slots[hash & t->slot_mask]);
}
int32_t piece_find(const struct tokenizer *t, const char *text, size_t length, uint32_t hash);

// Makes room for count elements. ERR_MEMORY if refused.
enum status buffer_reserve(struct buffer *b, size_t count, size_t element_bytes, struct err *e);

// Reads an optional token id; one that is out of range is ignored with a warning.
void load_id(const struct tokenizer *t, const struct gguf *g, const char *key, int32_t *id);

static inline enum token_kind kind_of(const struct tokenizer *t, int32_t id) {
    return (enum token_kind)(t->flags[id] & TOKEN_KIND_MASK);
}

#endif
