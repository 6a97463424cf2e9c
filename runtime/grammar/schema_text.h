/* schema_text.h: writes pieces of GBNF: literals, patterns, ranges of whole numbers, keys.
 *
 * A struct schema_text owns its bytes; a refused allocation sticks in refused. One thread. Used by
 * grammar_schema.c.
 */
#ifndef TANDEM_RUNTIME_GRAMMAR_SCHEMA_TEXT_H
#define TANDEM_RUNTIME_GRAMMAR_SCHEMA_TEXT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SCHEMA_KEYS_MOST = 256 };

struct schema_text {
    char *bytes; // terminated; NULL: empty
    size_t length, capacity;
    bool refused;
};

void schema_text_close(struct schema_text *t); // leaves it zeroed
void schema_text_add(struct schema_text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void schema_text_literal(struct schema_text *t, const char *text, size_t length);

// Whole numbers from low, to high, or both; they and the bounds have at most 16 digits.
void schema_text_range(struct schema_text *t, bool has_low, int64_t low, bool has_high,
                       int64_t high);
// A JSON string by a regular expression from ^ to $. ERR_UNSUPPORTED.
enum status schema_text_pattern(struct schema_text *t, const char *pattern, struct err *e);
// Characters of strings other than names[n]. ERR_LIMIT.
enum status schema_text_other_keys(struct schema_text *t, const char *const *names, int n,
                                   struct err *e);
// The rules that all schemas use.
void schema_text_primitives(struct schema_text *t);

#endif
