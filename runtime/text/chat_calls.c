/* chat_calls.c: see chat_calls.h. Each state takes what it can from the front of held. */
#include "runtime/text/chat_calls.h"

#include <string.h>

enum { SCHEMA_DEPTH_MOST = 4 };

// ---- What goes out ------------------------------------------------------------------------------

// Bytes of out without an unfinished character at its end.
static size_t whole_bytes(const struct chat_calls *c) {
    for (size_t back = 1; back <= 3 && back <= c->n_out; back++) {
        const unsigned char lead = (unsigned char)c->out[c->n_out - back];
        const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
        if (lead >= 0xc0) return size > back ? c->n_out - back : c->n_out;
    }
    return c->n_out;
}

static void flush(struct chat_calls *c, size_t size) {
    if (size > 0) c->take(c->context, c->part, c->out, size);
    c->n_out -= size;
    memmove(c->out, c->out + size, c->n_out);
}

static void emit(struct chat_calls *c, enum chat_part part, const char *text, size_t length) {
    if (c->part != part) flush(c, c->n_out);
    c->part = part;
    for (size_t i = 0; i < length; i++) {
        if (c->n_out == CALLS_OUT_BYTES) flush(c, whole_bytes(c));
        c->out[c->n_out++] = text[i];
    }
}

static void emit_arguments(struct chat_calls *c, const char *text) {
    emit(c, CHAT_ARGUMENTS, text, strlen(text));
}

// Writes text within a string of JSON.
static void emit_escaped(struct chat_calls *c, const char *text, size_t length) {
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < length; i++) {
        const unsigned char b = (unsigned char)text[i];
        const char quoted[] = {'\\', (char)b};
        const char code[] = {'\\', 'u', '0', '0', hex[b >> 4], hex[b & 15]};
        if (b == '\n')
            emit_arguments(c, "\\n");
        else if (b == '"' || b == '\\')
            emit(c, CHAT_ARGUMENTS, quoted, sizeof quoted);
        else if (b < 0x20 || b == 0x7f)
            emit(c, CHAT_ARGUMENTS, code, sizeof code);
        else
            emit(c, CHAT_ARGUMENTS, text + i, 1);
    }
}

static void emit_string(struct chat_calls *c, const char *text, size_t length) {
    emit_arguments(c, "\"");
    emit_escaped(c, text, length);
    emit_arguments(c, "\"");
}

// ---- What is held -------------------------------------------------------------------------------

static bool is_space(char b) { return b == ' ' || (b >= '\t' && b <= '\r'); }

static void drop(struct chat_calls *c, size_t length) {
    c->n_held -= length;
    memmove(c->held, c->held + length, c->n_held);
}

// Hands bytes over as text.
static bool give(struct chat_calls *c, size_t length) {
    emit(c, CHAT_ANSWER, c->held, length);
    drop(c, length);
    return true;
}

// Whether text[length] begins with a mark: 1 it does, -1 it may, when it goes on, 0 it does not.
static int goes_along(const char *text, size_t length, const char *mark) {
    const size_t size = strlen(mark);
    if (memcmp(text, mark, length < size ? length : size) != 0) return 0;
    return length < size ? -1 : 1;
}

static void enter(struct chat_calls *c, enum call_state state) {
    c->state = state;
    c->in_string = c->escaped = c->word = false;
    c->n_value = 0;
}

const char *chat_calls_loose_mark(const struct call_marks *m) {
    return !m->loose ? NULL : m->tags ? m->tags->call : m->lead;
}

static bool text_step(struct chat_calls *c) {
    enum { SPACE_MOST = 64 };
    const char *loose = chat_calls_loose_mark(c->marks);
    size_t space = 0;
    while (space < c->n_held && is_space(c->held[space])) space++;
    if (space == c->n_held) return space >= SPACE_MOST && give(c, space);
    const int open = goes_along(c->held + space, c->n_held - space, c->marks->open);
    const int call = loose ? goes_along(c->held + space, c->n_held - space, loose) : 0;
    if (open < 0 || call < 0) return false;
    if (open > 0 || call > 0 || (c->marks->bare && !c->began && c->held[space] == '{')) {
        c->n_open = space + (open > 0 ? strlen(c->marks->open) : 0);
        c->began = true;
        enter(c, CALLS_HEAD);
        return true;
    }
    c->began = true;
    return give(c, space + 1);
}

