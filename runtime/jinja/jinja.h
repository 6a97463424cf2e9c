/* jinja.h: a sandboxed interpreter for the Jinja that chat templates are written in.
 *
 * A struct jinja owns the tree of one template, read-only after jinja_open; any number of threads
 * may render it at once. Input values and the output lie in the heap of a rendering, which the
 * caller opens (jinja_heap.h) and fills (jinja_value.h). Nothing outside can be reached: no files,
 * no time but the one given. Templates are hostile: limits on depth, steps, memory and output end
 * each of them within a second. Tested by tests/runtime/test_jinja.c and tests/fuzz/fuzz_jinja.c.
 */
#ifndef TANDEM_RUNTIME_JINJA_JINJA_H
#define TANDEM_RUNTIME_JINJA_JINJA_H

#include "runtime/jinja/jinja_value.h"

#include <time.h>

enum { JINJA_SOURCE_BYTES = 1 << 20 };

struct jinja; // opaque

// Parses a template, which is copied. ERR_FORMAT with the line, ERR_MEMORY. On failure *out is
// NULL.
enum status jinja_open(struct jinja **out, const char *source, size_t length, struct err *e);
void jinja_close(struct jinja *template); // NULL is allowed

// Renders into *out, whose text lies in the heap h. variables is a dict of that heap; now is what
// strftime_now tells. The heap has the error: ERR_FORMAT, also where the template refuses the
// conversation, or ERR_MEMORY.
enum status jinja_render(const struct jinja *template, struct jinja_heap *h,
                         struct jinja_value variables, const struct tm *now,
                         struct jinja_text *out);

#endif
