/* jinja_method.h: the methods of texts, lists and dicts.
 *
 * One thread. Tested by tests/runtime/test_jinja.c.
 */
#ifndef TANDEM_RUNTIME_JINJA_JINJA_METHOD_H
#define TANDEM_RUNTIME_JINJA_JINJA_METHOD_H

#include "runtime/jinja/jinja_value.h"

// The method of self with that name, or undefined if it has none.
struct jinja_value jinja_method_find(struct jinja_heap *h, struct jinja_value self,
                                     struct jinja_text name);

struct jinja_value jinja_method_call(struct jinja_heap *h, const struct jinja_method *method,
                                     const struct jinja_arguments *a);

#endif
