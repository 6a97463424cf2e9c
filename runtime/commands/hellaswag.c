/* hellaswag.c: see hellaswag.h. */
#include "runtime/commands/hellaswag.h"

enum { ENDINGS = 4 };

static enum status ends_early(const struct line_reader *r, const struct choice_tasks *tasks,
                              int32_t n_read, struct err *e) {
    err_set(e, ERR_FORMAT, "line %d: the file ends within task %d", r->number, tasks->n_tasks);
    err_expected(e, "%d lines for each task", ENDINGS + 2);
    err_actual(e, "%d", n_read);
    return err_fix(e, "write the beginning, the number of the right ending and %d endings",
                   ENDINGS);
}

static enum status read_right(const struct line_reader *r, struct words line, int32_t *right,
                              struct err *e) {
    *right = line.length == 1 ? line.bytes[0] - '0' : -1;
    if (*right >= 0 && *right < ENDINGS) return OK;
    err_set(e, ERR_FORMAT, "line %d: the number of the right ending is none", r->number);
    err_expected(e, "0 to %d", ENDINGS - 1);
    err_actual(e, "'%.*s'", (int)(line.length < 40 ? line.length : 40), line.bytes);
    return err_fix(e, "each task has %d lines, the second of them with this number", ENDINGS + 2);
}

enum status hellaswag_read(struct choice_tasks *out, const char *text, size_t length,
                           struct err *e) {
    struct line_reader r;
    struct words line;
    line_reader_init(&r, text, length);
    while (line_reader_next(&r, &line)) {
        int32_t right;
        if (choice_tasks_add(out, line, (struct words){0}, e)) return e->status;
        if (!line_reader_next(&r, &line)) return ends_early(&r, out, 1, e);
        if (read_right(&r, line, &right, e)) return e->status;
        for (int32_t i = 0; i < ENDINGS; i++) {
            if (!line_reader_next(&r, &line)) return ends_early(&r, out, i + 2, e);
            if (choice_tasks_add_choice(out, line, i == right, e)) return e->status;
        }
    }
    return OK;
}
