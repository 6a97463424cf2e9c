/* stop_filter.h: lets a text through up to the first stop text in it.
 *
 * The filter holds an end of the text back as long as it could be the beginning of a stop text, so
 * that a stop text in several pieces never shows. A struct stop_filter owns copies of the stop
 * texts and its buffer; nothing is allocated after stop_filter_open. Must not know tokens. One
 * thread. Tested by tests/runtime/test_generate.c.
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
    char *text;     // [capacity], owned: n_ready bytes that may be shown, then the held ones
    size_t n_ready; // valid until the next call
    size_t n_text, capacity;
    bool met; // a stop text has come: the filter lets nothing more through
};

// texts[n] are copied; most_bytes is the longest piece of a text. ERR_USAGE for an empty text and
// for one that is not whole characters of UTF-8. On failure *f is closed.
enum status stop_filter_open(struct stop_filter *f, const char *const *texts, int32_t n,
                             size_t most_bytes, struct err *e);
void stop_filter_close(struct stop_filter *f); // accepts a zeroed one; leaves it zeroed

void stop_filter_reset(struct stop_filter *f); // a new text begins

// Takes the next piece, in whole characters. When a stop text has come, the bytes before it are
// ready and the others are dropped.
void stop_filter_push(struct stop_filter *f, const char *piece, size_t length);

// The text ends here: the held bytes are ready too.
void stop_filter_finish(struct stop_filter *f);

#endif
