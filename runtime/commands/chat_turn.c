/* chat_turn.c: see chat_turn.h. */
#include "runtime/commands/chat_turn.h"

#include "base/file.h"
#include "base/mem.h"
#include "runtime/cli/cli_signal.h"
#include "runtime/commands/chat_calls_kept.h"
#include "runtime/commands/chat_thinking.h"
#include "runtime/generate/reply_grammar.h"

#include <ctype.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#define DIM   "\033[2m"
#define PLAIN "\033[0m"

// ---- What the model reads -----------------------------------------------------------------------

static int32_t context_of(const struct chat *chat) { return chat->writer.generator.n_ctx; }

int32_t chat_context_used(const struct chat *chat) {
    const int32_t held = generate_held(&chat->writer.generator);
    return held < context_of(chat) ? held : context_of(chat);
}

// Renders and encodes messages with the head of the reply and what is drawn of it.
static enum status encode(struct chat *chat, const struct chat_message *messages, size_t n,
                          struct err *e) {
    const struct chat_conversation c = {
        .messages = messages, .n_messages = n, .tools = chat->style.tools, .with_reply = true};
    const bool off = chat->writer.cli->options.thinking == THINKING_OFF;
    chat->tokens.count = 0;
    chat->has_lost = false;
    if (chat_render(&chat->format, &c, &chat->text, e) ||
        (off && chat_text_end_thought(&chat->text, chat->format.marks, e)))
        return e->status;
    if (chat_encode(chat->writer.generator.tokenizer, &chat->text, &chat->tokens, e)) {
        chat->has_lost = e->status == ERR_UNSUPPORTED;
        return e->status;
    }
    for (uint64_t i = 0; i < chat->drawn.count; i++)
        if (token_list_push(&chat->tokens, chat->drawn.ids[i], e)) return e->status;
    return OK;
}

// Encodes the conversation without its n oldest turns.
static enum status encode_without(struct chat *chat, size_t n, struct err *e) {
    const struct chat_history *h = &chat->history;
    struct chat_message *rest = mem_alloc(h->count, sizeof *rest);
    if (!rest) return err_memory(e, h->count * sizeof *rest, "the conversation");
    const size_t count = chat_history_without_oldest(h, n, rest);
    const enum status status = encode(chat, rest, count, e);
    mem_free(rest);
    return status;
}

// Encodes the conversation, without its *n_left_out oldest turns where it has more than limit
// tokens. None are left out if that does not make room, also for a token of a reply that has begun.
static enum status encode_within(struct chat *chat, int64_t limit, size_t *n_left_out,
                                 struct err *e) {
    const struct chat_history *h = &chat->history;
    const bool shifts = !chat->writer.cli->options.no_context_shift;
    const int64_t comfortable = context_of(chat) - context_of(chat) / 4;
    const int64_t most = context_of(chat) - (chat->drawn.count > 0);
    const size_t n_asked = chat_history_count(h, CHAT_USER);
    size_t n = 0;
    *n_left_out = 0;
    if (encode(chat, h->list, h->count, e)) return e->status;
    while (shifts && (int64_t)chat->tokens.count > limit && n + 1 < n_asked) {
        limit = comfortable; // else the next turn would drop another one
        if (encode_without(chat, ++n, e)) return e->status;
    }
    if ((int64_t)chat->tokens.count <= most) *n_left_out = n;
    return OK;
}

// Forgets turns that were left out, once the model has read the others.
static void forget(struct chat *chat, size_t n) {
    for (size_t i = 0; i < n; i++) chat_history_drop_oldest(&chat->history);
    chat->n_dropped += n;
}

static void say_dropped(struct chat *chat) {
    const size_t n = chat->n_dropped;
    chat->n_dropped = 0;
    if (n == 0 || chat->writer.cli->options.quiet) return;
    fprintf(stderr, "tandem: the context of %d tokens is full: forgot the oldest %s\n",
            context_of(chat), n == 1 ? "turn" : "turns");
}