// ---- Heads of calls -----------------------------------------------------------------------------

// Reads from what is held. more: it ended where it was still right.
struct reader {
    const char *text;
    size_t length, at;
    bool more;
};
struct span {
    const char *text;
    size_t length;
};

static bool take(struct reader *r, const char *mark) {
    const int along = goes_along(r->text + r->at, r->length - r->at, mark);
    if (along > 0) r->at += strlen(mark);
    r->more |= along < 0;
    return along > 0;
}

static void skip_space(struct reader *r) {
    while (r->at < r->length && is_space(r->text[r->at])) r->at++;
}

// Takes what comes before the first of some bytes, which must come.
static bool take_until(struct reader *r, const char *ends, struct span *out) {
    const size_t first = r->at;
    while (r->at < r->length && !strchr(ends, r->text[r->at])) r->at++;
    *out = (struct span){r->text + first, r->at - first};
    r->more |= r->at == r->length;
    return r->at < r->length && r->text[r->at];
}

// Takes a string of JSON. Its escapes stay.
static bool take_string(struct reader *r, struct span *out) {
    if (!take(r, "\"")) return false;
    *out = (struct span){r->text + r->at, 0};
    for (; r->at < r->length; r->at++, out->length++) {
        if (r->text[r->at] == '"') return r->at++, true;
        if (r->text[r->at] == '\\') r->at++, out->length++;
    }
    r->more = true;
    return false;
}

static bool same(struct span s, const char *text) {
    return s.length == strlen(text) && memcmp(s.text, text, s.length) == 0;
}

// Keeps the name of a call, without a name space before it and a number behind it.
static bool keep_name(struct chat_calls *c, struct span s) {
    static const char space[] = "functions.";
    while (s.length > 0 && is_space(s.text[s.length - 1])) s.length--;
    if (s.length > strlen(space) && memcmp(s.text, space, strlen(space)) == 0) {
        s.text += strlen(space);
        s.length -= strlen(space);
    }
    const char *colon = memchr(s.text, ':', s.length);
    if (colon) s.length = (size_t)(colon - s.text);
    if (s.length == 0 || s.length > CHAT_TOOL_NAME_BYTES) return false;
    for (size_t i = 0; i < s.length; i++) {
        const unsigned char b = (unsigned char)s.text[i];
        if (b == 0 || (b < 0x80 && !(b >= '0' && b <= '9') &&
                       !((b | 32) >= 'a' && (b | 32) <= 'z') && !strchr("_-.", b)))
            return false;
    }
    memcpy(c->name, s.text, s.length);
    c->name[s.length] = 0;
    return true;
}

// Takes the value of a key that is not the arguments.
static bool take_value(struct chat_calls *c, struct reader *r, struct span key, bool *named) {
    struct span text;
    if (same(key, "function") && take(r, "{")) {
        c->outer++;
        return true;
    }
    if (!take_string(r, &text)) return false;
    if (same(key, "function") || same(key, c->marks->name ? c->marks->name : "name"))
        *named = keep_name(c, text);
    skip_space(r);
    return take(r, ",") || !r->more;
}

// True if nothing but white space stands before the head of a call.
static bool lacks_mark(const struct chat_calls *c) {
    return c->n_open == 0 || is_space(c->held[c->n_open - 1]);
}

// True if a tool has the name, or none is known.
static bool has_tool(const struct chat_calls *c) {
    const size_t n = c->tools ? chat_tools_count(c->tools) : 0;
    bool has = !c->tools;
    for (size_t i = 0; i < n && !has; i++) has = strcmp(chat_tools_name(c->tools, i), c->name) == 0;
    return has;
}

// True if a name alone makes a call: behind a mark, or where a tool has the name. An answer may be
// an object with a name, too.
static bool is_enough(const struct chat_calls *c) {
    return !c->marks->bare || !lacks_mark(c) || has_tool(c);
}

