/* line_editor_edit.c: see line_editor.h; by libedit, which draws the line and knows the keys.
 *
 * libedit reads characters through read_character, which looks for Ctrl-C and for a changed window
 * size or mode of the terminal now and then. The terminal marks what is pasted ("bracketed paste"),
 * so that its newlines become text. libedit's functions are called by wide characters where it
 * would leak a copy.
 */
#include "runtime/cli/line_editor.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "runtime/cli/cli_signal.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INPUT_BYTES = 4096, LOOK_MS = 200, HISTORY_LINES = 1000 };

#define PASTES_MARKED   "\033[?2004h"
#define PASTES_UNMARKED "\033[?2004l"
static const char PASTE_END[] = "\033[201~";

struct line_editor {
    EditLine *edit;
    History *history;
    char *history_path;      // owned; NULL: none
    const char *prompt;      // borrowed during a read
    char *offered;           // owned; NULL: nothing
    char *pasted;            // owned: room for a paste
    size_t pasted_capacity;  // bytes
    char input[INPUT_BYTES]; // read, but not used from next to count
    size_t next, count;
    struct winsize size;
    bool stopped, typed; // Ctrl-C came; something had been typed before
    bool hides;          // between lines the terminal is as it was but for what is typed
};

static struct line_editor *owner_of(EditLine *edit) {
    struct line_editor *editor = NULL;
    el_get(edit, EL_CLIENTDATA, &editor);
    return editor;
}

// ---- Characters ---------------------------------------------------------------------------------

static void follow_window(struct line_editor *editor) {
    struct winsize size = {0};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0) return;
    if (size.ws_col == editor->size.ws_col && size.ws_row == editor->size.ws_row) return;
    editor->size = size;
    el_resize(editor->edit);
}

// Takes the terminal again that a shell has given its own mode, after Ctrl-Z and fg, and draws the
// line once more.
static void follow_mode(struct line_editor *editor) {
    if (!editor->hides || !signal_shows_typing()) return;
    el_set(editor->edit, EL_PREP_TERM, 0); // else libedit takes it to be in its mode still
    el_set(editor->edit, EL_PREP_TERM, 1);
    fputs(PASTES_MARKED, stderr);
    el_set(editor->edit, EL_REFRESH);
}

// The signal that came during a line and is to end the program, or 0.
static int end_of(const struct line_editor *editor) {
    return editor->hides ? signal_that_ends() : 0;
}

// Waits for bytes behind those that are left. False at the end of the input, at Ctrl-C and at a
// signal that ends the program.
static bool refill(struct line_editor *editor) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    editor->count -= editor->next;
    memmove(editor->input, editor->input + editor->next, editor->count);
    editor->next = 0;
    while (!signal_seen() && !end_of(editor)) {
        if (poll(&input, 1, LOOK_MS) <= 0) {
            follow_window(editor);
            follow_mode(editor);
            continue;
        }
        const ssize_t count =
            read(STDIN_FILENO, editor->input + editor->count, INPUT_BYTES - editor->count);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        editor->count += (size_t)count;
        return true;
    }
    const LineInfoW *line = el_wline(editor->edit);
    editor->stopped = true;
    editor->typed = line->lastchar > line->buffer;
    return false;
}

// The next whole character, or a byte that belongs to none as U+FFFD. 1, or 0 at the end.
static int read_character(EditLine *edit, wchar_t *out) {
    struct line_editor *editor = owner_of(edit);
    while (true) {
        const size_t left = editor->count - editor->next;
        const char *at = editor->input + editor->next;
        size_t length = 0;
        const enum utf8_class class = left ? utf8_look(at, left, &length) : UTF8_PARTIAL;
        if (class == UTF8_PARTIAL) {
            if (!refill(editor)) return 0;
            continue;
        }
        *out = class == UTF8_WHOLE ? (wchar_t)utf8_code(at, length) : 0xfffd;
        editor->next += length;
        return 1;
    }
}

static char *prompt_of(EditLine *edit) { return (char *)(uintptr_t)owner_of(edit)->prompt; }

// ---- Keys of our own ----------------------------------------------------------------------------

