/* constraint.c: see constraint.h. */
#include "runtime/generate/constraint.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- Texts of tokens ----------------------------------------------------------------------------

static const char *text_at(const struct constraint *c, int32_t place, size_t *length) {
    *length = c->ends[place + 1] - c->ends[place];
    return c->texts + c->ends[place];
}

// The text of a token while they are sorted.
struct piece {
    const char *text;
    uint32_t length;
    int32_t token;
};

static int compare_pieces(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    const int order = memcmp(x->text, y->text, x->length < y->length ? x->length : y->length);
    if (order) return order;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

static uint8_t shared_bytes(const struct piece *a, const struct piece *b) {
    uint32_t same = 0;
    while (same < a->length && same < b->length && same < UINT8_MAX &&
           a->text[same] == b->text[same])
        same++;
    return (uint8_t)same;
}

// Copies the pieces in their order.
static void fill_lists(struct constraint *c, const struct piece *pieces) {
    for (int32_t i = 0; i < c->n_tokens; i++) {
        const struct piece *p = &pieces[i];
        memcpy(c->texts + c->ends[i], p->text, p->length);
        c->ends[i + 1] = c->ends[i] + p->length;
        c->order[i] = (struct constraint_token){p->token, i ? shared_bytes(p - 1, p) : 0,
                                                tokenizer_is_end(c->tokenizer, p->token)};
        c->places[p->token] = i;
    }
}

static size_t decode(const struct constraint *c, int32_t token, char *out, size_t room) {
    return tokenizer_decode(c->tokenizer, token, false, false, out, room);
}

static enum status sort_texts(struct constraint *c, struct err *e) {
    size_t total = 0;
    for (int32_t i = 0; i < c->n_tokens; i++) total += decode(c, i, NULL, 0);
    struct piece *pieces = mem_alloc((size_t)c->n_tokens, sizeof *pieces);
    char *unsorted = mem_alloc(total + 1, 1);
    c->texts = mem_alloc(total + 1, 1);
    if (!pieces || !unsorted || !c->texts || total > UINT32_MAX) {
        mem_free(pieces);
        mem_free(unsorted);
        return err_memory(e, total, "the texts of tokens");
    }
    char *text = unsorted;
    for (int32_t i = 0; i < c->n_tokens; i++) {
        const size_t length = decode(c, i, text, total - (size_t)(text - unsorted));
        pieces[i] = (struct piece){text, (uint32_t)length, i};
        text += length;
    }
    qsort(pieces, (size_t)c->n_tokens, sizeof *pieces, compare_pieces);
    fill_lists(c, pieces);
    mem_free(pieces);
    mem_free(unsorted);
    return OK;
}

// ---- Opening ------------------------------------------------------------------------------------

static enum status make_lists(struct constraint *c, struct err *e) {
    c->ends = mem_alloc((size_t)c->n_tokens + 1, sizeof *c->ends);
    c->order = mem_alloc((size_t)c->n_tokens, sizeof *c->order);
    c->places = mem_alloc((size_t)c->n_tokens, sizeof *c->places);
    c->logits = mem_alloc((size_t)c->n_vocab, sizeof *c->logits);
    if (c->ends && c->order && c->places && c->logits) return OK;
    return err_memory(e, (size_t)c->n_vocab * sizeof *c->logits, "the tokens of a grammar");
}

enum status constraint_open(struct constraint *c, const char *grammar, const char *root,
                            const struct tokenizer *t, int32_t n_vocab, struct err *e) {
    *c = (struct constraint){.tokenizer = t, .n_vocab = n_vocab};
    c->n_tokens = (int32_t)tokenizer_count(t);
    if (c->n_tokens > n_vocab) c->n_tokens = n_vocab;
    if (grammar_parse(&c->grammar, grammar, strlen(grammar), root, e) ||
        grammar_state_open(&c->state, &c->grammar, e) ||
        grammar_walk_open(&c->walk, &c->state, e) || make_lists(c, e) || sort_texts(c, e)) {
        constraint_close(c);
        return e->status;
    }
    return OK;
}

void constraint_close(struct constraint *c) {
    grammar_walk_close(&c->walk);
    grammar_state_close(&c->state);
    grammar_close(&c->grammar);
    mem_free(c->texts);
    mem_free(c->ends);
    mem_free(c->order);
    mem_free(c->places);
    mem_free(c->logits);
    *c = (struct constraint){0};
}

static void drop_part(void *context, enum chat_part part, const char *text, size_t length) {
    (void)context, (void)part, (void)text, (void)length;
}

enum status constraint_begin(struct constraint *c, const char *opening, struct err *e) {
    if (!c->tokenizer) return OK;
    grammar_state_reset(&c->state);
    c->reply.take = drop_part;
    if (c->style.thoughts) chat_reply_begin(&c->reply, &c->style, opening, strlen(opening));
    return grammar_accept(&c->state, opening, strlen(opening), e);
}

// ---- Tokens -------------------------------------------------------------------------------------

bool constraint_can_end(const struct constraint *c) {
    const bool thinks = c->style.thoughts && chat_reply_thinks(&c->reply);
    return !c->ignores_end && !thinks && grammar_can_end(&c->state);
}

bool constraint_allows(struct constraint *c, int32_t token) {
    size_t length;
    if (!c->tokenizer) return true;
    if (token >= c->n_tokens) return false;
    if (tokenizer_is_end(c->tokenizer, token)) return constraint_can_end(c);
    const char *text = text_at(c, c->places[token], &length);
    return length > 0 && grammar_allows(&c->state, text, length);
}

// Tokens come in the order of their texts: those that share the byte at which one was refused
// follow it and need no look, and of the others only what they do not share is looked at.
static bool walk_tokens(struct constraint *c, const float *logits) {
    const bool can_end = constraint_can_end(c);
    size_t common = 0, refused_at = SIZE_MAX, length; // common: with the last one that was tried
    bool any = false;
    for (int32_t i = 0; i < c->n_tokens; i++) {
        const struct constraint_token *t = &c->order[i];
        bool allowed = can_end;
        common = common < t->shared ? common : t->shared;
        if (!t->is_end) {
            const char *text = text_at(c, i, &length);
            if (length == 0 || common > refused_at) continue;
            const size_t fits = grammar_walk_prefix(&c->walk, text, length, common);
            allowed = fits == length;
            refused_at = allowed ? SIZE_MAX : fits;
            common = SIZE_MAX;
        }
        if (!allowed) continue;
        c->logits[t->token] = logits[t->token];
        any |= logits[t->token] > -INFINITY;
    }
    return any;
}

const float *constraint_mask(struct constraint *c, const float *logits) {
    for (int32_t i = 0; i < c->n_vocab; i++) c->logits[i] = -INFINITY;
    grammar_walk_begin(&c->walk);
    const bool any = walk_tokens(c, logits);
    grammar_walk_end(&c->walk);
    return any ? c->logits : NULL;
}

enum status constraint_accept(struct constraint *c, int32_t token, struct err *e) {
    size_t length;
    if (!c->tokenizer) return OK;
    ASSERT(token < c->n_tokens);
    const char *text = text_at(c, c->places[token], &length);
    if (grammar_accept(&c->state, text, length, e)) return e->status;
    if (c->style.thoughts) chat_reply_write(&c->reply, text, length);
    return OK;
}
