/* breakers.c: see breakers.h. */
#include "runtime/generate/breakers.h"

#include "base/mem.h"

#include <string.h>

enum { BREAKER_BYTES = 40 };

// Adds one to the end of the list, whose head is no lower than the last one's.
static enum status add(struct breakers *b, const struct breaker *breaker, struct err *e) {
    ASSERT(b->n == 0 || b->list[b->n - 1].head <= breaker->head);
    if (b->n == b->capacity) {
        const int32_t capacity = b->capacity ? 2 * b->capacity : 64;
        struct breaker *list = mem_resize(b->list, (size_t)capacity, sizeof *list);
        if (!list) return err_memory(e, (size_t)capacity * sizeof *list, "the sequence breakers");
        b->list = list;
        b->capacity = capacity;
    }
    b->list[b->n++] = *breaker;
    return OK;
}

// One text in search of the tokens that it may begin in.
struct search {
    struct breakers *out;
    const struct tokenizer *tokenizer;
    const char *text;
    size_t length;
    struct token_list rest; // tokens of a tail
};

// Adds token with the tokens of what is left of the text behind its first matched bytes.
static enum status add_tail(struct search *s, int32_t token, size_t matched, struct err *e) {
    struct breaker breaker = {.head = token};
    const struct tokenizer_flags flags = {0};
    s->rest.count = 0;
    if (tokenizer_encode(s->tokenizer, s->text + matched, s->length - matched, flags, &s->rest, e))
        return e->status;
    while ((uint64_t)breaker.n_tail < s->rest.count && breaker.n_tail < BREAKER_TAIL) {
        breaker.tail[breaker.n_tail] = s->rest.ids[breaker.n_tail];
        breaker.n_tail++;
    }
    return add(s->out, &breaker, e);
}

// Adds the token if the text is inside piece[length], or begins at its end.
static enum status search_piece(struct search *s, int32_t token, const char *piece, size_t length,
                                struct err *e) {
    if (memmem(piece, length, s->text, s->length)) return add_tail(s, token, s->length, e);
    const size_t longest = length < s->length ? length : s->length - 1;
    for (size_t matched = longest; matched > 0; matched--)
        if (memcmp(piece + length - matched, s->text, matched) == 0 &&
            add_tail(s, token, matched, e))
            return e->status;
    return OK;
}

static enum status search_token(struct search *s, int32_t token, char *piece, size_t room,
                                struct err *e) {
    const size_t length = tokenizer_decode(s->tokenizer, token, true, true, piece, room);
    return search_piece(s, token, piece, length < room ? length : room, e);
}

static enum status check_texts(const char *const *texts, int32_t n, struct err *e) {
    for (int32_t i = 0; i < n; i++) {
        const size_t length = strlen(texts[i]);
        if (length > 0 && length <= BREAKER_BYTES) continue;
        err_set(e, ERR_USAGE, "sequence breaker %d", i + 1);
        err_expected(e, "1 to %d bytes", BREAKER_BYTES);
        return err_actual(e, "%zu", length);
    }
    return OK;
}

enum status breakers_open(struct breakers *b, const struct tokenizer *t, const char *const *texts,
                          int32_t n, struct err *e) {
    *b = (struct breakers){0};
    if (check_texts(texts, n, e)) return e->status;
    const size_t room = tokenizer_longest(t);
    struct search search = {.out = b, .tokenizer = t};
    enum status status = OK;
    char *piece = mem_alloc(room, 1);
    if (!piece) return err_memory(e, room, "the sequence breakers");
    for (uint32_t token = 0; token < tokenizer_count(t) && !status; token++)
        for (int32_t i = 0; i < n && !status; i++) {
            search.text = texts[i];
            search.length = strlen(texts[i]);
            status = search_token(&search, (int32_t)token, piece, room, e);
        }
    mem_free(piece);
    token_list_close(&search.rest);
    if (status) breakers_close(b);
    return status;
}

void breakers_close(struct breakers *b) {
    mem_free(b->list);
    *b = (struct breakers){0};
}

const struct breaker *breakers_of(const struct breakers *b, int32_t head, int32_t *n) {
    int32_t low = 0, high = b->n;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (b->list[middle].head < head)
            low = middle + 1;
        else
            high = middle;
    }
    for (*n = 0; low + *n < b->n && b->list[low + *n].head == head;) ++*n;
    return b->list + low;
}
