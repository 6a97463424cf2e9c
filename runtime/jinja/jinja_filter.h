/* jinja_filter.h: filters: `v | trim`.
 *
 * One thread. Tested by tests/runtime/test_jinja.c.
 */
#ifndef TANDEM_RUNTIME_JINJA_JINJA_FILTER_H
#define TANDEM_RUNTIME_JINJA_JINJA_FILTER_H

#include "runtime/jinja/jinja_value.h"

// Fails if there is no filter of that name.
struct jinja_value jinja_filter(struct jinja_heap *h, struct jinja_text name, struct jinja_value v,
                                const struct jinja_arguments *a);

#endif
