/* chat.c: see chat.h. */
#include "runtime/text/chat.h"

#include "base/close_name.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "runtime/jinja/jinja.h"
#include "runtime/jinja/jinja_json.h"
#include "runtime/text/chat_builtin.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const ROLES[] = {"system", "user", "assistant", "tool"};

void chat_text_close(struct chat_text *text) {
    mem_free(text->bytes);
    mem_free(text->data);
    *text = (struct chat_text){0};
}

// ---- Messages as values -------------------------------------------------------------------------

// Changes of the messages without which the template does not take them.
struct adaption {
    bool folds_system;                // the system message begins the first user's one
    bool joins;                       // messages of one role after each other become one
    bool writes_calls;                // the arguments of calls are JSON texts, not objects
    bool thinks;                      // a message with calls and thoughts has no other text
    const struct call_marks *in_text; // the template leaves calls out: they are written into the
                                      // text as these say; NULL: it shows them
};

static struct jinja_value text_value(const char *text, size_t length) {
    return jinja_of_text(jinja_text(length ? text : "", length, true));
}

static const struct jinja_json_form JSON_FORM = {
    .indent = -1, .item = {.bytes = ", ", .length = 2}, .key = {.bytes = ": ", .length = 2}};

// Puts the arguments of a call into the form that the template takes.
static void shape_arguments(struct jinja_heap *h, struct jinja_value call, bool as_text) {
    const struct jinja_value *function = jinja_dict_find(h, call, jinja_literal("function"));
    const struct jinja_value name = jinja_literal("arguments");
    const struct jinja_value *arguments = function ? jinja_dict_find(h, *function, name) : NULL;
    if (!arguments) return;
    if (arguments->kind == JINJA_TEXT && !as_text)
        jinja_dict_put(h, *function, name,
                       jinja_from_json(h, arguments->text.bytes, arguments->text.length));
    else if (arguments->kind != JINJA_TEXT && as_text)
        jinja_dict_put(h, *function, name, jinja_to_json(h, *arguments, &JSON_FORM));
}

static struct jinja_value calls_value(struct jinja_heap *h, const char *json, bool as_text) {
    const struct jinja_value calls = jinja_from_json(h, json, strlen(json));
    const struct jinja_list *list = calls.kind == JINJA_LIST ? jinja_items(h, calls) : NULL;
    if (!list) {
        jinja_fail(h, "the calls of tools are no list");
        return calls;
    }
    for (uint32_t i = 0; i < list->count; i++) shape_arguments(h, list->items[i], as_text);
    return calls;
}

// ---- Calls as a part of the text ----------------------------------------------------------------

static void put(struct jinja_heap *h, struct jinja_builder *b, const char *text) {
    if (text) jinja_builder_put(h, b, text, false);
}

// Adds N(K=V, ...) with values as Python prints them within a list.
static void put_python(struct jinja_heap *h, struct jinja_builder *b, struct jinja_value name,
                       struct jinja_value arguments) {
    const struct jinja_dict *dict = arguments.kind == JINJA_DICT ? arguments.dict : NULL;
    jinja_builder_add(h, b, name.text);
    put(h, b, "(");
    for (uint32_t i = 0; dict && i < dict->count; i++) {
        const struct jinja_value list = jinja_list_new(h, JINJA_LIST);
        jinja_list_add(h, list, dict->pairs[i].value);
        const struct jinja_text printed = jinja_str(h, list).text;
        if (jinja_failed(h)) return;
        put(h, b, i ? ", " : "");
        jinja_builder_add(h, b, jinja_str(h, dict->pairs[i].key).text);
        put(h, b, "=");
        jinja_builder_add(h, b, jinja_text_part(printed, 1, printed.length - 2));
    }
    put(h, b, ")");
}

static void put_object(struct jinja_heap *h, struct jinja_builder *b, struct jinja_value name,
                       struct jinja_value arguments, const struct call_marks *m) {
    put(h, b, "{\"name\": \"");
    jinja_builder_add(h, b, name.text);
    put(h, b, "\", \"");
    put(h, b, m->arguments);
    put(h, b, "\": ");
    jinja_builder_add(h, b, jinja_to_json(h, arguments, &JSON_FORM).text);
    put(h, b, "}");
}

