/* reply_grammar.h: the grammar of a whole reply: what a model thinks is free, the answer obeys a
 * grammar or a JSON schema, and calls of tools are valid by the tools' schemas.
 *
 * A grammar of free text up to a mark takes the place of a trigger: it holds from the first token
 * on. Owns nothing. One thread. Tested by tests/runtime/test_reply_grammar.c.
 */
#ifndef TANDEM_RUNTIME_GENERATE_REPLY_GRAMMAR_H
#define TANDEM_RUNTIME_GENERATE_REPLY_GRAMMAR_H

#include "base/log.h"
#include "runtime/text/chat_reply.h"

#define REPLY_ROOT "tandem-reply" // the rule of a whole reply

struct reply_rules {     // one of these at most; NULL: not given
    const char *grammar; // in GBNF, that the answer obeys
    const char *schema;  // as a JSON schema
    bool must_call;      // with tools: the answer is a call
};

// Fills *out with a grammar in GBNF whose rule REPLY_ROOT is a reply in that style, or with NULL if
// every reply is allowed; the caller frees it with mem_free. Errors as grammar_from_schema's;
// ERR_UNSUPPORTED for tools of a family whose calls are not known.
enum status reply_grammar(char **out, const struct chat_style *style,
                          const struct reply_rules *rules, const struct log *log, struct err *e);

// The text of the reply that a prompt has written already, for generate_begin; a constant of at
// most REPLY_OPENING_BYTES.
enum { REPLY_OPENING_BYTES = 128 };
void reply_opening(char out[REPLY_OPENING_BYTES], const struct chat_marks *marks,
                   const char *prompt, size_t length);

#endif
