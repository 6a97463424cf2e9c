/* chat_reply.h: splits what a model writes into what it thinks and what it answers, by the marks of
 * its family, as it comes.
 *
 * A struct chat_reply lies with the caller and allocates nothing; an unfinished mark is held back.
 * Marks are constants. One thread. Tested by tests/runtime/test_chat.c.
 */
#ifndef TANDEM_RUNTIME_TEXT_CHAT_REPLY_H
#define TANDEM_RUNTIME_TEXT_CHAT_REPLY_H

#include <stdbool.h>
#include <stddef.h>

struct chat_marks {
    const char *sign;   // a template with this text uses the marks
    const char *open;   // before thoughts
    const char *close;  // between thoughts and the answer
    const char *direct; // before an answer without thoughts; NULL: nothing
};
// The marks that a template uses; NULL: none.
const struct chat_marks *chat_marks_find(const char *source, size_t length);

enum chat_part { CHAT_THOUGHT, CHAT_ANSWER };
// Gets a piece of a part, never empty, lent during the call.
typedef void (*chat_part_fn)(void *context, enum chat_part part, const char *text, size_t length);

enum { CHAT_HELD_BYTES = 96 };
enum chat_reply_state {
    REPLY_STARTS, // a mark may come
    REPLY_THINKS,
    REPLY_SKIPS, // the white space before the answer
    REPLY_ANSWERS,
};
struct chat_reply {
    const struct chat_marks *marks; // borrowed; NULL: all is the answer
    enum chat_reply_state state;
    char held[CHAT_HELD_BYTES]; // the start of what may be a mark
    size_t n_held;
    chat_part_fn take;
    void *context; // of take, borrowed
};

// prompt[length] is what the model goes on from: it may end with the mark before thoughts.
void chat_reply_begin(struct chat_reply *r, const struct chat_marks *marks, const char *prompt,
                      size_t length);
void chat_reply_write(struct chat_reply *r, const char *text, size_t length);
void chat_reply_end(struct chat_reply *r); // hands over what is held back

#endif
