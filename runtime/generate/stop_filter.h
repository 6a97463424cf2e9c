/* stop_filter.h: lets a text through up to one of the texts that end it.
 *
 * What could still become a stop text is held back until it has, or can no longer: so a stop text
 * that comes in pieces never shows, in part or whole. A struct stop_filter owns copies of the texts
 * and its buffer; nothing is allocated after stop_filter_open. Must not know tokens. One thread.
 * Tested by tests/runtime/test_generate.c.
 */
#ifndef TANDEM_RUNTIME_GENERATE_STOP_FILTER_H
#define TANDEM_RUNTIME_GENERATE_STOP_FILTER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stop_filter {
    char **stops; // [n_stops], owned, terminated
    int32_t n_stops;
    char *text;     // [capacity], owned: n_ready bytes that may be shown, then those held back
    size_t n_ready; // until the next call
    size_t n_text, capacity;
    bool met; // a stop text has come: nothing more is let through
};

// texts[n] are copied; most_bytes is the longest piece of a text. ERR_USAGE for an empty text and
// for one that is not whole characters of UTF-8. On failure *f is closed.
enum status stop_filter_open(struct stop_filter *f, const char *const *texts, int32_t n,
                             size_t most_bytes, struct err *e);
void stop_filter_close(struct stop_filter *f); // accepts a zeroed one; leaves it zeroed

void stop_filter_reset(struct stop_filter *f); // a new text begins

// Takes the next piece, in whole characters. When a stop text has come, what stands before it is
// ready and the rest is dropped.
void stop_filter_push(struct stop_filter *f, const char *piece, size_t length);

// The text ends here: what is held back is ready too.
void stop_filter_finish(struct stop_filter *f);

#endif
