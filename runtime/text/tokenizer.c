/* tokenizer.c: see tokenizer.h. Text is split at special tokens here and pieces become text again;
 * the text between special tokens goes to the file of its family.
 */
#include "runtime/text/tokenizer.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "runtime/text/tokenizer_internal.h"

#include <stdio.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"   // U+FFFD
#define SPACE_MARK  "\xe2\x96\x81"   // U+2581, a space in SentencePiece
#define UNKNOWN     " \xe2\x81\x87 " // what SentencePiece prints for a token without text

// ---- Opening and closing ------------------------------------------------------------------------

enum status tokenizer_open(struct tokenizer **out, const struct gguf *g, const struct log *log,
                           struct err *e) {
    ASSERT(out);
    ASSERT(g);
    ASSERT(e);
    *out = NULL;
    struct tokenizer *t = mem_alloc(1, sizeof *t);
    if (!t) return err_memory(e, sizeof *t, "the tokenizer");
    t->log = log;
    if (tokenizer_load(t, g, e) != OK) {
        tokenizer_close(t);
        return e->status;
    }
    t->log = NULL;
    *out = t;
    return OK;
}

void tokenizer_close(struct tokenizer *t) {
    if (!t) return;
    mem_free(t->pieces);
    mem_free(t->spaced_texts);
    mem_free(t->flags);
    mem_free(t->scores);
    mem_free(t->slots);
    mem_free(t->merges);
    mem_free(t->always.ids);
    mem_free(t->parsed.ids);
    mem_free(t->frozen.ids);
    mem_free(t->candidates.ids);
    pretokenizer_close(t->pretokenizer);
    mem_free(t);
}

// ---- Encoding -----------------------------------------------------------------------------------

static void scratch_close(struct encode_scratch *scratch) {
    struct token_buffer *buffers[] = {&scratch->symbols, &scratch->heap,  &scratch->text,
                                      &scratch->marked,  &scratch->codes, &scratch->splits,
                                      &scratch->stack};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) mem_free(buffers[i]->memory);
    split_list_close(&scratch->words);
}

// A text to encode, with the tokenizer_flags of the call.
struct marked_text {
    struct gguf_text text;
    const struct special_set *set; // the special tokens to look for
    const uint8_t *data;           // as in tokenizer_flags
};

// The longest special token at byte at, or -1. Where data follows, control tokens end before it;
// user-defined ones do not.
static int32_t match_special(const struct tokenizer *t, const struct marked_text *m, size_t at) {
    const char *bytes = m->text.bytes + at;
    const size_t left = m->text.length - at;
    const size_t near = left < t->longest_piece ? left : t->longest_piece;
    const uint8_t *data = m->data ? memchr(m->data + at, 1, near) : NULL;
    if (!data) return special_set_match(t, m->set, bytes, left);
    const size_t n_free = (size_t)(data - (m->data + at));
    const int32_t any = special_set_match(t, &t->always, bytes, left);
    const int32_t control = n_free ? special_set_match(t, m->set, bytes, n_free) : -1;
    if (control < 0) return any;
    return any >= 0 && t->pieces[any].length > t->pieces[control].length ? any : control;
}

// Finds the first special token at or after at, or -1; *where gets its position, or length.
static int32_t next_special(const struct tokenizer *t, const struct marked_text *m, size_t at,
                            size_t *where) {
    for (; at < m->text.length; at++) {
        uint8_t byte = (uint8_t)m->text.bytes[at];
        if (m->set->starts[byte] == m->set->starts[byte + 1]) continue;
        *where = at;
        int32_t id = match_special(t, m, at);
        if (id >= 0) return id;
    }
    *where = m->text.length;
    return -1;
}

// Says what is lost, and where it is first in part, which begins at byte offset of the text. A
// normalised character may not be there.
static enum status name_lost(struct gguf_text lost, struct gguf_text part, size_t offset,
                             struct err *e) {
    char name[64], where[48] = "";
    size_t at = 0, n;
    const bool whole = utf8_look(lost.bytes, lost.length, &n) == UTF8_WHOLE;
    lost.length = whole ? n : 1;
    for (; at < part.length; at += n) {
        n = utf8_step(part.bytes + at, part.length - at);
        if (n == lost.length && memcmp(part.bytes + at, lost.bytes, n) == 0) break;
    }
    if (at < part.length)
        (void)snprintf(where, sizeof where, " at offset %zu of the text", offset + at);
    if (whole)
        (void)snprintf(name, sizeof name, "the character U+%04X, '%.*s',",
                       (unsigned)utf8_code(lost.bytes, n), (int)lost.length, lost.bytes);
    else
        (void)snprintf(name, sizeof name, "the byte 0x%02x,", (uint8_t)lost.bytes[0]);
    err_set(e, ERR_UNSUPPORTED, "no token of the model stands for %s%s", name, where);
    return err_fix(e, whole ? "take the character out of the text"
                            : "the byte is no UTF-8: take it out of the text, or convert the text, "
                              "as by iconv -f LATIN1 -t UTF-8");
}

