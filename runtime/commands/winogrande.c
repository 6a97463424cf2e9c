/* winogrande.c: see winogrande.h. */
#include "runtime/commands/winogrande.h"

#include <string.h>

enum { FIELDS = 5 };

// Cuts a line at its first commas outside of quotes. Returns the number of fields, at most FIELDS.
static int32_t cut(struct words line, struct words fields[FIELDS]) {
    const char *start = line.bytes, *end = line.bytes + line.length;
    int32_t n = 0;
    bool quoted = false;
    for (const char *c = start; c < end && n < FIELDS - 1; c++) {
        if (*c == '"') quoted = !quoted;
        if (*c != ',' || quoted) continue;
        fields[n++] = (struct words){start, (size_t)(c - start)};
        start = c + 1;
    }
    fields[n++] = (struct words){start, (size_t)(end - start)};
    return n;
}

static struct words without_quotes(struct words w) {
    const bool quoted = w.length >= 2 && w.bytes[0] == '"' && w.bytes[w.length - 1] == '"';
    return quoted ? (struct words){w.bytes + 1, w.length - 2} : w;
}

// The number of the word that fits; 0 if the field has none.
static int32_t answer_of(struct words field) {
    while (field.length > 0 && field.bytes[0] == ' ') field.bytes++, field.length--;
    if (field.length == 0 || (field.length > 1 && field.bytes[1] != ' ' && field.bytes[1] != ','))
        return 0;
    return field.bytes[0] == '1' || field.bytes[0] == '2' ? field.bytes[0] - '0' : 0;
}

static enum status wrong_line(int32_t number, const char *what, const char *expected,
                              struct words actual, struct err *e) {
    err_set(e, ERR_FORMAT, "line %d: %s", number, what);
    err_expected(e, "%s", expected);
    err_actual(e, "'%.*s'", (int)(actual.length < 100 ? actual.length : 100), actual.bytes);
    return err_fix(e, "write a task as: 0,Ann asked Mary for a pen as _ had lost hers.,Ann,Mary,1");
}

enum status winogrande_read(struct choice_tasks *out, const char *text, size_t length,
                            struct err *e) {
    struct line_reader r;
    struct words line, fields[FIELDS];
    line_reader_init(&r, text, length);
    while (line_reader_next(&r, &line)) {
        if (cut(line, fields) < FIELDS)
            return wrong_line(r.number, "the task has not all of its fields", "five between commas",
                              line, e);
        const struct words sentence = without_quotes(fields[1]);
        const char *gap = memchr(sentence.bytes, '_', sentence.length);
        if (!gap) return wrong_line(r.number, "the sentence has no gap", "a _", sentence, e);
        const int32_t answer = answer_of(fields[4]);
        if (!answer)
            return wrong_line(r.number, "the number of the right word is none", "1 or 2", fields[4],
                              e);
        const size_t at = (size_t)(gap - sentence.bytes);
        if (choice_tasks_add(out, (struct words){sentence.bytes, at},
                             (struct words){gap + 1, sentence.length - at - 1}, e) ||
            choice_tasks_add_choice(out, fields[2], answer == 1, e) ||
            choice_tasks_add_choice(out, fields[3], answer == 2, e))
            return e->status;
    }
    return OK;
}
