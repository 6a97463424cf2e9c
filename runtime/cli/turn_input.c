/* turn_input.c: see turn_input.h. */
#include "runtime/cli/turn_input.h"

#include "base/mem.h"
#include "runtime/cli/cli_signal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// A terminal that edits lines itself drops what comes behind so many bytes, and says nothing.
enum { LOOK_MS = 200, TERMINAL_LINE_BYTES = 4095 };

static const char QUOTES[] = "\"\"\"";
enum { QUOTES_LENGTH = sizeof QUOTES - 1 };

// ---- Texts --------------------------------------------------------------------------------------

static enum status append(struct turn_text *t, const char *text, size_t length, struct err *e) {
    if (t->capacity - t->length <= length) {
        const size_t capacity = 2 * (t->length + length) + 256;
        char *grown = mem_resize(t->text, capacity, 1);
        if (!grown) return err_memory(e, capacity, "a line of input");
        t->text = grown;
        t->capacity = capacity;
    }
    memcpy(t->text + t->length, text, length);
    t->length += length;
    t->text[t->length] = 0;
    return OK;
}

static enum status clear(struct turn_text *t, struct err *e) {
    t->length = 0;
    return append(t, "", 0, e);
}

// Drops what comes behind length.
static void cut(struct turn_text *t, size_t length) {
    t->length = length;
    t->text[length] = 0;
}

static bool ends_with(const struct turn_text *t, const char *end, size_t length) {
    return t->length >= length && memcmp(t->text + t->length - length, end, length) == 0;
}

// ---- Lines --------------------------------------------------------------------------------------

// Waits for input or Ctrl-C, which leaves count 0 as the end of the input does. Looks for the
// signal now and then, since it may come just before the wait begins.
static enum status refill(struct turn_input *t, struct err *e) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    t->next = t->count = 0;
    while (!signal_seen()) {
        if (poll(&input, 1, LOOK_MS) <= 0) continue;
        const ssize_t count = read(STDIN_FILENO, t->input, sizeof t->input);
        if (count < 0 && errno != EINTR) return err_errno(e, errno, "standard input");
        if (count < 0) continue;
        t->count = (size_t)count;
        return OK;
    }
    return OK;
}

// Reads up to the byte end, which is not kept, or to the end of the input.
static enum status read_up_to(struct turn_input *t, char end, struct err *e) {
    if (clear(&t->line, e)) return e->status;
    while (true) {
        if (t->next == t->count && refill(t, e)) return e->status;
        if (t->count == 0) {
            const bool none = t->line.length == 0 || signal_seen();
            t->state = none ? LINE_ENDED : LINE_READ;
            return OK;
        }
        const char *at = t->input + t->next;
        const char *stop = end ? memchr(at, end, t->count - t->next) : NULL;
        const size_t length = stop ? (size_t)(stop - at) : t->count - t->next;
        if (append(&t->line, at, length, e)) return e->status;
        t->next += length + (stop != NULL);
        t->state = LINE_READ;
        if (stop) return OK;
    }
}

static enum status read_line(struct turn_input *t, const char *prompt, struct err *e) {
    if (t->editor) {
        const char *text;
        size_t length;
        t->state = line_editor_read(t->editor, prompt, &text, &length);
        if (t->state != LINE_READ) return OK;
        return clear(&t->line, e) ? e->status : append(&t->line, text, length, e);
    }
    if (t->terminal) fputs(prompt, stderr);
    if (read_up_to(t, '\n', e)) return e->status;
    if (ends_with(&t->line, "\r", 1)) cut(&t->line, t->line.length - 1); // lines of Windows
    if (t->terminal && t->state == LINE_ENDED) fputc('\n', stderr);
    if (t->terminal && t->line.length >= TERMINAL_LINE_BYTES) {
        fprintf(stderr,
                "tandem: this terminal cuts lines at %d characters; the line was not sent\n"
                "Give a long text by a pipe or -f FILE\n",
                TERMINAL_LINE_BYTES);
        t->state = LINE_DROPPED;
    }
    return OK;
}