static enum status encode_part(const struct tokenizer *t, struct encode_scratch *scratch,
                               struct gguf_text part, bool prefix, struct token_list *out,
                               struct err *e) {
    if (t->unigram) return unigram_encode(t, scratch, part, prefix, out, e);
    if (t->spm) return spm_encode(t, scratch, part, prefix, out, e);
    return bpe_encode(t, scratch, part, out, e);
}

static enum status encode_parts(const struct tokenizer *t, const struct marked_text *m,
                                struct token_list *out, struct err *e) {
    const struct gguf_text text = m->text;
    struct encode_scratch scratch = {0};
    enum status status = OK;
    bool prefix = t->add_space_prefix;
    for (size_t at = 0; at < text.length && status == OK;) {
        size_t where;
        int32_t special = next_special(t, m, at, &where);
        struct gguf_text part = {text.bytes + at, where - at};
        if (part.length > 0) status = encode_part(t, &scratch, part, prefix, out, e);
        if (scratch.lost.length > 0) status = name_lost(scratch.lost, part, at, e);
        at = where;
        if (special < 0 || status != OK) continue;
        status = token_list_push(out, special, e);
        at += t->pieces[special].length;
        while (t->flags[special] & TOKEN_EATS_SPACE && at < text.length &&
               memchr(" \t\n\v\f\r", text.bytes[at], 6))
            at++;
    }
    scratch_close(&scratch);
    return status;
}

enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t length,
                             struct tokenizer_flags flags, struct token_list *out, struct err *e) {
    ASSERT(t);
    ASSERT(text || length == 0);
    ASSERT(out);
    uint64_t n_before = out->count;
    const struct marked_text marked = {.text = {text, length},
                                       .set = flags.parse_special ? &t->parsed : &t->always,
                                       .data = flags.parse_special ? flags.data : NULL};
    if (flags.add_special && t->add_bos && t->bos >= 0 && token_list_push(out, t->bos, e) != OK)
        return e->status;
    enum status status = encode_parts(t, &marked, out, e);
    if (status == OK && flags.add_special && t->add_eos && t->eos >= 0)
        status = token_list_push(out, t->eos, e);
    if (status != OK) out->count = n_before;
    return status;
}

// ---- Questions ----------------------------------------------------------------------------------

uint32_t tokenizer_count(const struct tokenizer *t) { return t->count; }
int32_t tokenizer_bos(const struct tokenizer *t) { return t->bos; }
int32_t tokenizer_eos(const struct tokenizer *t) { return t->eos; }
bool tokenizer_adds_bos(const struct tokenizer *t) { return t->add_bos && t->bos >= 0; }

static bool in_range(const struct tokenizer *t, int32_t id) {
    return id >= 0 && (uint32_t)id < t->count;
}

enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id) {
    return in_range(t, id) ? kind_of(t, id) : TOKEN_UNUSED;
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t id) {
    return in_range(t, id) && (t->flags[id] & TOKEN_ENDS);
}

struct gguf_text tokenizer_piece(const struct tokenizer *t, int32_t id) {
    return in_range(t, id) ? t->pieces[id] : (struct gguf_text){"", 0};
}

int32_t tokenizer_find(const struct tokenizer *t, const char *piece, size_t length) {
    return vocabulary_find(t, piece, length);
}

size_t tokenizer_longest(const struct tokenizer *t) {
    size_t longest = t->longest_piece < sizeof UNKNOWN ? sizeof UNKNOWN : t->longest_piece;
    return longest * (sizeof REPLACEMENT - 1);
}

// ---- Decoding -----------------------------------------------------------------------------------

struct writer {
    char *out;
    size_t capacity, length; // length may pass capacity: then it only counts
};

static void put(struct writer *w, const char *bytes, size_t length) {
    if (w->length < w->capacity) {
        size_t room = w->capacity - w->length;
        memcpy(w->out + w->length, bytes, length < room ? length : room);
    }
    w->length += length;
}

// Writes a byte-level piece, in which each character stands for one byte; other characters are
// written unchanged.
static void put_byte_level(struct writer *w, const struct tokenizer *t, struct gguf_text piece) {
    for (size_t at = 0; at < piece.length;) {
        size_t n = utf8_step(piece.bytes + at, piece.length - at);
        uint32_t code = utf8_code(piece.bytes + at, n);
        bool known = code < sizeof t->code_bytes / sizeof *t->code_bytes &&
                     (n > 1 || (uint8_t)piece.bytes[at] < 0x80) && t->code_bytes[code] >= 0;
        char byte = known ? (char)t->code_bytes[code] : 0;
        if (known)
            put(w, &byte, 1);
        else
            put(w, piece.bytes + at, n);
        at += n;
    }
}

// Writes a SentencePiece piece, in which U+2581 is a space.
static void put_spaced(struct writer *w, struct gguf_text piece) {
    while (piece.length > 0) {
        const char *mark = memmem(piece.bytes, piece.length, SPACE_MARK, 3);
        size_t n = mark ? (size_t)(mark - piece.bytes) : piece.length;
        put(w, piece.bytes, n);
        if (mark) put(w, " ", 1);
        n += mark ? 3 : 0;
        piece = (struct gguf_text){piece.bytes + n, piece.length - n};
    }
}