// Ends before the arguments, or before the bracket where there are none.
static bool read_json(struct chat_calls *c, struct reader *r) {
    struct span key;
    bool named = false;
    c->outer = 1;
    skip_space(r);
    if (c->marks->list && take(r, "[")) skip_space(r);
    if (!take(r, "{")) return false;
    for (;;) {
        skip_space(r);
        if (named && take(r, "}")) return r->at--, is_enough(c);
        if (!take_string(r, &key)) return false;
        skip_space(r);
        if (!take(r, ":")) return false;
        skip_space(r);
        const bool last = same(key, "arguments") || same(key, "parameters");
        if (last && named) return r->at < r->length || (r->more = true, false);
        if (last || !take_value(c, r, key, &named)) return false;
    }
}

static bool read_keyed(struct chat_calls *c, struct reader *r) {
    struct span name;
    c->outer = 1;
    skip_space(r);
    if (take(r, "[")) skip_space(r);
    if (!take(r, "{")) return false;
    skip_space(r);
    if (!take_string(r, &name) || !keep_name(c, name)) return false;
    skip_space(r);
    if (!take(r, ":")) return false;
    skip_space(r);
    return r->at < r->length || (r->more = true, false);
}

static bool read_named(struct chat_calls *c, struct reader *r) {
    struct span name, id;
    skip_space(r);
    if (c->marks->lead && !take(r, c->marks->lead)) return false;
    if (c->marks->id && (!take_until(r, "<", &id) || !take(r, c->marks->id))) return false;
    if (!take_until(r, "[<>{\n", &name) || !keep_name(c, name)) return false;
    if (r->text[r->at] == '{') return true;
    if (take(r, "[CALL_ID]") && !take_until(r, "[", &id)) return false;
    return take(r, c->marks->between);
}

// Takes a tag that gives a name, and perhaps attributes.
static bool take_tag(struct reader *r, const struct call_tags *tags, const char *tag,
                     struct span *name, struct span *attributes) {
    *attributes = (struct span){"", 0};
    skip_space(r);
    if (!take(r, tag) || !take_until(r, *tags->quote ? tags->quote : ">", name)) return false;
    if (*tags->quote && (!take(r, tags->quote) || !take_until(r, ">", attributes))) return false;
    return take(r, ">");
}

static bool read_tags(struct chat_calls *c, struct reader *r) {
    struct span name, attributes;
    return take_tag(r, c->marks->tags, c->marks->tags->call, &name, &attributes) &&
           keep_name(c, name) && (!c->marks->loose || !lacks_mark(c) || has_tool(c));
}

static bool read_pairs(struct chat_calls *c, struct reader *r) {
    struct span name;
    skip_space(r);
    return take_until(r, "\n<{", &name) && keep_name(c, name);
}

static bool read_quoted(struct chat_calls *c, struct reader *r) {
    struct span name;
    return take(r, "call:") && take_until(r, "{", &name) && keep_name(c, name) && take(r, "{");
}

static bool read_python(struct chat_calls *c, struct reader *r) {
    struct span name;
    skip_space(r);
    if (take(r, "[")) skip_space(r);
    return take_until(r, "( \n[]{}<", &name) && keep_name(c, name) && take(r, "(");
}

