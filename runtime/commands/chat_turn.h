/* chat_turn.h: the model's side of a conversation: it reads what is new, answers, and forgets the
 * oldest turns where the context is full.
 *
 * Each turn renders the whole conversation, since a template may write older turns otherwise than
 * the last one; what begins as before is in the session already and costs nothing. No text of the
 * person becomes a control token. A struct chat owns all of its parts but the cli. One thread.
 * Tested by tests/cli/cli_chat.sh and cli_chat_terminal.sh.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_CHAT_TURN_H
#define TANDEM_RUNTIME_COMMANDS_CHAT_TURN_H

#include "runtime/cli/cli_generate.h"
#include "runtime/cli/word_wrap.h"
#include "runtime/commands/chat_history.h"

struct chat {
    struct cli_generator writer;
    struct chat_format format;
    struct chat_tools tools; // of --tools, or zeroed
    struct chat_style style; // of format and tools
    struct chat_history history;
    int n_calls;                   // of tools so far, in the whole conversation
    struct chat_reply reply;       // what is printed of the one that is drawn
    struct word_wrap wrap;         // through which it is printed
    bool dims;                     // thoughts are printed, dimmed
    bool dimmed;                   // the last text was such
    enum chat_part printed;        // the part that was printed last
    bool tells;                    // each answer is followed by its speed
    struct chat_text text;         // the conversation
    struct token_list tokens;      // of text
    struct token_list drawn;       // the reply so far
    struct token_list thought_end; // what ends a thought that is longer than --reasoning-budget
    bool thought_ended;            // so it did in this reply
    bool has_lost;                 // the conversation has what no token stands for
    size_t n_dropped;              // turns that were forgotten, which the person was not told yet
};

// Opens the template, which is tried before the weights are read, and the model. On failure *chat
// is closed.
enum status chat_open_model(struct chat *chat, struct cli *cli, struct err *e);
void chat_close_model(struct chat *chat); // accepts a zeroed one; leaves it zeroed

// Reads the template again, after its options have changed. On failure the old one stays.
enum status chat_change_format(struct chat *chat, struct err *e);

// Adds what came of the first call that has no result yet. *complete: there is no other such call.
// ERR_USAGE if there is no call at all.
enum status chat_add_result(struct chat *chat, const char *text, bool *complete, struct err *e);

// Answers the last message of the conversation, which is the person's or a tool's. *answered is
// false if it was not read, because of Ctrl-C, or since it is longer than the context or has what
// no token stands for, as a line says; then the message is no longer in the conversation, or the
// old answer is in it again.
enum status chat_answer(struct chat *chat, bool *answered, struct err *e);

void chat_say_error(const struct err *e); // what is wrong with a turn, to the person

// Tokens of the context that are used; the last one drawn, which is not read yet, may find it full.
int32_t chat_context_used(const struct chat *chat);

#endif
