/* fuzz_grammar_schema.c: libFuzzer entry for JSON schemas that become grammars.
 *
 * Whatever is no schema is refused with a reason; the grammar of a schema can be read unless a
 * pattern in it is wrong. Run by tests/fuzz/fuzz.sh.
 */
#include "base/mem.h"
#include "runtime/grammar/grammar.h"
#include "runtime/grammar/grammar_schema.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

// Takes warnings, which are looked for only where somebody listens.
static void take_warning(void *context, enum log_level level, const char *text) {
    (void)context;
    ASSERT(level == LOG_WARN && text[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes) {
    struct grammar g;
    struct err e;
    char *text;
    const struct log log = {.level = LOG_WARN, .tell = take_warning};
    if (grammar_from_schema(&text, (const char *)bytes, size_bytes, &log, &e)) {
        ASSERT(e.what[0] && !text);
        return 0;
    }
    const enum status status = grammar_parse(&g, text, strlen(text), "root", &e);
    ASSERT(!status || status == ERR_LIMIT || strstr(text, "\"\\\"\" ("));
    grammar_close(&g);
    mem_free(text);
    return 0;
}
