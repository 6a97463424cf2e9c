/* cli_chat.c: `tandem chat`: a conversation, a line of standard input per turn. See commands.h.
 *
 * Each turn renders the whole conversation, since a template may write older turns otherwise than
 * the last one; what begins as before is in the session already and costs nothing. No text of the
 * person becomes a control token.
 */
#include "runtime/commands/commands.h"

#include "base/mem.h"
#include "runtime/text/chat.h"
#include "runtime/cli/cli_generate.h"
#include "runtime/cli/cli_signal.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { INPUT_BYTES = 4096, LOOK_MS = 200 };

struct line {   // of standard input, without its end
    char *text; // owned, terminated
    size_t length, capacity;
    bool ended;              // the input ended or Ctrl-C came: there is no line
    char input[INPUT_BYTES]; // read, but not used from next to count
    size_t next, count;
};

struct history {
    struct chat_message *list; // owned, with the texts
    size_t count, capacity;
};

struct chat {
    struct cli_generator writer;
    struct chat_format format;
    struct history history;
    struct chat_reply reply;  // what is printed of the one that is drawn
    bool dims;                // thoughts are printed, dimmed
    bool dimmed;              // the last text was such
    struct chat_text text;    // the conversation
    struct token_list tokens; // of text
    struct token_list held;   // what the session holds, with the token that is pending
    struct line line;
};

// ---- The person's turn --------------------------------------------------------------------------

// Waits for input or Ctrl-C, which leaves line->count 0 as the end of the input does. Looks for the
// signal now and then, since it may come just before the wait begins.
static enum status refill(struct line *line, struct err *e) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    line->next = line->count = 0;
    while (!signal_seen()) {
        if (poll(&input, 1, LOOK_MS) <= 0) continue;
        ssize_t count = read(STDIN_FILENO, line->input, sizeof line->input);
        if (count < 0 && errno != EINTR) return err_errno(e, errno, "standard input");
        if (count < 0) continue;
        line->count = (size_t)count;
        return OK;
    }
    return OK;
}

static enum status append(struct line *line, char c, struct err *e) {
    if (line->length + 1 >= line->capacity) {
        size_t capacity = line->capacity ? line->capacity * 2 : 256;
        char *text = mem_resize(line->text, capacity, 1);
        if (!text) return err_memory(e, capacity, "a line of input");
        line->text = text;
        line->capacity = capacity;
    }
    line->text[line->length] = c;
    return OK;
}

// Reads one line of any length; the last one may lack its newline.
static enum status read_line(struct line *line, struct err *e) {
    line->length = 0;
    while (true) {
        if (line->next == line->count && refill(line, e)) return e->status;
        bool none = line->count == 0;
        char c = none ? '\n' : line->input[line->next++];
        line->ended = none && (line->length == 0 || signal_seen());
        if (append(line, c == '\n' ? 0 : c, e)) return e->status;
        if (c == '\n') return OK;
        line->length++;
    }
}

static enum status ask(struct chat *chat, struct err *e) {
    bool terminal = isatty(STDIN_FILENO);
    if (terminal) fputs("> ", stderr);
    enum status status = read_line(&chat->line, e);
    if (terminal && chat->line.ended) fputc('\n', stderr);
    return status;
}

// ---- The conversation ---------------------------------------------------------------------------

// Takes the text over, also after a failure.
static enum status add_message(struct history *h, enum chat_role role, char *text, size_t length,
                               struct err *e) {
    if (h->count == h->capacity) {
        const size_t capacity = 2 * h->capacity + 8;
        struct chat_message *list = mem_resize(h->list, capacity, sizeof *list);
        if (!list) {
            mem_free(text);
            return err_memory(e, capacity * sizeof *list, "the conversation");
        }
        h->list = list;
        h->capacity = capacity;
    }
    h->list[h->count++] = (struct chat_message){.role = role, .text = text, .length = length};
    return OK;
}

static enum status add_copy(struct history *h, enum chat_role role, const char *text, size_t length,
                            struct err *e) {
    char *copy = mem_text(text, length);
    return copy ? add_message(h, role, copy, length, e) : err_memory(e, length, "a message");
}

// Drops the messages behind the first count.
static void forget_messages(struct history *h, size_t count) {
    while (h->count > count) mem_free((char *)(uintptr_t)h->list[--h->count].text);
}

