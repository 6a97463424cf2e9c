/* jinja_statement.h: the tree of a whole template, made of its source.
 *
 * One thread. Tested by tests/runtime/test_jinja.c.
 */
#ifndef TANDEM_RUNTIME_JINJA_JINJA_STATEMENT_H
#define TANDEM_RUNTIME_JINJA_JINJA_STATEMENT_H

#include "runtime/jinja/jinja_node.h"

// The first statement, or NULL for an empty template and after a failure. Nodes lie in the heap.
const struct jinja_node *jinja_statements(struct jinja_heap *h, const char *source, size_t length);

#endif