// The text with the calls behind it, as the model writes them.
static struct jinja_value with_calls(struct jinja_heap *h, struct jinja_value text,
                                     struct jinja_value calls, const struct call_marks *m) {
    const struct jinja_list *list = calls.kind == JINJA_LIST ? jinja_items(h, calls) : NULL;
    struct jinja_builder b = {0};
    jinja_builder_add(h, &b, text.text);
    for (uint32_t i = 0; list && i < list->count && !jinja_failed(h); i++) {
        const struct jinja_value *f = jinja_dict_find(h, list->items[i], jinja_literal("function"));
        const struct jinja_value *name = f ? jinja_dict_find(h, *f, jinja_literal("name")) : NULL;
        const struct jinja_value *value =
            f ? jinja_dict_find(h, *f, jinja_literal("arguments")) : NULL;
        if (!name || !value || name->kind != JINJA_TEXT) continue;
        if (i == 0 || !m->list) put(h, &b, m->open);
        if (m->list) put(h, &b, i ? ", " : "[");
        if (m->shape == CALL_PYTHON)
            put_python(h, &b, *name, *value);
        else
            put_object(h, &b, *name, *value, m);
        if (!m->list) put(h, &b, m->end);
    }
    if (list && list->count > 0 && m->list) put(h, &b, "]");
    if (list && list->count > 0) put(h, &b, m->close);
    return jinja_builder_text(&b);
}

// ---- Conversations as values --------------------------------------------------------------------

static struct jinja_value message_value(struct jinja_heap *h, const struct chat_message *m,
                                        struct jinja_value content, struct adaption how) {
    // Most templates know thoughts by the first name, gpt-oss by the second, Solar by the third.
    static const char *const thoughts[] = {"reasoning_content", "thinking", "reasoning"};
    const struct jinja_value out = jinja_dict_new(h, JINJA_DICT);
    if (how.thinks && m->calls && m->reasoning) content = text_value("", 0);
    if (how.in_text && m->calls)
        content = with_calls(h, content, calls_value(h, m->calls, false), how.in_text);
    jinja_dict_put(h, out, jinja_literal("role"), jinja_literal(ROLES[m->role]));
    jinja_dict_put(h, out, jinja_literal("content"), content);
    for (int i = 0; m->reasoning && i < 3; i++)
        jinja_dict_put(h, out, jinja_literal(thoughts[i]),
                       text_value(m->reasoning, m->reasoning_length));
    if (m->calls)
        jinja_dict_put(h, out, jinja_literal("tool_calls"),
                       calls_value(h, m->calls, how.writes_calls));
    if (m->call_id)
        jinja_dict_put(h, out, jinja_literal("tool_call_id"),
                       text_value(m->call_id, strlen(m->call_id)));
    return out;
}

// first, an empty line and second; first may be empty.
static struct jinja_value join(struct jinja_heap *h, struct jinja_value first,
                               struct jinja_value second) {
    struct jinja_builder b = {0};
    if (first.text.length == 0) return second;
    jinja_builder_add(h, &b, first.text);
    jinja_builder_put(h, &b, "\n\n", true);
    jinja_builder_add(h, &b, second.text);
    return jinja_builder_text(&b);
}

// True if a message may be joined with others of its role.
static bool may_join(const struct chat_message *m) { return m->role != CHAT_TOOL && !m->calls; }

static struct jinja_value list_messages(struct jinja_heap *h, const struct chat_conversation *c,
                                        struct adaption how) {
    const struct chat_message *messages = c->messages;
    const size_t n = c->n_messages;
    const struct jinja_value out = jinja_list_new(h, JINJA_LIST);
    struct jinja_value system = text_value("", 0);
    for (size_t i = 0; i < n && !jinja_failed(h); i++) {
        struct jinja_value content = text_value(messages[i].text, messages[i].length);
        const size_t first = i;
        if (how.folds_system && messages[i].role == CHAT_SYSTEM) {
            system = join(h, system, content);
            continue;
        }
        while (how.joins && i + 1 < n && messages[i + 1].role == messages[first].role &&
               may_join(&messages[i]) && may_join(&messages[i + 1])) {
            i++;
            content = join(h, content, text_value(messages[i].text, messages[i].length));
        }
        if (messages[first].role == CHAT_USER) {
            content = join(h, system, content);
            system = text_value("", 0);
        }
        jinja_list_add(h, out, message_value(h, &messages[first], content, how));
    }
    const struct chat_message last = {.role = CHAT_USER};
    if (system.text.length > 0) jinja_list_add(h, out, message_value(h, &last, system, how));
    return out;
}

