/* reply_grammar.c: see reply_grammar.h. */
#include "runtime/generate/reply_grammar.h"

#include "base/mem.h"
#include "runtime/grammar/grammar_schema.h"
#include "runtime/grammar/grammar_until.h"

#include <stdio.h>
#include <string.h>

// The grammar while it is written. parts[i] becomes the rule schemaI.
struct writer {
    const struct chat_style *style;
    const struct call_marks *marks;
    bool must_call;
    struct schema_text out;
    struct grammar_part *parts;
    size_t n_parts, room;
};

static void add(struct writer *w, const char *text) { schema_text_add(&w->out, "%s", text); }

// Writes a text as a literal; nothing for NULL.
static void add_literal(struct writer *w, const char *text) {
    if (!text) return;
    schema_text_literal(&w->out, text, strlen(text));
    add(w, " ");
}

// Writes the name of the rule that a schema will have.
static void add_schema(struct writer *w, const json_t *root, const json_t *node) {
    ASSERT(w->n_parts < w->room);
    schema_text_add(&w->out, "schema%zu ", w->n_parts);
    w->parts[w->n_parts++] = (struct grammar_part){root, node};
}

// ---- Calls with arguments in JSON ---------------------------------------------------------------

// Writes a key of an object and the colon behind it.
static void add_member(struct writer *w, const char *key) {
    schema_text_add(&w->out, "\"\\\"%s\\\"\" space \":\" space ", key);
}

static void add_object(struct writer *w, size_t i) {
    const struct chat_tools *tools = w->style->tools;
    const struct call_marks *m = w->marks;
    schema_text_add(&w->out, "tandem-tool-%zu ::= \"{\" space ", i);
    if (m->id) {
        add_member(w, m->id);
        add(w, "\"\\\"\" [0-9]+ \"\\\"\" space \",\" space ");
    }
    add_member(w, m->name ? m->name : "name");
    schema_text_add(&w->out, "\"\\\"%s\\\"\" space \",\" space ", chat_tools_name(tools, i));
    add_member(w, m->arguments);
    add_schema(w, chat_tools_parameters(tools, i), chat_tools_parameters(tools, i));
    if (m->id_behind) {
        add(w, "(space \",\" space ");
        add_member(w, m->id_behind);
        add(w, "\"\\\"\" [0-9A-Za-z]{9} \"\\\"\")? ");
    }
    add(w, "space \"}\"\n");
}

static void add_keyed(struct writer *w, size_t i) {
    schema_text_add(&w->out, "tandem-tool-%zu ::= \"{\" space ", i);
    add_member(w, chat_tools_name(w->style->tools, i));
    add_schema(w, chat_tools_parameters(w->style->tools, i),
               chat_tools_parameters(w->style->tools, i));
    add(w, "space \"}\"\n");
}

// The mark with which calls begin that lack the one before calls; NULL: they are not told apart.
static const char *loose_lead(const struct writer *w) {
    const bool named = w->marks && w->marks->shape == CALL_NAMED;
    return named ? chat_calls_loose_mark(w->marks) : NULL;
}

static void add_named(struct writer *w, size_t i) {
    const struct chat_tools *tools = w->style->tools;
    const struct call_marks *m = w->marks;
    schema_text_add(&w->out, "tandem-tool-%zu ::= ", i);
    add_literal(w, m->lead);
    if (loose_lead(w)) schema_text_add(&w->out, "tandem-bare-%zu\ntandem-bare-%zu ::= ", i, i);
    if (m->id) add(w, "[0-9a-z]{10} ");
    add_literal(w, m->id);
    add_literal(w, m->numbered ? "functions." : NULL);
    add_literal(w, chat_tools_name(tools, i));
    if (m->numbered) add(w, "\":\" [0-9]+ ");
    if (m->id_behind) {
        add(w, "(");
        add_literal(w, m->id_behind);
        add(w, "[0-9A-Za-z]{9})? ");
    }
    add_literal(w, m->between);
    add_schema(w, chat_tools_parameters(tools, i), chat_tools_parameters(tools, i));
    add(w, m->end && m->end[0] == '`' ? "\"\\n\" " : "");
    add_literal(w, m->end);
    add(w, "\n");
}

