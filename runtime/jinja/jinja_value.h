/* jinja_value.h: the values of a template: texts that know which of their bytes are data, numbers,
 * lists, dicts, and what can be called.
 *
 * All of them lie in the heap of a rendering, or borrow from the caller's input; lists, dicts and
 * namespaces are shared like Python's. A text is data as far as it comes from a message or another
 * input, and not where the template spells it: only the latter may become control tokens. One
 * thread. Tested by tests/runtime/test_jinja.c.
 */
#ifndef TANDEM_RUNTIME_JINJA_JINJA_VALUE_H
#define TANDEM_RUNTIME_JINJA_JINJA_VALUE_H

#include "runtime/jinja/jinja_heap.h"

enum jinja_kind { // 0 is undefined, so that a zeroed value is
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_TEXT,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_LOOP,     // `loop` of a for
    JINJA_MACRO,    // also caller()
    JINJA_METHOD,   // a.b where b is a method of a
    JINJA_FUNCTION, // range, namespace, ...
};

struct jinja_text {
    const char *bytes;
    const uint8_t *marks; // [length], 1: the byte is data; NULL: all bytes are as data says
    uint32_t length;
    bool data;
    bool safe; // by the filter of that name, so that + escapes what it is added to, as in Python
};

struct jinja_value {
    enum jinja_kind kind;
    union {
        bool truth;
        int64_t whole;
        double real;
        struct jinja_text text;
        struct jinja_list *list; // also a tuple's
        struct jinja_dict *dict; // also a namespace's
        struct jinja_loop *loop;
        const struct jinja_macro *macro;
        const struct jinja_method *method;
        int function; // of jinja_call.c
    };
};

struct jinja_list {
    struct jinja_value *items; // [count]
    uint32_t count, capacity;
};

struct jinja_pair {
    struct jinja_value key, value;
};

struct jinja_dict {           // in the order of insertion
    struct jinja_pair *pairs; // [count]
    uint32_t count, capacity;
};

struct jinja_loop {
    const struct jinja_list *list; // what is iterated
    uint32_t i;                    // the item that runs
};

struct jinja_method {
    struct jinja_value self;
    int name; // of jinja_method.c
};

// ---- Making values ------------------------------------------------------------------------------

struct jinja_value jinja_none(void);
struct jinja_value jinja_bool(bool truth);
struct jinja_value jinja_int(int64_t whole);
struct jinja_value jinja_float(double real);
struct jinja_value jinja_of_text(struct jinja_text text);
struct jinja_text jinja_text(const char *bytes, size_t length, bool data); // borrows bytes
struct jinja_value jinja_literal(const char *bytes); // a terminated text that is no data

// Undefined after a failure, like everything that follows.
struct jinja_value jinja_list_new(struct jinja_heap *h, enum jinja_kind kind); // LIST or TUPLE
struct jinja_value jinja_dict_new(struct jinja_heap *h, enum jinja_kind kind); // DICT or NAMESPACE

// Does nothing if the list is undefined.
void jinja_list_add(struct jinja_heap *h, struct jinja_value list, struct jinja_value item);
// NULL if there is no such key or no dict.
struct jinja_value *jinja_dict_find(struct jinja_heap *h, struct jinja_value dict,
                                    struct jinja_value key);
// Adds or replaces.
void jinja_dict_put(struct jinja_heap *h, struct jinja_value dict, struct jinja_value key,
                    struct jinja_value value);

struct jinja_arguments { // of a call, a filter or a test
    const struct jinja_list *values;
    struct jinja_value named; // a dict
};
// Argument i or the one with that name; fallback without one. Undefined counts as none.
struct jinja_value jinja_argument(struct jinja_heap *h, const struct jinja_arguments *a, uint32_t i,
                                  const char *name, struct jinja_value fallback);
// The same for a text or a number, which it must be.
struct jinja_text jinja_argument_text(struct jinja_heap *h, const struct jinja_arguments *a,
                                      uint32_t i, const char *name);
int64_t jinja_argument_int(struct jinja_heap *h, const struct jinja_arguments *a, uint32_t i,
                           const char *name, int64_t fallback);

// ---- Texts that grow ----------------------------------------------------------------------------

struct jinja_builder { // a zeroed one is empty
    char *bytes;
    uint8_t *marks;
    uint32_t length, capacity;
};
void jinja_builder_add(struct jinja_heap *h, struct jinja_builder *b, struct jinja_text text);
void jinja_builder_put(struct jinja_heap *h, struct jinja_builder *b, const char *text, bool data);
struct jinja_value jinja_builder_text(const struct jinja_builder *b); // borrows the builder's bytes

// Bytes first to first + length - 1.
struct jinja_text jinja_text_part(struct jinja_text text, size_t first, size_t length);
// True if a byte of the text is data.
bool jinja_text_is_data(struct jinja_text text);

// ---- Questions ----------------------------------------------------------------------------------

const char *jinja_kind_name(enum jinja_kind kind); // as Python calls it
bool jinja_is_true(struct jinja_value v);
bool jinja_is_number(struct jinja_value v); // also true and false
double jinja_number(struct jinja_value v);
bool jinja_text_equal(struct jinja_text text, const char *other); // a terminated one
bool jinja_equal(struct jinja_heap *h, struct jinja_value a, struct jinja_value b);
// Below 0, 0 or above; fails for kinds that have no order.
int jinja_compare(struct jinja_heap *h, struct jinja_value a, struct jinja_value b);

// The items of a list, keys of a dict, characters of a text; nothing of undefined. NULL after a
// failure, such as for a number. Borrowed where it is a list.
const struct jinja_list *jinja_items(struct jinja_heap *h, struct jinja_value v);

#endif
