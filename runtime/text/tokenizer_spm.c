/* tokenizer_spm.c: SentencePiece BPE, tokenizer.ggml.model "llama", and what the unigram models of
 * SentencePiece have in common with it.
 *
 * Spaces become U+2581; user-defined tokens are cut out whole; the other characters are merged pair
 * by pair, the token of highest score first and the leftmost of equals, through a heap. Characters
 * that are no token in the end become byte tokens. This is what the sentencepiece library does with
 * an identity normaliser; it differs in one thing: a byte that is not UTF-8 becomes its byte token,
 * not U+FFFD. Reads the tables of struct tokenizer; works in the caller's scratch. Tested by
 * tests/runtime/test_tokenizer.c and the goldens.
 */
#include "runtime/text/tokenizer_internal.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SPACE_MARK "\xe2\x96\x81" // U+2581

// ---- Loading ------------------------------------------------------------------------------------

// Files without scores, as those of XVERSE, have equal ones, so that the leftmost pair is merged
// first.
static enum status load_scores(struct tokenizer *t, const struct gguf *g, struct err *e) {
    const char *key = "tokenizer.ggml.scores";
    const struct gguf_value *scores = gguf_find(g, key);
    if (!scores && t->unigram) return err_set(e, ERR_FORMAT, "%s: missing", key);
    t->scores = mem_alloc(t->count, sizeof *t->scores);
    if (!t->scores) return err_memory(e, t->count * sizeof *t->scores, "token scores");
    if (!scores) return OK;
    bool floats = scores->element == GGUF_F32 || scores->element == GGUF_F64;
    if (scores->type != GGUF_ARRAY || scores->element == GGUF_STRING || scores->count < t->count) {
        char text[64];
        err_set(e, ERR_FORMAT, "%s: does not fit the tokens", key);
        err_expected(e, "array of f32 or i32, %" PRIu32 " elements", t->count);
        return err_actual(e, "%s, %" PRIu64, gguf_type_text(scores, text, sizeof text),
                          scores->count);
    }
    for (uint32_t id = 0; id < t->count; id++) {
        float score =
            floats ? (float)gguf_array_float(scores, id) : (float)gguf_array_int(scores, id);
        t->scores[id] = isnan(score) ? -INFINITY : score; // the heap needs an order
    }
    return OK;
}

static size_t count_spaces(struct gguf_text text) {
    size_t n = 0;
    for (uint64_t i = 0; i < text.length; i++) n += text.bytes[i] == ' ';
    return n;
}

// Replaces each space by U+2581; out has room. Returns the length.
static size_t mark_spaces(struct gguf_text text, char *out) {
    size_t length = 0;
    for (uint64_t i = 0; i < text.length; i++) {
        if (text.bytes[i] == ' ') {
            memcpy(out + length, SPACE_MARK, 3);
            length += 3;
        } else {
            out[length++] = text.bytes[i];
        }
    }
    return length;
}

// Replaces the spaces of user-defined tokens by U+2581, as in normalised text; converters write
// them as spaces.
static enum status mark_user_defined(struct tokenizer *t, struct err *e) {
    size_t size = 0;
    for (uint32_t id = 0; id < t->count; id++) {
        size_t n = kind_of(t, (int32_t)id) == TOKEN_USER_DEFINED ? count_spaces(t->pieces[id]) : 0;
        if (n > 0) size += (size_t)t->pieces[id].length + 2 * n;
    }
    t->spaced_texts = mem_alloc(size, 1);
    if (!t->spaced_texts) return err_memory(e, size, "user-defined tokens");
    char *out = t->spaced_texts;
    for (uint32_t id = 0; id < t->count; id++) {
        if (kind_of(t, (int32_t)id) != TOKEN_USER_DEFINED || count_spaces(t->pieces[id]) == 0)
            continue;
        t->pieces[id] = (struct gguf_text){out, mark_spaces(t->pieces[id], out)};
        out += t->pieces[id].length;
        if (t->pieces[id].length > t->longest_piece) t->longest_piece = t->pieces[id].length;
    }
    return OK;
}

static void find_bytes(struct tokenizer *t) {
    uint32_t n_missing = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", byte);
        int32_t id = vocabulary_find(t, text, 6);
        t->byte_ids[byte] = id >= 0 && kind_of(t, id) == TOKEN_BYTE ? id : -1;
        n_missing += t->byte_ids[byte] < 0;
    }
    if (n_missing > 0)
        log_line(t->log, LOG_WARN,
                 "vocabulary: %" PRIu32 " byte%s no token; characters that need %s become "
                 "the unknown token",
                 n_missing, n_missing == 1 ? " has" : "s have", n_missing == 1 ? "it" : "them");
}

