/* hellaswag.h: tasks of HellaSwag: a text and four endings, of which one makes sense.
 *
 * Six lines for each task: the beginning of the text, the number of the right ending from 0, and
 * the endings. A space joins beginning and ending. Owns nothing; any thread. Tested by
 * tests/runtime/test_choice_tasks.c and tests/fuzz/fuzz_choice_tasks.c.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_HELLASWAG_H
#define TANDEM_RUNTIME_COMMANDS_HELLASWAG_H

#include "runtime/commands/choice_tasks.h"

// Adds the tasks of a text, which they borrow. ERR_FORMAT names the line, ERR_MEMORY.
enum status hellaswag_read(struct choice_tasks *out, const char *text, size_t length,
                           struct err *e);

#endif
