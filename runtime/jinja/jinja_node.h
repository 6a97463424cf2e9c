/* jinja_node.h: the tree of a template.
 *
 * Nodes lie in the template's heap and are constant after jinja_parse. Children that are many are
 * linked by next. The comment on a kind says which members it uses. Tested by
 * tests/runtime/test_jinja.c.
 */
#ifndef TANDEM_RUNTIME_JINJA_JINJA_NODE_H
#define TANDEM_RUNTIME_JINJA_JINJA_NODE_H

#include "runtime/jinja/jinja_value.h"

enum jinja_node_kind {
    // Expressions.
    NODE_LITERAL,   // value
    NODE_NAME,      // name
    NODE_LIST,      // list: the items; also the two below
    NODE_TUPLE,     // also the target of a for or a set
    NODE_DICT,      // list: key, value, key, value, ...
    NODE_ATTRIBUTE, // a.name
    NODE_ITEM,      // a[b]
    NODE_SLICE,     // a[b:c:d]; b, c and d may be NULL
    NODE_CALL,      // a(list)
    NODE_ARGUMENT,  // a of a call, with a name if it was given one
    NODE_FILTER,    // a | name(list); a is NULL in a filter block
    NODE_TEST,      // a is name(list)
    NODE_NOT,       // a
    NODE_NEGATE,    // a
    NODE_AND,       // a, b
    NODE_OR,        // a, b
    NODE_BINARY,    // a, b: name is + - * / // % ** or ~
    NODE_COMPARE,   // a, b: name is == != < <= > >= in or "not in"
    NODE_CHOICE,    // a if b else c; c may be NULL
    // Statements.
    NODE_TEXT,         // value
    NODE_PRINT,        // a
    NODE_IF,           // list: NODE_BRANCH
    NODE_BRANCH,       // body if a; a is NULL for else
    NODE_FOR,          // for a in b if c: body; list: the else part; c may be NULL
    NODE_SET,          // set a = b
    NODE_SET_BLOCK,    // set a | b: body; b may be NULL
    NODE_MACRO,        // name(list): body; list: NODE_ARGUMENT with name and default a, or NULL
    NODE_CALL_BLOCK,   // call a: body; list: parameters as of a macro
    NODE_FILTER_BLOCK, // a: body
    NODE_GROUP,        // body: a tag without meaning here
    NODE_BREAK,
    NODE_CONTINUE,
};

struct jinja_node {
    enum jinja_node_kind kind;
    uint32_t line;
    struct jinja_text name;
    struct jinja_value value;
    const struct jinja_node *a, *b, *c, *d;
    const struct jinja_node *list, *body; // the first of several
    const struct jinja_node *next;        // of the list or body that this one is in
};

#endif