// ---- Turns --------------------------------------------------------------------------------------

// Adds lines up to one that ends with """, or ends the turn where the input ends.
static enum status read_quoted(struct turn_input *t, struct err *e) {
    cut(&t->turn, t->turn.length - t->line.length);
    if (append(&t->turn, t->line.text + QUOTES_LENGTH, t->line.length - QUOTES_LENGTH, e))
        return e->status;
    while (!ends_with(&t->turn, QUOTES, QUOTES_LENGTH)) {
        if (read_line(t, ". ", e)) return e->status;
        if (t->state != LINE_READ) return OK;
        const bool first = t->turn.length == 0;
        if (append(&t->turn, "\n", !first, e) || append(&t->turn, t->line.text, t->line.length, e))
            return e->status;
    }
    cut(&t->turn, t->turn.length - QUOTES_LENGTH);
    return OK;
}

static enum status read_turn(struct turn_input *t, struct err *e) {
    if (read_line(t, "> ", e)) return e->status;
    if (t->state != LINE_READ) return OK;
    if (append(&t->turn, t->line.text, t->line.length, e)) return e->status;
    if (strncmp(t->line.text, QUOTES, QUOTES_LENGTH) == 0) return read_quoted(t, e);
    while (ends_with(&t->turn, "\\", 1)) {
        t->turn.text[t->turn.length - 1] = '\n';
        if (read_line(t, ". ", e)) return e->status;
        if (t->state != LINE_READ) return OK;
        if (append(&t->turn, t->line.text, t->line.length, e)) return e->status;
    }
    return OK;
}

static enum status read_whole(struct turn_input *t, struct err *e) {
    if (read_up_to(t, 0, e)) return e->status;
    return append(&t->turn, t->line.text, t->line.length, e);
}

// Ctrl-C in a line that goes on an earlier one drops both. At an empty line, where it may be meant
// for an answer that has just ended, it ends the program only if it comes twice.
static void answer_ctrl_c(struct turn_input *t) {
    if (t->turn.length == 0 && t->asked) return;
    if (t->turn.length == 0) fputs("Ctrl-C again, or Ctrl-D, ends the program.\n", stderr);
    t->asked = t->turn.length == 0;
    t->state = LINE_DROPPED;
}

enum status turn_input_next(struct turn_input *t, bool *ended, struct err *e) {
    do {
        if (clear(&t->turn, e)) return e->status;
        if (t->terminal || t->by_lines ? read_turn(t, e) : read_whole(t, e)) return e->status;
        if (t->terminal && t->state == LINE_ENDED && signal_seen())
            answer_ctrl_c(t);
        else
            t->asked = false;
        if (t->state == LINE_DROPPED) signal_watch(); // the Ctrl-C is answered
    } while (t->state == LINE_DROPPED);
    while (ends_with(&t->turn, "\n", 1)) cut(&t->turn, t->turn.length - 1);
    *ended = t->state == LINE_ENDED && t->turn.length == 0;
    if (t->editor && t->turn.length > 0) line_editor_remember(t->editor, t->turn.text);
    return OK;
}

enum status turn_input_offer(struct turn_input *t, struct err *e) {
    return t->editor ? line_editor_offer(t->editor, t->turn.text, e) : OK;
}

// ---- Opening and closing ------------------------------------------------------------------------

enum status turn_input_open(struct turn_input *t, const char *history_path, bool by_lines,
                            bool dumb, struct err *e) {
    *t = (struct turn_input){.terminal = isatty(STDIN_FILENO), .by_lines = by_lines};
    if (!t->terminal || dumb || !isatty(STDERR_FILENO)) return OK;
    if (line_editor_open(&t->editor, history_path, e)) return e->status;
    if (t->editor) signal_watch(); // a Ctrl-C must not leave the terminal as the editor needs it
    return OK;
}

void turn_input_close(struct turn_input *t) {
    line_editor_close(t->editor);
    mem_free(t->turn.text);
    mem_free(t->line.text);
    *t = (struct turn_input){0};
}
