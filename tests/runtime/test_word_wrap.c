/* test_word_wrap.c: runtime/cli/word_wrap.h at an invented terminal: no word is broken that fits a
 * line, nothing reaches its end, and the words that show are those that were written. */
#include "runtime/cli/word_wrap.h"

#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LINES = 64, COLUMNS = 64 };

struct screen {
    uint32_t cells[LINES][COLUMNS];
    int line, column, widest;
};

// Does what a terminal does with the text, which holds no wide characters here.
static void show(struct screen *s, const char *text, size_t length) {
    while (length > 0) {
        const size_t step = utf8_step(text, length);
        int n = 0, used = 0;
        if (text[0] == '\n') {
            s->line++, s->column = 0;
            assert_true(s->line < LINES);
        } else if (sscanf(text, "\033[%dD%n", &n, &used) == 1 && used) {
            s->column -= n;
            assert_true(s->column >= 0);
            text += used, length -= (size_t)used;
            continue;
        } else if (strncmp(text, "\033[K", 3) == 0) {
            for (int i = s->column; i < COLUMNS; i++) s->cells[s->line][i] = 0;
            text += 3, length -= 3;
            continue;
        } else {
            assert_true(s->column < COLUMNS);
            s->cells[s->line][s->column++] = utf8_code(text, step);
            if (s->column > s->widest) s->widest = s->column;
        }
        text += step, length -= step;
    }
}

// Writes text in parts of so many characters to a terminal of that width; the screen as a text.
static const char *wrap(const char *text, int32_t width, int part) {
    static char out[LINES * (COLUMNS + 1) * 4];
    static struct screen screen;
    char *bytes = NULL;
    size_t size = 0, used = 0;
    FILE *file = open_memstream(&bytes, &size);
    struct word_wrap w = {.out = file, .width = width};
    for (size_t left = strlen(text); left > 0;) {
        size_t length = 0;
        for (int i = 0; i < part && length < left; i++)
            length += utf8_step(text + length, left - length);
        word_wrap_write(&w, text, length);
        text += length, left -= length;
    }
    fclose(file);
    screen = (struct screen){.line = 0};
    show(&screen, bytes, size);
    free(bytes);
    assert_true(width < 2 || screen.widest < width);
    for (int line = 0; line <= screen.line; line++) {
        for (int i = 0; i < COLUMNS && screen.cells[line][i]; i++)
            used += utf8_write(screen.cells[line][i], out + used);
        out[used++] = '\n';
    }
    out[used] = 0;
    return out;
}

static void test_words_stay_whole(void **state) {
    (void)state;
    static const struct {
        const char *text, *shown;
        int32_t width;
    } rows[] = {
        {"one two three four", "one two \nthree \nfour\n", 10},
        {"one two three four", "one two three four\n", 40},
        {"exactly nine", "exactly \nnine\n", 10},
        {"123456789 x", "123456789\nx\n", 10},
        {"a 1234567890123 b", "a \n123456789\n0123 b\n", 10},
        {"l1\n\nl2 word", "l1\n\nl2 \nword\n", 7},
        {"na\xc3\xafve na\xc3\xafve", "na\xc3\xafve \nna\xc3\xafve\n", 8},
        {"as it is, unbroken", "as it is, unbroken\n", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int part = 1; part < 20; part++)
            assert_string_equal(wrap(rows[i].text, rows[i].width, part), rows[i].shown);
}

static void test_long_words(void **state) {
    (void)state;
    char text[2 * WRAP_WORD_BYTES + 1];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    const char *shown = wrap(text, 30, 7);
    size_t letters = 0;
    for (; *shown; shown++) letters += *shown == 'x';
    assert_int_equal(letters, 2 * WRAP_WORD_BYTES);
}

static void test_no_terminal_is_not_broken(void **state) {
    (void)state;
    struct word_wrap w;
    FILE *file = tmpfile();
    assert_non_null(file);
    word_wrap_begin(&w, file, true);
    assert_int_equal(w.width, 0);
    fclose(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_stay_whole),
        cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_no_terminal_is_not_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