// ---- Rendering ----------------------------------------------------------------------------------

static void tell_time(const struct chat_format *f, struct tm *out) {
    const time_t now = f->now_s ? (time_t)f->now_s : time(NULL);
    if (!localtime_r(&now, out)) *out = (struct tm){.tm_mday = 1, .tm_year = 70};
}

// Sets a variable that is not set to the time.
static void put_time(struct jinja_heap *h, struct jinja_value variables, const char *name,
                     const char *format, const struct tm *now) {
    enum { TIME_CHARS = 32 };
    char *text = jinja_heap_take(h, TIME_CHARS);
    if (jinja_failed(h) || jinja_dict_find(h, variables, jinja_literal(name))) return;
    const size_t length = strftime(text, TIME_CHARS, format, now);
    jinja_dict_put(h, variables, jinja_literal(name),
                   jinja_of_text(jinja_text(text, (uint32_t)length, false)));
}

static struct jinja_value list_variables(const struct chat_format *f, struct jinja_heap *h,
                                         struct jinja_value messages, const struct tm *now,
                                         const struct chat_conversation *c) {
    struct jinja_value out = f->kwargs ? jinja_from_json(h, f->kwargs, strlen(f->kwargs))
                                       : jinja_dict_new(h, JINJA_DICT);
    if (out.kind != JINJA_DICT) jinja_fail(h, "its variables are no JSON object");
    jinja_dict_put(h, out, jinja_literal("messages"), messages);
    jinja_dict_put(h, out, jinja_literal("add_generation_prompt"), jinja_bool(c->with_reply));
    if (c->tools)
        jinja_dict_put(h, out, jinja_literal("tools"),
                       jinja_from_json(h, c->tools->text, strlen(c->tools->text)));
    if (f->bos) jinja_dict_put(h, out, jinja_literal("bos_token"), jinja_literal(f->bos));
    if (f->eos) jinja_dict_put(h, out, jinja_literal("eos_token"), jinja_literal(f->eos));
    put_time(h, out, "date_string", "%d %b %Y", now); // Llama 3.1 and 3.3 know no other
    put_time(h, out, "datetime", "%b %d %Y", now);
    return out;
}

static enum status take_text(struct jinja_text from, struct chat_text *out, struct err *e) {
    chat_text_close(out);
    out->bytes = mem_alloc(from.length + 1u, 1);
    out->data = mem_alloc(from.length + 1u, 1);
    if (!out->bytes || !out->data) return err_memory(e, 2 * from.length, "a conversation");
    out->length = from.length;
    memcpy(out->bytes, from.bytes, from.length);
    if (from.marks) memcpy(out->data, from.marks, from.length);
    return OK;
}

static enum status render_once(const struct chat_format *f, const struct chat_conversation *c,
                               struct adaption how, struct chat_text *out, struct err *e) {
    struct jinja_heap h;
    struct jinja_text text;
    struct tm now;
    tell_time(f, &now);
    jinja_heap_open(&h, e);
    const struct jinja_value list = list_messages(&h, c, how);
    const struct jinja_value variables = list_variables(f, &h, list, &now, c);
    if (jinja_render(f->template, &h, variables, &now, &text) == OK) take_text(text, out, e);
    jinja_heap_close(&h);
    return e->status;
}

