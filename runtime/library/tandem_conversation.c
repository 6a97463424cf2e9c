/* tandem_conversation.c: conversations of tandem.h that are given as JSON. See tandem_engine.h.
 *
 * Only reads the engine, so that any thread may call it. Tested by
 * tests/runtime/test_library_reply.c.
 */
#include "base/mem.h"
#include "runtime/library/tandem_engine.h"

#include <string.h>

// A conversation while it is read. Owns all but root's texts, which messages borrow.
struct reading {
    json_t *root;
    struct chat_message *messages;
    size_t n;
    char **made; // [2 * n]: texts that are joined of parts, and calls
    struct chat_tools tools;
};

static void close_reading(struct reading *r) {
    for (size_t i = 0; r->made && i < 2 * r->n; i++) mem_free(r->made[i]);
    mem_free(r->made);
    mem_free(r->messages);
    chat_tools_close(&r->tools);
    json_decref(r->root);
}

// Joins the texts of a list of parts.
static enum status join_parts(const json_t *parts, char **out, struct err *e) {
    size_t i, size = 0, at = 0;
    const json_t *part;
    json_array_foreach(parts, i, part) {
        const json_t *text = json_object_get(part, "text");
        if (!json_is_string(text))
            return err_set(e, ERR_UNSUPPORTED, "a message has a part that is no text");
        size += json_string_length(text);
    }
    *out = mem_alloc(size + 1, 1);
    if (!*out) return err_memory(e, size, "a message");
    json_array_foreach(parts, i, part) {
        const json_t *text = json_object_get(part, "text");
        memcpy(*out + at, json_string_value(text), json_string_length(text));
        at += json_string_length(text);
    }
    return OK;
}

static enum status read_content(struct chat_message *m, const json_t *content, char **made,
                                struct err *e) {
    if (json_is_array(content)) {
        if (join_parts(content, made, e)) return e->status;
        m->text = *made;
        m->length = strlen(*made);
        return OK;
    }
    if (content && !json_is_string(content) && !json_is_null(content))
        return err_set(e, ERR_FORMAT, "the content of a message is no text");
    m->text = json_is_string(content) ? json_string_value(content) : "";
    m->length = json_string_length(content);
    return OK;
}

static enum status read_calls(struct chat_message *m, const json_t *calls, char **made,
                              struct err *e) {
    size_t i;
    const json_t *call;
    if (calls && !json_is_array(calls) && !json_is_null(calls))
        return err_set(e, ERR_FORMAT, "the tool_calls of a message are no list");
    json_array_foreach(calls, i, call) {
        const json_t *function = json_object_get(call, "function");
        if (!json_is_string(json_object_get(function, "name")))
            return err_set(e, ERR_FORMAT, "call %zu of a message names no function", i + 1);
    }
    if (json_array_size(calls) == 0) return OK;
    const size_t size = json_dumpb(calls, NULL, 0, 0);
    *made = mem_alloc(size + 1, 1);
    if (!*made) return err_memory(e, size, "calls of tools");
    json_dumpb(calls, *made, size, 0);
    m->calls = *made;
    return OK;
}

static enum status read_message(struct reading *r, size_t i, struct err *e) {
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};
    const json_t *given = json_array_get(r->root, i);
    const char *role = json_string_value(json_object_get(given, "role"));
    const json_t *reasoning = json_object_get(given, "reasoning_content");
    struct chat_message *m = &r->messages[i];
    int k = 0;
    while (k < 5 && (!role || strcmp(role, roles[k]) != 0)) k++;
    if (k == 5) return err_set(e, ERR_FORMAT, "message %zu has no role that is known", i + 1);
    m->role = k == 4 ? CHAT_SYSTEM : (enum chat_role)k;
    m->reasoning = json_string_value(reasoning);
    m->reasoning_length = json_string_length(reasoning);
    m->call_id = json_string_value(json_object_get(given, "tool_call_id"));
    if (read_content(m, json_object_get(given, "content"), &r->made[2 * i], e)) return e->status;
    return read_calls(m, json_object_get(given, "tool_calls"), &r->made[2 * i + 1], e);
}

static enum status read_all(struct reading *r, const struct tandem_conversation *c, struct err *e) {
    json_error_t where;
    r->root = c->messages ? json_loads(c->messages, JSON_REJECT_DUPLICATES, &where) : NULL;
    if (!json_is_array(r->root))
        return err_set(e, ERR_FORMAT, "the messages of a conversation are no JSON list");
    r->n = json_array_size(r->root);
    r->messages = mem_alloc(r->n + 1, sizeof *r->messages);
    r->made = mem_alloc(2 * r->n + 1, sizeof *r->made);
    if (!r->messages || !r->made)
        return err_memory(e, r->n * sizeof *r->messages, "a conversation");
    for (size_t i = 0; i < r->n; i++)
        if (read_message(r, i, e)) return e->status;
    if (c->tools && chat_tools_open(&r->tools, c->tools, strlen(c->tools), e)) return e->status;
    return OK;
}

static enum status encode(const struct tandem_engine *en, const struct reading *r,
                          enum tandem_chat part, struct token_list *out, struct err *e) {
    const struct chat_conversation c = {.messages = r->messages,
                                        .n_messages = r->n,
                                        .tools = r->tools.list ? &r->tools : NULL,
                                        .with_reply = part != TANDEM_CHAT_WHOLE};
    const struct chat_format *chat = tandem_chat_of(en, c.tools);
    struct chat_text text = {0};
    enum status status = part == TANDEM_CHAT_NEXT ? chat_render_next(chat, &c, &text, e)
                                                  : chat_render(chat, &c, &text, e);
    if (!status) status = chat_encode(engine_tokenizer(en->engine), &text, out, e);
    chat_text_close(&text);
    return status;
}

enum tandem_status tandem_conversation_tokens(const struct tandem_engine *engine,
                                              const struct tandem_conversation *conversation,
                                              struct tandem_tokens *out, struct tandem_error *e) {
    struct tandem_conversation c = {0};
    struct err err = {0};
    struct reading r = {0};
    struct token_list list = {0};
    *out = (struct tandem_tokens){NULL, 0};
    enum status status =
        tandem_struct_read(&c, sizeof c, sizeof c, conversation, &err) ? err.status : OK;
    if (!status && engine->chat_refused.status) {
        err = engine->chat_refused;
        status = err.status;
    }
    if (!status && (unsigned)c.part > TANDEM_CHAT_WHOLE)
        status = err_set(&err, ERR_USAGE, "the part of a conversation is none of enum tandem_chat");
    if (!status) status = read_all(&r, &c, &err);
    if (!status) status = encode(engine, &r, c.part, &list, &err);
    close_reading(&r);
    if (status)
        token_list_close(&list);
    else
        *out = (struct tandem_tokens){list.ids, (size_t)list.count};
    return tandem_error_give(status, &err, e);
}