static bool head_step(struct chat_calls *c) {
    static bool (*const readers[])(struct chat_calls *, struct reader *) = {
        [CALL_JSON] = read_json,   [CALL_NAMED] = read_named,   [CALL_TAGS] = read_tags,
        [CALL_PAIRS] = read_pairs, [CALL_QUOTED] = read_quoted, [CALL_PYTHON] = read_python,
        [CALL_KEYED] = read_keyed,
    };
    static const enum call_state next[] = {
        [CALL_JSON] = CALLS_BEGIN,  [CALL_NAMED] = CALLS_BEGIN,   [CALL_TAGS] = CALLS_KEY,
        [CALL_PAIRS] = CALLS_KEY,   [CALL_QUOTED] = CALLS_QUOTED, [CALL_PYTHON] = CALLS_PYTHON,
        [CALL_KEYED] = CALLS_BEGIN,
    };
    struct reader r = {.text = c->held + c->n_open, .length = c->n_held - c->n_open};
    if (!readers[c->marks->shape](c, &r)) {
        if (r.more && c->n_held < CALLS_HELD_BYTES) return false;
        enter(c, CALLS_TEXT);
        return give(c, 1);
    }
    chat_calls_pass(c, CHAT_CALL, c->name, strlen(c->name));
    drop(c, c->n_open + r.at);
    enter(c, next[c->marks->shape]);
    c->n_arguments = 0;
    c->depth = c->state == CALLS_QUOTED || c->state == CALLS_PYTHON;
    if (c->state != CALLS_BEGIN) emit_arguments(c, "{");
    return true;
}

// ---- Arguments in JSON --------------------------------------------------------------------------

// True if an object of JSON describes a call.
static bool is_object(const struct call_marks *m) {
    return m->shape == CALL_JSON || m->shape == CALL_KEYED;
}

static enum call_state after_arguments(const struct chat_calls *c) {
    return is_object(c->marks) ? CALLS_REST : CALLS_TAIL;
}

static bool begin_step(struct chat_calls *c) {
    const char b = c->held[0];
    if (is_space(b)) return drop(c, 1), true;
    if (b == '{') {
        enter(c, CALLS_JSON);
        c->depth = 0;
    } else if (b == '"' && is_object(c->marks)) {
        enter(c, CALLS_STRING);
        drop(c, 1);
    } else {
        emit_arguments(c, "{}");
        enter(c, after_arguments(c));
    }
    return true;
}

// Follows strings. True if the byte is outside of them.
static bool is_outside(struct chat_calls *c, char b) {
    if (!c->in_string) {
        c->in_string = b == '"';
        return !c->in_string;
    }
    if (c->escaped)
        c->escaped = false;
    else if (b == '\\')
        c->escaped = true;
    else if (b == '"')
        c->in_string = false;
    return false;
}

static int nesting(char b) { return b == '{' || b == '[' ? 1 : b == '}' || b == ']' ? -1 : 0; }

static bool json_step(struct chat_calls *c) {
    const char b = c->held[0];
    emit(c, CHAT_ARGUMENTS, &b, 1);
    drop(c, 1);
    if (is_outside(c, b)) c->depth += nesting(b);
    if (c->depth == 0) enter(c, after_arguments(c));
    return true;
}

// \u stays an escape: within the object that the string holds it means the same.
static bool string_step(struct chat_calls *c) {
    static const char names[] = "nrtbf", bytes[] = "\n\r\t\b\f";
    const char b = c->held[0];
    drop(c, 1);
    if (!c->escaped) {
        c->escaped = b == '\\';
        if (b == '"')
            enter(c, CALLS_REST);
        else if (!c->escaped)
            emit(c, CHAT_ARGUMENTS, &b, 1);
        return true;
    }
    const char *name = b ? strchr(names, b) : NULL;
    if (b == 'u') emit_arguments(c, "\\");
    emit(c, CHAT_ARGUMENTS, name ? &bytes[name - names] : &b, 1);
    c->escaped = false;
    return true;
}

// A bracket that the model has forgotten does not hide what comes then.
static bool rest_step(struct chat_calls *c) {
    const char b = c->held[0];
    if (is_outside(c, b)) {
        if (strchr("<[`|", b)) {
            enter(c, CALLS_TAIL);
            return true;
        }
        c->outer += nesting(b);
    }
    drop(c, 1);
    if (c->outer == 0) enter(c, CALLS_TAIL);
    return true;
}

// ---- Arguments one by one -----------------------------------------------------------------------

static bool is_string(const json_t *schema) {
    const char *type = json_string_value(json_object_get(schema, "type"));
    return type && strcmp(type, "string") == 0;
}

#define KIND(type) (1u << (type))

