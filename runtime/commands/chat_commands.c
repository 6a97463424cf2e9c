/* chat_commands.c: see chat_commands.h. */
#include "runtime/commands/chat_commands.h"

#include "base/mem.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct call {
    struct chat *chat;
    const char *argument; // without white space around it; may be empty
    enum chat_action action;
};

// ---- The commands -------------------------------------------------------------------------------

static enum status do_help(struct call *call, struct err *e);

static enum status do_leave(struct call *call, struct err *e) {
    (void)e;
    call->action = CHAT_LEAVES;
    return OK;
}

// Empties the conversation, but for the system message.
static enum status do_clear(struct call *call, struct err *e) {
    struct chat_history *history = &call->chat->history;
    (void)e;
    generate_forget(&call->chat->writer.generator);
    chat_history_keep(history, chat_history_system(history) ? 1 : 0);
    fputs("The conversation is forgotten.\n", stderr);
    return OK;
}

static enum status do_undo(struct call *call, struct err *e) {
    if (!chat_history_undo(&call->chat->history))
        return err_set(e, ERR_USAGE, "there is no question to take back");
    fputs("The last question and its answer are taken back.\n", stderr);
    return OK;
}

static enum status do_regen(struct call *call, struct err *e) {
    if (!chat_history_set_aside_answer(&call->chat->history))
        return err_set(e, ERR_USAGE, "there is no question to answer again");
    call->action = CHAT_ANSWERS;
    return OK;
}

static enum status do_result(struct call *call, struct err *e) {
    bool complete;
    if (chat_add_result(call->chat, call->argument, &complete, e)) return e->status;
    if (complete) call->action = CHAT_ANSWERS;
    return OK;
}

static enum status do_system(struct call *call, struct err *e) {
    struct chat_history *h = &call->chat->history;
    if (!*call->argument) {
        const char *system = chat_history_system(h);
        fprintf(stderr, "%s\n", system ? system : "There are no instructions.");
        return OK;
    }
    const bool none = strcmp(call->argument, "none") == 0;
    if (chat_history_set_system(h, none ? NULL : call->argument, e)) return e->status;
    fprintf(stderr, "The instructions are %s.\n", none ? "taken away" : "set");
    return OK;
}

static enum status do_show(struct call *call, struct err *e) {
    const struct chat *chat = call->chat;
    const struct cli_options *o = &chat->writer.cli->options;
    const char *system = chat_history_system(&chat->history);
    (void)e;
    fprintf(stderr, "  model                %s\n  chat template        %s\n", o->model,
            chat->format.name);
    const size_t n_asked = chat_history_count(&chat->history, CHAT_USER);
    fprintf(stderr, "  context              %d of %d tokens used, %zu question%s\n",
            chat_context_used(chat), chat->writer.generator.n_ctx, n_asked,
            n_asked == 1 ? "" : "s");
    fprintf(stderr, "  system               %s\n", system ? system : "(none)");
    cli_options_print_settings(o, stderr);
    return OK;
}

static enum status do_set(struct call *call, struct err *e) {
    struct cli *cli = call->chat->writer.cli;
    char name[40];
    const size_t length = strcspn(call->argument, " \t=");
    const char *value = call->argument + length;
    value += strspn(value, " \t=");
    if (length == 0) {
        cli_options_print_settings(&cli->options, stderr);
        return OK;
    }
    struct cli_options before = cli->options;
    snprintf(name, sizeof name, "%.*s", (int)length, call->argument);
    if (cli_options_set(&cli->options, name, value, e)) return e->status;
    if (before.thinking == cli->options.thinking)
        return cli_generate_set_options(&call->chat->writer, e);
    if (chat_change_format(call->chat, e) == OK)
        return cli_generate_set_options(&call->chat->writer, e);
    cli->options = before;
    return e->status;
}

// A name without a slash is one of the person's saved conversations.
static enum status path_of(char out[PATH_MAX], const struct call *call, struct err *e) {
    const char *state = call->chat->writer.cli->state_path, *name = call->argument;
    if (!*name) {
        err_set(e, ERR_USAGE, "the name of a conversation is missing");
        return err_fix(e, "for example: /save holidays, or /save ./holidays.json");
    }
    if (strchr(name, '/'))
        snprintf(out, PATH_MAX, "%s", name);
    else if (!state || snprintf(out, PATH_MAX, "%s/chats/%s.json", state, name) >= PATH_MAX)
        return err_set(e, ERR_USAGE, "there is no folder for %.40s: give a path with a /", name);
    return OK;
}

// The file beside a conversation's that keeps what the model has computed of it.
static bool state_path_of(char out[PATH_MAX], const char *path) {
    return snprintf(out, PATH_MAX, "%s.session", path) < PATH_MAX;
}

// Says why the state beside a conversation is not used or kept; the conversation is the same
// without it, and is computed anew.
static void say_no_state(const struct err *e) {
    char text[1024];
    fprintf(stderr, "The model's state is left out: %s\n", err_sentence(e, text, sizeof text));
}

