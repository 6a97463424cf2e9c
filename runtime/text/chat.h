/* chat.h: turns a conversation into text with control tokens, in the format that the model was
 * trained on.
 *
 * The format is a Jinja template: the file's own (tokenizer.chat_template), one of
 * configs/templates, or a file of the user's. A chat_format owns the parsed template and its
 * settings. Control tokens come from the template only: text that a person types never becomes one.
 * Read-only after chat_open; any thread. Tested by tests/runtime/test_chat.c.
 */
#ifndef TANDEM_RUNTIME_TEXT_CHAT_H
#define TANDEM_RUNTIME_TEXT_CHAT_H

#include "base/err.h"
#include "base/log.h"
#include "runtime/gguf/gguf.h"
#include "runtime/text/chat_reply.h"
#include "runtime/text/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL };

struct chat_message {
    enum chat_role role;
    const char *text; // borrowed; any bytes
    size_t length;
    const char *reasoning; // borrowed: what an assistant thought before text; NULL: nothing
    size_t reasoning_length;
    // Borrowed, terminated; NULL: there are none.
    const char *calls;   // of an assistant: tool_calls as the API of OpenAI has them, in JSON
    const char *call_id; // of a tool: the call that it answers
};

struct chat_conversation { // borrows all
    const struct chat_message *messages;
    size_t n_messages;
    const struct chat_tools *tools; // that the model may call; NULL: none
    bool with_reply; // it ends with the head of an assistant message, which the model continues
};

struct chat_options { // zeros are sensible
    // The name of a built-in one, a path, or where no such file is a text in Jinja, which has {{ or
    // {% in it; NULL: the model file's.
    const char *template;
    const char *kwargs; // a JSON object of variables for the template; NULL: none
    int64_t now_s;      // time since 1970 that the template sees; 0: now
    bool tools;         // conversations have tools: the file's template for these, if it has one
};

#define CHAT_FILE_NAME  "of the file"
#define CHAT_GIVEN_NAME "that was given"
struct jinja;
struct chat_format {
    struct jinja *template;         // owned
    const struct chat_marks *marks; // around what the model thinks; NULL: it has none
    const struct call_marks *calls; // around calls of tools; NULL: none that are known
    bool hides_calls; // the template leaves them out, so that they are written into the text
    char *kwargs, *bos, *eos; // owned, terminated; kwargs may be NULL
    char name[64];            // CHAT_FILE_NAME, CHAT_GIVEN_NAME of a text, or name or path
    int64_t now_s;            // 0: the time of each rendering
};

struct chat_text { // a zeroed one is empty; the caller owns it
    char *bytes;   // not terminated
    uint8_t *data; // [length], 1: the byte is from a message
    size_t length;
    bool starts; // a conversation from its beginning: BOS comes first if the file wants it
};

// Reads and tries the template. If the file's own one is missing or fails, the built-in one that it
// resembles takes its place, with a warning to log (which may be NULL). ERR_UNSUPPORTED if there is
// none; for what options name: ERR_USAGE, ERR_FILE or ERR_FORMAT. On failure *f is closed. The
// format borrows nothing.
enum status chat_open(struct chat_format *f, const struct gguf *g, const struct chat_options *o,
                      const struct log *log, struct err *e);
// True if the file has another template for conversations with tools.
bool chat_has_tool_template(const struct gguf *g);
void chat_close(struct chat_format *f); // accepts a zeroed one; leaves it zeroed

// Renders a whole conversation. Where the template refuses a system message, or two messages of one
// role after each other, these are joined with the next ones; arguments of calls are objects, or
// texts where it takes no objects. ERR_FORMAT: it refuses them then too. ERR_UNSUPPORTED: it leaves
// the tools out. Replaces *out.
enum status chat_render(const struct chat_format *f, const struct chat_conversation *c,
                        struct chat_text *out, struct err *e);

// Renders the continuation of a session that ends with a reply of the model without its end token:
// the end of that reply, the new messages, the head of the next reply. ERR_UNSUPPORTED if the
// template does not show where a reply ends. Replaces *out.
enum status chat_render_next(const struct chat_format *f, const struct chat_conversation *c,
                             struct chat_text *out, struct err *e);

// Appends the ids, as of one text.
enum status chat_encode(const struct tokenizer *t, const struct chat_text *text,
                        struct token_list *out, struct err *e);

// Ends the thought that text[] opens last, so that the reply has none. Changes nothing where none
// is open. marks may be NULL.
enum status chat_text_end_thought(struct chat_text *text, const struct chat_marks *marks,
                                  struct err *e);

void chat_text_close(struct chat_text *text);

#endif
