/* chat_commands.h: what a person types to the program instead of the model: /help, /set, /save.
 *
 * Owns nothing; changes the conversation and the options of the chat that it gets. A command that
 * fails says so and changes nothing. One thread. Tested by tests/cli/cli_chat.sh.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_CHAT_COMMANDS_H
#define TANDEM_RUNTIME_COMMANDS_CHAT_COMMANDS_H

#include "runtime/commands/chat_turn.h"

enum chat_action {
    CHAT_GOES_ON,
    CHAT_ANSWERS, // the last question is to be answered anew
    CHAT_LEAVES,
};

// True for "/word" and "/word arguments"; a path with another slash is text for the model.
bool chat_command_is(const char *text);

// Carries the command out. Errors are those that end the program.
enum status chat_command(struct chat *chat, const char *text, enum chat_action *action,
                         struct err *e);

#endif
