/* log.h: lines for people, on stderr or wherever the caller says.
 *
 * A struct log borrows its stream. There is no global log: it hangs from the engine. Any thread may
 * write; one call is one whole line. Tested by tests/base/test_base.c.
 */
#ifndef TANDEM_BASE_LOG_H
#define TANDEM_BASE_LOG_H

#include <stdio.h>

// LOG_NOTE is for what a user should know although nothing is wrong.
enum log_level { LOG_QUIET, LOG_NOTE, LOG_WARN, LOG_INFO, LOG_DEBUG };

struct log {
    FILE *out; // NULL: nothing is written
    enum log_level level;
};

// Writes "tandem: text\n" ("warning: " before the text at LOG_WARN) if log is not NULL and lets
// that level through.
void log_line(const struct log *log, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