// True if the text has the first system message, which some templates leave out.
static bool has_system(const struct chat_text *text, const struct chat_message *messages,
                       size_t n) {
    if (n == 0 || messages[0].role != CHAT_SYSTEM) return true;
    size_t first = 0, end = messages[0].length;
    const char *s = messages[0].text;
    while (first < end && utf8_is_space((uint8_t)s[first]) && (uint8_t)s[first] < 0x80) first++;
    while (end > first && utf8_is_space((uint8_t)s[end - 1]) && (uint8_t)s[end - 1] < 0x80) end--;
    return end == first || memmem(text->bytes, text->length, s + first, end - first);
}

// True if messages would not be the same without the change.
static bool changes(struct adaption how, const struct chat_message *messages, size_t n) {
    bool systems = false, neighbours = false, calls = false;
    for (size_t i = 0; i < n; i++) {
        systems |= messages[i].role == CHAT_SYSTEM;
        neighbours |= i > 0 && messages[i].role == messages[i - 1].role && may_join(&messages[i]) &&
                      may_join(&messages[i - 1]);
        calls |= messages[i].calls != NULL;
    }
    return (!how.folds_system || systems) && (!how.joins || neighbours) &&
           (!how.writes_calls || calls);
}

static enum status check_messages(const struct chat_message *messages, size_t n, struct err *e) {
    size_t size = 0;
    for (size_t i = 0; i < n; i++) {
        if (messages[i].length > JINJA_TEXT_BYTES ||
            messages[i].reasoning_length > JINJA_TEXT_BYTES ||
            (size += messages[i].length) > JINJA_TEXT_BYTES)
            return err_set(e, ERR_LIMIT, "the conversation is longer than %d MiB",
                           JINJA_TEXT_BYTES >> 20);
    }
    return OK;
}

// Many templates know nothing of tools.
static enum status check_tools(const struct chat_format *f, const struct chat_tools *tools,
                               const struct chat_text *text, struct err *e) {
    for (size_t i = 0; tools && i < chat_tools_count(tools); i++) {
        const char *name = chat_tools_name(tools, i);
        if (memmem(text->bytes, text->length, name, strlen(name))) continue;
        err_set(e, ERR_UNSUPPORTED, "the chat template %s leaves out the tool %s", f->name, name);
        return err_fix(e, "take a model that was trained to call tools, or go without them");
    }
    return OK;
}

static enum status render_adapted(const struct chat_format *f, const struct chat_conversation *c,
                                  struct chat_text *out, struct err *e) {
    static const struct adaption ways[] = {{.folds_system = false},
                                           {.folds_system = true},
                                           {.joins = true},
                                           {.folds_system = true, .joins = true}};
    enum { WAYS = sizeof ways / sizeof *ways };
    const struct adaption plain = {.thinks = f->marks && f->marks->channels,
                                   .in_text = f->hides_calls ? f->calls : NULL};
    struct err first = {0};
    for (int i = 0; i < 2 * WAYS; i++) {
        struct adaption how = ways[i % WAYS];
        how.writes_calls = i >= WAYS;
        how.thinks = plain.thinks;
        how.in_text = plain.in_text;
        if (!changes(how, c->messages, c->n_messages)) continue;
        const enum status status = render_once(f, c, how, out, e);
        out->starts = true;
        if (status == OK && (how.folds_system || has_system(out, c->messages, c->n_messages)))
            return OK;
        if (status != OK && status != ERR_FORMAT) return status;
        if (i == 0) first = *e;
    }
    if (first.status != OK) *e = first;
    return first.status ? first.status : render_once(f, c, plain, out, e);
}

enum status chat_render(const struct chat_format *f, const struct chat_conversation *c,
                        struct chat_text *out, struct err *e) {
    ASSERT(f);
    ASSERT(c->messages || c->n_messages == 0);
    if (check_messages(c->messages, c->n_messages, e) || render_adapted(f, c, out, e))
        return e->status;
    return check_tools(f, c->tools, out, e);
}

// Stands for a reply of the model; no template changes it.
#define REPLY "Tandem-reply-5d1c9f"

