/* fuzz_grammar.c: libFuzzer entry for grammars in GBNF and the texts that they judge.
 *
 * The first zero byte parts the grammar from a text. What is allowed byte by byte is what is
 * allowed at once, and what a walk over many texts says. Run by tests/fuzz/fuzz.sh.
 */
#include "runtime/grammar/grammar.h"
#include "runtime/grammar/grammar_walk.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

enum { TEXT_MOST = 64 };

// Holds what a walk says of the text, and of its first bytes, against fits.
static void walk(struct grammar_state *s, const char *text, size_t length, size_t fits) {
    struct grammar_walk w;
    struct err e;
    if (grammar_walk_open(&w, s, &e)) return;
    grammar_walk_begin(&w);
    for (size_t n = 0; n <= length && !s->too_large; n++)
        ASSERT(n > fits || grammar_walk_prefix(&w, text, n, n ? n - 1 : 0) + 4 > n);
    const size_t walked = grammar_walk_prefix(&w, text, length, length);
    ASSERT(s->too_large || walked == fits);
    grammar_walk_end(&w);
    grammar_walk_close(&w);
}

static void judge(const struct grammar *g, const char *text, size_t length) {
    struct grammar_state s;
    struct err e;
    if (grammar_state_open(&s, g, &e)) return;
    const size_t fits = grammar_prefix(&s, text, length);
    ASSERT(fits <= length);
    ASSERT(grammar_allows(&s, text, length) == (fits == length));
    bool limited = s.too_large;
    if (!limited) walk(&s, text, length, fits);
    size_t taken = 0;
    while (taken < length && grammar_accept(&s, text + taken, 1, &e) == OK) taken++;
    limited |= s.too_large;
    ASSERT(limited || taken + 3 >= fits); // the last ones may be of a refused character
    (void)grammar_can_end(&s);
    grammar_state_close(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes) {
    struct grammar g;
    struct err e;
    const uint8_t *end = size_bytes > 0 ? memchr(bytes, 0, size_bytes) : NULL;
    const size_t length = end ? (size_t)(end - bytes) : size_bytes;
    if (grammar_parse(&g, (const char *)bytes, length, "root", &e)) {
        ASSERT(e.what[0] && !g.elements);
        return 0;
    }
    const size_t rest = end ? size_bytes - length - 1 : 0;
    judge(&g, (const char *)bytes + size_bytes - rest, rest < TEXT_MOST ? rest : TEXT_MOST);
    grammar_close(&g);
    return 0;
}
