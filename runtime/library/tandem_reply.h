/* tandem_reply.h: what is special of answers that are replies: thoughts, calls of tools, schemas.
 *
 * A struct tandem_reply owns the tools and the grammar, and borrows engine and options. Only for
 * the files of this room. Threads as in tandem.h. Tested by tests/runtime/test_library_reply.c.
 */
#ifndef TANDEM_RUNTIME_LIBRARY_TANDEM_REPLY_H
#define TANDEM_RUNTIME_LIBRARY_TANDEM_REPLY_H

#include "runtime/generate/reply_grammar.h"
#include "runtime/library/tandem_engine.h"

struct tandem_reply {
    const struct tandem_generate_options *options;
    struct chat_tools tools;
    struct chat_style style;
    struct chat_reply parts;
    char opening[REPLY_OPENING_BYTES];
    char *grammar; // NULL: none but that of the options
    bool refused;  // on_part returned false
};

// Reads schema and tools, and makes the grammar. On failure *r is closed.
enum status tandem_reply_open(struct tandem_reply *r, const struct tandem_engine *engine,
                              const struct tandem_generate_options *options, struct err *e);
void tandem_reply_close(struct tandem_reply *r); // accepts a zeroed one; leaves it zeroed

// The prompt is in the session.
void tandem_reply_begin(struct tandem_reply *r, struct tandem_session *session);
void tandem_reply_write(struct tandem_reply *r, const char *text, size_t length);
void tandem_reply_end(struct tandem_reply *r);

#endif
