/* fuzz_jinja.c: libFuzzer entry for chat templates.
 *
 * The input is a template, which is rendered with a conversation that has all that templates look
 * at. A template is refused with a reason or renders within its limits; every byte of the output
 * can be read with its mark. Run by tests/fuzz/fuzz.sh.
 */
#include "runtime/jinja/jinja.h"
#include "runtime/jinja/jinja_json.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static const char INPUT[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\" S \"},{\"role\":\"user\",\"content\":[{"
    "\"type\":\"text\",\"text\":\"U\"}]},{\"role\":\"assistant\",\"content\":\"<think>t</think>A\","
    "\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1.5,\"b\":["
    "null,"
    "true]}}}]}],\"tools\":[{\"function\":{\"name\":\"f\"}}],\"add_generation_prompt\":true,"
    "\"bos_token\":\"<s>\",\"n\":3,\"s\":\"\\u00e9 x,y\",\"l\":[\"b\",\"A\",\"a\"]}";

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes) {
    static const struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 21};
    struct jinja *template;
    struct jinja_heap heap;
    struct jinja_text out;
    struct err e;
    if (jinja_open(&template, (const char *)bytes, size_bytes, &e) != OK) {
        ASSERT(e.what[0] && !template);
        return 0;
    }
    jinja_heap_open(&heap, &e);
    const struct jinja_value variables = jinja_from_json(&heap, INPUT, strlen(INPUT));
    if (jinja_render(template, &heap, variables, &now, &out) == OK) {
        uint32_t n_data = 0;
        for (uint32_t i = 0; i < out.length; i++)
            n_data += jinja_text_is_data(jinja_text_part(out, i, 1));
        ASSERT(out.length <= JINJA_TEXT_BYTES && n_data <= out.length);
    } else {
        ASSERT(e.what[0]);
    }
    ASSERT(heap.depth == 0);
    jinja_heap_close(&heap);
    jinja_close(template);
    return 0;
}
