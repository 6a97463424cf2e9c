/* chat_history.h: the messages of a conversation, in memory and as a file.
 *
 * A struct chat_history owns its list and all texts. The file is a JSON object with "messages" as
 * the API of OpenAI has them: role, content, and reasoning_content where the model thought. Must
 * not know templates or tokens. One thread. Tested by tests/cli/cli_chat.sh.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_CHAT_HISTORY_H
#define TANDEM_RUNTIME_COMMANDS_CHAT_HISTORY_H

#include "runtime/text/chat.h"

struct chat_history {
    struct chat_message *list; // owned, with the texts
    size_t count, capacity;
    size_t n_aside; // answers behind the messages, set aside
};

enum chat_withdrawn { CHAT_WITHDREW_QUESTION, CHAT_WITHDREW_RESULTS, CHAT_WITHDREW_NOTHING };

void chat_history_close(struct chat_history *h); // accepts a zeroed one; leaves it zeroed

// Adds a message. reasoning may be NULL. ERR_MEMORY.
enum status chat_history_add(struct chat_history *h, const struct chat_message *message,
                             struct err *e);
// Puts text in the place of the system message, or before all others; NULL takes it away.
enum status chat_history_set_system(struct chat_history *h, const char *text, struct err *e);

// The text of the system message; NULL if there is none.
const char *chat_history_system(const struct chat_history *h);
// The number of messages of a role.
size_t chat_history_count(const struct chat_history *h, enum chat_role role);

// Drops the messages behind the first count.
void chat_history_keep(struct chat_history *h, size_t count);
// Drops the last question and all behind it. False if there is none.
bool chat_history_undo(struct chat_history *h);
// Sets the last answer aside: the next message takes its place, or chat_history_withdraw puts it
// back. False if no question stands before it.
bool chat_history_set_aside_answer(struct chat_history *h);
// Takes back what the model did not read: the question, or all results of the last calls, which
// wait again then; an answer that was set aside is put back instead. Returns which it was.
enum chat_withdrawn chat_history_withdraw(struct chat_history *h);
// Lists in out, which has room for all, the messages without the n oldest questions and their
// answers; there are more questions than n. Returns their number; they stay the history's.
size_t chat_history_without_oldest(const struct chat_history *h, size_t n,
                                   struct chat_message *out);
// Drops the oldest question with its answer, but never the last one. False if there is no other.
bool chat_history_drop_oldest(struct chat_history *h);

// Writes all messages to path, in folders that are made where they are missing. ERR_FILE.
enum status chat_history_save(const struct chat_history *h, const char *path, struct err *e);
// Replaces all messages by those of path. ERR_FILE, ERR_FORMAT; then *h is as it was.
enum status chat_history_load(struct chat_history *h, const char *path, struct err *e);

#endif
