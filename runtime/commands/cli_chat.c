/* cli_chat.c: `tandem chat`: a conversation, a line of standard input per turn. See commands.h.
 *
 * The session keeps everything that was said, so a turn costs only its own tokens. No text of the
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

struct chat {
    struct cli_generator writer;
    struct chat_format format;
    struct chat_segments segments;
    struct token_list tokens; // of one turn
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

// ---- The model's turn ---------------------------------------------------------------------------

// Encodes the person's line and the head of the reply, behind what the session holds.
static enum status encode_turn(struct chat *chat, struct err *e) {
    const struct generator *g = &chat->writer.generator;
    const char *system = chat->writer.cli->options.system_prompt;
    struct chat_message messages[2] = {{CHAT_SYSTEM, system, system ? strlen(system) : 0},
                                       {CHAT_USER, chat->line.text, chat->line.length}};
    chat->tokens.count = 0;
    enum status status;
    if (session_length(g->session) > 0)
        status = chat_render_next(&chat->format, messages + 1, 1, &chat->segments, e);
    else if (system)
        status = chat_render(&chat->format, messages, 2, true, &chat->segments, e);
    else
        status = chat_render(&chat->format, messages + 1, 1, true, &chat->segments, e);
    if (status != OK) return status;
    return chat_encode(g->tokenizer, &chat->segments, &chat->tokens, e);
}

static void say_full(const struct generator *g) {
    fprintf(
        stderr,
        "tandem: the context of %d tokens is full. Type /reset to begin anew, or use a larger -c\n",
        g->n_ctx);
}

// One line and its answer. A full context or Ctrl-C ends the turn, not the conversation.
static enum status take_turn(struct chat *chat, struct err *e) {
    struct cli_generator *w = &chat->writer;
    enum stop_reason reason;
    if (encode_turn(chat, e)) return e->status;
    if (chat->tokens.count > (uint64_t)generate_room(&w->generator)) {
        say_full(&w->generator);
        return OK;
    }
    enum status status = cli_generate_read(w, &chat->tokens, NULL, e);
    if (status == ERR_CANCELLED) {
        fputs("tandem: interrupted. Your message was not added to the conversation\n", stderr);
        return OK;
    }
    if (status != OK) return status;
    if (cli_generate_write(w, w->cli->options.n_predict, false, &reason, e)) return e->status;
    putchar('\n');
    fflush(stdout);
    if (reason == STOP_CONTEXT) say_full(&w->generator);
    return OK;
}

static enum status converse(struct chat *chat, struct err *e) {
    while (true) {
        if (ask(chat, e)) return e->status;
        if (chat->line.ended || strcmp(chat->line.text, "/exit") == 0) return OK;
        if (strcmp(chat->line.text, "/reset") == 0)
            generate_forget(&chat->writer.generator);
        else if (chat->line.length > 0 && take_turn(chat, e))
            return e->status;
        signal_watch(); // a Ctrl-C during the turn ended only that
    }
}

// ---- The command --------------------------------------------------------------------------------

static void close_chat(struct chat *chat) {
    token_list_close(&chat->tokens);
    chat_segments_close(&chat->segments);
    chat_format_close(&chat->format);
    cli_generate_close(&chat->writer);
    mem_free(chat->line.text);
}

enum status cli_chat(struct cli *cli, struct err *e) {
    struct chat chat = {0};
    struct cli_generator *w = &chat.writer;
    enum status status = OK;
    if (cli_check_trace(cli, e) || cli_generate_open(w, cli, false, e) ||
        chat_detect(&chat.format, engine_gguf(w->engine), &cli->log, e) || converse(&chat, e))
        status = e->status;
    else
        cli_generate_report(w);
    status = cli_write_trace(cli, w->engine, status, e);
    close_chat(&chat);
    return status;
}
