/* constraint.c: see constraint.h. */
#include "runtime/generate/constraint.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- Texts of tokens ----------------------------------------------------------------------------

static const char *text_of(const struct constraint *c, int32_t token, size_t *length) {
    *length = c->ends[token + 1] - c->ends[token];
    return c->texts + c->ends[token];
}

// Tokens that are sorted, with what they are sorted by.
static int compare_tokens(const void *a, const void *b, void *context) {
    size_t n, m;
    const char *x = text_of(context, *(const int32_t *)a, &n);
    const char *y = text_of(context, *(const int32_t *)b, &m);
    const int order = memcmp(x, y, n < m ? n : m);
    if (order) return order;
    return n < m ? -1 : n > m;
}

static size_t decode(const struct constraint *c, int32_t token, char *out, size_t room) {
    return tokenizer_decode(c->tokenizer, token, false, false, out, room);
}

static enum status copy_texts(struct constraint *c, struct err *e) {
    size_t total = 0;
    for (int32_t i = 0; i < c->n_tokens; i++) total += decode(c, i, NULL, 0);
    c->texts = mem_alloc(total + 1, 1);
    if (!c->texts || total > UINT32_MAX) return err_memory(e, total, "the texts of tokens");
    for (int32_t i = 0; i < c->n_tokens; i++) {
        c->ends[i + 1] =
            c->ends[i] + (uint32_t)decode(c, i, c->texts + c->ends[i], total - c->ends[i]);
        c->order[i] = i;
    }
    qsort_r(c->order, (size_t)c->n_tokens, sizeof *c->order, compare_tokens, c);
    return OK;
}

// ---- Opening ------------------------------------------------------------------------------------

static enum status make_lists(struct constraint *c, struct err *e) {
    c->ends = mem_alloc((size_t)c->n_tokens + 1, sizeof *c->ends);
    c->order = mem_alloc((size_t)c->n_tokens, sizeof *c->order);
    c->logits = mem_alloc((size_t)c->n_vocab, sizeof *c->logits);
    if (c->ends && c->order && c->logits) return OK;
    return err_memory(e, (size_t)c->n_vocab * sizeof *c->logits, "the tokens of a grammar");
}

enum status constraint_open(struct constraint *c, const char *grammar, const char *root,
                            const struct tokenizer *t, int32_t n_vocab, struct err *e) {
    *c = (struct constraint){.tokenizer = t, .n_vocab = n_vocab};
    c->n_tokens = (int32_t)tokenizer_count(t);
    if (c->n_tokens > n_vocab) c->n_tokens = n_vocab;
    if (grammar_parse(&c->grammar, grammar, strlen(grammar), root, e) ||
        grammar_state_open(&c->state, &c->grammar, e) || make_lists(c, e) || copy_texts(c, e)) {
        constraint_close(c);
        return e->status;
    }
    return OK;
}

void constraint_close(struct constraint *c) {
    grammar_state_close(&c->state);
    grammar_close(&c->grammar);
    mem_free(c->texts);
    mem_free(c->ends);
    mem_free(c->order);
    mem_free(c->logits);
    *c = (struct constraint){0};
}

enum status constraint_begin(struct constraint *c, const char *opening, struct err *e) {
    if (!c->tokenizer) return OK;
    grammar_state_reset(&c->state);
    return grammar_accept(&c->state, opening, strlen(opening), e);
}

// ---- Tokens -------------------------------------------------------------------------------------

bool constraint_allows(struct constraint *c, int32_t token) {
    size_t length;
    if (!c->tokenizer) return true;
    if (token >= c->n_tokens) return false;
    if (tokenizer_is_end(c->tokenizer, token)) return !c->ignores_end && grammar_can_end(&c->state);
    const char *text = text_of(c, token, &length);
    return length > 0 && grammar_allows(&c->state, text, length);
}

// True if both texts have the same first n bytes.
static bool same_start(const char *a, size_t a_length, const char *b, size_t b_length, size_t n) {
    return a_length >= n && b_length >= n && memcmp(a, b, n) == 0;
}

// Tokens come in the order of their texts: those that share the byte at which one was refused
// follow it and need no look.
const float *constraint_mask(struct constraint *c, const float *logits) {
    const bool can_end = !c->ignores_end && grammar_can_end(&c->state);
    const char *refused = NULL;
    size_t refused_length = 0, length;
    bool any = false;
    for (int32_t i = 0; i < c->n_vocab; i++) c->logits[i] = -INFINITY;
    for (int32_t i = 0; i < c->n_tokens; i++) {
        const int32_t token = c->order[i];
        const char *text = text_of(c, token, &length);
        bool allowed = can_end;
        if (!tokenizer_is_end(c->tokenizer, token)) {
            if (length == 0 ||
                (refused && same_start(text, length, refused, refused_length, refused_length)))
                continue;
            const size_t fits = grammar_prefix(&c->state, text, length);
            allowed = fits == length;
            refused = allowed ? NULL : text;
            refused_length = fits + 1;
        }
        if (!allowed) continue;
        c->logits[token] = logits[token];
        any |= logits[token] > -INFINITY;
    }
    return any ? c->logits : NULL;
}

enum status constraint_accept(struct constraint *c, int32_t token, struct err *e) {
    size_t length;
    if (!c->tokenizer) return OK;
    ASSERT(token < c->n_tokens);
    const char *text = text_of(c, token, &length);
    return grammar_accept(&c->state, text, length, e);
}
