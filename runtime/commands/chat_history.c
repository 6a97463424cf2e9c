/* chat_history.c: see chat_history.h. */
#include "runtime/commands/chat_history.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/new_file.h"
#include "runtime/report/report_json.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { FILE_LIMIT_BYTES = 256 << 20 };

static const char *const ROLE_NAMES[] = {"system", "user", "assistant", "tool"};

// ---- Messages -----------------------------------------------------------------------------------

static void free_message(const struct chat_message *m) {
    mem_free((char *)(uintptr_t)m->text);
    mem_free((char *)(uintptr_t)m->reasoning);
    mem_free((char *)(uintptr_t)m->calls);
    mem_free((char *)(uintptr_t)m->call_id);
}

static void forget_aside(struct chat_history *h) {
    while (h->n_aside > 0) free_message(&h->list[h->count + --h->n_aside]);
}

void chat_history_keep(struct chat_history *h, size_t count) {
    forget_aside(h);
    while (h->count > count) free_message(&h->list[--h->count]);
}

void chat_history_close(struct chat_history *h) {
    chat_history_keep(h, 0);
    mem_free(h->list);
    *h = (struct chat_history){0};
}

static enum status make_room(struct chat_history *h, struct err *e) {
    if (h->count + h->n_aside < h->capacity) return OK;
    const size_t capacity = 2 * h->capacity + 8;
    struct chat_message *list = mem_resize(h->list, capacity, sizeof *list);
    if (!list) return err_memory(e, capacity * sizeof *list, "the conversation");
    h->list = list;
    h->capacity = capacity;
    return OK;
}

static enum status insert(struct chat_history *h, size_t at, const struct chat_message *message,
                          struct err *e) {
    struct chat_message m = *message;
    if (make_room(h, e)) return e->status;
    m.text = mem_text(message->text, message->length);
    if (message->reasoning) m.reasoning = mem_text(message->reasoning, message->reasoning_length);
    if (message->calls) m.calls = mem_text(message->calls, strlen(message->calls));
    if (message->call_id) m.call_id = mem_text(message->call_id, strlen(message->call_id));
    if (!m.text || !m.reasoning != !message->reasoning || !m.calls != !message->calls ||
        !m.call_id != !message->call_id) {
        free_message(&m);
        return err_memory(e, message->length + message->reasoning_length, "a message");
    }
    memmove(h->list + at + 1, h->list + at, (h->count + h->n_aside - at) * sizeof *h->list);
    h->list[at] = m;
    h->count++;
    return OK;
}

static void drop(struct chat_history *h, size_t first, size_t count) {
    for (size_t i = first; i < first + count; i++) free_message(&h->list[i]);
    h->count -= count;
    memmove(h->list + first, h->list + first + count,
            (h->count + h->n_aside - first) * sizeof *h->list);
}

enum status chat_history_add(struct chat_history *h, const struct chat_message *message,
                             struct err *e) {
    forget_aside(h);
    return insert(h, h->count, message, e);
}

static bool has_system(const struct chat_history *h) {
    return h->count > 0 && h->list[0].role == CHAT_SYSTEM;
}

const char *chat_history_system(const struct chat_history *h) {
    return has_system(h) ? h->list[0].text : NULL;
}

enum status chat_history_set_system(struct chat_history *h, const char *text, struct err *e) {
    if (text) {
        const struct chat_message m = {.role = CHAT_SYSTEM, .text = text, .length = strlen(text)};
        if (insert(h, 0, &m, e)) return e->status;
        if (h->count > 1 && h->list[1].role == CHAT_SYSTEM) drop(h, 1, 1);
    } else if (has_system(h))
        drop(h, 0, 1);
    return OK;
}

size_t chat_history_count(const struct chat_history *h, enum chat_role role) {
    size_t count = 0;
    for (size_t i = 0; i < h->count; i++) count += h->list[i].role == role;
    return count;
}

// The next message of the person from i on; count if there is none.
static size_t next_question(const struct chat_history *h, size_t i) {
    while (i < h->count && h->list[i].role != CHAT_USER) i++;
    return i;
}

bool chat_history_undo(struct chat_history *h) {
    size_t last = h->count;
    for (size_t i = next_question(h, 0); i < h->count; i = next_question(h, i + 1)) last = i;
    if (last == h->count) return false;
    chat_history_keep(h, last);
    return true;
}

bool chat_history_set_aside_answer(struct chat_history *h) {
    size_t count = h->count;
    while (count > 0 && h->list[count - 1].role == CHAT_ASSISTANT) count--;
    if (count == 0 || h->list[count - 1].role == CHAT_SYSTEM) return false;
    forget_aside(h);
    h->n_aside = h->count - count;
    h->count = count;
    return true;
}

enum chat_withdrawn chat_history_withdraw(struct chat_history *h) {
    size_t count = h->count;
    if (h->n_aside > 0) {
        h->count += h->n_aside;
        h->n_aside = 0;
        return CHAT_WITHDREW_NOTHING;
    }
    while (count > 0 && h->list[count - 1].role == CHAT_TOOL) count--;
    if (count < h->count) {
        chat_history_keep(h, count);
        return CHAT_WITHDREW_RESULTS;
    }
    if (count > 0 && h->list[count - 1].role == CHAT_USER) chat_history_keep(h, count - 1);
    return CHAT_WITHDREW_QUESTION;
}

