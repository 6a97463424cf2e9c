/* tandem_reply.c: see tandem_reply.h. */
#include "runtime/library/tandem_reply.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

static_assert((int)TANDEM_PART_THOUGHT == (int)CHAT_THOUGHT &&
                  (int)TANDEM_PART_ARGUMENTS == (int)CHAT_ARGUMENTS,
              "both have the same list");

static enum status read_all(struct tandem_reply *r, const struct tandem_engine *engine,
                            struct err *e) {
    const struct tandem_generate_options *o = r->options;
    const struct reply_rules rules = {o->grammar, o->json_schema, o->must_call};
    if ((o->grammar != NULL) + (o->json_schema != NULL) + (o->tools != NULL) > 1)
        return err_set(e, ERR_USAGE, "options: more than one of grammar, json_schema and tools");
    if (o->tools && chat_tools_open(&r->tools, o->tools, strlen(o->tools), e)) return e->status;
    if (o->reply || o->tools || o->on_part) {
        const struct chat_format *chat = tandem_chat_of(engine, o->tools);
        r->style.thoughts = chat->marks;
        r->style.calls = chat->calls;
        r->style.tools = o->tools ? &r->tools : NULL;
    }
    if (!o->reply && !o->tools && !o->json_schema) return OK;
    return reply_grammar(&r->grammar, &r->style, &rules, &engine->request.log, e);
}

enum status tandem_reply_open(struct tandem_reply *r, const struct tandem_engine *engine,
                              const struct tandem_generate_options *options, struct err *e) {
    *r = (struct tandem_reply){.options = options};
    const enum status status = read_all(r, engine, e);
    if (status) tandem_reply_close(r);
    return status;
}

void tandem_reply_close(struct tandem_reply *r) {
    chat_tools_close(&r->tools);
    mem_free(r->grammar);
    *r = (struct tandem_reply){0};
}

static void take_part(void *context, enum chat_part part, const char *text, size_t length) {
    struct tandem_reply *r = context;
    const struct tandem_generate_options *o = r->options;
    if (!r->refused) r->refused = !o->on_part(o->context, (enum tandem_part)part, text, length);
}

// The last tokens show how the prompt ends; marks are a few tokens, and shorter than this.
void tandem_reply_begin(struct tandem_reply *r, struct tandem_session *session) {
    enum { TOKENS = 32, TAIL_BYTES = 1024 };
    const struct tokenizer *t = session->generator.tokenizer;
    char tail[TAIL_BYTES];
    size_t length = 0;
    int32_t first = session->n_tokens > TOKENS ? session->n_tokens - TOKENS : 0;
    for (; first < session->n_tokens; first++) {
        const int32_t id = session->tokens[first];
        const size_t size = tokenizer_decode(t, id, false, true, NULL, 0);
        if (size > TAIL_BYTES) continue;
        if (length + size > TAIL_BYTES) length = 0;
        length += tokenizer_decode(t, id, false, true, tail + length, TAIL_BYTES - length);
    }
    reply_opening(r->opening, r->style.thoughts, tail, length);
    generate_begin(&session->generator, r->grammar ? r->opening : NULL, false);
    r->parts.take = take_part;
    r->parts.context = r;
    if (r->options->on_part) chat_reply_begin(&r->parts, &r->style, tail, length);
}

void tandem_reply_write(struct tandem_reply *r, const char *text, size_t length) {
    if (r->options->on_part) chat_reply_write(&r->parts, text, length);
}

void tandem_reply_end(struct tandem_reply *r) {
    if (r->options->on_part) chat_reply_end(&r->parts);
}