static unsigned kind_of_type(const json_t *type) {
    static const struct {
        const char *name;
        unsigned kinds;
    } types[] = {
        {"string", KIND(JSON_STRING)}, {"integer", KIND(JSON_INTEGER)},
        {"object", KIND(JSON_OBJECT)}, {"number", KIND(JSON_INTEGER) | KIND(JSON_REAL)},
        {"array", KIND(JSON_ARRAY)},   {"boolean", KIND(JSON_TRUE) | KIND(JSON_FALSE)},
        {"null", KIND(JSON_NULL)},
    };
    const char *name = json_string_value(type);
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) return types[i].kinds;
    return 0;
}

// The kinds that a schema allows by its type, its values or its choices; 0: it does not say.
static unsigned kinds_of(const json_t *schema, int depth) {
    static const char *const lists[] = {"type", "enum", "anyOf", "oneOf"};
    const json_t *constant = json_object_get(schema, "const");
    const json_t *list = NULL, *one;
    unsigned all = kind_of_type(json_object_get(schema, "type"));
    size_t word = 0, i;
    if (all || depth == 0) return all;
    if (constant) return KIND(json_typeof(constant));
    while (word < 4 && !json_is_array(list = json_object_get(schema, lists[word]))) word++;
    json_array_foreach(word < 4 ? list : NULL, i, one) {
        const unsigned kinds = word == 0   ? kind_of_type(one)
                               : word == 1 ? KIND(json_typeof(one))
                                           : kinds_of(one, depth - 1);
        if (kinds == 0) return 0;
        all |= kinds;
    }
    return all;
}

static bool keep_key(struct chat_calls *c, struct span key) {
    if (key.length == 0 || key.length > CHAT_TOOL_NAME_BYTES) return false;
    memcpy(c->key, key.text, key.length);
    c->key[key.length] = 0;
    return true;
}

// Sets is_text if the key says itself that its value is a string.
static bool read_key(struct chat_calls *c, struct reader *r) {
    static const char is_text[] = "string=\"true\"";
    const struct call_tags *tags = c->marks->tags;
    struct span key, attributes;
    c->is_text = false;
    if (tags) {
        if (!take_tag(r, tags, tags->argument, &key, &attributes) || !keep_key(c, key))
            return false;
        r->more = false;
        c->wrapped = tags->wrapped_end && take(r, "<![CDATA[");
        if (tags->wrapped_end && r->more) return false;
        c->is_text = memmem(attributes.text, attributes.length, is_text, strlen(is_text));
        return true;
    }
    skip_space(r);
    if (!take(r, "<arg_key>") || !take_until(r, "<", &key) || !keep_key(c, key)) return false;
    if (!take(r, "</arg_key>")) return false;
    skip_space(r);
    return take(r, "<arg_value>");
}

static bool key_step(struct chat_calls *c) {
    struct reader r = {.text = c->held, .length = c->n_held};
    if (read_key(c, &r)) {
        drop(c, r.at);
        enter(c, CALLS_VALUE);
        emit_arguments(c, c->n_arguments++ ? ", " : "");
        emit_string(c, c->key, strlen(c->key));
        emit_arguments(c, ": ");
        const json_t *schema = chat_tools_argument(c->tools, c->name, c->key);
        c->is_text |= is_string(schema);
        c->kinds = kinds_of(schema, SCHEMA_DEPTH_MOST);
        if (c->is_text) emit_arguments(c, "\"");
        return true;
    }
    struct reader end = {.text = c->held, .length = c->n_held};
    skip_space(&end);
    const bool ends = take(&end, c->marks->tags ? c->marks->tags->call_end : c->marks->end);
    if (!ends && (r.more || end.more) && c->n_held < CALLS_HELD_BYTES) return false;
    if (ends) drop(c, end.at);
    emit_arguments(c, "}");
    enter(c, CALLS_TAIL);
    return true;
}

