/* chat_calls_kept.c: see chat_calls_kept.h. */
#include "runtime/commands/chat_calls_kept.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { PARTS = 3, GROWTH = 8 }; // arguments can be longer than the text that they come from

enum status kept_reply_open(struct kept_reply *k, size_t length, struct err *e) {
    k->length = GROWTH * length;
    k->text = mem_alloc(PARTS * k->length + 1, 1);
    k->calls = json_array();
    if (k->text && k->calls) return OK;
    return err_memory(e, PARTS * k->length, "a reply");
}

void kept_reply_close(struct kept_reply *k) {
    mem_free(k->text);
    mem_free(k->calls_text);
    json_decref(k->calls);
    *k = (struct kept_reply){0};
}

static char *arguments_of(const struct kept_reply *k) { return k->text + 2 * k->length; }

// Ends the call whose arguments were collected, which must be an object.
static void end_call(struct kept_reply *k) {
    const size_t last = json_array_size(k->calls) - 1;
    json_t *function = json_object_get(json_array_get(k->calls, last), "function");
    if (!function || json_object_get(function, "arguments")) return;
    json_t *arguments = json_loadb(arguments_of(k), k->n_arguments, 0, NULL);
    if (json_is_object(arguments)) {
        json_object_set_new(function, "arguments", json_stringn(arguments_of(k), k->n_arguments));
        k->n_calls++;
    } else {
        json_array_remove(k->calls, last);
        k->n_cut++;
    }
    json_decref(arguments);
    k->n_arguments = 0;
}

static void begin_call(struct kept_reply *k, const char *name, size_t length) {
    const int number = (k->first_call + k->n_calls) % 100000;
    char id[CHAT_TOOL_NAME_BYTES + 32]; // some templates insist on nine letters and digits
    if (k->numbered)
        snprintf(id, sizeof id, "functions.%.*s:%d", (int)length, name, number);
    else
        snprintf(id, sizeof id, "call%05d", number);
    json_t *call = json_pack("{s:s, s:s, s:{s:s%}}", "type", "function", "id", id, "function",
                             "name", name, length);
    k->refused |= !call || json_array_append_new(k->calls, call) != 0;
}

void kept_reply_take(void *context, enum chat_part part, const char *text, size_t length) {
    struct kept_reply *k = context;
    if (part == CHAT_CALL) {
        end_call(k);
        begin_call(k, text, length);
        return;
    }
    size_t *n = part == CHAT_ANSWER    ? &k->n_answer
                : part == CHAT_THOUGHT ? &k->n_thought
                                       : &k->n_arguments;
    const size_t first = part == CHAT_ANSWER ? 0 : part == CHAT_THOUGHT ? k->length : 2 * k->length;
    ASSERT(*n + length <= k->length);
    memcpy(k->text + first + *n, text, length);
    *n += length;
}

enum status kept_reply_finish(struct kept_reply *k, struct err *e) {
    end_call(k);
    const size_t size = json_dumpb(k->calls, NULL, 0, 0);
    if (k->n_calls > 0) k->calls_text = mem_alloc(size + 1, 1);
    if (k->refused || (k->n_calls > 0 && !k->calls_text))
        return err_memory(e, size, "calls of tools");
    if (k->calls_text) json_dumpb(k->calls, k->calls_text, size, 0);
    k->message = (struct chat_message){
        .role = CHAT_ASSISTANT,
        .text = k->text,
        .length = k->n_answer,
        .reasoning = k->n_thought > 0 ? k->text + k->length : NULL,
        .reasoning_length = k->n_thought,
        .calls = k->calls_text,
    };
    return OK;
}