// True if more turns may come after one that was refused.
static bool takes_turns(const struct chat *chat) {
    return chat->tells || chat->writer.cli->options.by_lines;
}

static void say_full(const struct chat *chat) {
    fprintf(stderr, "tandem: the context of %d tokens is full\n%s a larger -c\n", context_of(chat),
            takes_turns(chat) ? "Type /clear to begin anew, or start with" : "Start with");
}

// Reads what of tokens the session does not hold already. One at least is left, whose logits are
// needed.
static enum status read_tokens(struct chat *chat, struct err *e) {
    struct token_list *all = &chat->tokens;
    const int32_t same = generate_keep_same(&chat->writer.generator, all->ids, (int32_t)all->count);
    all->count -= (uint64_t)same;
    memmove(all->ids, all->ids + same, all->count * sizeof *all->ids);
    return cli_generate_read(&chat->writer, all, NULL, e);
}

// Takes back what the model did not read, and says so.
static void withdraw(struct chat *chat) {
    static const char *const texts[] = {
        [CHAT_WITHDREW_QUESTION] = "Your message was not added to the conversation",
        [CHAT_WITHDREW_RESULTS] = "The results were not added: the calls wait for them",
        [CHAT_WITHDREW_NOTHING] = "The answer stays as it was",
    };
    fprintf(stderr, "%s\n", texts[chat_history_withdraw(&chat->history)]);
}

void chat_say_error(const struct err *e) {
    char line[1024];
    fprintf(stderr, "%s\n", err_sentence(e, line, sizeof line));
    if (e->fix[0]) fprintf(stderr, "  %c%s\n", toupper((unsigned char)e->fix[0]), e->fix + 1);
}

// Reads the person's message. *reads is false if the turn ends here, which the person was told.
static enum status read_message(struct chat *chat, bool *reads, struct err *e) {
    size_t n_left_out;
    *reads = false;
    const enum status encoded = encode_within(chat, context_of(chat), &n_left_out, e);
    if (encoded && chat->has_lost && takes_turns(chat)) {
        chat_say_error(e);
        withdraw(chat);
        return OK;
    }
    if (encoded) return encoded;
    if (chat->tokens.count > (uint64_t)context_of(chat)) {
        say_full(chat);
        withdraw(chat);
        return OK;
    }
    const enum status status = read_tokens(chat, e);
    *reads = status == OK;
    if (*reads) {
        forget(chat, n_left_out);
        say_dropped(chat);
    }
    if (status != ERR_CANCELLED) return status;
    fputs("tandem: stopped. ", stderr);
    withdraw(chat);
    return OK;
}

// ---- What is printed of the reply ---------------------------------------------------------------

static void set_dimmed(struct chat *chat, bool dimmed) {
    if (chat->dimmed != dimmed) fputs(dimmed ? DIM : PLAIN, stdout);
    if (chat->dimmed && !dimmed) word_wrap_write(&chat->wrap, "\n", 1);
    chat->dimmed = dimmed;
}

// A call has a line for itself: its name, and its arguments.
static void print_part(void *context, enum chat_part part, const char *text, size_t length) {
    struct chat *chat = context;
    const bool follows = chat->printed != CHAT_THOUGHT, calls = chat->printed >= CHAT_CALL;
    if (part == CHAT_THOUGHT && !chat->dims) return;
    set_dimmed(chat, part == CHAT_THOUGHT);
    if (part == CHAT_CALL ? follows : part == CHAT_ANSWER && calls)
        word_wrap_write(&chat->wrap, "\n", 1);
    word_wrap_write(&chat->wrap, text, length);
    if (part == CHAT_CALL) word_wrap_write(&chat->wrap, " ", 1);
    chat->printed = part;
}

// Ends a thought that has reached its limit.
static void limit_thoughts(struct chat *chat) {
    struct generator *g = &chat->writer.generator;
    const int64_t n_drawn = (int64_t)chat->drawn.count + g->n_tokens;
    if (chat->thought_ended || !chat->thought_end.count || !chat_reply_thinks(&chat->reply) ||
        n_drawn < chat->writer.cli->options.reasoning_budget)
        return;
    chat->thought_ended = true;
    generate_put(g, chat->thought_end.ids, (int32_t)chat->thought_end.count);
}