// True if the text is a value of JSON, and not of a kind that only a string of it would have.
static bool is_json(const struct chat_calls *c, struct span s) {
    json_t *value = json_loadb(s.text, s.length, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    const unsigned kind = value ? KIND(json_typeof(value)) : 0;
    json_decref(value);
    return kind && (c->kinds & kind || !(c->kinds & KIND(JSON_STRING)));
}

static void take_python(struct chat_calls *c, char b);
static void add_to_string(struct chat_calls *c, char b);

// A value in Python's notation, turned into JSON.
struct collected {
    char text[2 * CALLS_VALUE_BYTES];
    size_t length;
    bool full;
};

static void collect(void *context, enum chat_part part, const char *text, size_t length) {
    struct collected *out = context;
    (void)part;
    out->full |= length > sizeof out->text - out->length;
    if (out->full) return;
    memcpy(out->text + out->length, text, length);
    out->length += length;
}

// Reads a list or an object as Python writes it, where the schema wants one.
static bool from_python(const struct chat_calls *c, struct span s, struct collected *out) {
    const unsigned lists = KIND(JSON_OBJECT) | KIND(JSON_ARRAY);
    if (s.length == 0 || nesting(*s.text) <= 0 || !(c->kinds & lists)) return false;
    struct chat_calls python = {.take = collect, .context = out, .depth = 1};
    out->length = 0;
    out->full = false;
    for (size_t i = 0; i < s.length; i++) {
        if (python.in_string)
            add_to_string(&python, s.text[i]);
        else
            take_python(&python, s.text[i]);
    }
    flush(&python, python.n_out);
    const bool whole = !out->full && python.n_value == 0;
    return whole && is_json(c, (struct span){out->text, out->length});
}

// Writes a value that may not be a string: as what it looks like.
static void emit_value(struct chat_calls *c) {
    struct collected python;
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    struct span s = {c->value, c->n_value};
    while (s.length > 0 && is_space(s.text[s.length - 1])) s.length--;
    while (s.length > 0 && is_space(*s.text)) s.text++, s.length--;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (same(s, words[i][0])) s = (struct span){words[i][1], strlen(words[i][1])};
    if (is_json(c, s))
        emit(c, CHAT_ARGUMENTS, s.text, s.length);
    else if (from_python(c, s, &python))
        emit(c, CHAT_ARGUMENTS, python.text, python.length);
    else
        emit_string(c, c->value, c->n_value);
    c->n_value = 0;
}

// Values that are too long to be looked at become strings, unless they are a list or an object.
static void add_to_value(struct chat_calls *c, char b) {
    if (c->is_text) {
        emit_escaped(c, &b, 1);
    } else if (c->in_string) {
        emit(c, CHAT_ARGUMENTS, &b, 1);
    } else if (c->n_value < CALLS_VALUE_BYTES) {
        c->value[c->n_value++] = b;
    } else {
        c->in_string = nesting(c->value[0]) > 0;
        c->is_text = !c->in_string;
        if (c->is_text) {
            emit_arguments(c, "\"");
            emit_escaped(c, c->value, c->n_value);
        } else
            emit(c, CHAT_ARGUMENTS, c->value, c->n_value);
        c->n_value = 0;
        add_to_value(c, b);
    }
}

// Whether the end of a value comes, as goes_along says it; *length is that of the end.
static int ends_value(const struct chat_calls *c, size_t *length) {
    const struct call_tags *tags = c->marks->tags;
    const char *end = c->wrapped ? tags->wrapped_end : tags ? tags->argument_end : "</arg_value>";
    const size_t newline = tags && tags->lines && c->held[0] == '\n';
    *length = newline + strlen(end);
    return goes_along(c->held + newline, c->n_held - newline, end);
}

// A value on lines of its own has a newline before it and behind it, which do not belong to it.
static bool value_step(struct chat_calls *c) {
    const struct call_tags *tags = c->marks->tags;
    size_t length;
    if (tags && tags->lines && !c->word && c->held[0] == '\n') {
        c->word = true;
        return drop(c, 1), true;
    }
    c->word = true;
    const int along = ends_value(c, &length);
    if (along < 0) return false;
    if (along == 0) {
        add_to_value(c, c->held[0]);
        return drop(c, 1), true;
    }
    drop(c, length);
    if (c->is_text)
        emit_arguments(c, "\"");
    else if (!c->in_string)
        emit_value(c);
    enter(c, CALLS_KEY);
    return true;
}

// ---- Arguments in the notation of Gemma ---------------------------------------------------------

#define QUOTE "<|\"|>"

static void end_word(struct chat_calls *c, bool is_key) {
    if (c->n_value == 0) return;
    if (is_key)
        emit_string(c, c->value, c->n_value);
    else
        emit_value(c);
    c->n_value = 0;
}

static void take_sign(struct chat_calls *c, char b) {
    const bool is_mark = strchr("{}[],:", b);
    if (!is_mark) {
        if (is_space(b)) return;
        if (c->n_value < CALLS_VALUE_BYTES) c->value[c->n_value++] = b;
        return;
    }
    end_word(c, b == ':');
    emit(c, CHAT_ARGUMENTS, &b, 1);
    c->depth += nesting(b);
    if (c->depth == 0) enter(c, CALLS_TAIL);
}

// word: within a string in quotation marks, as JSON has them.
static bool quoted_step(struct chat_calls *c) {
    const char b = c->held[0];
    const int quote = c->word ? 0 : goes_along(c->held, c->n_held, QUOTE);
    const int end = c->word || c->in_string ? 0 : goes_along(c->held, c->n_held, c->marks->end);
    if (quote < 0 || end < 0) return false;
    if (end > 0) {
        enter(c, CALLS_TAIL);
        return true;
    }
    if (quote > 0) {
        end_word(c, false);
        emit_arguments(c, "\"");
        c->in_string = !c->in_string;
        return drop(c, strlen(QUOTE)), true;
    }
    drop(c, 1);
    if (c->in_string) {
        emit_escaped(c, &b, 1);
    } else if (c->word || b == '"') {
        if (!c->word) end_word(c, false);
        emit(c, CHAT_ARGUMENTS, &b, 1);
        c->word = !c->word || c->escaped || b != '"';
        c->escaped = c->word && !c->escaped && b == '\\';
    } else if (b)
        take_sign(c, b);
    return true;
}

// ---- Arguments as Python writes them ------------------------------------------------------------

// A byte of a string, and one behind a backslash.
static void add_to_string(struct chat_calls *c, char b) {
    const char escape[] = {'\\', b};
    const bool was_escaped = c->escaped;
    c->escaped = !was_escaped && b == '\\';
    if (c->escaped) return;
    if (!was_escaped && b == c->quote) {
        c->in_string = false;
        emit_arguments(c, "\"");
    } else if (was_escaped && b && strchr("nrtbfu", b)) {
        emit(c, CHAT_ARGUMENTS, escape, sizeof escape);
    } else if (was_escaped && b == 'x') {
        emit_arguments(c, "\\u00");
    } else if (was_escaped && b != '\'' && b != '"' && b != '\\') {
        emit_escaped(c, escape, sizeof escape);
    } else {
        emit_escaped(c, &b, 1);
    }
}

// Writes the comma that came before something.
static void begin_item(struct chat_calls *c) {
    if (c->word) emit_arguments(c, ", ");
    c->word = false;
}

// A tuple becomes a list, the call's own brackets an object.
static void take_bracket(struct chat_calls *c, char b) {
    if (nesting(b) > 0 || b == '(') {
        begin_item(c);
        emit_arguments(c, b == '{' ? "{" : "[");
        c->depth++;
        return;
    }
    c->depth--;
    emit_arguments(c, b == '}' || c->depth == 0 ? "}" : "]");
    if (c->depth == 0) enter(c, CALLS_TAIL);
}

static void take_python(struct chat_calls *c, char b) {
    const bool names = b == '=' && c->depth == 1;
    if (b == 0 || is_space(b)) return;
    if (!names && !strchr("'\"{}[](),:", b)) {
        if (c->n_value == 0) begin_item(c);
        if (c->n_value < CALLS_VALUE_BYTES) c->value[c->n_value++] = b;
        return;
    }
    end_word(c, names || b == ':');
    if (names || b == ':') {
        emit_arguments(c, ": ");
    } else if (b == ',') {
        c->word = true;
    } else if (b == '\'' || b == '"') {
        begin_item(c);
        emit_arguments(c, "\"");
        c->in_string = true;
        c->quote = b;
    } else {
        take_bracket(c, b);
    }
}

static bool python_step(struct chat_calls *c) {
    const char b = c->held[0];
    const int close = c->in_string ? 0 : goes_along(c->held, c->n_held, c->marks->close);
    if (close < 0) return false;
    if (close > 0) {
        end_word(c, false);
        enter(c, CALLS_TAIL);
        return true;
    }
    drop(c, 1);
    if (c->in_string)
        add_to_string(c, b);
    else
        take_python(c, b);
    return true;
}

// ---- After a call -------------------------------------------------------------------------------

static bool tail_step(struct chat_calls *c) {
    const struct call_marks *m = c->marks;
    const char *const over[] = {m->end, m->close}, *const again[] = {m->open, m->lead};
    const char b = c->held[0];
    bool may_be = false;
    if (is_space(b) || (m->list && (b == ',' || b == ']')) || (m->bare && b == ';')) {
        c->word = b == ',' || (c->word && b != ']');
        return drop(c, 1), true;
    }
    for (int i = 0; i < 2; i++) {
        const int along = over[i] ? goes_along(c->held, c->n_held, over[i]) : 0;
        if (along > 0) return drop(c, strlen(over[i])), true;
        const int head = again[i] ? goes_along(c->held, c->n_held, again[i]) : 0;
        may_be |= along < 0 || head < 0;
        if (head <= 0) continue;
        c->n_open = i == 0 ? strlen(m->open) : 0;
        enter(c, CALLS_HEAD);
        return true;
    }
    if (may_be) return false;
    c->n_open = 0;
    const bool object = is_object(m) && (m->list || m->bare) && b == '{';
    enter(c, object || (m->shape == CALL_PYTHON && c->word) ? CALLS_HEAD : CALLS_TEXT);
    return true;
}

// ---- The whole ----------------------------------------------------------------------------------

// Takes what it can from the front of held, which is not empty. False if more has to come.
static bool step(struct chat_calls *c) {
    switch (c->state) {
    case CALLS_TEXT: return text_step(c);
    case CALLS_HEAD: return head_step(c);
    case CALLS_BEGIN: return begin_step(c);
    case CALLS_JSON: return json_step(c);
    case CALLS_STRING: return string_step(c);
    case CALLS_REST: return rest_step(c);
    case CALLS_KEY: return key_step(c);
    case CALLS_VALUE: return value_step(c);
    case CALLS_QUOTED: return quoted_step(c);
    case CALLS_PYTHON: return python_step(c);
    case CALLS_TAIL: return tail_step(c);
    }
    return false;
}

void chat_calls_begin(struct chat_calls *c, const struct call_marks *marks,
                      const struct chat_tools *tools, chat_part_fn take_part, void *context) {
    *c = (struct chat_calls){.marks = marks, .tools = tools, .take = take_part, .context = context};
}

void chat_calls_pass(struct chat_calls *c, enum chat_part part, const char *text, size_t length) {
    if (part == CHAT_CALL) {
        flush(c, c->n_out);
        c->take(c->context, part, text, length);
    } else
        emit(c, part, text, length);
}

void chat_calls_flush(struct chat_calls *c) { flush(c, whole_bytes(c)); }

void chat_calls_write(struct chat_calls *c, const char *text, size_t length) {
    if (!c->marks) {
        emit(c, CHAT_ANSWER, text, length);
        return;
    }
    for (size_t i = 0; i < length; i++) {
        ASSERT(c->n_held < CALLS_HELD_BYTES);
        c->held[c->n_held++] = text[i];
        while (c->n_held > 0 && step(c)) continue;
    }
}

void chat_calls_end(struct chat_calls *c) {
    if (c->state == CALLS_TEXT || c->state == CALLS_HEAD || c->state == CALLS_TAIL)
        give(c, c->n_held);
    flush(c, c->n_out);
    c->n_held = 0;
}
