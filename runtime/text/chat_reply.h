/* chat_reply.h: splits what a model writes into what it thinks, what it answers and which tools it
 * calls, by the marks of its family, as it comes.
 *
 * A struct chat_reply lies with the caller and allocates nothing; an unfinished mark is held back.
 * Marks are constants. One thread. Tested by tests/runtime/test_chat.c, test_calls.c and
 * tests/fuzz/fuzz_calls.c.
 */
#ifndef TANDEM_RUNTIME_TEXT_CHAT_REPLY_H
#define TANDEM_RUNTIME_TEXT_CHAT_REPLY_H

#include "runtime/text/chat_calls.h"

#include <stdbool.h>
#include <stddef.h>

struct chat_marks {
    const char *sign;   // a template with this text uses the marks
    const char *open;   // before thoughts
    const char *close;  // between thoughts and the answer
    const char *head;   // before each part of a reply but the first; NULL: nothing
    const char *direct; // before an answer without thoughts; NULL: nothing
    bool channels;      // thoughts, answers and calls are messages, each with a channel
    const char *before; // the answer itself, where the model writes it; NULL: nothing
    const char *behind; // the answer: looked for where before came or is NULL; NULL: nothing
};
// The marks that a template uses; NULL: none.
const struct chat_marks *chat_marks_find(const char *source, size_t length);

// How a model writes. Borrows all; NULL in any field: there are none.
struct chat_style {
    const struct chat_marks *thoughts;
    const struct call_marks *calls; // of thoughts with channels too
    const struct chat_tools *tools; // without any, what looks like a call is text
};

// Where a model goes on from.
enum chat_opening {
    CHAT_OPENS_FREE,    // it may think first
    CHAT_OPENS_THOUGHT, // the mark before thoughts is written already
    CHAT_OPENS_ANSWER,  // the mark behind thoughts is
};
// prompt[length] is what the model goes on from. marks may be NULL.
enum chat_opening chat_opening_of(const struct chat_marks *marks, const char *prompt,
                                  size_t length);

enum { CHAT_HELD_BYTES = 256 };
enum chat_reply_state {
    REPLY_STARTS, // a mark may come
    REPLY_THINKS,
    REPLY_SKIPS,   // the white space before the answer
    REPLY_UNWRAPS, // the head of a part, or the mark right before the answer, may come
    REPLY_WRAPPED, // within an answer that ends with a mark
    REPLY_ANSWERS,
    REPLY_HEADS,   // the head of a message with a channel
    REPLY_MESSAGE, // within such a message
};
struct chat_reply {
    struct chat_style style;
    enum chat_reply_state state;
    char held[CHAT_HELD_BYTES]; // the start of what may be a mark
    size_t n_held;
    bool wrapped;        // the mark right before the answer came
    enum chat_part part; // of the message
    chat_part_fn take;
    void *context; // of take, borrowed
    struct chat_calls calls;
};

// Begins a reply to prompt[length]. take and context are set before.
void chat_reply_begin(struct chat_reply *r, const struct chat_style *style, const char *prompt,
                      size_t length);
void chat_reply_write(struct chat_reply *r, const char *text, size_t length);
bool chat_reply_thinks(const struct chat_reply *r); // what comes next belongs to a thought
void chat_reply_end(struct chat_reply *r);          // hands over what is held back

#endif