// Warns about a normaliser other than the identity, which is not applied.
static void warn_normaliser(const struct tokenizer *t, const struct gguf *g) {
    bool squeezes = false;
    struct err ignored;
    const struct gguf_value *map = gguf_find(g, "tokenizer.ggml.precompiled_charsmap");
    if (gguf_read_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &squeezes, &ignored) == OK &&
        squeezes)
        log_line(t->log, LOG_WARN,
                 "tokenizer.ggml.remove_extra_whitespaces is not carried out; "
                 "runs of spaces stay");
    if (map && map->size_bytes > 0)
        log_line(t->log, LOG_WARN,
                 "tokenizer.ggml.precompiled_charsmap is not carried out; text "
                 "is not normalised");
}

enum status spm_prepare(struct tokenizer *t, struct err *e) {
    if (t->unigram && t->count > 2) {
        t->eos = 1;
        t->unknown = 2;
    } else if (t->count > 2) {
        t->unknown = 0;
        t->bos = 1;
        t->eos = 2;
    }
    return mark_user_defined(t, e);
}

enum status spm_load(struct tokenizer *t, const struct gguf *g, struct err *e) {
    t->add_bos = t->add_space_prefix = true;
    if (gguf_read_bool(g, "tokenizer.ggml.add_space_prefix", &t->add_space_prefix, e) != OK ||
        load_scores(t, g, e) != OK)
        return e->status;
    find_bytes(t);
    if (!t->unigram) warn_normaliser(t, g);
    return OK;
}

// ---- Merging ------------------------------------------------------------------------------------

struct merging { // one text; heap holds a candidate for every mergeable pair, and stale ones
    const struct tokenizer *t;
    struct encode_scratch *scratch;
    struct gguf_text text;
    struct spm_symbol *symbols;
    struct spm_candidate *heap;
    size_t n_heap;
    bool after_unknown; // the last id written is the unknown token
};

static bool before(struct spm_candidate a, struct spm_candidate b) {
    return a.score > b.score || (!(a.score < b.score) && a.left < b.left);
}

