/* jinja_json.h: values as Python prints them, and as JSON in the form of Python's json.dumps; JSON
 * as values.
 *
 * Texts read from JSON are data. Results lie in the heap. One thread. Tested by
 * tests/runtime/test_jinja.c.
 */
#ifndef TANDEM_RUNTIME_JINJA_JINJA_JSON_H
#define TANDEM_RUNTIME_JINJA_JINJA_JSON_H

#include "runtime/jinja/jinja_value.h"

// str(v): what {{ v }} prints.
struct jinja_value jinja_str(struct jinja_heap *h, struct jinja_value v);

struct jinja_json_form {         // of json.dumps
    int64_t indent;              // spaces; below 0: all in one line
    bool ascii, sorted;          // ensure_ascii, sort_keys
    struct jinja_text item, key; // separators
};
struct jinja_value jinja_to_json(struct jinja_heap *h, struct jinja_value v,
                                 const struct jinja_json_form *form);

struct jinja_value jinja_from_json(struct jinja_heap *h, const char *text, size_t length);

#endif
