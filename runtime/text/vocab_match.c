/* vocab_match.c: see vocab_match.h. */
#include "runtime/text/vocab_match.h"

#include <string.h>

// The padding that a vocabulary may have more, and the first ids, which often are control tokens
// that a model names as it likes.
enum { MORE_TOKENS = 128, FIRST_TOKEN = 5, SHOWN_BYTES = 40 };

struct vocab {
    struct gguf_text kind;          // of tokenizer, such as "gpt2"
    const struct gguf_value *texts; // of the tokens
};

static enum status read_vocab(struct vocab *v, const struct gguf *g, struct err *e) {
    static const char kind[] = "tokenizer.ggml.model", texts[] = "tokenizer.ggml.tokens";
    if (gguf_read_text(g, kind, &v->kind, e)) return e->status;
    v->texts = gguf_find(g, texts);
    if (v->texts && v->texts->type == GGUF_ARRAY && v->texts->element == GGUF_STRING) return OK;
    return err_set(e, ERR_FORMAT, "key %s is no list of tokens", texts);
}

static bool same_text(struct gguf_text a, struct gguf_text b) {
    return a.length == b.length && (!a.length || memcmp(a.bytes, b.bytes, a.length) == 0);
}

static int shown(struct gguf_text text) {
    return text.length < SHOWN_BYTES ? (int)text.length : SHOWN_BYTES;
}

static enum status refuse_token(uint64_t id, struct gguf_text target, struct gguf_text draft,
                                struct err *e) {
    err_set(e, ERR_USAGE, "token %llu of the draft model", (unsigned long long)id);
    err_expected(e, "'%.*s', as in the model", shown(target), target.bytes);
    return err_actual(e, "'%.*s'", shown(draft), draft.bytes);
}

static enum status compare(const struct vocab *target, const struct vocab *draft, struct err *e) {
    const uint64_t n = target->texts->count, m = draft->texts->count;
    if (!same_text(target->kind, draft->kind)) {
        err_set(e, ERR_USAGE, "the tokenizer of the draft model");
        err_expected(e, "'%.*s', as in the model", shown(target->kind), target->kind.bytes);
        return err_actual(e, "'%.*s'", shown(draft->kind), draft->kind.bytes);
    }
    if ((n > m ? n - m : m - n) > MORE_TOKENS) {
        err_set(e, ERR_USAGE, "the vocabulary of the draft model");
        err_expected(e, "%llu tokens, as the model has, or up to %d more or fewer",
                     (unsigned long long)n, MORE_TOKENS);
        return err_actual(e, "%llu", (unsigned long long)m);
    }
    const uint8_t *at = NULL, *draft_at = NULL;
    struct gguf_text a, b;
    for (uint64_t id = 0;
         gguf_next_text(target->texts, &at, &a) && gguf_next_text(draft->texts, &draft_at, &b);
         id++)
        if (id >= FIRST_TOKEN && !same_text(a, b)) return refuse_token(id, a, b, e);
    return OK;
}

enum status vocab_match(const struct gguf *target, const struct gguf *draft, struct err *e) {
    struct vocab of_target = {0}, of_draft = {0};
    if (read_vocab(&of_target, target, e)) return err_context(e, "the model");
    if (read_vocab(&of_draft, draft, e)) return err_context(e, "the draft model");
    if (compare(&of_target, &of_draft, e) == OK) return OK;
    return err_fix(e, "take a draft model of the same family, which has the same tokens");
}

enum status vocab_match_files(const char *target, const char *draft, struct err *e) {
    struct gguf of_target = {0}, of_draft = {0};
    enum status status = OK;
    if (gguf_open(&of_target, target, e) || gguf_open(&of_draft, draft, e))
        status = e->status;
    else if (vocab_match(&of_target, &of_draft, e))
        status = e->status == ERR_USAGE ? err_context(e, "%s", draft) : e->status;
    gguf_close(&of_target);
    gguf_close(&of_draft);
    return status;
}
