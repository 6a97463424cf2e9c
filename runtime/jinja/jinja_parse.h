/* jinja_parse.h: tokens of a template, read one after the other, and expressions made of them.
 *
 * A struct jinja_parse borrows the tokens and the heap, in which nodes are made. Functions return
 * NULL or false after a failure, which the heap keeps. One thread. Tested by
 * tests/runtime/test_jinja.c.
 */
#ifndef TANDEM_RUNTIME_JINJA_JINJA_PARSE_H
#define TANDEM_RUNTIME_JINJA_JINJA_PARSE_H

#include "runtime/jinja/jinja_lexer.h"
#include "runtime/jinja/jinja_node.h"

struct jinja_parse {
    struct jinja_heap *heap;
    const struct jinja_token *token; // the next one
};

struct jinja_node *jinja_parse_node(struct jinja_parse *p, enum jinja_node_kind kind);

// True if the next token is that operator or name.
bool jinja_parse_sees(const struct jinja_parse *p, enum jinja_token_kind kind, const char *text);
// The same, and moves behind it.
bool jinja_parse_accept(struct jinja_parse *p, enum jinja_token_kind kind, const char *text);
// Fails unless it is there. text may be NULL: any token of the kind.
bool jinja_parse_expect(struct jinja_parse *p, enum jinja_token_kind kind, const char *text);
// Moves behind a name and returns it.
struct jinja_text jinja_parse_name(struct jinja_parse *p);

struct jinja_node *jinja_parse_expression(struct jinja_parse *p);
// Expressions with commas between them are a tuple. choice: they may have an if of their own.
struct jinja_node *jinja_parse_tuple(struct jinja_parse *p, bool choice);
// Adds `| name(arguments)` as often as it follows; a may be NULL.
struct jinja_node *jinja_parse_filters(struct jinja_parse *p, struct jinja_node *a);
// Reads a name, a name with an attribute, or names with commas, which can be assigned to.
struct jinja_node *jinja_parse_target(struct jinja_parse *p, bool attributes);

#endif
