/* chat.c: see chat.h. */
#include "runtime/text/chat.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>

#define DATE_LINES "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"

static const char *const ROLES[] = {"system", "user", "assistant"};

// The literal parts of a turn. Those with specials are control tokens.
static const struct family {
    const char *open_special, *head_special, *head, *end_special, *end;
    bool trims; // contents lose white space at both ends
} FAMILIES[] = {
    [CHAT_CHATML] = {"<|im_start|>", "", "\n", "<|im_end|>", "\n", false},
    [CHAT_LLAMA3] = {"<|start_header_id|>", "<|end_header_id|>", "\n\n", "<|eot_id|>", "", true},
};

// ---- Finding the family -------------------------------------------------------------------------

static const char *find(struct gguf_text text, const char *what) {
    return memmem(text.bytes, (size_t)text.length, what, strlen(what));
}

// Copies a string literal of the template without its escapes.
static char *unescape(struct gguf_text text) {
    char *out = mem_alloc((size_t)text.length + 1, 1);
    size_t n = 0;
    for (size_t i = 0; out && i < text.length; i++) {
        char c = text.bytes[i];
        if (c == '\\' && i + 1 < text.length) {
            c = text.bytes[++i];
            if (c == 'n') c = '\n';
            if (c == 't') c = '\t';
        }
        out[n++] = c;
    }
    return out;
}

// True if the literal is interrupted by an expression or a statement.
static bool is_computed(struct gguf_text text) {
    static const char *const marks[] = {"{{",   "}}",  "{%",  "' +", "'+",
                                        "\" +", "\"+", "' ~", "\" ~"};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (find(text, marks[i])) return true;
    return false;
}

// ChatML templates carry their default system message as one literal:
// "<|im_start|>system\nYou are ...<|im_end|>".
static enum status find_default_system(struct chat_format *f, struct gguf_text template,
                                       struct err *e) {
    static const char *const heads[] = {"<|im_start|>system\\n", "<|im_start|>system\n"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        struct gguf_text rest = template;
        for (const char *at; (at = find(rest, heads[i]));) {
            at += strlen(heads[i]);
            rest = (struct gguf_text){at, (uint64_t)(template.bytes + template.length - at)};
            const char *end = find(rest, "<|im_end|>");
            if (!end) return OK;
            struct gguf_text text = {at, (uint64_t)(end - at)};
            if (text.length == 0 || is_computed(text)) continue;
            f->default_system = unescape(text);
            return f->default_system ? OK : err_memory(e, text.length, "a system message");
        }
    }
    return OK;
}

static enum status refuse(const char *actual, struct err *e) {
    err_set(e, ERR_UNSUPPORTED, "tokenizer.chat_template: a family that is not known here");
    err_expected(e, "ChatML (<|im_start|>) or Llama 3 (<|start_header_id|>)");
    if (actual) err_actual(e, "a template with %s", actual);
    return err_fix(e, "write the turns of the prompt yourself and use: tandem run");
}

