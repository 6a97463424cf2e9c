/* chat_tools.c: see chat_tools.h. */
#include "runtime/text/chat_tools.h"

#include "base/mem.h"

#include <string.h>

static const json_t *function_of(const struct chat_tools *t, size_t i) {
    return json_object_get(json_array_get(t->list, i), "function");
}

size_t chat_tools_count(const struct chat_tools *t) { return json_array_size(t->list); }

const char *chat_tools_name(const struct chat_tools *t, size_t i) {
    return json_string_value(json_object_get(function_of(t, i), "name"));
}

const json_t *chat_tools_parameters(const struct chat_tools *t, size_t i) {
    return json_object_get(function_of(t, i), "parameters");
}

const json_t *chat_tools_argument(const struct chat_tools *t, const char *tool, const char *name) {
    for (size_t i = 0; t && i < chat_tools_count(t); i++)
        if (strcmp(chat_tools_name(t, i), tool) == 0)
            return json_object_get(json_object_get(chat_tools_parameters(t, i), "properties"),
                                   name);
    return NULL;
}

// ---- Reading ------------------------------------------------------------------------------------

static bool is_name(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_-.";
    const size_t length = name ? strlen(name) : 0;
    return length > 0 && length <= CHAT_TOOL_NAME_BYTES && strspn(name, letters) == length;
}

// Adds one tool, which is given as itself or as its function alone.
static enum status add_tool(struct chat_tools *t, json_t *given, struct err *e) {
    json_t *function = json_object_get(given, "function");
    if (!function) function = given;
    const char *name = json_string_value(json_object_get(function, "name"));
    if (!is_name(name)) {
        err_set(e, ERR_FORMAT, "tool %zu has no name that a function can have",
                chat_tools_count(t) + 1);
        err_expected(e, "1 to %d letters, digits and _ - .", CHAT_TOOL_NAME_BYTES);
        return err_actual(e, "'%.80s'", name ? name : "");
    }
    for (size_t i = 0; i < chat_tools_count(t); i++)
        if (strcmp(chat_tools_name(t, i), name) == 0)
            return err_set(e, ERR_FORMAT, "there are two tools %s", name);
    json_t *own = json_copy(function); // templates rely on these two
    if (!json_is_string(json_object_get(own, "description")))
        json_object_set_new(own, "description", json_string(""));
    if (!json_is_object(json_object_get(own, "parameters")))
        json_object_set_new(own, "parameters",
                            json_pack("{s:s, s:{}}", "type", "object", "properties"));
    json_t *tool = json_pack("{s:s, s:o}", "type", "function", "function", own);
    if (tool && json_array_append_new(t->list, tool) == 0) return OK;
    return err_memory(e, strlen(name), "the tools");
}

static enum status add_tools(struct chat_tools *t, json_t *given, struct err *e) {
    json_t *tool;
    size_t i;
    if (!json_is_array(given)) {
        err_set(e, ERR_FORMAT, "the tools are no list");
        return err_fix(e, "write a JSON array of {\"type\": \"function\", \"function\": {...}}");
    }
    if (json_array_size(given) > CHAT_TOOLS_MOST)
        return err_set(e, ERR_LIMIT, "there are more than %d tools", CHAT_TOOLS_MOST);
    t->list = json_array();
    if (!t->list) return err_memory(e, 1, "the tools");
    json_array_foreach(given, i, tool) {
        if (add_tool(t, tool, e)) return e->status;
    }
    const size_t size = json_dumpb(t->list, NULL, 0, 0);
    t->text = mem_alloc(size + 1, 1);
    if (!t->text) return err_memory(e, size, "the tools");
    json_dumpb(t->list, t->text, size, 0);
    return OK;
}

enum status chat_tools_open(struct chat_tools *t, const char *json, size_t length, struct err *e) {
    json_error_t where;
    *t = (struct chat_tools){0};
    json_t *given = json_loadb(json, length, JSON_REJECT_DUPLICATES, &where);
    if (!given) return err_set(e, ERR_FORMAT, "tools, line %d: %s", where.line, where.text);
    const enum status status = add_tools(t, given, e);
    json_decref(given);
    if (status) chat_tools_close(t);
    return status;
}

void chat_tools_close(struct chat_tools *t) {
    json_decref(t->list);
    mem_free(t->text);
    *t = (struct chat_tools){0};
}
