/* type_rules.h: types that a user gives matrices, which go before those of the mixture.
 *
 * A struct type_rules is numbers alone so far. Any thread may read. Must not know a mixture. Tested
 * by tests/runtime/test_quantize_file.c.
 */
#ifndef TANDEM_RUNTIME_QUANTIZE_TYPE_RULES_H
#define TANDEM_RUNTIME_QUANTIZE_TYPE_RULES_H

#include "base/err.h"
#include "kernels/dtypes.h"

#include <stdbool.h>

// The rules as they are typed, borrowed.
struct type_wishes {
    const char *output, *embedding; // types of these matrices; NULL: the mixture's
    bool pure;                      // the mixture's main type for all other matrices
    bool leave_output;              // the output matrix stays as it is
};

struct type_rules {
    enum dtype output, embedding; // DTYPE_COUNT: the mixture's
    bool pure, leave_output;
};

// ERR_USAGE for a name that is no type or of one that no rows can become.
enum status type_rules_open(struct type_rules *r, const struct type_wishes *wishes, struct err *e);

// True if there is a rule at all.
bool type_rules_change(const struct type_rules *r);

#endif