// A message to a tool: the recipient stands before or behind the channel.
static void add_message(struct writer *w, size_t i) {
    const struct chat_tools *tools = w->style->tools;
    const char *name = chat_tools_name(tools, i);
    schema_text_add(&w->out,
                    "tandem-tool-%zu ::= (\"<|channel|>\" tandem-channel \" to=functions.%s\" | "
                    "\" to=functions.%s<|channel|>\" tandem-channel) "
                    "(\" <|constrain|>json\" | \" json\")? \"<|message|>\" ",
                    i, name, name);
    add_schema(w, chat_tools_parameters(tools, i), chat_tools_parameters(tools, i));
    add(w, "\n");
}

// ---- Calls with arguments one by one ------------------------------------------------------------

static bool is_required(const json_t *schema, const char *name) {
    size_t i;
    const json_t *one;
    json_array_foreach(json_object_get(schema, "required"), i, one) {
        if (json_is_string(one) && strcmp(json_string_value(one), name) == 0) return true;
    }
    return false;
}

// In Python's notation: strings have either quotation mark, and what has no other schema than its
// type is not looked into.
static void add_python_argument(struct writer *w, const json_t *root, const json_t *node) {
    const char *type = json_string_value(json_object_get(node, "type"));
    const json_t *choices = json_object_get(node, "enum"), *choice;
    size_t i;
    if (type && strcmp(type, "string") == 0 && json_is_array(choices)) {
        for (int mark = 0; mark < 2; mark++) {
            json_array_foreach(choices, i, choice) {
                add(w, mark == 0 && i == 0 ? "(" : "| ");
                add_literal(w, mark ? "'" : "\"");
                add_literal(w, json_is_string(choice) ? json_string_value(choice) : "");
                add_literal(w, mark ? "'" : "\"");
            }
        }
        add(w, ") ");
    } else if (type && strcmp(type, "string") == 0) {
        add(w, "tandem-string ");
    } else if (type && (strcmp(type, "integer") == 0 || strcmp(type, "number") == 0)) {
        add_schema(w, root, node);
    } else {
        add(w, type && strcmp(type, "boolean") == 0 ? "(\"True\" | \"False\") " : "tandem-python ");
    }
}

// Writes the mark behind an argument into out.
enum { AFTER_BYTES = 64 };
static const char *mark_after(const struct call_marks *m, char out[AFTER_BYTES]) {
    if (m->shape == CALL_QUOTED) return "<|\"|>";
    if (m->shape == CALL_PAIRS) return "</arg_value>";
    snprintf(out, AFTER_BYTES, "%s%s", m->tags->lines ? "\n" : "", m->tags->argument_end);
    return out;
}

// A string stands as it is, up to the mark behind it; else the schema decides.
static void add_argument(struct writer *w, const json_t *root, const json_t *node) {
    const char *type = json_string_value(json_object_get(node, "type"));
    const json_t *choices = json_object_get(node, "enum"), *choice;
    const bool quoted = w->marks->shape == CALL_QUOTED;
    char after[AFTER_BYTES];
    size_t i;
    if (w->marks->shape == CALL_PYTHON) {
        add_python_argument(w, root, node);
        return;
    }
    if (type && strcmp(type, "string") == 0) {
        if (quoted) add(w, "\"<|\\\"|>\" ");
        if (!json_is_array(choices)) {
            add(w, "tandem-value-0 ");
            return;
        }
        json_array_foreach(choices, i, choice) {
            add(w, i ? "| " : "(");
            add_literal(w, json_is_string(choice) ? json_string_value(choice) : "");
        }
        add(w, ") ");
        add_literal(w, mark_after(w->marks, after));
        return;
    }
    const bool nested = !type || strcmp(type, "object") == 0 || strcmp(type, "array") == 0;
    if (quoted && nested)
        add(w, "tandem-quoted ");
    else if (type && strcmp(type, "boolean") == 0 && w->marks->tags) // some write them as Python
        add(w, "(\"true\" | \"false\" | \"True\" | \"False\") ");
    else
        add_schema(w, root, node);
    if (!quoted) add_literal(w, mark_after(w->marks, after));
}

