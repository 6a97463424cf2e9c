/* multiple_choice.h: questions with any number of answers: ARC, MMLU, TruthfulQA.
 *
 * A file of llama-perplexity: the number of tasks and the position of each in the file as uint32,
 * then for each task its question as a string, and two lists of answers. A list is its length, at
 * most 100, as uint32, the answers as strings, and for each an int32 that is 1 if it is right; a
 * string is its length in bytes as uint32, and the bytes. All little-endian. The positions and the
 * second list, in which several answers may be right, are not used. A space joins question and
 * answer. Owns nothing; any thread. Tested by tests/runtime/test_choice_tasks.c and
 * tests/fuzz/fuzz_choice_tasks.c.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_MULTIPLE_CHOICE_H
#define TANDEM_RUNTIME_COMMANDS_MULTIPLE_CHOICE_H

#include "runtime/commands/choice_tasks.h"

// Adds the tasks of a file, whose bytes they borrow. ERR_FORMAT names the task, ERR_MEMORY.
enum status multiple_choice_read(struct choice_tasks *out, const char *bytes, size_t size_bytes,
                                 struct err *e);

#endif