enum status chat_detect(struct chat_format *f, const struct gguf *g, const struct log *log,
                        struct err *e) {
    ASSERT(f);
    ASSERT(g);
    *f = (struct chat_format){.family = CHAT_CHATML};
    struct gguf_text template = {0};
    if (gguf_read_text(g, "tokenizer.chat_template", &template, e) != OK) return e->status;
    if (!template.bytes || template.length == 0) {
        log_line(log, LOG_WARN,
                 "the file has no chat template; turns are marked as in ChatML, "
                 "which the model may not have learnt");
        return OK;
    }
    // Marks of families that would otherwise be taken for one of ours, and of other common
    // families.
    static const char *const others[] = {"<|im_sep|>",  "[INST]",          "[gMASK]",
                                         "<|turn>",     "<start_of_turn>", "<|start_of_role|>",
                                         "<|channel|>", "<|user|>"};
    f->bos = find(template, "bos_token");
    if (find(template, "<|im_start|>") && !find(template, "<|im_sep|>"))
        return find_default_system(f, template, e);
    if (find(template, "<|start_header_id|>")) {
        f->family = CHAT_LLAMA3;
        f->dated = find(template, "Cutting Knowledge Date");
        return OK;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (find(template, others[i])) return refuse(others[i], e);
    return refuse(NULL, e);
}

void chat_format_close(struct chat_format *f) {
    mem_free(f->default_system);
    *f = (struct chat_format){0};
}

// ---- Rendering ----------------------------------------------------------------------------------

void chat_segments_close(struct chat_segments *segments) {
    mem_free(segments->list);
    *segments = (struct chat_segments){0};
}

// A turn has at most seven segments; room for them is made before they are added.
enum { TURN_SEGMENTS = 8 };

static enum status make_room(struct chat_segments *s, struct err *e) {
    if (s->capacity - s->count >= TURN_SEGMENTS) return OK;
    size_t capacity = s->capacity * 2 + 4 * TURN_SEGMENTS;
    struct chat_segment *list = mem_resize(s->list, capacity, sizeof *list);
    if (!list) return err_memory(e, capacity * sizeof *list, "a conversation");
    s->list = list;
    s->capacity = capacity;
    return OK;
}

static void add(struct chat_segments *s, const char *text, size_t length, bool parse_special) {
    if (length == 0) return;
    ASSERT(s->count < s->capacity);
    s->list[s->count++] = (struct chat_segment){text, length, parse_special};
}

static void add_plain(struct chat_segments *s, const char *text) {
    add(s, text, strlen(text), false);
}
static void add_special(struct chat_segments *s, const char *text) {
    add(s, text, strlen(text), true);
}

// Bytes of white space at the front of text.
static size_t front_space(const char *text, size_t length) {
    size_t at = 0, n;
    while (at < length && utf8_look(text + at, length - at, &n) == UTF8_WHOLE &&
           utf8_is_space(utf8_code(text + at, n)))
        at += n;
    return at;
}

static void add_trimmed(struct chat_segments *s, const char *text, size_t length) {
    size_t front = front_space(text, length), end = front;
    for (size_t at = front; at < length;) {
        size_t space = front_space(text + at, length - at);
        at += space > 0 ? space : utf8_step(text + at, length - at);
        if (space == 0) end = at;
    }
    add(s, text + front, end - front, false);
}

static void add_head(const struct chat_format *f, enum chat_role role, struct chat_segments *s) {
    const struct family *family = &FAMILIES[f->family];
    add_special(s, family->open_special);
    add_plain(s, ROLES[role]);
    add_special(s, family->head_special);
    add_plain(s, family->head);
}

static void add_end(const struct chat_format *f, struct chat_segments *s) {
    add_special(s, FAMILIES[f->family].end_special);
    add_plain(s, FAMILIES[f->family].end);
}

static enum status add_turn(const struct chat_format *f, const struct chat_message *message,
                            const char *before, struct chat_segments *s, struct err *e) {
    if (make_room(s, e) != OK) return e->status;
    add_head(f, message->role, s);
    add_plain(s, before);
    if (FAMILIES[f->family].trims)
        add_trimmed(s, message->text, message->length);
    else
        add(s, message->text, message->length, false);
    add_end(f, s);
    return OK;
}

static enum status open_reply(const struct chat_format *f, struct chat_segments *s, struct err *e) {
    if (make_room(s, e) != OK) return e->status;
    add_head(f, CHAT_ASSISTANT, s);
    return OK;
}

enum status chat_render(const struct chat_format *f, const struct chat_message *messages,
                        size_t n_messages, bool with_reply, struct chat_segments *out,
                        struct err *e) {
    ASSERT(f);
    ASSERT(messages || n_messages == 0);
    out->count = 0;
    out->starts = true;
    out->bos = f->bos;
    bool has_system = n_messages > 0 && messages[0].role == CHAT_SYSTEM;
    const char *text = f->default_system ? f->default_system : "";
    struct chat_message system = {CHAT_SYSTEM, text, strlen(text)};
    if (!has_system && (f->dated || f->default_system) &&
        add_turn(f, &system, f->dated ? DATE_LINES : "", out, e) != OK)
        return e->status;
    for (size_t i = 0; i < n_messages; i++) {
        const char *before = i == 0 && has_system && f->dated ? DATE_LINES : "";
        if (add_turn(f, &messages[i], before, out, e) != OK) return e->status;
    }
    return with_reply ? open_reply(f, out, e) : OK;
}

enum status chat_render_next(const struct chat_format *f, const struct chat_message *messages,
                             size_t n_messages, struct chat_segments *out, struct err *e) {
    ASSERT(f);
    ASSERT(messages || n_messages == 0);
    out->count = 0;
    out->starts = false;
    out->bos = false;
    if (make_room(out, e) != OK) return e->status;
    add_end(f, out);
    for (size_t i = 0; i < n_messages; i++)
        if (add_turn(f, &messages[i], "", out, e) != OK) return e->status;
    return open_reply(f, out, e);
}

// ---- Encoding -----------------------------------------------------------------------------------

// Joins the plain segments from *i on as one text in buffer, which has room; moves *i behind them.
static size_t join_plain(const struct chat_segments *s, size_t *i, char *buffer) {
    size_t length = 0;
    for (; *i < s->count && !s->list[*i].parse_special; (*i)++) {
        memcpy(buffer + length, s->list[*i].text, s->list[*i].length);
        length += s->list[*i].length;
    }
    return length;
}

enum status chat_encode(const struct tokenizer *t, const struct chat_segments *segments,
                        struct token_list *out, struct err *e) {
    uint64_t n_before = out->count, size = 0;
    for (size_t i = 0; i < segments->count; i++)
        if (!add_size(size, segments->list[i].length, &size))
            return err_memory(e, SIZE_MAX, "a conversation");
    char *buffer = mem_alloc(size, 1);
    if (!buffer) return err_memory(e, size, "a conversation");

    enum status status = OK;
    bool bos = segments->starts && (segments->bos || tokenizer_adds_bos(t));
    if (bos && tokenizer_bos(t) >= 0) status = token_list_push(out, tokenizer_bos(t), e);
    for (size_t i = 0; i < segments->count && status == OK;) {
        struct chat_segment segment = segments->list[i];
        if (segment.parse_special)
            i++;
        else
            segment = (struct chat_segment){buffer, join_plain(segments, &i, buffer), false};
        struct tokenizer_flags flags = {.parse_special = segment.parse_special};
        status = tokenizer_encode(t, segment.text, segment.length, flags, out, e);
    }
    mem_free(buffer);
    if (status != OK) out->count = n_before;
    return status;
}