// Keeps the caches, so that a later run computes nothing of the conversation again.
static void save_state(const struct chat *chat, const char *path) {
    const struct generator *g = &chat->writer.generator;
    char state[PATH_MAX], size[ERR_SIZE_CHARS];
    struct stat written;
    struct err e;
    if (!state_path_of(state, path)) return;
    if (generate_held(g) == 0)
        unlink(state); // of an older conversation of that name
    else if (session_save(g->session, g->pending, state, &e))
        say_no_state(&e);
    else if (stat(state, &written) == 0)
        fprintf(stderr, "The model's state takes %s more.\n",
                err_size_needed(size, (uint64_t)written.st_size));
}

static enum status load_state(struct chat *chat, const char *path, struct err *e) {
    struct generator *g = &chat->writer.generator;
    char state[PATH_MAX];
    if (!state_path_of(state, path) || access(state, F_OK) != 0) return OK;
    const enum status status = session_load(g->session, state, e);
    if (!status || status == ERR_DEVICE) { // the session is another one, or empty
        g->pending = -1;
        return status;
    }
    say_no_state(e);
    *e = (struct err){0};
    return OK;
}

static enum status do_save(struct call *call, struct err *e) {
    char path[PATH_MAX];
    if (path_of(path, call, e) || chat_history_save(&call->chat->history, path, e))
        return e->status;
    fprintf(stderr, "Saved to %s\n", path);
    save_state(call->chat, path);
    return OK;
}

static enum status do_load(struct call *call, struct err *e) {
    char path[PATH_MAX];
    struct chat_history *h = &call->chat->history;
    if (path_of(path, call, e) || chat_history_load(h, path, e)) return e->status;
    const size_t n_asked = chat_history_count(h, CHAT_USER);
    const size_t n_answered = chat_history_count(h, CHAT_ASSISTANT);
    fprintf(stderr, "Loaded %zu question%s and %zu answer%s.\n", n_asked, n_asked == 1 ? "" : "s",
            n_answered, n_answered == 1 ? "" : "s");
    return load_state(call->chat, path, e);
}

// ---- Their names --------------------------------------------------------------------------------

static const struct chat_word {
    const char *names[4]; // the first one is shown
    const char *argument, *help;
    enum status (*run)(struct call *call, struct err *e);
} WORDS[] = {
    {{"help", "?"}, "", "this list", do_help},
    {{"bye", "exit", "quit"}, "", "end the program", do_leave},
    {{"clear", "reset", "new"}, "", "forget the conversation", do_clear},
    {{"regen", "retry"}, "", "answer the last question again", do_regen},
    {{"result"}, "TEXT", "tell the model what came of the tool that it called", do_result},
    {{"undo"}, "", "take the last question and its answer back", do_undo},
    {{"system"}, "TEXT", "set the instructions; 'none' takes them away", do_system},
    {{"set"}, "NAME VALUE", "change a setting: /set temp 0.2; alone: list them", do_set},
    {{"show"}, "", "the model, the context and the settings", do_show},
    {{"save"}, "NAME", "keep the conversation, and the model's state of it", do_save},
    {{"load"}, "NAME", "go on with a kept conversation", do_load},
};
enum { WORDS_COUNT = sizeof WORDS / sizeof *WORDS };

static enum status do_help(struct call *call, struct err *e) {
    (void)call;
    (void)e;
    for (int i = 0; i < WORDS_COUNT; i++) {
        char left[48];
        snprintf(left, sizeof left, "/%s %s", WORDS[i].names[0], WORDS[i].argument);
        fprintf(stderr, "  %-20s %s\n", left, WORDS[i].help);
    }
    fputs("  \"\"\"                  begins a text of several lines, and ends it\n"
          "  \\                    at the end of a line: the next line belongs to it\n"
          "  Ctrl-C               stops an answer, or drops the line\n"
          "  Ctrl-D               ends the program\n",
          stderr);
    return OK;
}

static const struct chat_word *find(const char *name, size_t length) {
    for (int i = 0; i < WORDS_COUNT; i++)
        for (int k = 0; k < 4 && WORDS[i].names[k]; k++)
            if (strlen(WORDS[i].names[k]) == length && memcmp(WORDS[i].names[k], name, length) == 0)
                return &WORDS[i];
    return NULL;
}

static size_t word_length(const char *text) { return strcspn(text, " \t\n"); }

bool chat_command_is(const char *text) {
    const size_t length = word_length(text);
    return text[0] == '/' && length > 1 && !memchr(text + 1, '/', length - 1);
}

// Carries out a command whose line was copied to text, which is changed.
static enum status run(struct call *call, char *text, struct err *e) {
    const size_t length = word_length(text);
    const struct chat_word *word = find(text + 1, length - 1);
    if (!word) {
        err_set(e, ERR_USAGE, "there is no command %.*s", (int)length, text);
        return err_fix(e, "/help lists the commands");
    }
    char *argument = text + length, *end = text + strlen(text);
    while (*argument && isspace((unsigned char)*argument)) argument++;
    while (end > argument && isspace((unsigned char)end[-1])) *--end = 0;
    call->argument = argument;
    return word->run(call, e);
}

enum status chat_command(struct chat *chat, const char *text, enum chat_action *action,
                         struct err *e) {
    struct call call = {.chat = chat, .action = CHAT_GOES_ON};
    char *copy = mem_text(text, strlen(text));
    if (!copy) return err_memory(e, strlen(text), "a command");
    const enum status status = run(&call, copy, e);
    mem_free(copy);
    *action = call.action;
    if (status == OK) return OK;
    chat_say_error(e);
    return status == ERR_MEMORY ? status : OK;
}