// The byte of "<0xHH>", or -1.
static int byte_of_piece(struct gguf_text piece) {
    if (piece.length != 6 || memcmp(piece.bytes, "<0x", 3) != 0 || piece.bytes[5] != '>') return -1;
    int byte = 0;
    for (int i = 3; i < 5; i++) {
        const char *digits = "0123456789abcdef", *digit = NULL;
        if (piece.bytes[i]) digit = strchr(digits, piece.bytes[i] | 0x20);
        if (!digit) return -1;
        byte = byte * 16 + (int)(digit - digits);
    }
    return byte;
}

size_t tokenizer_decode(const struct tokenizer *t, int32_t id, bool first, bool special, char *out,
                        size_t capacity) {
    struct writer w = {out, capacity, 0};
    if (!in_range(t, id)) return 0;
    struct gguf_text piece = t->pieces[id];
    int byte;
    switch (kind_of(t, id)) {
    case TOKEN_CONTROL:
        if (special || (t->flags[id] & TOKEN_SHOWN)) put(&w, piece.bytes, piece.length);
        break;
    case TOKEN_UNKNOWN:
        if (special)
            put(&w, piece.bytes, piece.length);
        else if (t->spm)
            put(&w, UNKNOWN, sizeof UNKNOWN - 1);
        break;
    case TOKEN_BYTE:
        byte = byte_of_piece(piece);
        if (byte >= 0)
            put(&w, &(char){(char)byte}, 1);
        else
            put(&w, piece.bytes, piece.length);
        break;
    case TOKEN_USER_DEFINED:
        if (t->spm || t->characters)
            put_spaced(&w, piece);
        else
            put(&w, piece.bytes, piece.length);
        break;
    case TOKEN_NORMAL:
    case TOKEN_UNUSED:
        if (!t->spm && !t->characters) {
            put_byte_level(&w, t, piece);
            break;
        }
        if (first && t->add_space_prefix && piece.length >= 3 &&
            memcmp(piece.bytes, SPACE_MARK, 3) == 0)
            piece = (struct gguf_text){piece.bytes + 3, piece.length - 3};
        put_spaced(&w, piece);
        break;
    }
    return w.length;
}

// ---- Streams ------------------------------------------------------------------------------------

void token_stream_init(struct token_stream *s, const struct tokenizer *t, bool special) {
    *s = (struct token_stream){.tokenizer = t, .special = special};
}

// Moves whole characters of bytes[size] to w, and invalid ones as U+FFFD. Returns the number of
// bytes at the end that are an unfinished character.
static size_t put_whole(struct writer *w, const char *bytes, size_t size) {
    for (size_t at = 0, n; at < size; at += n) {
        enum utf8_class class = utf8_look(bytes + at, size - at, &n);
        if (class == UTF8_PARTIAL) return size - at;
        if (class == UTF8_WHOLE)
            put(w, bytes + at, n);
        else
            put(w, REPLACEMENT, sizeof REPLACEMENT - 1);
    }
    return 0;
}

// Completes the held character with bytes of the token; returns how many bytes it used.
static size_t feed_held(struct token_stream *s, struct writer *w, const char *bytes, size_t size) {
    size_t taken = 0;
    while (s->n_held > 0 && taken < size) {
        s->held[s->n_held++] = bytes[taken++];
        size_t n;
        enum utf8_class class = utf8_look(s->held, s->n_held, &n);
        if (class == UTF8_PARTIAL) continue;
        if (class == UTF8_WHOLE) {
            put(w, s->held, n);
        } else { // the new byte does not belong to the held character and starts another one
            put(w, REPLACEMENT, sizeof REPLACEMENT - 1);
            taken--;
        }
        s->n_held = 0;
    }
    return taken;
}

size_t token_stream_push(struct token_stream *s, int32_t id, char *out, size_t capacity) {
    const struct tokenizer *t = s->tokenizer;
    ASSERT(capacity >= 8 + tokenizer_longest(t));
    // The token lies at the end of out while the text grows from its front: a token of n bytes
    // gives at most 3 n, behind at most 3 for what was held.
    size_t longest = tokenizer_longest(t) / (sizeof REPLACEMENT - 1);
    char *bytes = out + capacity - longest;
    size_t size = tokenizer_decode(t, id, !s->started, s->special, bytes, longest);
    ASSERT(size <= longest);
    if (tokenizer_kind(t, id) != TOKEN_CONTROL) s->started = true;
    struct writer w = {out, capacity, 0};
    size_t taken = feed_held(s, &w, bytes, size);
    size_t left = put_whole(&w, bytes + taken, size - taken);
    memcpy(s->held + s->n_held, bytes + size - left, left);
    s->n_held += (uint32_t)left;
    return w.length;
}

size_t token_stream_finish(struct token_stream *s, char *out, size_t capacity) {
    struct writer w = {out, capacity, 0};
    if (s->n_held > 0) put(&w, REPLACEMENT, sizeof REPLACEMENT - 1);
    s->n_held = 0;
    return w.length;
}
