/* regex.h: regular expressions, those of PCRE2, whose memory comes from base/mem.h.
 *
 * A struct regex owns a compiled pattern and may be searched with by several threads; a struct
 * regex_search owns the memory of searches and belongs to one thread at a time. Must not know the
 * patterns. Tested by tests/planner/test_shape.c, tests/runtime/test_mixture.c,
 * tests/runtime/test_tokenizer.c and tests/fuzz/fuzz_patterns.c.
 */
#ifndef TANDEM_BASE_REGEX_REGEX_H
#define TANDEM_BASE_REGEX_REGEX_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct regex;

enum regex_option {
    REGEX_ANY_CASE = 1, // letters of ASCII match in any case
    REGEX_UTF8 = 2,     // characters of valid UTF-8 match, else bytes
    REGEX_FAST = 4,     // compiled for the processor where PCRE2 can, for long texts
};

// Compiles a pattern; options are those of enum regex_option. ERR_USAGE says at which character it
// is wrong and why, ERR_MEMORY. On failure *out is NULL.
enum status regex_open(struct regex **out, const char *pattern, unsigned options, struct err *e);
void regex_close(struct regex *r); // accepts NULL

struct regex_search {
    void *match, *limits; // owned
    bool found;           // the last search found [first, last) of its text
    size_t first, last;
};

// A search that takes more than most_steps is given up. ERR_MEMORY; on failure *s is zeroed.
enum status regex_search_open(struct regex_search *s, uint32_t most_steps, struct err *e);
void regex_search_close(struct regex_search *s); // accepts a zeroed one; leaves it zeroed

// Finds the first match that begins at byte `from` or later. ERR_LIMIT for one that takes too
// many steps, ERR_MEMORY.
enum status regex_find(struct regex_search *s, const struct regex *r, const char *text,
                       size_t length, size_t from, struct err *e);

#endif
