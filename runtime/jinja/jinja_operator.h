/* jinja_operator.h: arithmetic and comparisons between two values.
 *
 * One thread. Tested by tests/runtime/test_jinja.c.
 */
#ifndef TANDEM_RUNTIME_JINJA_JINJA_OPERATOR_H
#define TANDEM_RUNTIME_JINJA_JINJA_OPERATOR_H

#include "runtime/jinja/jinja_value.h"

// name: + - * / // % ** ~
struct jinja_value jinja_operate(struct jinja_heap *h, struct jinja_text name, struct jinja_value a,
                                 struct jinja_value b);

struct jinja_value jinja_negate(struct jinja_heap *h, struct jinja_value a);

// name: == != < <= > >= in, "not in"
bool jinja_relate(struct jinja_heap *h, struct jinja_text name, struct jinja_value a,
                  struct jinja_value b);

#endif
