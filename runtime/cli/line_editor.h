/* line_editor.h: lines that a person types at a terminal, with editing and a history.
 *
 * A struct line_editor owns the terminal's mode and its history from opening to closing: what is
 * typed or pasted meanwhile waits unseen for the next line. A paste becomes part of one line, with
 * its newlines. Two implementations, of which a build links one: line_editor_edit.c by libedit,
 * line_editor_none.c without. Must not know what lines mean. One thread. Tested by
 * tests/cli/cli_chat_terminal.sh.
 */
#ifndef TANDEM_RUNTIME_CLI_LINE_EDITOR_H
#define TANDEM_RUNTIME_CLI_LINE_EDITOR_H

#include "base/err.h"

enum line_state {
    LINE_READ,
    LINE_DROPPED, // Ctrl-C while something was typed
    LINE_ENDED,   // the end of the input, or Ctrl-C in an empty line
};

struct line_editor;

// Opens standard input and standard error, which must be a terminal, with the history of a file;
// NULL for history_path keeps none. *out is NULL where lines cannot be edited: a terminal that
// cannot move its cursor, or a build without libedit.
enum status line_editor_open(struct line_editor **out, const char *history_path, struct err *e);
void line_editor_close(struct line_editor *editor); // accepts NULL; restores the terminal

// Reads a line after the prompt. *text is without its end, lent until the next call, and set for
// LINE_READ only.
enum line_state line_editor_read(struct line_editor *editor, const char *prompt, const char **text,
                                 size_t *length);

// Adds a text to the history and to its file. A file that cannot be written is left alone.
void line_editor_remember(struct line_editor *editor, const char *text);

// The next line that is read begins with text, which the person may change.
enum status line_editor_offer(struct line_editor *editor, const char *text, struct err *e);

#endif