static bool reserve_paste(struct line_editor *editor, size_t size_bytes) {
    if (size_bytes <= editor->pasted_capacity) return true;
    char *grown = mem_resize(editor->pasted, 2, size_bytes);
    if (!grown) return false;
    editor->pasted = grown;
    editor->pasted_capacity = 2 * size_bytes;
    return true;
}

// Carriage returns, which terminals send for newlines, become newlines. Other control characters
// would move the cursor, and are left out. Returns the new length.
static size_t clean_paste(char *text, size_t length) {
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == '\n' && i > 0 && text[i - 1] == '\r') continue;
        if (c == '\r')
            text[used++] = '\n';
        else if (c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7f))
            text[used++] = text[i];
    }
    text[used] = 0;
    return used;
}

// Inserts all up to the mark of the paste's end.
static unsigned char insert_paste(EditLine *edit, int key) {
    struct line_editor *editor = owner_of(edit);
    const size_t mark = sizeof PASTE_END - 1;
    size_t length = 0;
    wchar_t c;
    (void)key;
    while (read_character(edit, &c) == 1) {
        if (!reserve_paste(editor, length + 8)) return CC_ERROR;
        length += utf8_write((uint32_t)c, editor->pasted + length);
        if (length < mark || memcmp(editor->pasted + length - mark, PASTE_END, mark) != 0) continue;
        clean_paste(editor->pasted, length - mark);
        return el_insertstr(edit, editor->pasted) == 0 ? CC_REFRESH : CC_ERROR;
    }
    return CC_EOF;
}

static unsigned char insert_newline(EditLine *edit, int key) {
    (void)key;
    return el_insertstr(edit, "\n") == 0 ? CC_REFRESH : CC_ERROR;
}

static unsigned char insert_offer(EditLine *edit, int key) {
    struct line_editor *editor = owner_of(edit);
    (void)key;
    const int failed = editor->offered ? el_insertstr(edit, editor->offered) : 0;
    mem_free(editor->offered);
    editor->offered = NULL;
    return failed ? CC_ERROR : CC_REFRESH;
}

#define OFFER_KEY L"\033[299~"

static void bind_keys(EditLine *edit) {
    static const wchar_t *const keys[][2] = {
        {L"\\e[200~", L"tandem-paste"},      {L"\\e[299~", L"tandem-offer"},
        {L"\\e\\r", L"tandem-newline"},      {L"\\e\\n", L"tandem-newline"},
        {L"^R", L"em-inc-search-prev"},      {L"^W", L"ed-delete-prev-word"},
        {L"\\e[H", L"ed-move-to-beg"},       {L"\\e[F", L"ed-move-to-end"},
        {L"\\e[1~", L"ed-move-to-beg"},      {L"\\e[4~", L"ed-move-to-end"},
        {L"\\e[3~", L"ed-delete-next-char"}, {L"\\e[1;5D", L"ed-prev-word"},
        {L"\\e[1;5C", L"em-next-word"},
    };
    el_wset(edit, EL_ADDFN, L"tandem-paste", L"Insert a paste", insert_paste);
    el_wset(edit, EL_ADDFN, L"tandem-newline", L"Insert a newline", insert_newline);
    el_wset(edit, EL_ADDFN, L"tandem-offer", L"Insert a text", insert_offer);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        el_wset(edit, EL_BIND, keys[i][0], keys[i][1], NULL);
}

// ---- History ------------------------------------------------------------------------------------

static void load_history(struct line_editor *editor) {
    HistEvent event;
    history(editor->history, &event, H_SETSIZE, HISTORY_LINES);
    history(editor->history, &event, H_SETUNIQUE, 1);
    if (editor->history_path) history(editor->history, &event, H_LOAD, editor->history_path);
}

// Only the person may read what he has typed.
static FILE *open_history(const char *path) {
    char folder[PATH_MAX];
    struct err ignored;
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash) return NULL;
    *slash = 0;
    if (file_make_folders(folder, &ignored)) return NULL;
    FILE *out = fopen(path, "ae");
    if (out) (void)fchmod(fileno(out), S_IRUSR | S_IWUSR);
    return out;
}