enum status chat_render_next(const struct chat_format *f, const struct chat_conversation *c,
                             struct chat_text *out, struct err *e) {
    const size_t n = c->n_messages;
    struct chat_message *all = mem_alloc(n + 2, sizeof *all);
    if (!all) return err_memory(e, (n + 2) * sizeof *all, "a conversation");
    all[0] = (struct chat_message){.role = CHAT_USER, .text = "x", .length = 1};
    all[1] = (struct chat_message){.role = CHAT_ASSISTANT, .text = REPLY, .length = strlen(REPLY)};
    for (size_t i = 0; i < n; i++) all[i + 2] = c->messages[i];
    const struct chat_conversation whole = {
        .messages = all, .n_messages = n + 2, .tools = c->tools, .with_reply = true};
    const enum status status = chat_render(f, &whole, out, e);
    mem_free(all);
    if (status != OK) return status;
    const char *reply = memmem(out->bytes, out->length, REPLY, strlen(REPLY));
    if (!reply) {
        err_set(e, ERR_UNSUPPORTED, "the chat template %s leaves replies out", f->name);
        return err_fix(e, "render the whole conversation");
    }
    const size_t skip = (size_t)(reply - out->bytes) + strlen(REPLY);
    out->length -= skip;
    memmove(out->bytes, out->bytes + skip, out->length);
    memmove(out->data, out->data + skip, out->length);
    out->starts = false;
    return OK;
}

enum status chat_text_end_thought(struct chat_text *text, const struct chat_marks *marks,
                                  struct err *e) {
    char end[CHAT_HELD_BYTES];
    if (!marks || marks->channels ||
        chat_opening_of(marks, text->bytes, text->length) != CHAT_OPENS_THOUGHT)
        return OK;
    (void)snprintf(end, sizeof end, "\n%s\n\n", marks->close);
    const size_t length = text->length + strlen(end);
    char *bytes = mem_resize(text->bytes, length, 1);
    if (bytes) text->bytes = bytes;
    uint8_t *data = mem_resize(text->data, length, 1);
    if (data) text->data = data;
    if (!bytes || !data) return err_memory(e, 2 * length, "a conversation");
    memcpy(bytes + text->length, end, strlen(end));
    memset(data + text->length, 0, strlen(end));
    text->length = length;
    return OK;
}

enum status chat_encode(const struct tokenizer *t, const struct chat_text *text,
                        struct token_list *out, struct err *e) {
    const uint64_t n_before = out->count;
    const struct tokenizer_flags flags = {.parse_special = true, .data = text->data};
    const bool wants_bos = text->starts && tokenizer_adds_bos(t);
    if (wants_bos && token_list_push(out, tokenizer_bos(t), e) != OK) return e->status;
    const uint64_t n_first = out->count;
    if (tokenizer_encode(t, text->bytes, text->length, flags, out, e) != OK) {
        out->count = n_before;
        return err_context(e, "the conversation");
    }
    // The template may put BOS first too.
    if (wants_bos && out->count > n_first && out->ids[n_first] == tokenizer_bos(t)) {
        out->count--;
        memmove(out->ids + n_before, out->ids + n_first,
                (out->count - n_before) * sizeof *out->ids);
    }
    return OK;
}

// ---- Opening ------------------------------------------------------------------------------------

void chat_close(struct chat_format *f) {
    jinja_close(f->template);
    mem_free(f->kwargs);
    mem_free(f->bos);
    mem_free(f->eos);
    *f = (struct chat_format){0};
}

// Copies the text of the token that a key names; fallback is its id where the key is missing, -1
// for none.
static enum status read_token(const struct gguf *g, const char *key, int64_t fallback, char **out,
                              struct err *e) {
    uint64_t id = fallback < 0 ? UINT64_MAX : (uint64_t)fallback;
    const struct gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    struct gguf_text text = {0};
    const uint8_t *cursor = NULL;
    if (gguf_read_u64(g, key, 0, UINT64_MAX, &id, e) != OK) return e->status;
    if (!tokens || tokens->type != GGUF_ARRAY || tokens->element != GGUF_STRING ||
        id >= tokens->count)
        return OK;
    for (uint64_t i = 0; i <= id; i++)
        if (!gguf_next_text(tokens, &cursor, &text)) return OK;
    *out = mem_text(text.bytes, text.length);
    return *out ? OK : err_memory(e, text.length, "a control token");
}

