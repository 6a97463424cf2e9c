/* turn_input.h: the turns of a person: typed at a terminal, or read from a pipe or a file.
 *
 * At a terminal a turn is a line, or several: a line that ends with a backslash goes on in the next
 * one, and """ opens a text that ends with the next """. A pipe is one turn unless it is read by
 * lines, where the same rules join lines. A struct turn_input owns its texts and, at a terminal,
 * the line editor. One thread. Tested by tests/cli/cli_chat.sh and cli_chat_terminal.sh.
 */
#ifndef TANDEM_RUNTIME_CLI_TURN_INPUT_H
#define TANDEM_RUNTIME_CLI_TURN_INPUT_H

#include "base/err.h"
#include "runtime/cli/line_editor.h"

#include <stdbool.h>

enum { TURN_INPUT_BYTES = 4096 };

struct turn_text { // grows; owned
    char *text;    // terminated; NULL as long as nothing was added
    size_t length, capacity;
};

struct turn_input {
    struct line_editor *editor; // NULL: lines come as the system gives them
    bool terminal;              // a person sees a prompt
    bool by_lines;              // of a pipe
    bool asked;                 // the last Ctrl-C was at an empty line, and a line says how to end
    struct turn_text turn, line;
    enum line_state state;        // of the last line
    char input[TURN_INPUT_BYTES]; // read, but not used from next to count
    size_t next, count;
};

// history_path: where the lines of a terminal are kept; NULL: nowhere. dumb: the terminal edits no
// lines.
enum status turn_input_open(struct turn_input *t, const char *history_path, bool by_lines,
                            bool dumb, struct err *e);
void turn_input_close(struct turn_input *t); // accepts a zeroed one; leaves it zeroed

// Reads the next turn into t->turn. *ended: there is none, because the input ended or Ctrl-C came
// twice at an empty line (of a pipe, once).
enum status turn_input_next(struct turn_input *t, bool *ended, struct err *e);

// Lets the person change the last turn and give it anew, where there is a line editor.
enum status turn_input_offer(struct turn_input *t, struct err *e);

#endif