static void add_tag_of_key(struct writer *w, const char *name, const json_t *node) {
    const struct call_tags *tags = w->marks->tags;
    const char *type = json_string_value(json_object_get(node, "type"));
    add_literal(w, tags->argument);
    add_literal(w, name);
    add_literal(w, tags->quote);
    if (tags->types)
        add_literal(w,
                    type && strcmp(type, "string") == 0 ? " string=\"true\"" : " string=\"false\"");
    add_literal(w, tags->lines ? ">\n" : ">");
}

static void add_key(struct writer *w, const char *name, const json_t *node) {
    const enum call_shape shape = w->marks->shape;
    if (shape == CALL_TAGS) {
        add_tag_of_key(w, name, node);
        return;
    }
    add_literal(w, shape == CALL_PAIRS ? "<arg_key>" : NULL);
    add_literal(w, name);
    if (shape == CALL_PAIRS) // the later ones of the family write no newlines
        add(w, "\"</arg_key>\" \"\\n\"? \"<arg_value>\" ");
    else
        add_literal(w, shape == CALL_QUOTED ? ":" : "=");
}

// Rules for the arguments from k on; rule 1 of each stands where others came before.
static void add_arguments(struct writer *w, size_t i) {
    const json_t *root = chat_tools_parameters(w->style->tools, i);
    json_t *properties = json_object_get(root, "properties"), *node;
    const enum call_shape shape = w->marks->shape;
    const char *between = shape == CALL_QUOTED   ? "\",\" "
                          : shape == CALL_PYTHON ? "\",\" \" \"? "
                                                 : "";
    const char *name;
    int k = 0;
    json_object_foreach(properties, name, node) {
        schema_text_add(&w->out, "tandem-one-%zu-%d ::= ", i, k);
        add_key(w, name, node);
        add_argument(w, root, node);
        const bool lines = shape == CALL_TAGS && !w->marks->tags->joined;
        add(w, shape == CALL_PAIRS ? "space\n" : lines ? "\"\\n\"\n" : "\n");
        for (int came = 0; came < 2; came++) {
            schema_text_add(&w->out, "tandem-rest-%zu-%d-%d ::= %standem-one-%zu-%d ", i, k, came,
                            came ? between : "", i, k);
            schema_text_add(&w->out, "tandem-rest-%zu-%d-1", i, k + 1);
            if (!is_required(root, name))
                schema_text_add(&w->out, " | tandem-rest-%zu-%d-%d", i, k + 1, came);
            add(w, "\n");
        }
        k++;
    }
    for (int came = 0; came < 2; came++)
        schema_text_add(&w->out, "tandem-rest-%zu-%d-%d ::= \"\"\n", i, k, came);
}

// Writes what comes before the arguments of a call.
static void add_head(struct writer *w, const char *name) {
    const struct call_marks *m = w->marks;
    add_literal(w, m->shape == CALL_QUOTED ? "call:" : m->tags ? m->tags->call : NULL);
    add_literal(w, name);
    add_literal(w, m->tags ? m->tags->quote : NULL);
    if (m->shape == CALL_PAIRS)
        add(w, "\"\\n\"? ");
    else
        add_literal(w, m->shape == CALL_QUOTED   ? "{"
                       : m->shape == CALL_PYTHON ? "("
                       : m->tags->joined         ? ">"
                                                 : ">\n");
}

static void add_listed(struct writer *w, size_t i) {
    const struct call_marks *m = w->marks;
    add_arguments(w, i);
    schema_text_add(&w->out, "tandem-tool-%zu ::= ", i);
    add_head(w, chat_tools_name(w->style->tools, i));
    schema_text_add(&w->out, "tandem-rest-%zu-0-0 ", i);
    add_literal(w, m->shape == CALL_QUOTED   ? "}"
                   : m->shape == CALL_PYTHON ? ")"
                   : m->tags                 ? m->tags->call_end
                                             : NULL);
    add(w, "\n");
}