void line_editor_remember(struct line_editor *editor, const char *text) {
    HistEvent event;
    if (history(editor->history, &event, H_ENTER, text) < 0 || !editor->history_path) return;
    FILE *out = open_history(editor->history_path);
    if (!out) return;
    // Each line is appended, so that two conversations at once keep both.
    history(editor->history, &event, H_NSAVE_FP, (size_t)1, out);
    fclose(out);
}

// ---- Opening, reading, closing ------------------------------------------------------------------

// Nothing shows until the next line is read. libedit's own mode changes keys of the terminal too,
// which a handler of signals could not restore.
static void hide_typing(struct line_editor *editor) {
    editor->hides = signal_hide_typing();
    if (!editor->hides) el_set(editor->edit, EL_PREP_TERM, 1);
}

// libedit turns characters into bytes by the locale. A system without one has UTF-8 here still.
static void take_locale(void) {
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

static enum status fill(struct line_editor *editor, const char *history_path, struct err *e) {
    take_locale();
    editor->edit = el_init("tandem", stdin, stderr, stderr);
    editor->history = history_init();
    if (history_path) editor->history_path = mem_text(history_path, strlen(history_path));
    if (!editor->edit || !editor->history || (history_path && !editor->history_path))
        return err_memory(e, sizeof *editor, "the line editor");
    EditLine *edit = editor->edit;
    el_set(edit, EL_CLIENTDATA, editor);
    el_set(edit, EL_PROMPT, prompt_of);
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_SIGNAL, 0);
    el_wset(edit, EL_GETCFN, read_character);
    el_set(edit, EL_HIST, history, editor->history);
    bind_keys(edit);
    load_history(editor);
    return OK;
}

enum status line_editor_open(struct line_editor **out, const char *history_path, struct err *e) {
    *out = NULL;
    struct line_editor *editor = mem_alloc(1, sizeof *editor);
    if (!editor) return err_memory(e, sizeof *editor, "the line editor");
    if (fill(editor, history_path, e)) {
        line_editor_close(editor);
        return e->status;
    }
    int edits = 0;
    el_get(editor->edit, EL_EDITMODE, &edits);
    if (!edits) { // such as TERM=emacs
        line_editor_close(editor);
        return OK;
    }
    fputs(PASTES_MARKED, stderr);
    hide_typing(editor);
    if (editor->hides) signal_watch_ends();
    *out = editor;
    return OK;
}

// Leaves the terminal as it was before line_editor_open.
static void give_back(struct line_editor *editor) {
    if (editor->hides) signal_show_typing();
    el_set(editor->edit, EL_PREP_TERM, 0);
    fputs(PASTES_UNMARKED, stderr);
}

void line_editor_close(struct line_editor *editor) {
    if (!editor) return;
    if (editor->edit) {
        give_back(editor);
        el_end(editor->edit);
    }
    if (editor->history) history_end(editor->history);
    mem_free(editor->history_path);
    mem_free(editor->offered);
    mem_free(editor->pasted);
    mem_free(editor);
}

enum line_state line_editor_read(struct line_editor *editor, const char *prompt, const char **text,
                                 size_t *length) {
    int count = 0;
    editor->prompt = prompt;
    editor->stopped = editor->typed = false;
    follow_window(editor);
    if (editor->offered) el_wpush(editor->edit, OFFER_KEY);
    signal_begin_line();
    fputs(PASTES_MARKED, stderr);          // again: a shell may have been there in between
    el_set(editor->edit, EL_PREP_TERM, 1); // now, so that nothing is echoed on the way
    const char *line = el_gets(editor->edit, &count);
    hide_typing(editor);
    signal_end_line();
    const int end = end_of(editor);
    if (end) {
        give_back(editor);
        raise(end);
    }
    if (editor->stopped) {
        fputs("^C\n", stderr);
        return editor->typed ? LINE_DROPPED : LINE_ENDED;
    }
    if (!line || count <= 0) {
        fputc('\n', stderr);
        return LINE_ENDED;
    }
    *length = strlen(line);
    if (*length > 0 && line[*length - 1] == '\n') --*length;
    *text = line;
    return LINE_READ;
}

enum status line_editor_offer(struct line_editor *editor, const char *text, struct err *e) {
    mem_free(editor->offered);
    editor->offered = mem_text(text, strlen(text));
    return editor->offered ? OK : err_memory(e, strlen(text), "a line");
}
