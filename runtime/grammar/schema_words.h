/* schema_words.h: tells which words of a JSON schema its grammar does not obey.
 *
 * A struct schema_words borrows its log, and says each word once. Words that say nothing about
 * which texts are valid, and words that JSON Schema does not know, are none of its business. One
 * thread. Used by grammar_schema.c. Tested by tests/runtime/test_grammar_schema.c.
 */
#ifndef TANDEM_RUNTIME_GRAMMAR_SCHEMA_WORDS_H
#define TANDEM_RUNTIME_GRAMMAR_SCHEMA_WORDS_H

#include "base/log.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { SCHEMA_WORDS_MOST = 64, SCHEMA_LOOKS_MOST = 20000 };

struct schema_words {
    const struct log *log;               // NULL: nobody listens
    const char *told[SCHEMA_WORDS_MOST]; // [n_told]: words that were said, constants
    uint32_t n_told;
    int32_t n_looks; // that are left, see struct schema_looks
};

// Warns that the word, a constant, is not obeyed.
void schema_words_tell(struct schema_words *w, const char *word);
// Warns of the words of a schema that no grammar obeys: not, uniqueItems and their like; those
// whose value is of a wrong kind; and oneOf, unless its choices exclude one another. Looks into the
// parts of root that $ref and allOf join to the schema too.
void schema_words_check(struct schema_words *w, const json_t *root, const json_t *node);
// Warns of words beside enum or const that are not asked whether they exclude its values.
void schema_words_check_values(struct schema_words *w, const json_t *node);

// True for a whole number from 0 on, which minLength and its like take.
bool schema_is_count(const json_t *value);

#endif
