/* grammar_schema.h: turns a JSON schema into a grammar of the JSON texts that it describes.
 *
 * Words that no grammar can obey (uniqueItems, not, ...) are left out with a warning; texts of the
 * grammar are then valid but for these. oneOf allows what anyOf does, with a warning unless its
 * choices exclude one another. Owns nothing. One thread.
 * Tested by tests/runtime/test_grammar_schema.c and tests/fuzz/fuzz_grammar_schema.c.
 */
#ifndef TANDEM_RUNTIME_GRAMMAR_GRAMMAR_SCHEMA_H
#define TANDEM_RUNTIME_GRAMMAR_GRAMMAR_SCHEMA_H

#include "base/err.h"
#include "base/log.h"
#include "runtime/grammar/schema_text.h"

#include <jansson.h>

// Fills *out with a grammar in GBNF, which the caller frees with mem_free. Properties come in their
// order; others only where additionalProperties allows them. ERR_FORMAT for what is no schema,
// ERR_UNSUPPORTED for patterns and references that are not known, ERR_LIMIT, ERR_MEMORY. log may be
// NULL.
enum status grammar_from_schema(char **out, const char *json, size_t length, const struct log *log,
                                struct err *e);

struct grammar_part { // a schema, and the one whose parts its references name; borrowed
    const json_t *root, *node;
};
// Adds the rules schema0, schema1, ... for parts[n] to out, and those that every schema uses, such
// as space and value. Errors as above; then out has some of them.
enum status grammar_add_schemas(struct schema_text *out, const struct grammar_part *parts, size_t n,
                                const struct log *log, struct err *e);

#endif
