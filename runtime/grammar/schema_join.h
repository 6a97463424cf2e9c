/* schema_join.h: joins JSON schemas that must all be met (allOf, or words beside anyOf and $ref)
 * to one schema.
 *
 * A joined schema has no allOf and no $ref but within its parts, and anyOf for oneOf. One that
 * nothing can meet has an empty enum. One thread. Used by grammar_schema.c.
 */
#ifndef TANDEM_RUNTIME_GRAMMAR_SCHEMA_JOIN_H
#define TANDEM_RUNTIME_GRAMMAR_SCHEMA_JOIN_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

// The schema within root that "#/a/b" names. ERR_UNSUPPORTED.
enum status schema_find(const json_t *root, const char *path, const json_t **out, struct err *e);
// True if words beside this one say what meets the schema.
bool schema_has_beside(const json_t *node, const char *word);
// False if type, const, bounds, lengths, sizes or required keys of the schema exclude
// the value. It may be excluded by other words.
bool schema_may_be(const json_t *node, const json_t *value);
// Adds to the object all what part says; values that need no change are shared. ERR_FORMAT,
// ERR_LIMIT, ERR_UNSUPPORTED, ERR_MEMORY.
enum status schema_join(const json_t *root, json_t *all, const json_t *part, struct err *e);
// Refuses a part whose $ref leads back to it with nothing on the way that a text could meet.
// ERR_FORMAT.
enum status schema_refuse_loop(const json_t *part, struct err *e);
// How many properties are still looked at for a whole schema, and at which depth a look is, from 0.
struct schema_looks {
    int32_t *n_left;
    int depth;
};
// True if nothing meets a schema that schema_join filled, as far as types, values and required
// properties show it; false where no look is left.
bool schema_meets_nothing(const json_t *root, const json_t *joined, struct schema_looks looks);

#endif
