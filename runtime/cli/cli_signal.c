/* cli_signal.c: see cli_signal.h. */
#include "runtime/cli/cli_signal.h"

#include <signal.h>
#include <stddef.h>

static void on_interrupt(int number) { (void)number; }

void signal_watch(void) {
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND}, now;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGINT, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
        sigaction(SIGINT, &action, NULL);
}

bool signal_seen(void) {
    struct sigaction now;
    return sigaction(SIGINT, NULL, &now) == 0 && now.sa_handler == SIG_DFL;
}
