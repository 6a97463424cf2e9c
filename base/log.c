/* log.c: see log.h. */
#include "base/log.h"

#include <stdarg.h>

void log_line(const struct log *log, enum log_level level, const char *format, ...) {
    if (!log || level > log->level || (!log->out && !log->tell)) return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (log->out) fprintf(log->out, "tandem: %s%s\n", level == LOG_WARN ? "warning: " : "", text);
    if (log->tell) log->tell(log->context, level, text);
}