static enum status read_tokens(struct chat_format *f, const struct gguf *g, struct err *e) {
    struct gguf_text model = {0};
    if (gguf_read_text(g, "tokenizer.ggml.model", &model, e) != OK) return e->status;
    const bool spm = model.length == 5 && memcmp(model.bytes, "llama", 5) == 0;
    if (read_token(g, "tokenizer.ggml.bos_token_id", spm ? 1 : -1, &f->bos, e) != OK)
        return e->status;
    return read_token(g, "tokenizer.ggml.eos_token_id", spm ? 2 : -1, &f->eos, e);
}

// Sees whether the template leaves out calls that could stand in the text. What it refuses it
// shows.
static enum status try_calls(struct chat_format *f, struct err *e) {
    static const char name[] = "tandem_call_5d1c9f";
    static const struct chat_message probe[] = {
        {.role = CHAT_USER, .text = "Hello?", .length = 6},
        {.role = CHAT_ASSISTANT,
         .text = "",
         .calls = "[{\"type\":\"function\",\"id\":\"call00000\",\"function\":{\"name\":"
                  "\"tandem_call_5d1c9f\",\"arguments\":\"{}\"}}]"},
        {.role = CHAT_TOOL, .text = "x", .length = 1, .call_id = "call00000"},
    };
    const struct chat_conversation c = {.messages = probe, .n_messages = 3, .with_reply = true};
    struct chat_text text = {0};
    struct err ignored = {0};
    if (!f->calls || (f->calls->shape != CALL_PYTHON && f->calls->shape != CALL_JSON)) return OK;
    const enum status status = chat_render(f, &c, &text, &ignored);
    f->hides_calls = status == OK && !memmem(text.bytes, text.length, name, strlen(name));
    chat_text_close(&text);
    if (status == ERR_MEMORY) *e = ignored;
    return e->status;
}

// Parses a template and tries it with the shortest conversation.
static enum status try_source(struct chat_format *f, const char *name, const char *source,
                              size_t length, struct err *e) {
    static const struct chat_message probe = {.role = CHAT_USER, .text = "Hello?", .length = 6};
    struct chat_text text = {0};
    snprintf(f->name, sizeof f->name, "%s", name);
    if (jinja_open(&f->template, source, length, e) != OK) return e->status;
    f->marks = chat_marks_find(source, length);
    f->calls = call_marks_find(source, length);
    f->hides_calls = false;
    const struct chat_conversation c = {.messages = &probe, .n_messages = 1, .with_reply = true};
    if (chat_render(f, &c, &text, e) == OK &&
        !memmem(text.bytes, text.length, probe.text, probe.length))
        err_set(e, ERR_FORMAT, "the chat template leaves out what the user says");
    chat_text_close(&text);
    if (e->status == OK && try_calls(f, e) == OK) return OK;
    jinja_close(f->template);
    f->template = NULL;
    return e->status;
}

static enum status use_builtin(struct chat_format *f, const char *name, struct err *e) {
    const char *source = chat_builtin_source(name);
    return try_source(f, name, source, strlen(source), e);
}

// True for the text of a template: it has a tag, which hardly any path has.
static bool is_source(const char *text) {
    return (strstr(text, "{{") || strstr(text, "{%")) && access(text, F_OK) != 0;
}

// Says what can be given in place of a name that is no file.
static enum status name_templates(const char *given, struct err *e) {
    char names[sizeof e->fix - 64] = "";
    const char *name, *close = NULL;
    int least = close_name_most(given) + 1;
    for (int i = 0; (name = chat_builtin_name(i)); i++) {
        const int changes = close_name_changes(given, name);
        if (changes < least) close = name;
        least = changes < least ? changes : least;
        err_list_add(names, sizeof names, name);
    }
    if (close)
        return err_fix(e, "did you mean %s? Or take a file, a text or one of %s", close, names);
    return err_fix(e, "take a file, a text or one of %s", names);
}