static void print_reply(void *context, const char *text, size_t length) {
    struct chat *chat = context;
    chat_reply_write(&chat->reply, text, length);
    limit_thoughts(chat);
}

static void drop_part(void *context, enum chat_part part, const char *text, size_t length) {
    (void)context, (void)part, (void)text, (void)length;
}

// Prints the reply as it comes; chat->reply only tells where the thought ends.
static void print_all(void *context, const char *text, size_t length) {
    struct chat *chat = context;
    word_wrap_write(&chat->wrap, text, length);
    print_reply(chat, text, length);
}

// Prepares the printing of a reply to the conversation that was rendered last.
static void begin_reply(struct chat *chat) {
    const struct cli_options *o = &chat->writer.cli->options;
    const enum reasoning how = o->reasoning;
    const bool dumb = chat->writer.cli->dumb;
    word_wrap_begin(&chat->wrap, stdout, !o->no_wrap && !dumb);
    chat->dims = how == REASONING_AUTO && isatty(STDOUT_FILENO) && !dumb;
    chat->reply.take = how == REASONING_NONE ? drop_part : print_part;
    chat->reply.context = chat;
    chat->printed = CHAT_THOUGHT;
    chat_reply_begin(&chat->reply, &chat->style, chat->text.bytes, chat->text.length);
    chat->writer.print = how == REASONING_NONE ? print_all : print_reply;
    chat->writer.print_context = chat;
}

static void end_reply(struct chat *chat) {
    chat_reply_end(&chat->reply);
    set_dimmed(chat, false);
    putchar('\n');
    cli_flush_output(chat->writer.cli);
}

// Also of an answer that the model ended at once, which shows nothing else. The first token comes
// with the prompt, so one alone has no speed.
static void say_speed(const struct chat *chat, const struct timings *before) {
    const struct timings *now = &chat->writer.generator.timings;
    const int64_t steps = now->decode_steps - before->decode_steps;
    const int64_t n_tokens = now->new_tokens - before->new_tokens;
    const bool dims = isatty(STDERR_FILENO) && !chat->writer.cli->dumb;
    if (!chat->tells || chat->writer.cli->options.quiet) return;
    fprintf(stderr, "%s[%lld token%s", dims ? DIM : "", (long long)n_tokens,
            n_tokens == 1 ? "" : "s");
    if (steps > 0)
        fprintf(stderr, ", %.1f tokens/s", timings_rate(steps, now->decode_ns - before->decode_ns));
    fprintf(stderr, "; context %d of %d]%s\n", chat_context_used(chat), context_of(chat),
            dims ? PLAIN : "");
}

// ---- What is kept of the reply ------------------------------------------------------------------

// The drawn reply, as text.
static char *decode_reply(const struct chat *chat, size_t *length) {
    const struct tokenizer *tokenizer = chat->writer.generator.tokenizer;
    const struct token_list *drawn = &chat->drawn;
    size_t size = 0, at = 0;
    for (uint64_t i = 0; i < drawn->count; i++)
        size += tokenizer_decode(tokenizer, drawn->ids[i], i == 0, false, NULL, 0);
    char *text = mem_alloc(size + 1, 1);
    for (uint64_t i = 0; text && i < drawn->count; i++)
        at += tokenizer_decode(tokenizer, drawn->ids[i], i == 0, false, text + at, size - at);
    *length = size;
    return text;
}

// Says which calls wait for what comes of them.
static void say_calls(const struct chat *chat, const struct kept_reply *kept) {
    if (kept->n_cut > 0)
        fputs("tandem: a call that was cut off, or has no valid arguments, is left out\n", stderr);
    if (kept->n_calls == 0 || chat->writer.cli->options.quiet || !chat->tells) return;
    fprintf(stderr, "tandem: the model calls %s: type /result TEXT for what came of %s\n",
            kept->n_calls == 1 ? "a tool" : "tools", kept->n_calls == 1 ? "it" : "each, in order");
}

