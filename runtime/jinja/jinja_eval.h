/* jinja_eval.h: the state of a rendering, with its variables, and the values of expressions.
 *
 * A struct jinja_run borrows the heap and the input. Macros run statements, so the room that runs
 * statements hands in run_macro. One thread. Tested by tests/runtime/test_jinja.c.
 */
#ifndef TANDEM_RUNTIME_JINJA_JINJA_EVAL_H
#define TANDEM_RUNTIME_JINJA_JINJA_EVAL_H

#include "runtime/jinja/jinja_node.h"

#include <time.h>

struct jinja_variable {
    struct jinja_text name;
    struct jinja_value value;
};

struct jinja_scope { // of the template, an iteration of a loop, a call, or a block that is set
    struct jinja_scope *parent;
    struct jinja_variable *variables; // [count]
    uint32_t count, capacity;
};

struct jinja_macro {
    const struct jinja_node *node; // NODE_MACRO or NODE_CALL_BLOCK
    struct jinja_scope *scope;     // where it was defined
};

enum jinja_flow { JINJA_GOES_ON, JINJA_BREAKS, JINJA_CONTINUES };

struct jinja_run {
    struct jinja_heap *heap;
    struct jinja_scope *scope; // the innermost
    struct jinja_builder *out; // where statements print
    enum jinja_flow flow;      // of the innermost loop
    const struct tm *now;
    struct jinja_value (*run_macro)(struct jinja_run *run, const struct jinja_macro *macro,
                                    const struct jinja_arguments *a);
};

// False after a failure.
bool jinja_scope_push(struct jinja_run *run, struct jinja_scope *parent);
// Sets a variable of the innermost scope.
void jinja_assign(struct jinja_run *run, struct jinja_text name, struct jinja_value value);

struct jinja_value jinja_eval(struct jinja_run *run, const struct jinja_node *node);

// Applies the filters of a block or of a set, whose innermost node has no operand, to v.
struct jinja_value jinja_eval_filters(struct jinja_run *run, const struct jinja_node *node,
                                      struct jinja_value v);

// Evaluates a NODE_CALL with one more named argument, unless caller is undefined.
struct jinja_value jinja_eval_call(struct jinja_run *run, const struct jinja_node *node,
                                   struct jinja_value caller);

#endif