static void heap_push(struct merging *m, struct spm_candidate candidate) {
    size_t i = m->n_heap++;
    for (; i > 0 && before(candidate, m->heap[(i - 1) / 2]); i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = candidate;
}

static struct spm_candidate heap_pop(struct merging *m) {
    struct spm_candidate top = m->heap[0], last = m->heap[--m->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->n_heap; i = child) {
        if (child + 1 < m->n_heap && before(m->heap[child + 1], m->heap[child])) child++;
        if (!before(m->heap[child], last)) break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = last;
    return top;
}

// Finds the token that text may merge into, or -1.
static int32_t find_mergeable(const struct tokenizer *t, const char *text, size_t length) {
    int32_t id = length <= t->longest_piece ? vocabulary_find(t, text, length) : -1;
    if (id < 0) return -1;
    enum token_kind kind = kind_of(t, id);
    return kind == TOKEN_NORMAL || kind == TOKEN_USER_DEFINED || kind == TOKEN_UNUSED ? id : -1;
}

// Remembers where an unused token was merged; unused tokens take part in merges and are split again
// in the end. Elements of splits are lengths of the left side, by id; 0: not merged.
static enum status remember_split(struct merging *m, int32_t id, uint32_t left_length,
                                  struct err *e) {
    struct token_buffer *splits = &m->scratch->splits;
    if (!splits->memory) {
        if (token_buffer_reserve(splits, m->t->count, sizeof(uint32_t), e) != OK) return e->status;
        memset(splits->memory, 0, splits->size_bytes);
    }
    ((uint32_t *)splits->memory)[id] = left_length;
    return OK;
}

// Looks up the pair that starts at symbol i.
static enum status find_candidate(struct merging *m, uint32_t i, struct err *e) {
    const struct spm_symbol *left = &m->symbols[i];
    if (left->frozen || left->next == NO_SYMBOL || m->symbols[left->next].frozen) return OK;
    uint32_t length = left->length + m->symbols[left->next].length;
    int32_t id = find_mergeable(m->t, m->text.bytes + left->start, length);
    if (id < 0) return OK;
    heap_push(m, (struct spm_candidate){m->t->scores[id], i, length});
    if (kind_of(m->t, id) == TOKEN_UNUSED) return remember_split(m, id, left->length, e);
    return OK;
}

static enum status merge_all(struct merging *m, struct err *e) {
    while (m->n_heap > 0) {
        struct spm_candidate best = heap_pop(m);
        struct spm_symbol *left = &m->symbols[best.left];
        if (left->length == 0 || left->next == NO_SYMBOL) continue;
        struct spm_symbol *right = &m->symbols[left->next];
        // Sides only grow, so the same length means the same pair.
        if (left->length + right->length != best.length) continue;
        left->length = best.length;
        left->next = right->next;
        right->length = 0;
        if (left->next != NO_SYMBOL) m->symbols[left->next].previous = best.left;
        if (find_candidate(m, best.left, e) != OK) return e->status;
        if (left->previous != NO_SYMBOL && find_candidate(m, left->previous, e) != OK)
            return e->status;
    }
    return OK;
}

// ---- Output -------------------------------------------------------------------------------------

enum status spm_emit_bytes(const struct tokenizer *t, struct encode_scratch *scratch,
                           struct gguf_text text, bool *after_unknown, struct token_list *out,
                           struct err *e) {
    size_t n_known = 0;
    while (n_known < text.length && t->byte_ids[(uint8_t)text.bytes[n_known]] >= 0) n_known++;
    if (n_known < text.length) {
        bool again = *after_unknown;
        if (t->unknown < 0) return encode_lose(scratch, text, e);
        *after_unknown = true;
        return again ? OK : token_list_push(out, t->unknown, e);
    }
    *after_unknown = false;
    for (size_t i = 0; i < text.length; i++)
        if (token_list_push(out, t->byte_ids[(uint8_t)text.bytes[i]], e) != OK) return e->status;
    return OK;
}

// Writes one symbol. An unused token is split as it was merged, with a stack of the lengths still
// to come, leftmost on top.
static enum status emit(struct merging *m, struct gguf_text text, struct token_list *out,
                        struct err *e) {
    const uint32_t *splits = m->scratch->splits.memory;
    if (token_buffer_reserve(&m->scratch->stack, (size_t)text.length, sizeof(uint32_t), e) != OK)
        return e->status;
    uint32_t *stack = m->scratch->stack.memory, n_stack = 0;
    stack[n_stack++] = (uint32_t)text.length;
    while (n_stack > 0) {
        uint32_t length = stack[--n_stack];
        int32_t id = vocabulary_find(m->t, text.bytes, length);
        if (id >= 0 && kind_of(m->t, id) == TOKEN_UNUSED && splits && splits[id] > 0) {
            stack[n_stack++] = length - splits[id];
            stack[n_stack++] = splits[id];
            continue;
        }
        struct gguf_text piece = {text.bytes, length};
        if (id < 0 || kind_of(m->t, id) == TOKEN_UNKNOWN || kind_of(m->t, id) == TOKEN_CONTROL) {
            if (spm_emit_bytes(m->t, m->scratch, piece, &m->after_unknown, out, e) != OK)
                return e->status;
        } else {
            m->after_unknown = false;
            if (token_list_push(out, id, e) != OK) return e->status;
        }
        text.bytes += length;
    }
    return OK;
}

// ---- A whole text -------------------------------------------------------------------------------

static uint32_t fill_symbols(const struct tokenizer *t, struct gguf_text text,
                             struct spm_symbol *symbols) {
    uint32_t n = 0;
    for (size_t at = 0; at < text.length; n++) {
        size_t left = (size_t)text.length - at;
        int32_t id = special_set_match(t, &t->frozen, text.bytes + at, left);
        size_t length = id >= 0 ? (size_t)t->pieces[id].length : utf8_step(text.bytes + at, left);
        symbols[n] = (struct spm_symbol){(uint32_t)at, (uint32_t)length, n - 1, n + 1, id >= 0};
        at += length;
    }
    symbols[0].previous = NO_SYMBOL;
    symbols[n - 1].next = NO_SYMBOL;
    return n;
}

// Writes the text with U+2581 for spaces and for the prefix to scratch.
static enum status normalise(struct encode_scratch *scratch, struct gguf_text *text, bool prefix,
                             struct err *e) {
    size_t size = (size_t)text->length + 2 * count_spaces(*text) + 3;
    if (size > INT32_MAX) {
        err_set(e, ERR_LIMIT, "the text is too long");
        err_expected(e, "at most %d bytes", INT32_MAX);
        return err_actual(e, "%zu", size);
    }
    if (token_buffer_reserve(&scratch->text, size, 1, e) != OK) return e->status;
    char *out = scratch->text.memory;
    if (prefix) memcpy(out, SPACE_MARK, 3);
    size_t length = prefix ? 3 : 0;
    length += mark_spaces(*text, out + length);
    *text = (struct gguf_text){out, length};
    return OK;
}

enum status spm_encode(const struct tokenizer *t, struct encode_scratch *scratch,
                       struct gguf_text text, bool prefix, struct token_list *out, struct err *e) {
    if (normalise(scratch, &text, prefix, e) != OK) return e->status;
    // Every merge removes a symbol and adds at most two candidates.
    if (token_buffer_reserve(&scratch->symbols, (size_t)text.length, sizeof(struct spm_symbol),
                             e) != OK ||
        token_buffer_reserve(&scratch->heap, (size_t)text.length, 3 * sizeof(struct spm_candidate),
                             e) != OK)
        return e->status;
    struct merging m = {t, scratch, text, scratch->symbols.memory, scratch->heap.memory, 0, false};
    uint32_t n = fill_symbols(t, text, m.symbols);
    for (uint32_t i = 0; i < n; i++)
        if (find_candidate(&m, i, e) != OK) return e->status;
    if (merge_all(&m, e) != OK) return e->status;
    for (uint32_t i = 0; i != NO_SYMBOL; i = m.symbols[i].next) {
        struct gguf_text piece = {text.bytes + m.symbols[i].start, m.symbols[i].length};
        if (emit(&m, piece, out, e) != OK) return e->status;
    }
    return OK;
}
