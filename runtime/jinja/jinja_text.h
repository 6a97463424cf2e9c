/* jinja_text.h: what Python does with texts, with every byte keeping whether it is data.
 *
 * Positions and lengths for templates count characters, as Python does; bytes that are no UTF-8
 * count as one character each. Results borrow their input or lie in the heap. One thread. Tested by
 * tests/runtime/test_jinja.c.
 */
#ifndef TANDEM_RUNTIME_JINJA_JINJA_TEXT_H
#define TANDEM_RUNTIME_JINJA_JINJA_TEXT_H

#include "runtime/jinja/jinja_value.h"

enum jinja_ends { JINJA_LEFT = 1, JINJA_RIGHT = 2, JINJA_BOTH = 3 };
enum jinja_letters { JINJA_UPPER, JINJA_LOWER, JINJA_TITLE, JINJA_CAPITALIZE };

// Characters of the text.
int64_t jinja_text_count(struct jinja_heap *h, struct jinja_text text);

// Where part begins at or after byte first, or -1. An empty part is found nowhere.
int64_t jinja_text_find(struct jinja_heap *h, struct jinja_text text, struct jinja_text part,
                        size_t first);

bool jinja_text_starts(struct jinja_text text, struct jinja_text part);
bool jinja_text_ends(struct jinja_text text, struct jinja_text part);

// Without the characters of set at those ends; set NULL: white space.
struct jinja_text jinja_text_trim(struct jinja_heap *h, struct jinja_text text,
                                  const struct jinja_text *set, enum jinja_ends ends);

// Replaces the first limit parts, all if it is negative.
struct jinja_value jinja_text_replace(struct jinja_heap *h, struct jinja_text text,
                                      struct jinja_text old, struct jinja_text new, int64_t limit);

// A list of what lies between separators, at most limit of them if it is not negative; right:
// counted from the end. separator NULL: runs of white space.
struct jinja_value jinja_text_split(struct jinja_heap *h, struct jinja_text text,
                                    const struct jinja_text *separator, int64_t limit, bool right);

// With entities of HTML for <, >, &, " and '.
struct jinja_text jinja_text_escape(struct jinja_heap *h, struct jinja_text text);

// The lines, at the ends that Python knows, with them where keeps is true.
struct jinja_value jinja_text_lines(struct jinja_heap *h, struct jinja_text text, bool keeps);

struct jinja_value jinja_text_letters(struct jinja_heap *h, struct jinja_text text,
                                      enum jinja_letters letters);

// Puts width spaces in front of each line but the first; of the first too if first is set, and of
// empty ones if blank is set.
struct jinja_value jinja_text_indent(struct jinja_heap *h, struct jinja_text text, int64_t width,
                                     bool first, bool blank);

#endif
