/* winogrande.h: tasks of WinoGrande: a sentence with a gap, and two words of which one fits.
 *
 * A line for each task, in CSV: a number, the sentence with a _ for the gap, the two words, and 1
 * or 2 for the one that fits. The sentence may stand in quotes, and no comma within quotes
 * separates; quotes within the sentence stay as they are. Owns nothing; any thread. Tested by
 * tests/runtime/test_choice_tasks.c and tests/fuzz/fuzz_choice_tasks.c.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_WINOGRANDE_H
#define TANDEM_RUNTIME_COMMANDS_WINOGRANDE_H

#include "runtime/commands/choice_tasks.h"

// Adds the tasks of a text, which they borrow. ERR_FORMAT names the line, ERR_MEMORY.
enum status winogrande_read(struct choice_tasks *out, const char *text, size_t length,
                            struct err *e);

#endif
