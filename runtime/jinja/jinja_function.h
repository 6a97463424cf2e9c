/* jinja_function.h: the functions that every template can call: range, namespace, ...
 *
 * One thread. Tested by tests/runtime/test_jinja.c.
 */
#ifndef TANDEM_RUNTIME_JINJA_JINJA_FUNCTION_H
#define TANDEM_RUNTIME_JINJA_JINJA_FUNCTION_H

#include "runtime/jinja/jinja_value.h"

#include <time.h>

// Function i and its name; NULL behind the last one.
const char *jinja_function_name(int i);
struct jinja_value jinja_function(int i);

// now is the time that strftime_now tells.
struct jinja_value jinja_function_call(struct jinja_heap *h, int i, const struct tm *now,
                                       const struct jinja_arguments *a);

#endif
