/* trace_write.h: writes the file of a trace, which Perfetto and Chrome's tracing page read.
 *
 * Owns nothing; the trace is the caller's. One thread. Tested by tests/runtime/test_trace.c and
 * tests/cli/cli_trace.sh.
 */
#ifndef TANDEM_RUNTIME_REPORT_TRACE_WRITE_H
#define TANDEM_RUNTIME_REPORT_TRACE_WRITE_H

#include "runtime/engine/trace.h"

// Writes the trace event format (JSON): a process per device, a thread per track, and beside each a
// thread with what was planned. Planned passes start with the measured ones, or when those before
// them end, which may be later. ERR_FILE, naming the path.
enum status trace_write(const struct trace *t, const struct plan *plan, const struct shape *shape,
                        const char *path, struct err *e);

#endif
