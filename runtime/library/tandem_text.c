/* tandem_text.c: text, tokens and conversations of tandem.h. See tandem_engine.h.
 *
 * Only reads the engine, so that any thread may call these.
 */
#include "base/mem.h"
#include "runtime/library/tandem_engine.h"

#include <string.h>

// ---- Tokens -------------------------------------------------------------------------------------

// Hands the list over, or frees it after a failure.
static enum tandem_status give_tokens(enum status status, struct token_list *list,
                                      struct tandem_tokens *out, const struct err *err,
                                      struct tandem_error *e) {
    *out = (struct tandem_tokens){NULL, 0};
    if (status == OK)
        *out = (struct tandem_tokens){list->ids, (size_t)list->count};
    else
        token_list_close(list);
    return tandem_error_give(status, err, e);
}

enum tandem_status tandem_tokenize(const struct tandem_engine *engine, const char *text,
                                   size_t length, unsigned flags, struct tandem_tokens *out,
                                   struct tandem_error *e) {
    struct err err = {0};
    struct token_list list = {0};
    const struct tokenizer_flags parts = {.add_special = flags & TANDEM_ADD_SPECIAL,
                                          .parse_special = flags & TANDEM_PARSE_SPECIAL};
    const enum status status =
        tokenizer_encode(engine_tokenizer(engine->engine), text, length, parts, &list, &err);
    return give_tokens(status, &list, out, &err, e);
}

bool tandem_is_end(const struct tandem_engine *engine, int32_t token) {
    return tokenizer_is_end(engine_tokenizer(engine->engine), token);
}

// ---- Text ---------------------------------------------------------------------------------------

struct text { // grows
    char *bytes;
    size_t length, capacity;
};

// Makes room for size_bytes more and a 0.
static enum status make_room(struct text *t, size_t size_bytes, struct err *e) {
    if (t->capacity - t->length > size_bytes) return OK;
    const size_t capacity = 2 * (t->length + size_bytes + 1);
    char *bytes = mem_resize(t->bytes, capacity, 1);
    if (!bytes) return err_memory(e, capacity, "a text");
    t->bytes = bytes;
    t->capacity = capacity;
    return OK;
}

static enum status decode_all(const struct tokenizer *tokenizer, const int32_t *ids, size_t n,
                              bool special, struct text *text, struct err *e) {
    const size_t piece_bytes = 8 + tokenizer_longest(tokenizer);
    struct token_stream stream;
    token_stream_init(&stream, tokenizer, special);
    for (size_t i = 0; i < n; i++) {
        if (make_room(text, piece_bytes, e)) return e->status;
        text->length += token_stream_push(&stream, ids[i], text->bytes + text->length, piece_bytes);
    }
    if (make_room(text, piece_bytes, e)) return e->status;
    text->length += token_stream_finish(&stream, text->bytes + text->length, piece_bytes);
    return OK;
}

// Ends the text and hands it over, or frees it after a failure.
static enum tandem_status give_text(enum status status, struct text *text, struct tandem_text *out,
                                    const struct err *err, struct tandem_error *e) {
    *out = (struct tandem_text){NULL, 0};
    if (status == OK) {
        text->bytes[text->length] = 0;
        *out = (struct tandem_text){text->bytes, text->length};
    } else {
        mem_free(text->bytes);
    }
    return tandem_error_give(status, err, e);
}

enum tandem_status tandem_detokenize(const struct tandem_engine *engine, const int32_t *ids,
                                     size_t n, unsigned flags, struct tandem_text *out,
                                     struct tandem_error *e) {
    struct err err = {0};
    struct text text = {0};
    const enum status status = decode_all(engine_tokenizer(engine->engine), ids, n,
                                          flags & TANDEM_SHOW_SPECIAL, &text, &err);
    return give_text(status, &text, out, &err, e);
}

// ---- Conversations ------------------------------------------------------------------------------

static enum status render_list(const struct tandem_engine *en, const struct chat_message *messages,
                               size_t n, enum tandem_chat part, struct chat_text *out,
                               struct err *e) {
    const struct chat_conversation c = {
        .messages = messages, .n_messages = n, .with_reply = part != TANDEM_CHAT_WHOLE};
    if (part == TANDEM_CHAT_NEXT) return chat_render_next(&en->chat, &c, out, e);
    return chat_render(&en->chat, &c, out, e);
}

static enum status render(const struct tandem_engine *en, const struct tandem_message *messages,
                          size_t n, enum tandem_chat part, struct chat_text *out, struct err *e) {
    if (en->chat_refused.status != OK) {
        *e = en->chat_refused;
        return e->status;
    }
    if ((unsigned)part > TANDEM_CHAT_WHOLE)
        return err_set(e, ERR_USAGE, "the part of a conversation is none of enum tandem_chat");
    struct chat_message *list = mem_alloc(n, sizeof *list);
    if (!list) return err_memory(e, n * sizeof *list, "a conversation");
    enum status status = OK;
    for (size_t i = 0; i < n && status == OK; i++) {
        list[i] = (struct chat_message){.role = (enum chat_role)messages[i].role,
                                        .text = messages[i].text,
                                        .length = messages[i].text ? strlen(messages[i].text) : 0};
        if ((unsigned)messages[i].role > TANDEM_ASSISTANT || !messages[i].text)
            status = err_set(e, ERR_USAGE, "message %zu has no known role or no text", i + 1);
    }
    if (status == OK) status = render_list(en, list, n, part, out, e);
    mem_free(list);
    return status;
}

enum tandem_status tandem_chat_tokens(const struct tandem_engine *engine,
                                      const struct tandem_message *messages, size_t n,
                                      enum tandem_chat part, struct tandem_tokens *out,
                                      struct tandem_error *e) {
    struct err err = {0};
    struct chat_text text = {0};
    struct token_list list = {0};
    enum status status = render(engine, messages, n, part, &text, &err);
    if (status == OK) status = chat_encode(engine_tokenizer(engine->engine), &text, &list, &err);
    chat_text_close(&text);
    return give_tokens(status, &list, out, &err, e);
}

enum tandem_status tandem_chat_text(const struct tandem_engine *engine,
                                    const struct tandem_message *messages, size_t n,
                                    enum tandem_chat part, struct tandem_text *out,
                                    struct tandem_error *e) {
    struct err err = {0};
    struct chat_text rendered = {0};
    struct text text = {0};
    enum status status = render(engine, messages, n, part, &rendered, &err);
    if (status == OK) status = make_room(&text, rendered.length, &err);
    if (status == OK && rendered.length > 0) memcpy(text.bytes, rendered.bytes, rendered.length);
    text.length = rendered.length;
    chat_text_close(&rendered);
    return give_text(status, &text, out, &err, e);
}