// ---- Answers with calls -------------------------------------------------------------------------

static void add_tools(struct writer *w) {
    static void (*const adders[])(struct writer *, size_t) = {
        [CALL_JSON] = add_object,   [CALL_NAMED] = add_named,   [CALL_TAGS] = add_listed,
        [CALL_PAIRS] = add_listed,  [CALL_QUOTED] = add_listed, [CALL_CHANNELS] = add_message,
        [CALL_PYTHON] = add_listed, [CALL_KEYED] = add_keyed,
    };
    const size_t n = chat_tools_count(w->style->tools);
    char after[AFTER_BYTES];
    for (size_t i = 0; i < n; i++) adders[w->marks->shape](w, i);
    add(w, "tandem-tool ::= ");
    for (size_t i = 0; i < n; i++) schema_text_add(&w->out, "%standem-tool-%zu", i ? " | " : "", i);
    add(w, "\n");
    if (w->marks->shape == CALL_QUOTED) {
        grammar_add_until(&w->out, "tandem-value", "<|\"|>", "", false);
        add(w, "tandem-pair ::= [A-Za-z0-9_-]+ \":\" tandem-quoted\n"
               "tandem-quoted ::= \"<|\\\"|>\" tandem-value-0 | number | boolean | null | "
               "\"{\" (tandem-pair (\",\" tandem-pair)*)? \"}\" | "
               "\"[\" (tandem-quoted (\",\" tandem-quoted)*)? \"]\"\n");
    } else if (w->marks->shape == CALL_PYTHON) {
        add(w, "tandem-string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | \"\\\\\" [^\\x00-\\x1F])* "
               "\"\\\"\" | "
               "\"'\" ([^'\\\\\\x00-\\x1F] | \"\\\\\" [^\\x00-\\x1F])* \"'\"\n"
               "tandem-list ::= tandem-python (\",\" \" \"? tandem-python)*\n"
               "tandem-item ::= tandem-string \":\" \" \"? tandem-python\n"
               "tandem-python ::= tandem-string | number | \"True\" | \"False\" | \"None\" | "
               "\"[\" tandem-list? \"]\" | "
               "\"{\" (tandem-item (\",\" \" \"? tandem-item)*)? \"}\"\n");
    } else if (w->marks->shape == CALL_PAIRS)
        grammar_add_until(&w->out, "tandem-value", "</arg_value>", "", false);
    else if (w->marks->shape == CALL_TAGS)
        grammar_add_until(&w->out, "tandem-value", mark_after(w->marks, after), "", false);
}

// Writes what follows the mark before calls. Behind them text may come, or more, in most families.
static void add_calls(struct writer *w) {
    const struct call_marks *m = w->marks;
    add(w, "tandem-calls ::= ");
    if (m->list)
        add(w, "space \"[\" space tandem-tool space (\",\" space tandem-tool space)* \"]\" ");
    else if (m->lead)
        add(w, m->shape == CALL_NAMED ? "tandem-tool (\"\\n\"? tandem-tool)* "
                                      : "space tandem-tool (space tandem-tool)* space ");
    else
        add(w, m->shape == CALL_JSON || m->shape == CALL_TAGS ? "space tandem-tool space "
                                                              : "tandem-tool ");
    if (m->shape != CALL_NAMED) add_literal(w, m->end);
    add_literal(w, m->close);
    add(w, "tandem-more\n");
    add(w, "tandem-more ::= ");
    if (m->last) {
        add(w, "space\n");
    } else if (w->must_call) {
        add(w, "space (");
        add_literal(w, m->open);
        add(w, "tandem-calls)?\n");
    } else
        add(w, "tandem-text-0\n");
}

