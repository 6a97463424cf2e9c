/* jinja_test.h: tests of values: `v is defined`.
 *
 * One thread. Tested by tests/runtime/test_jinja.c.
 */
#ifndef TANDEM_RUNTIME_JINJA_JINJA_TEST_H
#define TANDEM_RUNTIME_JINJA_JINJA_TEST_H

#include "runtime/jinja/jinja_value.h"

// Fails if there is no test of that name.
bool jinja_test(struct jinja_heap *h, struct jinja_text name, struct jinja_value v,
                const struct jinja_arguments *a);

#endif