// Opens the conversation with the system prompt, if there is one.
static enum status begin(struct chat *chat, struct err *e) {
    const char *system = chat->writer.cli->options.system_prompt;
    generate_forget(&chat->writer.generator);
    chat->held.count = 0;
    forget_messages(&chat->history, 0);
    return system ? add_copy(&chat->history, CHAT_SYSTEM, system, strlen(system), e) : OK;
}

// Renders and encodes the conversation with the person's line and the head of the reply.
static enum status encode_turn(struct chat *chat, struct err *e) {
    const struct history *h = &chat->history;
    if (add_copy(&chat->history, CHAT_USER, chat->line.text, chat->line.length, e) ||
        chat_render(&chat->format, h->list, h->count, true, &chat->text, e))
        return e->status;
    chat->tokens.count = 0;
    return chat_encode(chat->writer.generator.tokenizer, &chat->text, &chat->tokens, e);
}

// Takes the tokens out of tokens that the session holds already, and out of the session what they
// do not go on from. One at least is left, whose logits are needed.
static void skip_held(struct chat *chat) {
    struct token_list *all = &chat->tokens, *held = &chat->held;
    uint64_t same = 0;
    while (same < held->count && same + 1 < all->count && held->ids[same] == all->ids[same]) same++;
    held->count = same;
    generate_keep(&chat->writer.generator, (int32_t)same);
    all->count -= same;
    memmove(all->ids, all->ids + same, all->count * sizeof *all->ids);
}

static enum status hold(struct chat *chat, const int32_t *ids, uint64_t n, struct err *e) {
    for (uint64_t i = 0; i < n; i++)
        if (token_list_push(&chat->held, ids[i], e) != OK) return e->status;
    return OK;
}

// ---- Thoughts and answers -----------------------------------------------------------------------

#define DIM   "\033[2m"
#define PLAIN "\033[0m"

static void set_dimmed(struct chat *chat, bool dimmed) {
    if (chat->dimmed != dimmed) fputs(dimmed ? DIM : PLAIN "\n", stdout);
    chat->dimmed = dimmed;
}

static void print_part(void *context, enum chat_part part, const char *text, size_t length) {
    struct chat *chat = context;
    if (part == CHAT_THOUGHT && !chat->dims) return;
    set_dimmed(chat, part == CHAT_THOUGHT);
    fwrite(text, 1, length, stdout);
}

static void print_reply(void *context, const char *text, size_t length) {
    struct chat *chat = context;
    chat_reply_write(&chat->reply, text, length);
}

// Prepares the printing of a reply to the conversation that was rendered last.
static void begin_reply(struct chat *chat) {
    const enum reasoning how = chat->writer.cli->options.reasoning;
    chat->dims = how == REASONING_AUTO && isatty(STDOUT_FILENO);
    chat->reply.take = print_part;
    chat->reply.context = chat;
    chat_reply_begin(&chat->reply, chat->format.marks, chat->text.bytes, chat->text.length);
    chat->writer.print = how == REASONING_NONE ? NULL : print_reply;
    chat->writer.print_context = chat;
}

// Collects the parts of a reply: the answer from the front of text, thoughts from its end.
struct parts {
    char *text;
    size_t n_answer, n_thought, length;
};

static void collect(void *context, enum chat_part part, const char *text, size_t length) {
    struct parts *p = context;
    const bool answer = part == CHAT_ANSWER;
    memcpy(p->text + (answer ? p->n_answer : p->length + p->n_thought), text, length);
    *(answer ? &p->n_answer : &p->n_thought) += length;
}

// The drawn reply, as text.
static char *decode_reply(const struct generator *g, size_t *length) {
    size_t size = 0, at = 0;
    for (int32_t i = 0; i < g->n_tokens; i++)
        size += tokenizer_decode(g->tokenizer, g->tokens[i], i == 0, false, NULL, 0);
    char *text = mem_alloc(size + 1, 1);
    for (int32_t i = 0; text && i < g->n_tokens; i++)
        at += tokenizer_decode(g->tokenizer, g->tokens[i], i == 0, false, text + at, size - at);
    *length = size;
    return text;
}

// Adds the reply that was drawn to the conversation, thoughts apart.
static enum status keep_reply(struct chat *chat, struct err *e) {
    size_t length;
    char *drawn = decode_reply(&chat->writer.generator, &length);
    struct parts parts = {.text = mem_alloc(2 * length + 1, 1), .length = length};
    struct chat_reply r = {.take = collect, .context = &parts};
    if (!drawn || !parts.text) {
        mem_free(drawn);
        mem_free(parts.text);
        return err_memory(e, 3 * length, "a reply");
    }
    chat_reply_begin(&r, chat->format.marks, chat->text.bytes, chat->text.length);
    chat_reply_write(&r, drawn, length);
    chat_reply_end(&r);
    mem_free(drawn);
    if (add_message(&chat->history, CHAT_ASSISTANT, parts.text, parts.n_answer, e))
        return e->status;
    struct chat_message *message = &chat->history.list[chat->history.count - 1];
    if (parts.n_thought > 0) { // in the same memory
        message->reasoning = parts.text + length;
        message->reasoning_length = parts.n_thought;
    }
    return OK;
}