// Writes what follows the mark of the first call where the one before calls is missing.
static void add_loose_calls(struct writer *w) {
    const size_t n = chat_tools_count(w->style->tools);
    add(w, "tandem-loose ::= (");
    for (size_t i = 0; i < n; i++) schema_text_add(&w->out, "%standem-bare-%zu", i ? " | " : "", i);
    add(w, ") (\"\\n\"? tandem-tool)* ");
    if (w->marks->close) add(w, "(");
    add_literal(w, w->marks->close);
    add(w, w->marks->close ? ")? tandem-more\n" : "tandem-more\n");
}

// The answer without the marks of thoughts: free text, in which a mark begins a call.
static void add_answer(struct writer *w) {
    const struct call_marks *m = w->marks;
    add_tools(w);
    add_calls(w);
    const struct grammar_end ends[] = {{m->open, "tandem-calls"}, {loose_lead(w), "tandem-loose"}};
    grammar_add_until_either(&w->out, "tandem-text", ends, loose_lead(w) ? 2 : 1, true);
    if (loose_lead(w)) add_loose_calls(w);
    add(w, "tandem-answer ::= ");
    if (m->bare) add(w, "space tandem-tool (\"; \" tandem-tool)* | ");
    if (w->must_call) {
        add(w, "space ");
        add_literal(w, m->open);
        add(w, "tandem-calls\n");
    } else if (m->bare) { // an answer that begins with { is a call
        add_literal(w, m->open);
        add(w, "tandem-calls | [^{<] tandem-text-0 | \"<\" [^|] tandem-text-0 | \"\"\n");
    } else
        add(w, "tandem-text-0\n");
}

// ---- Thoughts -----------------------------------------------------------------------------------

// A part of a reply that is no thought. In a family that has a mark before answers calls are one
// too.
static void add_part(struct writer *w, const struct chat_marks *marks) {
    const bool calls = marks && marks->direct && w->marks;
    const bool answers = !calls || !w->must_call;
    add(w, "tandem-part ::= ");
    if (calls) {
        add_literal(w, w->marks->open);
        add(w, answers ? "tandem-calls | " : "tandem-calls\n");
    }
    if (!answers) return;
    if (marks) add_literal(w, marks->direct);
    add(w, "tandem-answer\n");
}

static void add_thoughts(struct writer *w, const struct chat_marks *marks) {
    add(w, REPLY_ROOT " ::= tandem-part");
    if (marks) {
        add(w, " | [ \\t\\r\\n]* ");
        add_literal(w, marks->open);
        add(w, "tandem-thought-0\ntandem-after ::= [ \\t\\r\\n]* ");
        add_literal(w, marks->head);
        add(w, "tandem-part");
    }
    add(w, "\n");
    if (marks) {
        const struct grammar_end ends[] = {{marks->close, "tandem-after"},
                                           {w->marks ? w->marks->open : NULL, "tandem-calls"},
                                           {loose_lead(w), "tandem-loose"}};
        const int n_ends = !w->marks || !w->marks->in_thoughts ? 1 : loose_lead(w) ? 3 : 2;
        grammar_add_until_either(&w->out, "tandem-thought", ends, n_ends, false);
    }
    add_part(w, marks);
}

// An answer that obeys the person's grammar. It may stand between the marks of its family.
static void add_marked_answer(struct writer *w, const struct chat_marks *marks) {
    const char *before = marks && !marks->direct ? marks->before : NULL;
    add(w, "tandem-answer ::= root");
    if (before) add(w, " | ");
    if (before) add_literal(w, before);
    if (before) add(w, "[ \\n]{0,2} root");
    if (marks && marks->behind) {
        add(w, before ? " [ \\n]{0,2} " : " ([ \\n]{0,2} ");
        add_literal(w, marks->behind);
        add(w, before ? "" : ")?");
    }
    add(w, "\n");
}

