/* grammar_until.c: see grammar_until.h. A rule stands for what has come of the marks: their longest
 * beginning that the text ends with, as in the search of Aho and Corasick. A rule goes on with
 * another one at its end only, so that the stacks of the grammar do not grow. */
#include "runtime/grammar/grammar_until.h"

#include "base/utf8.h"

#include <string.h>

struct mark {
    uint32_t codes[GRAMMAR_MARK_MOST];
    int n;
};

struct search {
    struct mark marks[GRAMMAR_ENDS_MOST];
    int n_marks;
    uint32_t letters[GRAMMAR_ENDS_MOST * GRAMMAR_MARK_MOST]; // of all marks, each once
    int n_letters;
};

// The first n characters of a mark have come; the mark is the first that begins so.
struct came {
    int mark, n;
};

static void add_letter(struct search *s, uint32_t code) {
    for (int i = 0; i < s->n_letters; i++)
        if (s->letters[i] == code) return;
    s->letters[s->n_letters++] = code;
}

static void read_mark(struct search *s, const char *text) {
    struct mark *m = &s->marks[s->n_marks++];
    *m = (struct mark){.n = 0};
    while (*text) {
        const size_t length = utf8_step(text, strlen(text));
        ASSERT(m->n < GRAMMAR_MARK_MOST);
        m->codes[m->n] = utf8_code(text, length);
        add_letter(s, m->codes[m->n++]);
        text += length;
    }
    ASSERT(m->n > 0);
}

// The first mark that begins with these characters; -1: none.
static int find_beginning(const struct search *s, const uint32_t *codes, int n) {
    int mark = 0;
    while (mark < s->n_marks && (n > s->marks[mark].n || memcmp(s->marks[mark].codes, codes,
                                                                (size_t)n * sizeof *codes) != 0))
        mark++;
    return mark < s->n_marks ? mark : -1;
}

static struct came step(const struct search *s, struct came from, uint32_t code) {
    uint32_t text[GRAMMAR_MARK_MOST + 1];
    memcpy(text, s->marks[from.mark].codes, (size_t)from.n * sizeof *text);
    text[from.n] = code;
    for (int first = 0; first <= from.n; first++) {
        const int n = from.n + 1 - first, mark = find_beginning(s, text + first, n);
        if (mark >= 0) return (struct came){mark, n};
    }
    return (struct came){0, 0};
}

static void add_name(struct schema_text *out, const char *name, struct came c) {
    if (c.mark == 0)
        schema_text_add(out, "%s-%d", name, c.n);
    else
        schema_text_add(out, "%s-%d-%d", name, c.mark, c.n);
}

static void add_state(struct schema_text *out, const char *name, const struct search *s,
                      struct came from, const struct grammar_end *ends) {
    add_name(out, name, from);
    schema_text_add(out, " ::= ");
    bool goes_on[GRAMMAR_ENDS_MOST * GRAMMAR_MARK_MOST];
    for (int i = 0; i < s->n_letters; i++) {
        const struct came to = step(s, from, s->letters[i]);
        goes_on[i] = to.n > 0;
        if (!goes_on[i]) continue;
        schema_text_add(out, "[\\U%08x] ", (unsigned)s->letters[i]);
        if (to.n == s->marks[to.mark].n)
            schema_text_add(out, "%s", ends[to.mark].then);
        else
            add_name(out, name, to);
        schema_text_add(out, " | ");
    }
    schema_text_add(out, "[^");
    for (int i = 0; i < s->n_letters; i++)
        if (goes_on[i]) schema_text_add(out, "\\U%08x", (unsigned)s->letters[i]);
    schema_text_add(out, "] %s-0", name);
}

void grammar_add_until_either(struct schema_text *out, const char *name,
                              const struct grammar_end *ends, int n_ends, bool may_end) {
    struct search s = {.n_marks = 0};
    ASSERT(n_ends > 0 && n_ends <= GRAMMAR_ENDS_MOST);
    for (int i = 0; i < n_ends; i++) read_mark(&s, ends[i].mark);
    for (int mark = 0; mark < n_ends; mark++) {
        for (int n = 0; n < s.marks[mark].n; n++) {
            if (find_beginning(&s, s.marks[mark].codes, n) != mark) continue;
            add_state(out, name, &s, (struct came){mark, n}, ends);
            schema_text_add(out, may_end ? " | \"\"\n" : "\n");
        }
    }
}

void grammar_add_until(struct schema_text *out, const char *name, const char *mark,
                       const char *then, bool may_end) {
    grammar_add_until_either(out, name, &(const struct grammar_end){mark, then}, 1, may_end);
}
