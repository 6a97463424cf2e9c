/* chat_tools.h: the tools that a model may call, as the API of OpenAI describes them.
 *
 * A struct chat_tools owns its list, which never changes. Must not call tools. Read-only after
 * chat_tools_open: any thread. Tested by tests/runtime/test_calls.c.
 */
#ifndef TANDEM_RUNTIME_TEXT_CHAT_TOOLS_H
#define TANDEM_RUNTIME_TEXT_CHAT_TOOLS_H

#include "base/err.h"

#include <jansson.h>

enum { CHAT_TOOLS_MOST = 256, CHAT_TOOL_NAME_BYTES = 64 };

struct chat_tools {
    json_t *list; // owned: [{"type": "function", "function": {"name", "parameters", ...}}]
    char *text;   // owned: the list as JSON, terminated
};

// Reads a JSON array of tools; an element may be the object under "function" alone. ERR_FORMAT for
// what is no list of tools with different names of letters, digits and _ - . ; ERR_LIMIT,
// ERR_MEMORY. On failure *t is closed.
enum status chat_tools_open(struct chat_tools *t, const char *json, size_t length, struct err *e);
void chat_tools_close(struct chat_tools *t); // accepts a zeroed one; leaves it zeroed

// All borrow from t. parameters is the JSON schema of the arguments, an object.
size_t chat_tools_count(const struct chat_tools *t);
const char *chat_tools_name(const struct chat_tools *t, size_t i);
const json_t *chat_tools_parameters(const struct chat_tools *t, size_t i);
// The schema of one argument of a tool; NULL: t, the tool or the argument is not known.
const json_t *chat_tools_argument(const struct chat_tools *t, const char *tool, const char *name);

#endif