// A name, a path or a text that the user gave.
static enum status use_given(struct chat_format *f, const char *name, struct err *e) {
    char *text;
    size_t length;
    if (chat_builtin_source(name)) return use_builtin(f, name, e);
    if (is_source(name)) return try_source(f, CHAT_GIVEN_NAME, name, strlen(name), e);
    if (file_read_text(&text, &length, name, JINJA_SOURCE_BYTES, e) != OK)
        return name_templates(name, e);
    const enum status status = try_source(f, name, text, length, e);
    mem_free(text);
    return status == OK ? OK : err_context(e, "%s", name);
}

static bool has_token(const struct gguf *g, const char *token) {
    const struct gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    const size_t length = strlen(token);
    struct gguf_text text = {0};
    const uint8_t *cursor = NULL;
    if (!tokens || tokens->type != GGUF_ARRAY || tokens->element != GGUF_STRING) return false;
    for (uint64_t i = 0; i < tokens->count && gguf_next_text(tokens, &cursor, &text); i++)
        if (text.length == length && memcmp(text.bytes, token, length) == 0) return true;
    return false;
}

// The template whose control tokens the vocabulary has; ChatML if it has none's.
static const char *template_of_tokens(const struct gguf *g) {
    const char *name, *marks[2];
    for (int i = 0; (name = chat_builtin_of_tokens(i, marks)); i++)
        if (has_token(g, marks[0]) && (!marks[1] || has_token(g, marks[1]))) return name;
    return "chatml";
}

// The name that converters give a second template, of models whose first one leaves tools out.
#define TOOL_TEMPLATE "tokenizer.chat_template.tool_use"

bool chat_has_tool_template(const struct gguf *g) { return gguf_find(g, TOOL_TEMPLATE); }

static enum status use_file(struct chat_format *f, const struct gguf *g, bool tools,
                            const struct log *log, struct err *e) {
    const char *key =
        tools && chat_has_tool_template(g) ? TOOL_TEMPLATE : "tokenizer.chat_template";
    struct gguf_text source = {0};
    if (gguf_read_text(g, key, &source, e) != OK) return e->status;
    if (!source.bytes || source.length == 0) {
        const char *name = template_of_tokens(g);
        log_line(log, LOG_WARN,
                 "the file has no chat template; turns are marked as in the built-in template %s, "
                 "which the model may not have learnt",
                 name);
        return use_builtin(f, name, e);
    }
    if (try_source(f, CHAT_FILE_NAME, source.bytes, source.length, e) != ERR_FORMAT)
        return e->status;
    const char *like = chat_builtin_like(source.bytes, source.length);
    if (!like) {
        e->status = ERR_UNSUPPORTED;
        return err_fix(e, "give another one with --chat-template NAME or FILE");
    }
    log_line(log, LOG_WARN, "%s; the built-in template %s, which it resembles, is used instead",
             e->what, like);
    return use_builtin(f, like, e);
}

static enum status copy_options(struct chat_format *f, const struct chat_options *o,
                                struct err *e) {
    struct jinja_heap h;
    f->now_s = o->now_s;
    if (!o->kwargs) return OK;
    jinja_heap_open(&h, e);
    const struct jinja_value v = jinja_from_json(&h, o->kwargs, strlen(o->kwargs));
    jinja_heap_close(&h);
    if (e->status == ERR_MEMORY) return e->status;
    if (e->status != OK || v.kind != JINJA_DICT) {
        err_set(e, ERR_USAGE, "the variables for the chat template are no JSON object");
        return err_fix(e, "write them like {\"enable_thinking\": false}");
    }
    f->kwargs = mem_text(o->kwargs, strlen(o->kwargs));
    return f->kwargs ? OK : err_memory(e, strlen(o->kwargs), "variables");
}

enum status chat_open(struct chat_format *f, const struct gguf *g, const struct chat_options *o,
                      const struct log *log, struct err *e) {
    ASSERT(f);
    ASSERT(g);
    ASSERT(o);
    *f = (struct chat_format){0};
    *e = (struct err){0};
    if (copy_options(f, o, e) == OK && read_tokens(f, g, e) == OK) {
        if (o->template)
            use_given(f, o->template, e);
        else
            use_file(f, g, o->tools, log, e);
    }
    if (e->status != OK) chat_close(f);
    return e->status;
}
