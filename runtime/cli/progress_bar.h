/* progress_bar.h: a progress bar on one line of a terminal.
 *
 * Borrows its stream and owns nothing. Draws nothing if the stream is no terminal. Draws at most
 * ten times a second, so it may be called for every micro-batch, and no wider than the window. One
 * thread. Tested by tests/cli/cli_chat_terminal.sh, and by cli_usage.sh, where pipes are no
 * terminals and nothing is drawn.
 */
#ifndef TANDEM_RUNTIME_CLI_PROGRESS_BAR_H
#define TANDEM_RUNTIME_CLI_PROGRESS_BAR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct progress_bar {
    FILE *out;         // NULL: nothing is drawn
    const char *drawn; // what stands on the line, or NULL
    uint64_t last_ns;  // when
    bool hidden;       // nothing is drawn at present; set by the owner
};

// Draws on out if it is a terminal and wanted is set.
void progress_bar_init(struct progress_bar *bar, FILE *out, bool wanted);

// what: one word, kept by the caller. done of total; a finished bar disappears.
void progress_bar_show(struct progress_bar *bar, const char *what, uint64_t done, uint64_t total);

// Makes room for other output: erases the bar if one is drawn.
void progress_bar_clear(struct progress_bar *bar);

#endif
