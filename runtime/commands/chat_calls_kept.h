/* chat_calls_kept.h: collects the parts of a reply into a message: the answer, thoughts, calls.
 *
 * A struct kept_reply owns its texts; the message borrows them. One thread. Tested by
 * tests/cli/cli_chat.sh.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_CHAT_CALLS_KEPT_H
#define TANDEM_RUNTIME_COMMANDS_CHAT_CALLS_KEPT_H

#include "runtime/text/chat.h"

struct kept_reply {
    int first_call; // number of the first call of the reply, set by the caller: calls have ids
    bool numbered;  // ids are functions.NAME:NUMBER, as the model writes them; set by the caller
    char *text;     // the answer from the front; thoughts, then arguments, behind them
    size_t n_answer, n_thought, n_arguments, length;
    json_t *calls;      // as the API of OpenAI has them
    int n_calls, n_cut; // kept, and left out because their arguments are no JSON object
    char *calls_text;
    bool refused;
    struct chat_message message;
};

// Makes room for the parts of a reply of length bytes. ERR_MEMORY.
enum status kept_reply_open(struct kept_reply *k, size_t length, struct err *e);
void kept_reply_close(struct kept_reply *k); // accepts a zeroed one; leaves it zeroed
// A chat_part_fn; context is the struct kept_reply.
void kept_reply_take(void *context, enum chat_part part, const char *text, size_t length);
// Fills the message, after the last part. ERR_MEMORY.
enum status kept_reply_finish(struct kept_reply *k, struct err *e);

#endif
