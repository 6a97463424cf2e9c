/* schema_number.h: writes the GBNF of numbers between two bounds, which may have decimals.
 *
 * Owns nothing. One thread. Tested by tests/runtime/test_grammar_schema.c.
 */
#ifndef TANDEM_RUNTIME_GRAMMAR_SCHEMA_NUMBER_H
#define TANDEM_RUNTIME_GRAMMAR_SCHEMA_NUMBER_H

#include "runtime/grammar/schema_text.h"

struct schema_bound {
    bool exists;
    bool exclusive; // the bound itself is out
    double value;
};

// Numbers from low to high, or without an end, written without an exponent. ERR_FORMAT if there are
// none, ERR_UNSUPPORTED for bounds that take more than 14 digits.
enum status schema_text_number(struct schema_text *t, const struct schema_bound *low,
                               const struct schema_bound *high, struct err *e);

#endif
