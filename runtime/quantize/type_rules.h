/* type_rules.h: types that a user gives matrices, which go before those of the mixture.
 *
 * A struct type_rules owns its patterns and borrows nothing. One thread. Must not know a mixture.
 * Tested by tests/runtime/test_mixture.c.
 */
#ifndef TANDEM_RUNTIME_QUANTIZE_TYPE_RULES_H
#define TANDEM_RUNTIME_QUANTIZE_TYPE_RULES_H

#include "base/err.h"
#include "base/log.h"
#include "runtime/gguf/gguf.h"

// The rules as they are typed, borrowed.
struct type_wishes {
    const char *output, *embedding; // types of these matrices; NULL: the mixture's
    const char *const *named;       // [n_named]: "PATTERN=TYPE"
    int32_t n_named;
    const char *named_file; // holds more of these, between white space; NULL: none
    bool pure;              // the mixture's main type for all other matrices
    bool leave_output;      // the output matrix stays as it is
};

struct type_patterns;
struct type_rules {
    enum dtype output, embedding; // DTYPE_COUNT: the mixture's
    bool pure, leave_output;
    struct type_patterns *patterns; // owned; NULL: none
};

// ERR_USAGE for a pattern that is none, a name that is no type or of one that no rows can become;
// ERR_FILE, ERR_MEMORY. On failure *r is closed.
enum status type_rules_open(struct type_rules *r, const struct type_wishes *wishes, struct err *e);
void type_rules_close(struct type_rules *r); // accepts a zeroed one; leaves it zeroed

// True if there is a rule at all.
bool type_rules_change(const struct type_rules *r);

// Finds the first pattern that matches anywhere in the name, in any case: *out gets its type.
// Without one *found is false. ERR_USAGE for a pattern that takes too long, ERR_MEMORY.
enum status type_rules_find(struct type_rules *r, struct gguf_text name, bool *found,
                            enum dtype *out, struct err *e);

// Warns of every pattern that type_rules_find never took.
void type_rules_warn(const struct type_rules *r, const struct log *log);

#endif
