/* line_editor_none.c: see line_editor.h; for builds without libedit. No editor is ever open. */
#include "runtime/cli/line_editor.h"

enum status line_editor_open(struct line_editor **out, const char *history_path, struct err *e) {
    (void)history_path;
    (void)e;
    *out = NULL;
    return OK;
}

void line_editor_close(struct line_editor *editor) { (void)editor; }

enum line_state line_editor_read(struct line_editor *editor, const char *prompt, const char **text,
                                 size_t *length) {
    (void)editor;
    (void)prompt;
    *text = NULL;
    *length = 0;
    return LINE_ENDED;
}

void line_editor_remember(struct line_editor *editor, const char *text) {
    (void)editor;
    (void)text;
}

enum status line_editor_offer(struct line_editor *editor, const char *text, struct err *e) {
    (void)editor;
    (void)text;
    (void)e;
    return OK;
}
