/* grammar_until.c: see grammar_until.h. Rule i stands where i characters of the mark have come, as
 * in the search of Knuth, Morris and Pratt. A rule goes on with another one at its end only, so
 * that the stacks of the grammar do not grow. */
#include "runtime/grammar/grammar_until.h"

#include "base/utf8.h"

#include <string.h>

struct mark {
    uint32_t codes[GRAMMAR_MARK_MOST];
    int n;
    int shorter[GRAMMAR_MARK_MOST]; // the longest end of codes[0..i] that also begins the mark
};

static void read_mark(struct mark *m, const char *text) {
    *m = (struct mark){.n = 0};
    while (*text) {
        const size_t length = utf8_step(text, strlen(text));
        ASSERT(m->n < GRAMMAR_MARK_MOST);
        m->codes[m->n++] = utf8_code(text, length);
        text += length;
    }
    ASSERT(m->n > 0);
    for (int i = 1, k = 0; i < m->n; i++) {
        while (k > 0 && m->codes[k] != m->codes[i]) k = m->shorter[k - 1];
        k += m->codes[k] == m->codes[i];
        m->shorter[i] = k;
    }
}

// Characters of the mark that have come when code follows i of them, which it does not continue.
static int back_to(const struct mark *m, int i, uint32_t code) {
    do i = i > 0 ? m->shorter[i - 1] : -1;
    while (i >= 0 && m->codes[i] != code);
    return i + 1;
}

static void add_state(struct schema_text *out, const char *name, const struct mark *m, int i,
                      const char *then) {
    schema_text_add(out, "%s-%d ::= [\\U%08x] ", name, i, (unsigned)m->codes[i]);
    if (i + 1 < m->n)
        schema_text_add(out, "%s-%d", name, i + 1);
    else
        schema_text_add(out, "%s", then);
    uint32_t seen[GRAMMAR_MARK_MOST];
    int n_seen = 0;
    seen[n_seen++] = m->codes[i];
    for (int k = 0; k < i; k++) {
        int s = 0;
        while (s < n_seen && seen[s] != m->codes[k]) s++;
        const int back = back_to(m, i, m->codes[k]);
        if (s < n_seen || back == 0) continue;
        seen[n_seen++] = m->codes[k];
        schema_text_add(out, " | [\\U%08x] %s-%d", (unsigned)m->codes[k], name, back);
    }
    schema_text_add(out, " | [^");
    for (int s = 0; s < n_seen; s++) schema_text_add(out, "\\U%08x", (unsigned)seen[s]);
    schema_text_add(out, "] %s-0", name);
}

void grammar_add_until(struct schema_text *out, const char *name, const char *mark,
                       const char *then, bool may_end) {
    struct mark m;
    read_mark(&m, mark);
    for (int i = 0; i < m.n; i++) {
        add_state(out, name, &m, i, then);
        schema_text_add(out, may_end ? " | \"\"\n" : "\n");
    }
}
