/* log.h: lines for people, on a stream or handed to a function.
 *
 * A struct log borrows its stream and its context. There is no global log: it hangs from the
 * engine. Any thread may write; one call is one whole line. Tested by tests/base/test_base.c.
 */
#ifndef TANDEM_BASE_LOG_H
#define TANDEM_BASE_LOG_H

#include <stdio.h>

// LOG_NOTE is for facts that a user should know although nothing is wrong.
enum log_level { LOG_QUIET, LOG_NOTE, LOG_WARN, LOG_INFO, LOG_DEBUG };

// Gets one line without its end. Called by the thread that logs, which may be any.
typedef void (*log_fn)(void *context, enum log_level level, const char *text);

struct log {
    FILE *out;            // NULL: no stream
    enum log_level level; // lines above it are dropped
    log_fn tell;          // NULL: no listener
    void *context;        // of tell, borrowed as long as anybody logs
};

// Does nothing if log is NULL or its level is lower. Otherwise writes "tandem: text\n" to the
// stream ("warning: " before the text at LOG_WARN) and gives the text to the listener.
void log_line(const struct log *log, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
