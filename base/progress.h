/* progress.h: tells whoever wants to know how far work has come, and asks whether to go on.
 *
 * A struct progress borrows its context and owns nothing; a zeroed one has no listener. The thread
 * that does the work tells of it and waits for the answer, so a listener returns soon. Must not
 * know what the work is or who listens. Tested by tests/base/test_base.c.
 */
#ifndef TANDEM_BASE_PROGRESS_H
#define TANDEM_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

// done of total, in the unit that the work counts (bytes, tokens, milliseconds). what is one word
// for people ("load"), a constant. Returning false asks the work to stop: it ends with
// ERR_CANCELLED.
typedef bool (*progress_fn)(void *context, const char *what, uint64_t done, uint64_t total);

struct progress {
    progress_fn tell; // NULL: nobody listens
    void *context;    // borrowed as long as the work runs
};

// False if the listener wants the work to stop.
static inline bool progress_tell(const struct progress *p, const char *what, uint64_t done,
                                 uint64_t total) {
    return !p->tell || p->tell(p->context, what, done, total);
}

#endif