// Adds the reply that was drawn to the conversation, thoughts and calls apart.
static enum status keep_reply(struct chat *chat, struct err *e) {
    size_t length;
    char *drawn = decode_reply(chat, &length);
    struct kept_reply kept = {.first_call = chat->n_calls,
                              .numbered = chat->style.calls && chat->style.calls->numbered};
    struct chat_reply r = {.take = kept_reply_take, .context = &kept};
    enum status status = drawn ? OK : err_memory(e, length, "a reply");
    if (!status) status = kept_reply_open(&kept, length, e);
    if (!status) {
        chat_reply_begin(&r, &chat->style, chat->text.bytes, chat->text.length);
        chat_reply_write(&r, drawn, length);
        chat_reply_end(&r);
        status = kept_reply_finish(&kept, e);
    }
    if (!status) status = chat_history_add(&chat->history, &kept.message, e);
    if (!status) {
        chat->n_calls += kept.n_calls;
        say_calls(chat, &kept);
    }
    kept_reply_close(&kept);
    mem_free(drawn);
    return status;
}

enum status chat_add_result(struct chat *chat, const char *text, bool *complete, struct err *e) {
    const struct chat_history *h = &chat->history;
    size_t last = h->count, n_results = 0, n_calls = 0;
    while (last > 0 && h->list[last - 1].role == CHAT_TOOL) last--, n_results++;
    json_t *calls =
        last > 0 && h->list[last - 1].calls ? json_loads(h->list[last - 1].calls, 0, NULL) : NULL;
    n_calls = json_array_size(calls);
    const char *id = json_string_value(json_object_get(json_array_get(calls, n_results), "id"));
    enum status status = OK;
    if (!id) {
        status = err_set(e, ERR_USAGE, "no call of a tool waits for a result");
    } else {
        const struct chat_message m = {
            .role = CHAT_TOOL, .text = text, .length = strlen(text), .call_id = id};
        status = chat_history_add(&chat->history, &m, e);
    }
    *complete = n_results + 1 >= n_calls;
    json_decref(calls);
    return status;
}

// ---- The turn -----------------------------------------------------------------------------------

// Draws tokens until the reply or the context ends.
static enum status draw(struct chat *chat, enum stop_reason *reason, struct err *e) {
    struct cli_generator *w = &chat->writer;
    const int32_t most = w->cli->options.n_predict;
    const int32_t limit = most < 0 ? most : most - (int32_t)chat->drawn.count;
    if (cli_generate_write(w, limit, false, reason, e)) return e->status;
    for (int32_t i = 0; i < w->generator.n_tokens; i++)
        if (token_list_push(&chat->drawn, w->generator.tokens[i], e)) return e->status;
    return OK;
}

// Makes room for more of the reply. *goes_on is false if nothing can be forgotten.
static enum status forget_oldest(struct chat *chat, bool *goes_on, struct err *e) {
    size_t n_left_out;
    *goes_on = false;
    if (encode_within(chat, context_of(chat) - context_of(chat) / 4, &n_left_out, e))
        return e->status;
    if (n_left_out == 0) return OK;
    *goes_on = true;
    if (read_tokens(chat, e)) return e->status;
    forget(chat, n_left_out);
    return OK;
}

// Encodes what ends a thought that is longer than the options allow: the message for that, and the
// mark of the family.
static enum status encode_thought_end(struct chat *chat, struct err *e) {
    const struct cli_options *o = &chat->writer.cli->options;
    const struct tokenizer *t = chat->writer.generator.tokenizer;
    const struct chat_marks *marks = chat->style.thoughts;
    const char *message = o->reasoning_message ? o->reasoning_message : "";
    char mark[CHAT_HELD_BYTES];
    chat->thought_end.count = 0;
    if (!marks || o->reasoning_budget <= 0) return OK;
    (void)snprintf(mark, sizeof mark, marks->direct ? "%s%s" : "\n%s\n\n%s", marks->close,
                   marks->head ? marks->head : "");
    if (tokenizer_encode(t, message, strlen(message), (struct tokenizer_flags){0},
                         &chat->thought_end, e))
        return e->status;
    return tokenizer_encode(t, mark, strlen(mark), (struct tokenizer_flags){.parse_special = true},
                            &chat->thought_end, e);
}

