/* word_wrap.c: see word_wrap.h. */
#include "runtime/cli/word_wrap.h"

#include "base/utf8.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

void word_wrap_begin(struct word_wrap *w, FILE *out, bool wanted) {
    *w = (struct word_wrap){.out = out, .follows = wanted && isatty(fileno(out))};
}

static void end_word(struct word_wrap *w) { w->word_bytes = 0, w->word_columns = 0; }

static void break_line(struct word_wrap *w) {
    fputc('\n', w->out);
    w->column = 0;
}

static void follow_window(struct word_wrap *w) {
    struct winsize size = {0};
    if (ioctl(fileno(w->out), TIOCGWINSZ, &size) != 0 || size.ws_col == w->width) return;
    w->width = size.ws_col;
    if (w->column < w->width) return;
    end_word(w);
    break_line(w);
}

// Takes the word to the next line, unless it has this one for itself.
static void move_word(struct word_wrap *w) {
    const bool alone = w->word_columns == w->column;
    if (w->word_columns > 0 && !alone) fprintf(w->out, "\033[%dD\033[K", w->word_columns);
    break_line(w);
    if (alone) {
        end_word(w);
        return;
    }
    fwrite(w->word, 1, w->word_bytes, w->out);
    w->column = w->word_columns;
}

// Writes a character of a word that takes so many columns.
static void write_letter(struct word_wrap *w, const char *text, size_t length, int32_t columns) {
    if (w->column + columns >= w->width) move_word(w);
    if (w->word_bytes + length > sizeof w->word) end_word(w);
    memcpy(w->word + w->word_bytes, text, length);
    w->word_bytes += length;
    w->word_columns += columns;
    w->column += columns;
    fwrite(text, 1, length, w->out);
}

static void write_one(struct word_wrap *w, const char *text, size_t length) {
    const uint32_t code = utf8_code(text, length);
    if (code == '\n') {
        end_word(w);
        break_line(w);
    } else if (code == ' ') {
        end_word(w);
        if (w->column + 1 >= w->width) {
            break_line(w); // the space would end the line, and shows nothing
            return;
        }
        w->column++;
        fputc(' ', w->out);
    } else if (code < ' ') {
        end_word(w);
        fwrite(text, 1, length, w->out);
    } else {
        write_letter(w, text, length, utf8proc_charwidth((utf8proc_int32_t)code));
    }
}

void word_wrap_write(struct word_wrap *w, const char *text, size_t length) {
    if (w->follows) follow_window(w);
    if (w->width < 2) {
        fwrite(text, 1, length, w->out);
        return;
    }
    while (length > 0) {
        const size_t step = utf8_step(text, length);
        write_one(w, text, step);
        text += step;
        length -= step;
    }
}
