/* tokenizer_bpe.c: BPE of bytes, tokenizer.ggml.model "gpt2", and of characters, "gemma4"
 * or "gpt2" with such a pre-tokenizer.
 *
 * Words come from the pre-tokenizer; each starts as one token per byte or character, and the
 * adjacent pair of lowest rank is merged until there is none, through a heap, so that a word of n
 * bytes costs O(n log n). A character without a token becomes its bytes; one whose bytes have no
 * tokens either ends the call. Reads the tables of struct tokenizer; works in the caller's scratch.
 * Tested by tests/runtime/test_tokenizer.c and the goldens.
 */
#include "runtime/text/tokenizer_internal.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <utf8proc.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- Loading ------------------------------------------------------------------------------------

// The token with that text, unless it is a control token, which no plain text becomes; or -1.
static int32_t find_plain(const struct tokenizer *t, const char *text, size_t length) {
    const int32_t id = vocabulary_find(t, text, length);
    const enum token_kind kind = id >= 0 ? kind_of(t, id) : TOKEN_NORMAL;
    return kind == TOKEN_CONTROL || kind == TOKEN_UNKNOWN ? -1 : id;
}

// Printable bytes stand for themselves, the other 68 for U+0100 and up, in order; beside characters
// bytes have tokens of their own.
static void map_bytes(struct tokenizer *t) {
    memset(t->code_bytes, -1, sizeof t->code_bytes);
    uint32_t next = 256, n_missing = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        uint32_t code = printable ? byte : next++;
        char text[8];
        if (t->characters) {
            snprintf(text, sizeof text, "<0x%02X>", byte);
            t->byte_ids[byte] = find_plain(t, text, 6);
        } else {
            t->code_bytes[code] = (int16_t)byte;
            t->byte_ids[byte] = vocabulary_find(t, text, utf8_write(code, text));
        }
        n_missing += t->byte_ids[byte] < 0;
    }
    if (n_missing > 0)
        log_line(t->log, LOG_INFO,
                 "vocabulary: %" PRIu32 " byte%s no token; texts with %s are refused", n_missing,
                 n_missing == 1 ? " has" : "s have", n_missing == 1 ? "it" : "them");
}

static uint64_t hash_pair(uint64_t pair) {
    pair *= 0x9e3779b97f4a7c15u;
    pair ^= pair >> 32;
    return pair * 0xff51afd7ed558ccdu >> 24;
}

