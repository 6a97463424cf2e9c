/* cli_chat.c: `tandem chat`: one question, or a conversation by lines. See commands.h. */
#include "runtime/commands/commands.h"

#include "base/file.h"
#include "base/mem.h"
#include "runtime/cli/cli_signal.h"
#include "runtime/cli/turn_input.h"
#include "runtime/commands/chat_commands.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>

static enum status add_question(struct chat *chat, const char *text, size_t length, struct err *e) {
    const struct chat_message m = {.role = CHAT_USER, .text = text, .length = length};
    return chat_history_add(&chat->history, &m, e);
}

// ---- One question -------------------------------------------------------------------------------

// Adds what -p and -f give as one message, -p first.
static enum status add_texts(struct chat *chat, struct cli *cli, struct err *e) {
    struct cli given = *cli;
    const char *file = cli->options.prompt ? cli->options.file : NULL;
    char *text = NULL, *more = NULL;
    size_t length = 0, more_length = 0;
    if (cli_read_text(cli, &text, &length, e)) return e->status;
    enum status status = OK;
    if (file) {
        given.options.prompt = NULL;
        status = cli_read_text(&given, &more, &more_length, e);
        char *both = status ? NULL : mem_resize(text, length + 2 + more_length + 1, 1);
        if (!status && !both) status = err_memory(e, length + more_length, "a message");
        if (both) {
            text = both;
            memcpy(text + length, "\n\n", 2);
            memcpy(text + length + 2, more, more_length);
            length += 2 + more_length;
        }
    }
    while (length > 0 && text[length - 1] == '\n') length--;
    if (!status && length == 0) status = err_set(e, ERR_USAGE, "the question is empty");
    if (!status) status = add_question(chat, text, length, e);
    mem_free(text);
    mem_free(more);
    return status;
}

static enum status answer_once(struct chat *chat, struct cli *cli, struct err *e) {
    bool answered;
    if (add_texts(chat, cli, e) || chat_answer(chat, &answered, e)) return e->status;
    cli->interrupted = signal_seen();
    if (answered || cli->interrupted) return OK;
    err_set(e, ERR_LIMIT, "the question is longer than the context");
    return err_fix(e, "use a longer context (-c)");
}

// ---- A conversation -----------------------------------------------------------------------------

static enum status take_turn(struct chat *chat, struct turn_input *input, bool *leaves,
                             struct err *e) {
    const struct turn_text *turn = &input->turn;
    enum chat_action action = CHAT_ANSWERS;
    bool answered = true;
    if ((input->terminal || input->by_lines) && chat_command_is(turn->text)) {
        if (chat_command(chat, turn->text, &action, e)) return e->status;
    } else if (add_question(chat, turn->text, turn->length, e))
        return e->status;
    *leaves = action == CHAT_LEAVES;
    if (action == CHAT_ANSWERS && chat_answer(chat, &answered, e)) return e->status;
    return answered ? OK : turn_input_offer(input, e);
}

static enum status converse(struct chat *chat, struct turn_input *input, struct err *e) {
    bool ended = false;
    if (input->terminal && !chat->writer.cli->options.quiet)
        fputs("Type a message, or /help for the commands; Ctrl-D ends the program.\n", stderr);
    while (!ended) {
        if (turn_input_next(input, &ended, e)) return e->status;
        if (!ended && input->turn.length > 0 && take_turn(chat, input, &ended, e)) return e->status;
        if (!ended) signal_watch(); // a Ctrl-C during the turn ended only that
    }
    return OK;
}

// ---- The command --------------------------------------------------------------------------------

static bool asks_once(const struct cli_options *o) { return o->prompt || o->file; }

// Finds out before the model is loaded whether a question that is asked once has no text.
static enum status check_question(const struct cli_options *o, struct err *e) {
    struct stat found;
    const bool says = o->prompt && o->prompt[strspn(o->prompt, "\n")];
    if (!asks_once(o) || says) return OK;
    if (!o->file) return err_set(e, ERR_USAGE, "the question is empty");
    if (stat(o->file, &found) != 0 || !S_ISREG(found.st_mode) || found.st_size > 0) return OK;
    return err_set(e, ERR_USAGE, "%s: the question is empty", o->file);
}

// The terminal is taken before the model is loaded: what is typed meanwhile is the first turn.
static enum status open_input(struct turn_input *input, struct cli *cli, struct err *e) {
    char path[PATH_MAX];
    const char *state = cli->state_path;
    const bool kept = state && snprintf(path, sizeof path, "%s/history", state) < PATH_MAX;
    if (asks_once(&cli->options)) return OK;
    return turn_input_open(input, kept ? path : NULL, cli->options.by_lines, cli->dumb, e);
}

static enum status read_system(struct chat *chat, const char *path, struct err *e) {
    enum { SYSTEM_BYTES = 16 << 20 };
    char *text;
    size_t length;
    if (file_read_text(&text, &length, path, SYSTEM_BYTES, e)) return e->status;
    while (length > 0 && text[length - 1] == '\n') text[--length] = 0;
    const enum status status = chat_history_set_system(&chat->history, text, e);
    mem_free(text);
    return status;
}

static enum status talk(struct chat *chat, struct cli *cli, struct turn_input *input,
                        struct err *e) {
    const struct cli_options *o = &cli->options;
    if (o->system_prompt && chat_history_set_system(&chat->history, o->system_prompt, e))
        return e->status;
    if (o->system_file && read_system(chat, o->system_file, e)) return e->status;
    chat->tells = input->terminal;
    return asks_once(o) ? answer_once(chat, cli, e) : converse(chat, input, e);
}

enum status cli_chat(struct cli *cli, struct err *e) {
    struct chat chat = {0};
    struct turn_input input = {0};
    enum status status = OK;
    if (check_question(&cli->options, e) || cli_check_trace(cli, e) || open_input(&input, cli, e) ||
        chat_open_model(&chat, cli, e) || talk(&chat, cli, &input, e))
        status = e->status;
    turn_input_close(&input);
    if (!status) cli_generate_report(&chat.writer);
    status = cli_write_trace(cli, chat.writer.engine, status, e);
    chat_close_model(&chat);
    return status;
}