static enum status write_reply(struct chat *chat, enum stop_reason *reason, struct err *e) {
    char opening[REPLY_OPENING_BYTES];
    bool goes_on = true;
    chat->thought_ended = false;
    if (encode_thought_end(chat, e)) return e->status;
    reply_opening(opening, chat->style.thoughts, chat->text.bytes, chat->text.length);
    generate_begin(&chat->writer.generator, opening, !chat->writer.cli->options.no_context_shift);
    chat->drawn.count = 0;
    while (goes_on) {
        if (draw(chat, reason, e)) return e->status;
        goes_on = false;
        if (*reason == STOP_CONTEXT && forget_oldest(chat, &goes_on, e)) {
            if (e->status != ERR_CANCELLED) return e->status;
            *reason = STOP_CANCEL;
            return OK;
        }
    }
    cli_generate_end(&chat->writer);
    return OK;
}

enum status chat_answer(struct chat *chat, bool *answered, struct err *e) {
    const struct timings before = chat->writer.generator.timings;
    enum stop_reason reason;
    chat->drawn.count = 0;
    if (read_message(chat, answered, e)) return e->status;
    if (!*answered) return OK;
    begin_reply(chat);
    const enum status status = write_reply(chat, &reason, e);
    if (status) set_dimmed(chat, false);
    if (status) return status;
    end_reply(chat);
    say_dropped(chat);
    say_speed(chat, &before);
    if (keep_reply(chat, e)) return e->status;
    if (reason == STOP_CONTEXT) say_full(chat);
    return OK;
}

// ---- Opening and closing ------------------------------------------------------------------------

static void set_style(struct chat *chat) {
    chat->style = (struct chat_style){.thoughts = chat->format.marks,
                                      .calls = chat->format.calls,
                                      .tools = chat->tools.list ? &chat->tools : NULL};
}

enum status chat_change_format(struct chat *chat, struct err *e) {
    struct chat_format format = {0};
    if (chat_thinking_open(&format, chat->writer.cli, e)) return e->status;
    chat_close(&chat->format);
    chat->format = format;
    set_style(chat);
    return OK;
}

static enum status read_tools(struct chat_tools *out, const char *path, struct err *e) {
    enum { TOOLS_BYTES = 4 << 20 };
    char *text;
    size_t length;
    if (!path) return OK;
    if (file_read_text(&text, &length, path, TOOLS_BYTES, e)) return e->status;
    const enum status status = chat_tools_open(out, text, length, e);
    mem_free(text);
    return status ? err_context(e, "%s", path) : OK;
}

enum status chat_open_model(struct chat *chat, struct cli *cli, struct err *e) {
    *chat = (struct chat){0};
    if (chat_thinking_open(&chat->format, cli, e)) return e->status;
    if (read_tools(&chat->tools, cli->options.tools, e) == OK) {
        set_style(chat);
        const struct cli_texts texts = {.style = &chat->style};
        if (cli_generate_open(&chat->writer, cli, &texts, e) == OK) return OK;
    }
    chat_close_model(chat);
    return e->status;
}

void chat_close_model(struct chat *chat) {
    chat_history_close(&chat->history);
    token_list_close(&chat->tokens);
    token_list_close(&chat->drawn);
    token_list_close(&chat->thought_end);
    chat_text_close(&chat->text);
    chat_close(&chat->format);
    chat_tools_close(&chat->tools);
    cli_generate_close(&chat->writer);
    *chat = (struct chat){0};
}
