/* chat_calls.h: finds the calls of tools in what a model answers, by the marks of its family, as it
 * comes: text, names, and arguments as JSON.
 *
 * A struct chat_calls lies with the caller and allocates nothing; what may be a mark or the head of
 * a call is held back. What begins like a call and is none stays text. Arguments are handed over as
 * the model writes them: one that is cut off, or not JSON in a family that writes JSON, stays so.
 * One thread. Tested by tests/runtime/test_calls.c and tests/fuzz/fuzz_calls.c.
 */
#ifndef TANDEM_RUNTIME_TEXT_CHAT_CALLS_H
#define TANDEM_RUNTIME_TEXT_CHAT_CALLS_H

#include "runtime/text/call_marks.h"
#include "runtime/text/chat_tools.h"

#include <stdbool.h>
#include <stddef.h>

enum chat_part {
    CHAT_THOUGHT,
    CHAT_ANSWER,
    CHAT_CALL,      // the whole name of a tool: a call begins
    CHAT_ARGUMENTS, // a piece of the call's arguments, a JSON object
};
// Gets a piece of a part, never empty, lent during the call.
typedef void (*chat_part_fn)(void *context, enum chat_part part, const char *text, size_t length);

enum call_state {
    CALLS_TEXT,   // a mark may come
    CALLS_HEAD,   // the name of a call, and what comes before its arguments
    CALLS_BEGIN,  // the arguments are next
    CALLS_JSON,   // within an object
    CALLS_STRING, // within an object that is written as a string
    CALLS_REST,   // the rest of the object that describes the call
    CALLS_KEY,    // the name of an argument, or the end
    CALLS_VALUE,
    CALLS_QUOTED, // within an object in the notation of Gemma
    CALLS_PYTHON, // within the arguments of a call of Python
    CALLS_TAIL,   // the call is over: another one, marks or text may come
};
enum { CALLS_HELD_BYTES = 1024, CALLS_VALUE_BYTES = 4096, CALLS_OUT_BYTES = 256 };
struct chat_calls {
    const struct call_marks *marks; // borrowed; NULL: all is text
    const struct chat_tools *tools; // borrowed; NULL: the types of arguments are not known
    chat_part_fn take;
    void *context; // of take, borrowed
    enum call_state state;
    bool began;                  // some text was not white space
    char held[CALLS_HELD_BYTES]; // what is not decided yet
    size_t n_held, n_open;       // of it the mark before a head
    char name[CHAT_TOOL_NAME_BYTES + 1], key[CHAT_TOOL_NAME_BYTES + 1];
    int depth, outer; // brackets that are open: of the arguments, and of the object around them
    bool in_string, escaped; // within a string; behind a backslash of it. A long value is passed on
                             // as it comes with in_string
    bool word;               // a value has begun; in the notation of Gemma: a string of JSON has;
                             // in that of Python: a comma came, behind which something must come
    char quote;              // Python: around the string
    int n_arguments;         // so far
    unsigned kinds;          // that the value may have, a bit for each json_type; 0: not known
    bool is_text;            // the value is written as a string while it comes
    bool wrapped;            // the value stands in <![CDATA[...]]>
    char value[CALLS_VALUE_BYTES];
    size_t n_value;
    enum chat_part part; // of out
    char out[CALLS_OUT_BYTES];
    size_t n_out;
};

// The mark with which a call begins where the mark before calls may be missing; NULL: it may not.
const char *chat_calls_loose_mark(const struct call_marks *m);
// Begins a new answer. Sets all members.
void chat_calls_begin(struct chat_calls *c, const struct call_marks *marks,
                      const struct chat_tools *tools, chat_part_fn take, void *context);
void chat_calls_write(struct chat_calls *c, const char *text, size_t length);
// Hands over text of which is known what it is; of CHAT_CALL it is a whole name.
void chat_calls_pass(struct chat_calls *c, enum chat_part part, const char *text, size_t length);
void chat_calls_flush(struct chat_calls *c); // hands over what is decided, in whole characters
void chat_calls_end(struct chat_calls *c);   // hands over what is held back

#endif