// ---- The model's turn ---------------------------------------------------------------------------

static void say_full(const struct generator *g) {
    fprintf(
        stderr,
        "tandem: the context of %d tokens is full. Type /reset to begin anew, or use a larger -c\n",
        g->n_ctx);
}

// Reads what is new in the conversation. *reads is false if it ended without an answer, which the
// person was told.
static enum status read_turn(struct chat *chat, bool *reads, struct err *e) {
    struct cli_generator *w = &chat->writer;
    const size_t n_before = chat->history.count;
    *reads = false;
    enum status status = encode_turn(chat, e);
    if (status == OK && chat->tokens.count > (uint64_t)w->generator.n_ctx) {
        say_full(&w->generator);
        forget_messages(&chat->history, n_before);
        return OK;
    }
    if (status == OK) {
        skip_held(chat);
        status = cli_generate_read(w, &chat->tokens, NULL, e);
    }
    if (status == OK) status = hold(chat, chat->tokens.ids, chat->tokens.count, e);
    *reads = status == OK;
    if (status != ERR_CANCELLED) return status;
    forget_messages(&chat->history, n_before);
    fputs("tandem: interrupted. Your message was not added to the conversation\n", stderr);
    return OK;
}

// One line and its answer. A full context or Ctrl-C ends the turn, not the conversation.
static enum status take_turn(struct chat *chat, struct err *e) {
    struct cli_generator *w = &chat->writer;
    enum stop_reason reason;
    bool reads;
    const enum status status = read_turn(chat, &reads, e);
    if (status != OK || !reads) return status;
    begin_reply(chat);
    if (cli_generate_write(w, w->cli->options.n_predict, false, &reason, e)) return e->status;
    if (w->print) chat_reply_end(&chat->reply);
    set_dimmed(chat, false);
    putchar('\n');
    fflush(stdout);
    if (hold(chat, w->generator.tokens, (uint64_t)w->generator.n_tokens, e) || keep_reply(chat, e))
        return e->status;
    if (reason == STOP_CONTEXT) say_full(&w->generator);
    return OK;
}

static enum status converse(struct chat *chat, struct err *e) {
    if (begin(chat, e)) return e->status;
    while (true) {
        if (ask(chat, e)) return e->status;
        if (chat->line.ended || strcmp(chat->line.text, "/exit") == 0) return OK;
        const bool resets = strcmp(chat->line.text, "/reset") == 0;
        if (resets && begin(chat, e)) return e->status;
        if (!resets && chat->line.length > 0 && take_turn(chat, e)) return e->status;
        signal_watch(); // a Ctrl-C during the turn ended only that
    }
}

// ---- The command --------------------------------------------------------------------------------

static void close_chat(struct chat *chat) {
    forget_messages(&chat->history, 0);
    mem_free(chat->history.list);
    token_list_close(&chat->tokens);
    token_list_close(&chat->held);
    chat_text_close(&chat->text);
    chat_close(&chat->format);
    cli_generate_close(&chat->writer);
    mem_free(chat->line.text);
}

// Tries the template before the weights are read.
static enum status open_format(struct chat *chat, const struct cli *cli, struct err *e) {
    const struct chat_options options = {.template = cli->options.chat_template,
                                         .kwargs = cli->options.chat_kwargs};
    struct gguf g = {0};
    if (gguf_open(&g, cli->options.model, e)) return e->status;
    const enum status status = chat_open(&chat->format, &g, &options, &cli->log, e);
    gguf_close(&g);
    return status;
}

enum status cli_chat(struct cli *cli, struct err *e) {
    struct chat chat = {0};
    struct cli_generator *w = &chat.writer;
    enum status status = OK;
    if (cli_check_trace(cli, e) || open_format(&chat, cli, e) ||
        cli_generate_open(w, cli, false, e) || converse(&chat, e))
        status = e->status;
    else
        cli_generate_report(w);
    status = cli_write_trace(cli, w->engine, status, e);
    close_chat(&chat);
    return status;
}
