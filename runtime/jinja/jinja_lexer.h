/* jinja_lexer.h: cuts the source of a template into tokens, and strips the white space that tags
 * eat.
 *
 * The environment is that of Hugging Face: trim_blocks, lstrip_blocks, no newline at the end.
 * Tokens lie in the heap and borrow the source, which becomes a copy with "\n" as its newlines. One
 * thread. Tested by tests/runtime/test_jinja.c.
 */
#ifndef TANDEM_RUNTIME_JINJA_JINJA_LEXER_H
#define TANDEM_RUNTIME_JINJA_JINJA_LEXER_H

#include "runtime/jinja/jinja_value.h"

enum jinja_token_kind {
    LEX_END,         // of the source
    LEX_OUTSIDE,     // text between tags
    LEX_PRINT_BEGIN, // {{
    LEX_PRINT_END,
    LEX_BLOCK_BEGIN, // {%
    LEX_BLOCK_END,
    LEX_NAME,
    LEX_STRING, // without quotes and escapes
    LEX_INT,
    LEX_FLOAT,
    LEX_OPERATOR,
};

struct jinja_token {
    enum jinja_token_kind kind;
    uint32_t line;
    struct jinja_text text;
};

// The tokens, with LEX_END as the last. NULL after a failure.
const struct jinja_token *jinja_lex(struct jinja_heap *h, const char *source, size_t length);

#endif
