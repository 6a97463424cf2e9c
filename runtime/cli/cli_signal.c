/* cli_signal.c: see cli_signal.h. */
#include "runtime/cli/cli_signal.h"

#include <signal.h>
#include <stddef.h>
#include <termios.h>
#include <unistd.h>

static const tcflag_t SHOWN = ICANON | ECHO | IEXTEN;
static const char PASTES_UNMARKED[] = "\033[?2004l";
static const int ENDS[] = {SIGTERM, SIGHUP, SIGQUIT};
enum { N_ENDS = sizeof ENDS / sizeof *ENDS };

static void on_interrupt(int number) { (void)number; }

// The second Ctrl-C, or another end, where the terminal hides what is typed: it shows again, and
// the signal ends the process as soon as this returns. All calls are safe in a handler.
static void end_shown(int number) {
    struct termios now;
    if (tcgetattr(STDIN_FILENO, &now) == 0) {
        now.c_lflag |= SHOWN;
        tcsetattr(STDIN_FILENO, TCSANOW, &now);
    }
    const ssize_t written = write(STDERR_FILENO, PASTES_UNMARKED, sizeof PASTES_UNMARKED - 1);
    (void)written;
    raise(number);
}

static void on_hidden_interrupt(int number) {
    struct sigaction action = {.sa_handler = end_shown, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

// Marks that a Ctrl-C came while a line was read, in a mode of the terminal that is not ours.
static void on_more(int number) { (void)number; }

static void on_interrupt_of_line(int number) {
    struct sigaction action = {.sa_handler = on_more};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

// Puts another handler in the place of the one that a signal has.
static void change_handler(int number, void (*from)(int), void (*to)(int), int flags) {
    struct sigaction now, action = {.sa_handler = to, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    if (sigaction(number, NULL, &now) == 0 && now.sa_handler == from)
        sigaction(number, &action, NULL);
}

static void change_ends(void (*from)(int), void (*to)(int)) {
    for (int i = 0; i < N_ENDS; i++) change_handler(ENDS[i], from, to, (int)SA_RESETHAND);
}

void signal_watch_ends(void) { change_ends(SIG_DFL, end_shown); }

void signal_begin_line(void) {
    change_handler(SIGINT, on_hidden_interrupt, on_interrupt_of_line, 0);
    change_ends(end_shown, on_interrupt);
}

// An end that came keeps its default action, by which signal_that_ends knows it.
void signal_end_line(void) {
    change_handler(SIGINT, on_interrupt_of_line, on_hidden_interrupt, 0);
    change_handler(SIGINT, on_more, end_shown, (int)SA_RESETHAND);
    change_ends(on_interrupt, end_shown);
}

int signal_that_ends(void) {
    struct sigaction now;
    for (int i = 0; i < N_ENDS; i++)
        if (sigaction(ENDS[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL) return ENDS[i];
    return 0;
}

bool signal_shows_typing(void) {
    struct termios now;
    return tcgetattr(STDIN_FILENO, &now) == 0 && (now.c_lflag & SHOWN) == SHOWN;
}

bool signal_hide_typing(void) {
    struct termios now;
    if (tcgetattr(STDIN_FILENO, &now) != 0 || (now.c_lflag & SHOWN) != SHOWN) return false;
    now.c_lflag &= ~SHOWN;
    return tcsetattr(STDIN_FILENO, TCSANOW, &now) == 0;
}

void signal_show_typing(void) {
    struct termios now;
    if (tcgetattr(STDIN_FILENO, &now) != 0) return;
    now.c_lflag |= SHOWN;
    tcsetattr(STDIN_FILENO, TCSANOW, &now);
}

static bool is_hidden(void) {
    struct termios now;
    return tcgetattr(STDIN_FILENO, &now) == 0 && (now.c_lflag & SHOWN) == 0;
}

void signal_watch(void) {
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND}, now;
    if (is_hidden()) action = (struct sigaction){.sa_handler = on_hidden_interrupt};
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGINT, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
        sigaction(SIGINT, &action, NULL);
}

bool signal_seen(void) {
    struct sigaction now;
    return sigaction(SIGINT, NULL, &now) == 0 &&
           (now.sa_handler == SIG_DFL || now.sa_handler == end_shown || now.sa_handler == on_more);
}
