/* chat_thinking.h: opens the format of a conversation with the switches that turn a model's
 * thoughts on or off, by whatever name its template knows them.
 *
 * Owns nothing. One thread. Tested by tests/cli/cli_chat.sh.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_CHAT_THINKING_H
#define TANDEM_RUNTIME_COMMANDS_CHAT_THINKING_H

#include "runtime/cli/cli_command.h"
#include "runtime/text/chat.h"

// Opens the template of the options or of the model's file. Where thoughts are to be off and the
// template has no switch for them, it is asked for the least of them; what stays of them is told.
// Errors as chat_open's.
enum status chat_thinking_open(struct chat_format *out, const struct cli *cli, struct err *e);

#endif
