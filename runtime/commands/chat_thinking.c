/* chat_thinking.c: see chat_thinking.h. */
#include "runtime/commands/chat_thinking.h"

#include "base/mem.h"

#include <jansson.h>
#include <string.h>

// How a template is asked.
enum asking {
    ASKS_NOTHING,
    ASKS_OFF,
    ASKS_ON,
    ASKS_LEAST, // off, and for a budget of no tokens or the lowest effort
};

// Sets the switches by which templates turn thoughts on and off: most have the first, Granite 3.3
// the second, the mixtures of Cohere the third.
static void set_switches(json_t *variables, bool on) {
    static const char *const names[] = {"enable_thinking", "thinking", "reasoning"};
    for (int i = 0; i < 3; i++) json_object_set_new(variables, names[i], json_boolean(on));
}

// Sets what templates without a switch read, unless the person did: Seed-OSS has a budget, gpt-oss
// and Solar Open have an effort.
static void set_least(json_t *variables) {
    static const char *const efforts[] = {"reasoning_effort", "reasoning_strength"};
    for (int i = 0; i < 2; i++)
        if (!json_object_get(variables, efforts[i]))
            json_object_set_new(variables, efforts[i], json_string("low"));
    if (!json_object_get(variables, "thinking_budget"))
        json_object_set_new(variables, "thinking_budget", json_integer(0));
}

// The variables of the template: those of the person, with what is asked. The caller frees them.
// NULL: none, or no memory.
static char *template_variables(const struct cli_options *o, enum asking how) {
    json_t *root = o->chat_kwargs ? json_loads(o->chat_kwargs, 0, NULL) : json_object();
    if (!json_is_object(root) || how == ASKS_NOTHING) {
        json_decref(root); // chat_open says what is wrong with it
        return o->chat_kwargs ? mem_text(o->chat_kwargs, strlen(o->chat_kwargs)) : NULL;
    }
    set_switches(root, how == ASKS_ON);
    if (how == ASKS_LEAST) set_least(root);
    const size_t length = json_dumpb(root, NULL, 0, 0);
    char *text = mem_alloc(length + 1, 1);
    if (text) json_dumpb(root, text, length, 0);
    json_decref(root);
    return text;
}

static enum status open_asking(struct chat_format *out, const struct cli *cli, const struct gguf *g,
                               enum asking how, const struct log *log, struct err *e) {
    char *variables = template_variables(&cli->options, how);
    const struct chat_options options = {
        .template = cli->options.chat_template, .kwargs = variables, .tools = cli->options.tools};
    const enum status status = chat_open(out, g, &options, log, e);
    mem_free(variables);
    return status;
}

// ---- Without thoughts ---------------------------------------------------------------------------

// A format and a short conversation in it.
struct trial {
    struct chat_format format;
    struct chat_text text;
};

static void close_trial(struct trial *t) {
    chat_text_close(&t->text);
    chat_close(&t->format);
}

static enum status render(struct trial *t, struct err *e) {
    static const struct chat_message hello = {.role = CHAT_USER, .text = "Hello?", .length = 6};
    const struct chat_conversation c = {.messages = &hello, .n_messages = 1, .with_reply = true};
    const int64_t now_s = t->format.now_s;
    t->format.now_s = 1; // the time makes no difference
    const enum status status = chat_render(&t->format, &c, &t->text, e);
    t->format.now_s = now_s;
    return status;
}

// Opens and renders. False without an error if the template refuses what is asked.
static bool try_asking(struct trial *t, const struct cli *cli, const struct gguf *g,
                       enum asking how, struct err *e) {
    struct err refused = {0};
    if (!open_asking(&t->format, cli, g, how, NULL, &refused) && !render(t, &refused)) return true;
    if (refused.status == ERR_MEMORY) *e = refused;
    return false;
}

static bool same_text(const struct trial *a, const struct trial *b) {
    return a->text.length == b->text.length &&
           memcmp(a->text.bytes, b->text.bytes, a->text.length) == 0;
}

// True if the model may think: a thought that the template opens is ended later, and one that it
// ended is over, also where the head of the answer is behind it.
static bool may_think(const struct trial *t) {
    const struct chat_marks *marks = t->format.marks;
    char empty[CHAT_HELD_BYTES];
    if (!marks || chat_opening_of(marks, t->text.bytes, t->text.length) != CHAT_OPENS_FREE)
        return false;
    const int n = snprintf(empty, sizeof empty, "%s%s%s", marks->open, marks->close,
                           marks->head ? marks->head : "");
    return t->text.length < (size_t)n ||
           memcmp(t->text.bytes + t->text.length - n, empty, (size_t)n) != 0;
}

// Takes the least of thoughts in place of off, where on and off are the same.
static enum status take_least(struct trial *off, const struct cli *cli, const struct gguf *g,
                              struct err *e) {
    struct trial on = {0}, least = {0};
    const bool switches = try_asking(&on, cli, g, ASKS_ON, e) && !same_text(&on, off);
    const bool less = !e->status && !switches && try_asking(&least, cli, g, ASKS_LEAST, e) &&
                      !same_text(&least, off);
    if (less) {
        const struct trial swapped = *off;
        *off = least;
        least = swapped;
    }
    if (!e->status && !switches && may_think(off))
        log_line(&cli->log, LOG_WARN,
                 less
                     ? "the chat template cannot turn thoughts off: it asks for the lowest effort. "
                       "--reasoning-budget N ends them after N tokens"
                     : "the chat template cannot turn thoughts off. --reasoning-budget N ends them "
                       "after N tokens");
    close_trial(&on);
    close_trial(&least);
    return e->status;
}

static enum status open_off(struct chat_format *out, const struct cli *cli, const struct gguf *g,
                            struct err *e) {
    struct trial off = {0};
    if (open_asking(&off.format, cli, g, ASKS_OFF, &cli->log, e) || render(&off, e) ||
        (may_think(&off) && take_least(&off, cli, g, e))) {
        close_trial(&off);
        return e->status;
    }
    chat_text_close(&off.text);
    *out = off.format;
    return OK;
}

enum status chat_thinking_open(struct chat_format *out, const struct cli *cli, struct err *e) {
    const enum thinking thinking = cli->options.thinking;
    struct gguf g = {0};
    enum status status = gguf_open(&g, cli->options.model, e);
    if (!status && thinking == THINKING_OFF)
        status = open_off(out, cli, &g, e);
    else if (!status)
        status = open_asking(out, cli, &g, thinking == THINKING_ON ? ASKS_ON : ASKS_NOTHING,
                             &cli->log, e);
    gguf_close(&g);
    return status;
}