static uint64_t pair_of(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

// Finds the slot of the pair, or the free slot for it.
static struct merge_slot *find_merge(const struct tokenizer *t, uint64_t pair) {
    for (uint64_t i = hash_pair(pair) & t->merge_mask;; i = (i + 1) & t->merge_mask)
        if (t->merges[i].pair == pair || t->merges[i].rank_plus_1 == 0) return &t->merges[i];
}

// A merge "A B" that is being entered into the table. Loading mostly waits for memory, so a block
// of merges goes through each step together and prefetches the data of the next step.
struct pending_merge {
    char *joined; // AB, owned by the block, with room for the longest piece
    size_t left, right;
    uint32_t hash[3]; // of A, B and AB
    uint64_t pair;
    int32_t result;
    bool good;
};
enum { MERGE_BLOCK = 32 };

static void read_merge(const struct tokenizer *t, struct pending_merge *m, struct gguf_text text) {
    // A may begin with a space.
    const char *space =
        text.length > 2 ? memchr(text.bytes + 1, ' ', (size_t)text.length - 1) : NULL;
    m->good = space && text.length - 1 <= t->longest_piece;
    if (!m->good) return;
    m->left = (size_t)(space - text.bytes);
    m->right = (size_t)text.length - m->left - 1;
    m->good = m->right > 0;
    if (!m->good) return;
    memcpy(m->joined, text.bytes, m->left);
    memcpy(m->joined + m->left, space + 1, m->right);
    m->hash[0] = piece_hash(m->joined, m->left);
    m->hash[1] = piece_hash(m->joined + m->left, m->right);
    m->hash[2] = piece_hash(m->joined, m->left + m->right);
    for (int i = 0; i < 3; i++) piece_prefetch(t, m->hash[i]);
}

static void resolve_merge(const struct tokenizer *t, struct pending_merge *m) {
    if (!m->good) return;
    int32_t a = piece_find(t, m->joined, m->left, m->hash[0]);
    int32_t b = piece_find(t, m->joined + m->left, m->right, m->hash[1]);
    m->result = piece_find(t, m->joined, m->left + m->right, m->hash[2]);
    // Control tokens are never made from text.
    m->good = a >= 0 && b >= 0 && m->result >= 0 && kind_of(t, m->result) != TOKEN_CONTROL;
    m->pair = pair_of(a, b);
    if (m->good) __builtin_prefetch(&t->merges[hash_pair(m->pair) & t->merge_mask], 1);
}

// Enters all merges; a pair that comes twice keeps its first rank. Returns the number of merges
// that name no tokens.
static uint32_t add_merges(struct tokenizer *t, const struct gguf_value *merges, char *joined) {
    struct pending_merge block[MERGE_BLOCK];
    uint32_t rank = 0, n_bad = 0;
    const uint8_t *cursor = NULL;
    for (int n = MERGE_BLOCK; n == MERGE_BLOCK; rank += (uint32_t)n) {
        struct gguf_text text;
        for (n = 0; n < MERGE_BLOCK && gguf_next_text(merges, &cursor, &text); n++) {
            block[n].joined = joined + (size_t)n * (size_t)t->longest_piece;
            read_merge(t, &block[n], text);
        }
        for (int i = 0; i < n; i++) resolve_merge(t, &block[i]);
        for (int i = 0; i < n; i++) {
            n_bad += !block[i].good;
            if (!block[i].good) continue;
            struct merge_slot *slot = find_merge(t, block[i].pair);
            if (slot->rank_plus_1 == 0)
                *slot = (struct merge_slot){block[i].pair, rank + (uint32_t)i + 1, block[i].result};
        }
    }
    return n_bad;
}

static enum status load_merges(struct tokenizer *t, const struct gguf *g, struct err *e) {
    const char *key = "tokenizer.ggml.merges";
    const struct gguf_value *merges = gguf_find(g, key);
    if (!merges) {
        err_set(e, ERR_FORMAT, "%s: missing", key);
        return err_fix(e, "a byte-level BPE vocabulary needs its merges; convert the model again");
    }
    if (merges->type != GGUF_ARRAY || merges->element != GGUF_STRING ||
        merges->count > INT32_MAX / 2) {
        char text[64];
        err_set(e, ERR_FORMAT, "%s: wrong type", key);
        err_expected(e, "array of string, at most %d", INT32_MAX / 2);
        return err_actual(e, "%s, %" PRIu64, gguf_type_text(merges, text, sizeof text),
                          merges->count);
    }
    uint64_t n_slots = 16;
    while (n_slots * 2 < merges->count * 3) n_slots *= 2;
    t->merges = mem_alloc(n_slots, sizeof *t->merges);
    char *joined = mem_alloc((size_t)t->longest_piece, MERGE_BLOCK);
    if (!t->merges || !joined) {
        mem_free(joined);
        return err_memory(e, n_slots * sizeof *t->merges, "the merges of the vocabulary");
    }
    t->merge_mask = n_slots - 1;
    uint32_t n_bad = add_merges(t, merges, joined);
    mem_free(joined);
    if (n_bad > 0)
        log_line(t->log, LOG_WARN, "%s: %" PRIu32 " of %" PRIu64 " name no tokens and are ignored",
                 key, n_bad, merges->count);
    return OK;
}

enum status bpe_load(struct tokenizer *t, const struct gguf *g, struct err *e) {
    struct gguf_text name = {0};
    if (gguf_read_text(g, "tokenizer.ggml.pre", &name, e) != OK) return e->status;
    if (!name.bytes && t->characters) name = (struct gguf_text){"gemma4", 6};
    if (!name.bytes) {
        log_line(t->log, LOG_WARN,
                 "tokenizer.ggml.pre is missing; text is cut into words by the "
                 "default rules, which may not be those the model learnt with");
        name = (struct gguf_text){"default", 7};
    }
    if (pretokenizer_open(&t->pretokenizer, name.bytes, (size_t)name.length, e) != OK)
        return e->status;
    t->add_bos = pretokenizer_traits(t->pretokenizer)->add_bos;
    t->characters = t->characters || pretokenizer_traits(t->pretokenizer)->characters;
    map_bytes(t);
    return load_merges(t, g, e);
}

// ---- Merging a word -----------------------------------------------------------------------------

struct word { // being merged; heap holds a candidate for every mergeable pair, and stale ones
    const struct tokenizer *t;
    struct bpe_symbol *symbols;
    struct bpe_candidate *heap;
    size_t n_heap;
};

static bool before(struct bpe_candidate a, struct bpe_candidate b) {
    return a.rank != b.rank ? a.rank < b.rank : a.left < b.left;
}

static void heap_push(struct word *w, struct bpe_candidate candidate) {
    size_t i = w->n_heap++;
    for (; i > 0 && before(candidate, w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = candidate;
}

static struct bpe_candidate heap_pop(struct word *w) {
    struct bpe_candidate top = w->heap[0], last = w->heap[--w->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < w->n_heap; i = child) {
        if (child + 1 < w->n_heap && before(w->heap[child + 1], w->heap[child])) child++;
        if (!before(w->heap[child], last)) break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = last;
    return top;
}

// Looks up the pair that starts at symbol i.
static void find_candidate(struct word *w, uint32_t i) {
    struct bpe_symbol *symbol = &w->symbols[i];
    symbol->rank = NO_RANK;
    if (symbol->next == NO_SYMBOL) return;
    uint64_t pair = pair_of(symbol->id, w->symbols[symbol->next].id);
    const struct merge_slot *slot = find_merge(w->t, pair);
    if (slot->rank_plus_1 == 0) return;
    symbol->rank = slot->rank_plus_1 - 1;
    symbol->result = slot->result;
    heap_push(w, (struct bpe_candidate){symbol->rank, i});
}

static void merge_all(struct word *w) {
    while (w->n_heap > 0) {
        struct bpe_candidate best = heap_pop(w);
        struct bpe_symbol *left = &w->symbols[best.left];
        // A pair that has changed since, or has lost its left side, has another rank.
        if (left->rank != best.rank) continue;
        struct bpe_symbol *right = &w->symbols[left->next];
        left->id = left->result;
        left->next = right->next;
        right->rank = NO_RANK;
        if (left->next != NO_SYMBOL) w->symbols[left->next].previous = best.left;
        find_candidate(w, best.left);
        if (left->previous != NO_SYMBOL) find_candidate(w, left->previous);
    }
}

// Makes symbols of the characters of text, or of the bytes of those that have no token. Fills *lost
// with the first character that cannot be written so.
static uint32_t fill_symbols(const struct tokenizer *t, struct gguf_text text,
                             struct bpe_symbol *symbols, struct gguf_text *lost) {
    uint32_t n = 0;
    for (size_t i = 0, length; i < text.length; i += length) {
        length = utf8_step(text.bytes + i, text.length - i);
        const int32_t whole = t->characters ? find_plain(t, text.bytes + i, length) : -1;
        for (size_t k = 0; k < (whole < 0 ? length : 1); k++) {
            const int32_t id = whole < 0 ? t->byte_ids[(uint8_t)text.bytes[i + k]] : whole;
            if (id < 0 && lost->length == 0) *lost = (struct gguf_text){text.bytes + i, length};
            symbols[n] = (struct bpe_symbol){id, -1, NO_RANK, n - 1, n + 1};
            n++;
        }
    }
    if (n > 0) {
        symbols[0].previous = NO_SYMBOL;
        symbols[n - 1].next = NO_SYMBOL;
    }
    return n;
}

// Finds the token whose text is the whole word, or -1.
static enum status find_whole(const struct tokenizer *t, struct encode_scratch *scratch,
                              struct gguf_text word, int32_t *id, struct err *e) {
    *id = -1;
    if (word.length > t->longest_piece) return OK;
    if (t->characters) {
        *id = find_plain(t, word.bytes, word.length);
        return OK;
    }
    if (token_buffer_reserve(&scratch->codes, (size_t)word.length * 2, 1, e) != OK)
        return e->status;
    char *mapped = scratch->codes.memory;
    size_t n = 0;
    for (size_t i = 0; i < word.length; i++) {
        int32_t byte_id = t->byte_ids[(uint8_t)word.bytes[i]];
        if (byte_id < 0) return OK;
        struct gguf_text piece = t->pieces[byte_id];
        memcpy(mapped + n, piece.bytes, (size_t)piece.length);
        n += (size_t)piece.length;
    }
    *id = vocabulary_find(t, mapped, n);
    if (*id >= 0 && kind_of(t, *id) != TOKEN_NORMAL) *id = -1;
    return OK;
}

static enum status encode_word(const struct tokenizer *t, struct encode_scratch *scratch,
                               struct gguf_text text, struct token_list *out, struct err *e) {
    const bool newlines = t->characters && text.length > 0 && text.bytes[0] == '\n';
    if (newlines || pretokenizer_traits(t->pretokenizer)->ignore_merges) {
        int32_t id;
        if (find_whole(t, scratch, text, &id, e) != OK) return e->status;
        if (id >= 0) return token_list_push(out, id, e);
    }
    // Every merge removes a symbol and adds at most two candidates.
    size_t n_bytes = (size_t)text.length;
    if (token_buffer_reserve(&scratch->symbols, n_bytes, sizeof(struct bpe_symbol), e) != OK ||
        token_buffer_reserve(&scratch->heap, n_bytes, 3 * sizeof(struct bpe_candidate), e) != OK)
        return e->status;
    struct word w = {t, scratch->symbols.memory, scratch->heap.memory, 0};
    struct gguf_text lost = {NULL, 0};
    uint32_t n = fill_symbols(t, text, w.symbols, &lost);
    if (lost.length > 0) return encode_lose(scratch, lost, e);
    for (uint32_t i = 0; i < n; i++) find_candidate(&w, i);
    merge_all(&w);
    for (uint32_t i = n > 0 ? 0 : NO_SYMBOL; i != NO_SYMBOL; i = w.symbols[i].next)
        if (token_list_push(out, w.symbols[i].id, e) != OK) return e->status;
    return OK;
}

// ---- Normal form C ------------------------------------------------------------------------------

// Length of the longest front of text that certainly is in normal form C: characters below U+0300
// neither change nor combine. The last of them may combine with the next character, so it is
// excluded unless it ends the text.
static size_t normal_front(struct gguf_text text) {
    size_t at = 0, last = 0;
    while (at < text.length && (uint8_t)text.bytes[at] < 0xcc) {
        last = at;
        at += utf8_step(text.bytes + at, (size_t)text.length - at);
    }
    return at >= text.length ? (size_t)text.length : last;
}

// Writes the normal form C of text, which is valid UTF-8, to *out and moves *out behind it. The
// form is at most three times as long as the text.
static enum status compose(struct gguf_text text, struct token_buffer *codes, char **out,
                           struct err *e) {
    utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    utf8proc_ssize_t n = utf8proc_decompose((const utf8proc_uint8_t *)text.bytes,
                                            (utf8proc_ssize_t)text.length, NULL, 0, options);
    if (n < 0) return err_set(e, ERR_LIMIT, "text cannot be normalised: %s", utf8proc_errmsg(n));
    if (token_buffer_reserve(codes, (size_t)n, sizeof(utf8proc_int32_t), e) != OK) return e->status;
    utf8proc_int32_t *list = codes->memory;
    n = utf8proc_decompose((const utf8proc_uint8_t *)text.bytes, (utf8proc_ssize_t)text.length,
                           list, n, options);
    n = utf8proc_normalize_utf32(list, n, options);
    for (utf8proc_ssize_t i = 0; i < n; i++) *out += utf8_write((uint32_t)list[i], *out);
    return OK;
}

// Puts *text into normal form C, in scratch if it changes. Bytes outside of characters stay and
// separate the text before and after them.
static enum status normalise(struct encode_scratch *scratch, struct gguf_text *text,
                             struct err *e) {
    size_t done = normal_front(*text);
    if (done == text->length) return OK;
    if (token_buffer_reserve(&scratch->text, (size_t)text->length, 3, e) != OK) return e->status;
    char *out = scratch->text.memory;
    memcpy(out, text->bytes, done);
    out += done;
    while (done < text->length) {
        const char *from = text->bytes + done;
        size_t left = (size_t)text->length - done, valid = 0, n;
        while (valid < left && utf8_look(from + valid, left - valid, &n) == UTF8_WHOLE) valid += n;
        struct gguf_text part = {from, valid};
        if (valid == 0)
            *out++ = *from;
        else if (compose(part, &scratch->codes, &out, e) != OK)
            return e->status;
        done += valid > 0 ? valid : 1;
    }
    *text =
        (struct gguf_text){scratch->text.memory, (uint64_t)(out - (char *)scratch->text.memory)};
    return OK;
}

// Replaces spaces by U+2581, in scratch; the text may be a normalised one there.
static enum status mark_spaces(struct encode_scratch *scratch, struct gguf_text *text,
                               struct err *e) {
    if (token_buffer_reserve(&scratch->marked, (size_t)text->length, 3, e) != OK) return e->status;
    char *out = scratch->marked.memory;
    for (size_t i = 0; i < text->length; i++) {
        if (text->bytes[i] == ' ')
            out = (char *)memcpy(out, "\xe2\x96\x81", 3) + 3;
        else
            *out++ = text->bytes[i];
    }
    *text = (struct gguf_text){scratch->marked.memory,
                               (uint64_t)(out - (char *)scratch->marked.memory)};
    return OK;
}

enum status bpe_encode(const struct tokenizer *t, struct encode_scratch *scratch,
                       struct gguf_text text, struct token_list *out, struct err *e) {
    if (text.length > INT32_MAX / 4) {
        err_set(e, ERR_LIMIT, "the text is too long");
        err_expected(e, "at most %d bytes", INT32_MAX / 4);
        return err_actual(e, "%" PRIu64, text.length);
    }
    if (pretokenizer_traits(t->pretokenizer)->nfc && normalise(scratch, &text, e) != OK)
        return e->status;
    if (t->characters && mark_spaces(scratch, &text, e) != OK) return e->status;
    struct split_list *words = &scratch->words;
    size_t first = 0, length = (size_t)text.length;
    if (pretokenizer_split(t->pretokenizer, text.bytes, length, words, e) != OK) return e->status;
    for (size_t i = 0; i < words->count; first = words->ends[i++]) {
        struct gguf_text word = {text.bytes + first, words->ends[i] - first};
        if (encode_word(t, scratch, word, out, e) != OK) return e->status;
    }
    return OK;
}
