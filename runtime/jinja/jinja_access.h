/* jinja_access.h: parts of a value: v.name, v[key], v[first:end:step], item in v.
 *
 * A part that is not there is undefined. One thread. Tested by tests/runtime/test_jinja.c.
 */
#ifndef TANDEM_RUNTIME_JINJA_JINJA_ACCESS_H
#define TANDEM_RUNTIME_JINJA_JINJA_ACCESS_H

#include "runtime/jinja/jinja_value.h"

// A method comes before a key of the same name, as in Python.
struct jinja_value jinja_attribute(struct jinja_heap *h, struct jinja_value v,
                                   struct jinja_text name);
struct jinja_value jinja_item(struct jinja_heap *h, struct jinja_value v, struct jinja_value key);
// Follows a path of names and positions with dots between them, as filters take it.
struct jinja_value jinja_path(struct jinja_heap *h, struct jinja_value v, struct jinja_value path);

struct jinja_range { // of a slice; none or undefined: not given
    struct jinja_value first, end, step;
};
struct jinja_value jinja_slice(struct jinja_heap *h, struct jinja_value v,
                               const struct jinja_range *range);

bool jinja_contains(struct jinja_heap *h, struct jinja_value v, struct jinja_value item);

#endif