// Messages with channels: thoughts and words to the person before a call, then the rest.
static void add_channels(struct writer *w, const struct chat_marks *marks) {
    add(w, REPLY_ROOT " ::= tandem-message\n");
    grammar_add_until(&w->out, "tandem-thought", "<|end|>", "\"<|start|>assistant\" tandem-message",
                      false);
    add(w, "tandem-channel ::= \"commentary\" | \"analysis\"\ntandem-message ::= ");
    if (w->marks) {
        add(w, "tandem-tool");
        if (!w->must_call)
            add(w, " | \"<|channel|>commentary<|message|>\" tandem-thought-0 | "
                   "\"<|channel|>final<|message|>\" [\\x00-\\U0010FFFF]*");
    } else
        add(w, "\"<|channel|>final\" (\" <|constrain|>json\" | \" json\")? \"<|message|>\" "
               "tandem-answer");
    add(w, " | ");
    add_literal(w, marks->open);
    add(w, "tandem-thought-0\n");
}

// ---- The whole ----------------------------------------------------------------------------------

// Arguments have schemas one by one in some families.
static size_t count_parts(const struct chat_tools *tools) {
    size_t n = 0;
    for (size_t i = 0; tools && i < chat_tools_count(tools); i++)
        n += 1 + json_object_size(json_object_get(chat_tools_parameters(tools, i), "properties"));
    return n;
}

static enum status write_all(struct writer *w, const struct reply_rules *rules,
                             const struct log *log, struct err *e) {
    const struct chat_marks *marks = w->style->thoughts;
    if (marks && marks->channels)
        add_channels(w, marks);
    else
        add_thoughts(w, marks);
    if (rules->grammar || rules->schema) {
        add_marked_answer(w, marks);
        if (rules->grammar) add(w, rules->grammar);
    } else if (marks && marks->channels)
        add_tools(w);
    else
        add_answer(w);
    if (w->parts && grammar_add_schemas(&w->out, w->parts, w->n_parts, log, e)) return e->status;
    return w->out.refused ? err_memory(e, w->out.length, "the grammar of a reply") : OK;
}

static enum status add_user_schema(struct writer *w, const char *schema, const struct log *log,
                                   struct err *e) {
    char *text;
    if (grammar_from_schema(&text, schema, strlen(schema), log, e)) return e->status;
    add(w, text);
    mem_free(text);
    return OK;
}

enum status reply_grammar(char **out, const struct chat_style *style,
                          const struct reply_rules *rules, const struct log *log, struct err *e) {
    const bool calls = style->tools && !rules->grammar && !rules->schema;
    struct writer w = {.style = style, .must_call = rules->must_call};
    enum status status = OK;
    *out = NULL;
    if (!calls && !rules->grammar && !rules->schema) return OK;
    if (calls && !style->calls) {
        err_set(e, ERR_UNSUPPORTED, "how this model writes calls of tools is not known");
        return err_fix(e, "give the template that it was trained with, which says it: "
                          "--chat-template FILE; or go without tools");
    }
    if (calls) {
        w.marks = style->calls;
        w.room = count_parts(style->tools);
        w.parts = mem_alloc(w.room + 1, sizeof *w.parts);
        if (!w.parts) return err_memory(e, w.room * sizeof *w.parts, "the grammar of a reply");
    }
    status = write_all(&w, rules, log, e);
    if (!status && rules->schema) status = add_user_schema(&w, rules->schema, log, e);
    if (!status && w.out.refused) status = err_memory(e, w.out.length, "the grammar of a reply");
    mem_free(w.parts);
    if (status)
        schema_text_close(&w.out);
    else
        *out = w.out.bytes;
    return status;
}

void reply_opening(char out[REPLY_OPENING_BYTES], const struct chat_marks *marks,
                   const char *prompt, size_t length) {
    const enum chat_opening opening = chat_opening_of(marks, prompt, length);
    const bool answers = opening == CHAT_OPENS_ANSWER;
    out[0] = 0;
    if (opening == CHAT_OPENS_FREE) return;
    if (answers && marks->direct)
        snprintf(out, REPLY_OPENING_BYTES, "%s", marks->direct);
    else
        snprintf(out, REPLY_OPENING_BYTES, "%s%s", marks->open, answers ? marks->close : "");
}
