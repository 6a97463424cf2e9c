/* cli_signal.h: tells whether Ctrl-C came, which does not end the process the first time.
 *
 * Keeps no variable: the system's own record says whether the signal came, because the handler does
 * nothing and goes away on its first use. A second Ctrl-C therefore ends the process, whatever it
 * is doing. Where the terminal hides what is typed, a last handler lets it show again before. One
 * thread. Tested by tests/cli/cli_usage.sh and cli_chat_terminal.sh.
 */
#ifndef TANDEM_RUNTIME_CLI_CLI_SIGNAL_H
#define TANDEM_RUNTIME_CLI_CLI_SIGNAL_H

#include <stdbool.h>

// From here on the first Ctrl-C only makes signal_seen true; reads that wait return with EINTR.
// Another call begins anew. A process that was started to ignore Ctrl-C goes on doing so.
void signal_watch(void);

// True if Ctrl-C came since signal_watch. Cheap enough for every token.
bool signal_seen(void);

// Lets the terminal of standard input keep what is typed, unseen, until it is read. False if it is
// no terminal in its usual mode; then nothing has changed. signal_watch comes behind it.
bool signal_hide_typing(void);
// Undoes that.
void signal_show_typing(void);
// True if the terminal of standard input shows what is typed and hands it over by lines.
bool signal_shows_typing(void);

// From here on the signals that end the process, unless it was started to ignore them, let the
// terminal show what is typed before.
void signal_watch_ends(void);

// While an editor reads a line, in a mode of its own, further Ctrl-Cs after the first one do not
// end the process: the editor sees the first one soon. Nor do the signals of signal_watch_ends.
void signal_begin_line(void);
void signal_end_line(void);
// The one of these that came since signal_begin_line, for which the process has to end, or 0.
int signal_that_ends(void);

#endif
