/* fuzz_calls.c: libFuzzer entry for what models write: thoughts, answers, calls of tools.
 *
 * The first byte chooses the family, the second how the text is cut. However it is cut, the parts
 * are the same; nothing is handed over that is empty. Run by tests/fuzz/fuzz.sh.
 */
#include "base/mem.h"
#include "runtime/text/chat_reply.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static const char *const SOURCES[] = {"<|tool_call><|channel>",
                                      "<|channel|><|message|>",
                                      "[TOOL_CALLS][ARGS][THINK]",
                                      "[TOOL_CALLS]",
                                      "<arg_key><tool_call></think>",
                                      "<function=<seed:tool_call>seed:think>",
                                      "<function=<tool_call></think>",
                                      "<tool_call></think>",
                                      "<|tool_call|>",
                                      "\"parameters\"<|start_header_id|>",
                                      "<|tool_call_begin|>",
                                      "<|tool_call_start|></think>",
                                      "<|START_ACTION|><|START_THINKING|>",
                                      "<|tools_prefix|><|inner_prefix|>",
                                      "<minimax:tool_call></think>",
                                      "<function=f>{}</function>",
                                      "<|begin|>assistant<|think|><|tool_call:begin|>",
                                      "\xef\xbd\x9c"
                                      "DSML\xef\xbd\x9c",
                                      "<\xef\xbd\x9ctool\xe2\x96\x81"
                                      "call\xe2\x96\x81"
                                      "begin\xef\xbd\x9c>```json"};
enum { SOURCES_COUNT = sizeof SOURCES / sizeof *SOURCES };

struct parts {
    char *text;
    size_t length, room;
};

// Writes a byte for each change of part, so that two ways of cutting can be compared.
static void take(void *context, enum chat_part part, const char *text, size_t length) {
    static const char marks[] = {1, 2, 3, 4};
    struct parts *p = context;
    ASSERT(length > 0 && p->length + 2 * length < p->room);
    for (size_t i = 0; i < length; i++) {
        p->text[p->length++] = marks[part];
        p->text[p->length++] = text[i];
    }
}

static void read(const struct chat_style *style, const char *text, size_t length, size_t step,
                 struct parts *out) {
    struct chat_reply r = {.take = take, .context = out};
    out->length = 0;
    chat_reply_begin(&r, style, "", 0);
    for (size_t at = 0; at < length; at += step)
        chat_reply_write(&r, text + at, length - at < step ? length - at : step);
    chat_reply_end(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes) {
    static const char json[] = "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":"
                               "\"string\"},\"n\":{\"type\":\"integer\"}}}}]";
    struct chat_tools tools;
    struct err e;
    if (size_bytes < 2 || chat_tools_open(&tools, json, strlen(json), &e)) return 0;
    const char *source = SOURCES[bytes[0] % SOURCES_COUNT], *text = (const char *)bytes + 2;
    const size_t n = strlen(source), length = size_bytes - 2, room = 32 * length + 64;
    const struct chat_style style = {chat_marks_find(source, n), call_marks_find(source, n),
                                     &tools};
    struct parts whole = {mem_alloc(room, 1), 0, room}, cut = {mem_alloc(room, 1), 0, room};
    ASSERT(whole.text && cut.text && style.calls);
    read(&style, text, length, length ? length : 1, &whole);
    read(&style, text, length, 1u + bytes[1] % 7u, &cut);
    ASSERT(whole.length == cut.length && memcmp(whole.text, cut.text, cut.length) == 0);
    mem_free(whole.text);
    mem_free(cut.text);
    chat_tools_close(&tools);
    return 0;
}
