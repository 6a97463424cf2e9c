/* word_wrap.h: breaks text for a terminal between words, although it comes in parts of words.
 *
 * Text shows at once. A word that reaches the end of the line is erased there and written anew on
 * the next one, so the end of the line is never reached. A window that becomes narrower begins a
 * new line, since where the terminal has put the old one is not known. Tabs and control characters
 * go through and are not counted. A struct word_wrap is a plain value and borrows its stream. One
 * thread. Tested by tests/runtime/test_word_wrap.c and tests/cli/cli_chat_terminal.sh.
 */
#ifndef TANDEM_RUNTIME_CLI_WORD_WRAP_H
#define TANDEM_RUNTIME_CLI_WORD_WRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { WRAP_WORD_BYTES = 256 };
struct word_wrap {
    FILE *out;
    bool follows;   // width is that of the window of out, whenever something is written
    int32_t width;  // columns of a line; below 2: nothing is broken
    int32_t column; // of the cursor
    // The word that is written now; a longer one is broken where the line ends.
    char word[WRAP_WORD_BYTES];
    size_t word_bytes;
    int32_t word_columns;
};

// Begins at column 0 of the window of out; nothing is broken if out is no terminal, or not wanted.
void word_wrap_begin(struct word_wrap *w, FILE *out, bool wanted);

// Writes whole characters in UTF-8.
void word_wrap_write(struct word_wrap *w, const char *text, size_t length);

#endif
