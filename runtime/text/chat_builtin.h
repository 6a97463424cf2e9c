/* chat_builtin.h: the chat templates of configs/templates, as text inside the program.
 *
 * Constant; any thread. Tested by tests/runtime/test_chat.c.
 */
#ifndef TANDEM_RUNTIME_TEXT_CHAT_BUILTIN_H
#define TANDEM_RUNTIME_TEXT_CHAT_BUILTIN_H

#include <stddef.h>

// Template i; NULL behind the last one.
const char *chat_builtin_name(int i);
// The source of the template with that name, terminated; NULL if there is none.
const char *chat_builtin_source(const char *name);

// The name of the template whose marks a source has, for a source that cannot be used; NULL if it
// has none of them.
const char *chat_builtin_like(const char *source, size_t length);
// Template i that models of a family learn, with the control tokens that their vocabularies have
// for it; marks[1] may be NULL. NULL behind the last one.
const char *chat_builtin_of_tokens(int i, const char *marks[2]);

#endif