size_t chat_history_without_oldest(const struct chat_history *h, size_t n,
                                   struct chat_message *out) {
    const size_t first = next_question(h, 0);
    size_t next = first;
    for (size_t i = 0; i < n; i++) next = next_question(h, next + 1);
    for (size_t i = 0; i < first; i++) out[i] = h->list[i];
    for (size_t i = next; i < h->count; i++) out[first + i - next] = h->list[i];
    return first + h->count - next;
}

bool chat_history_drop_oldest(struct chat_history *h) {
    const size_t first = next_question(h, 0), second = next_question(h, first + 1);
    if (second >= h->count) return false;
    drop(h, first, second - first);
    return true;
}

// ---- Files --------------------------------------------------------------------------------------

static json_t *to_json(const struct chat_history *h) {
    json_t *messages = json_array();
    for (size_t i = 0; i < h->count; i++) {
        const struct chat_message *m = &h->list[i];
        json_t *one = json_pack("{s:s, s:o}", "role", ROLE_NAMES[m->role], "content",
                                report_json_text(m->text, m->length));
        if (m->reasoning)
            json_object_set_new(one, "reasoning_content",
                                report_json_text(m->reasoning, m->reasoning_length));
        if (m->calls) json_object_set_new(one, "tool_calls", json_loads(m->calls, 0, NULL));
        if (m->call_id) json_object_set_new(one, "tool_call_id", json_string(m->call_id));
        json_array_append_new(messages, one);
    }
    return json_pack("{s:o}", "messages", messages);
}

static enum status make_folder_of(const char *path, struct err *e) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder) return OK;
    *slash = 0;
    return file_make_folders(folder, e);
}

enum status chat_history_save(const struct chat_history *h, const char *path, struct err *e) {
    struct new_file f;
    if (make_folder_of(path, e) || new_file_open_over(&f, path, e)) return e->status;
    json_t *root = to_json(h);
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    enum status status =
        text ? new_file_write(&f, text, strlen(text), e) : err_memory(e, 0, "the conversation");
    if (!status) status = new_file_write(&f, "\n", 1, e);
    if (!status) status = new_file_commit(&f, e);
    new_file_close(&f);
    mem_free(text);
    json_decref(root);
    return status;
}

// Adds a message, with calls if they are a list.
static enum status add_with_calls(struct chat_history *h, struct chat_message *m,
                                  const json_t *calls, struct err *e) {
    const size_t size = json_is_array(calls) ? json_dumpb(calls, NULL, 0, 0) : 0;
    char *text = mem_alloc(size + 1, 1);
    if (!text) return err_memory(e, size, "calls of tools");
    if (size > 0) json_dumpb(calls, text, size, 0);
    m->calls = size > 0 ? text : NULL;
    const enum status status = chat_history_add(h, m, e);
    mem_free(text);
    return status;
}

static enum status read_message(struct chat_history *h, const json_t *message, struct err *e) {
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *content = json_object_get(message, "content");
    const json_t *reasoning = json_object_get(message, "reasoning_content");
    if (!json_is_string(content)) return err_set(e, ERR_FORMAT, "a message without a content");
    struct chat_message m = {.text = json_string_value(content),
                             .length = json_string_length(content),
                             .reasoning = json_string_value(reasoning),
                             .reasoning_length = json_string_length(reasoning),
                             .call_id =
                                 json_string_value(json_object_get(message, "tool_call_id"))};
    const json_t *calls = json_object_get(message, "tool_calls");
    for (size_t i = 0; role && i < sizeof ROLE_NAMES / sizeof *ROLE_NAMES; i++) {
        if (strcmp(role, ROLE_NAMES[i]) != 0) continue;
        m.role = (enum chat_role)i;
        return add_with_calls(h, &m, calls, e);
    }
    err_set(e, ERR_FORMAT, "the role of a message");
    err_expected(e, "system, user, assistant or tool");
    return err_actual(e, "'%.40s'", role ? role : "");
}

static enum status from_json(struct chat_history *h, const char *text, size_t length,
                             struct err *e) {
    json_error_t where;
    json_t *root = json_loadb(text, length, 0, &where), *message;
    const json_t *messages = json_object_get(root, "messages");
    enum status status = OK;
    size_t i;
    if (!root)
        status = err_set(e, ERR_FORMAT, "line %d: %s", where.line, where.text);
    else if (!json_is_array(messages))
        status = err_set(e, ERR_FORMAT, "no saved conversation: it has no list of messages");
    json_array_foreach(messages, i, message) {
        if (!status) status = read_message(h, message, e);
    }
    json_decref(root);
    return status;
}

enum status chat_history_load(struct chat_history *h, const char *path, struct err *e) {
    struct chat_history read = {0};
    char *text = NULL;
    size_t length = 0;
    if (file_read_text(&text, &length, path, FILE_LIMIT_BYTES, e)) return e->status;
    const enum status status = from_json(&read, text, length, e);
    mem_free(text);
    if (status) {
        chat_history_close(&read);
        return err_context(e, "%s", path);
    }
    chat_history_close(h);
    *h = read;
    return OK;
}
